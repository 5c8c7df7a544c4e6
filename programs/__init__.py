"""The programs: options, files and signals around the servers of the rooms below, which know nothing of each other."""
