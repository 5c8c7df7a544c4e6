"""What a caller of the quorum must be able to tell apart."""

from __future__ import annotations


class NotLeaderError(Exception):
    """This member does not lead (or not yet); *leader* is the member that does, when known."""

    def __init__(self, leader: str | None) -> None:
        super().__init__(f"not the leader; the leader is {leader or 'unknown'}")
        self.leader = leader


class OutcomeUnknownError(Exception):
    """The command may or may not be applied: repeat it with the same client and sequence."""


class CommandRefusedError(Exception):
    """The state machine refused the command; every member refused it alike."""


class FatalError(Exception):
    """This member must stop: going on could break what the quorum promised. The message says why and how to return."""


class DamagedFileError(FatalError):
    """A durable file cannot be trusted; the message says which, what is wrong and how to rejoin."""


class CannotWriteError(FatalError):
    """The disk took nothing more; what reached it is known only after a restart has read it again.

    Args:
        folder: where was written.
        error: what the operating system said.
    """

    def __init__(self, folder: str, error: OSError) -> None:
        super().__init__(
            f"cannot write to {folder}: {error.strerror or error}; make room or repair the disk, then start this "
            "controller again"
        )


class QuorumBusyError(Exception):
    """Too many commands wait for replication; try again later."""
