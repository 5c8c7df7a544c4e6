"""What a user may set about replication, and the part of a store that replication needs."""

from __future__ import annotations

from typing import Protocol


class HaParameters(Protocol):
    """Replication settings as both sides read them, anew each time, so that a change is seen at once.

    Attributes:
        heartbeat_ms: idle time before either side says something (``haSendHeartbeatInterval``).
        housekeeping_ms: silence after which a connection ends (``haHousekeepingInterval``).
        batch_bytes: largest body of one frame (``haTransferBatchSize``).
        max_gap_bytes: how far a replica may be behind and count as in sync (``haMaxGapNotInSync``).
        file_bytes: size of a commit log file; an empty slave gets the last one.
        whole_log: give an empty slave the whole log instead.
        bytes_per_second: most bytes sent to one slave in a second (``maxHaTransferByteInSecond``); ``None`` for no
            limit (``haFlowControlEnable`` false).
        retry_ms: wait before the slave connects again.
        connect_timeout_ms: time for a connection to be made.
    """

    @property
    def heartbeat_ms(self) -> int: ...
    @property
    def housekeeping_ms(self) -> int: ...
    @property
    def batch_bytes(self) -> int: ...
    @property
    def max_gap_bytes(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def whole_log(self) -> bool: ...
    @property
    def bytes_per_second(self) -> int | None: ...
    @property
    def retry_ms(self) -> int: ...
    @property
    def connect_timeout_ms(self) -> int: ...


class ReplicatedLog(Protocol):
    """The part of a message store that replication reads and writes; offsets are bytes."""

    @property
    def max_physical_offset(self) -> int: ...
    @property
    def min_physical_offset(self) -> int: ...
    def slice(self, physical_offset: int, max_bytes: int) -> memoryview: ...
    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None: ...


class LogRepair(Protocol):
    """Puts a master's bytes into the holes of a log; offsets are bytes."""

    def differs_at(self, physical_offset: int, data: bytes | memoryview) -> int | None: ...
    async def write(self, physical_offset: int, data: bytes | memoryview) -> None: ...
    async def finish(self, end: int) -> None: ...


class ContinuedLog(ReplicatedLog, Protocol):
    """The part of a message store that a slave needs besides; offsets are bytes."""

    @property
    def hole(self) -> int | None: ...
    @property
    def stand_in(self) -> int | None: ...
    def intact_from(self) -> int: ...
    def drop_incomplete(self) -> int: ...
    def repair(self, start: int) -> LogRepair: ...
