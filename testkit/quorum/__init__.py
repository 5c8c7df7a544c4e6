"""The controller's quorum under faults, on virtual time."""
