"""The operators' command line: the names, options and tables of the reference's ``mqadmin``, with ``--json`` beside."""
