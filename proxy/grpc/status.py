"""How a call ends (statuscodes.md of gRPC)."""

from __future__ import annotations

from enum import IntEnum


class StatusCode(IntEnum):
    """The statuses that this server sends, under gRPC's names and numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class RpcError(Exception):
    """A call ends with a status that is not OK.

    Args:
        status: the status.
        message: one sentence for a person: what is wrong and what to do.
    """

    def __init__(self, status: StatusCode, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message
