"""Exit codes of every command."""

AGREE = 0
DIFFER = 1
BAD_USAGE = 2
DAMAGED = 3
REFUSED = 4

DESCRIPTION = """exit codes:
  0  the replicas agree, the check found nothing, or the plan was carried out
  1  they differ: read the report; for plan commands: some changes are left
  2  bad usage, or Java or a package is missing
  3  an input is damaged: the report names path and byte offset, the rest was done
  4  refused: the plan is for other data, another cluster, or a running broker"""
