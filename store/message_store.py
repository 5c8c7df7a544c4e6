"""The message store of one broker: commit log, consume queues, index, flush, recovery, retention."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.status import Appended, AppendedBatch, GetResult, QueryResult

#: Called for every message that becomes readable, with topic, queue id, queue offset after it, tags code, store time in
#: milliseconds, and the raw properties (None when the message came by replication in the middle of a batch).
Arrival = Callable[[str, int, int, int, int, bytes | None], None]


class MessageStore:
    """The messages of one broker on one disk. Make it with :meth:`open`, keep :meth:`run` running, end with :meth:`close`.

    All calls without ``async`` return at once and never yield, so a caller needs no lock.
    """

    arrived: list[Arrival]
    """Called in order for every message that becomes readable; must cost next to nothing when nobody waits."""

    @classmethod
    async def open(cls, world: World, config: StoreConfig, store_host: tuple[str, int]) -> MessageStore:
        """Lock the folder, recover what is in it, and return a store that accepts calls.

        Args:
            world: clock and disk are used.
            config: settings.
            store_host: address and port that go into each record (``brokerIP1`` and ``listenPort``).

        *Errors*: ``DiskLockedError`` when another process holds the folder; ``OSError`` naming the path when it cannot
        be written. Damaged content is repaired or cut off and logged, it never prevents the start.
        """

    async def run(self) -> None:
        """Flush, note progress and delete old files until cancelled; asleep while nothing changes."""

    async def close(self) -> None:
        """Flush everything, write the checkpoint, remove the abort marker and give the folder back."""

    # Writing

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: bytes,
        born_ms: int,
        born_host: bytes,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        tags_code: int | None = None,
        tags: str | None = None,
        keys: str | None = None,
        uniq_key: str | None = None,
        now_ms: int | None = None,
    ) -> Appended:
        """Write one message and its queue and index entries.

        Args:
            topic: at most 127 bytes in UTF-8 (255 for a retry topic).
            queue_id: queue of the topic.
            body: stored as it is.
            properties: the properties string in UTF-8, see :func:`understudy.store.record.format_properties`.
            born_ms: the producer's time.
            born_host: producer's address and port, 8 or 20 bytes, see :func:`understudy.store.record.encode_host`.
            flag, sys_flag, reconsume_times, prepared_transaction_offset: go into the record; IPv6 bits are set here.
            tags_code: hash of the tags. None: tags, keys and unique key are all taken from *properties*. Given: they
                are taken from the next three arguments, which saves a search. Ignored for delay-level messages, whose
                queue entry holds the time of delivery.
            tags: the TAGS property.
            keys: the KEYS property, separated by spaces.
            uniq_key: the UNIQ_KEY property.
            now_ms: wall time, when the caller already asked the clock.

        *Errors*: :class:`PutRejected`; nothing is written then.
        """

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        born_ms: int,
        born_host: bytes,
        *,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        now_ms: int | None = None,
    ) -> AppendedBatch:
        """Write every message of a client batch; all of them or none.

        Args:
            body: messages in the batch encoding of the clients, see :func:`understudy.store.record.iter_batch`; flag
                and properties of each message are in there.

        Other arguments and *Errors* as in :meth:`append`; a broken encoding is MESSAGE_ILLEGAL.
        """

    @property
    def flushed_offset(self) -> int:
        """Bytes of the log before this physical offset survive a power loss."""

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        """Wait until :attr:`flushed_offset` reaches *offset*; False after *timeout_ms*. One sync serves all waiters."""

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        accept: Callable[[int], bool] | None = None,
        accept_record: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
        """Read messages of a queue from queue offset *offset*.

        Args:
            accept: filter by tags code; None takes all.
            accept_record: filter by raw record, asked after *accept*; None takes all.
        """

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that still has a message; 0 for an unknown queue."""

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next readable message will have; 0 for an unknown queue."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """Return the queue offset for a store time, clamped to what the queue holds.

        Args:
            boundary: ``lower``: first message stored at or after the time; ``upper``: last one at or before it.
        """

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time in milliseconds of a message of a queue; -1 when there is none."""

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time in milliseconds of the oldest message of a queue (None: of the log); -1 if empty."""

    def read(self, physical_offset: int) -> memoryview | None:
        """Return the record that starts at *physical_offset*, its checksum compared; None if there is no whole one."""

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, index_type: str | None = None
    ) -> QueryResult:
        """Find records by key.

        Args:
            index_type: ``T`` searches for tags, anything else for KEYS and UNIQ_KEY.
        """

    # Queues

    def queues(self) -> Iterable[tuple[str, int]]:
        """Return every queue that has a folder."""

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic; its records stay in the log until their files go."""

    def clean_unused(self, retain: set[str]) -> list[str]:
        """Delete the queues of every topic that is neither in *retain* nor a system topic; return those topics."""

    # Replication

    @property
    def max_physical_offset(self) -> int:
        """Byte after the last one written."""

    @property
    def min_physical_offset(self) -> int:
        """First byte of the first file; -1 for an empty log."""

    @property
    def confirm_offset(self) -> int:
        """Readers see messages that end at or before this physical offset."""

    def confirm_up_to(self, offset: int | None) -> None:
        """Hold messages that end after *offset* back from readers; None: show everything that is written."""

    def slice(self, physical_offset: int, max_bytes: int) -> memoryview:
        """Return raw log bytes from *physical_offset*, at most to the end of their file; empty when there are none."""

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Write bytes of a master's log at the end of ours and dispatch the records that are complete now.

        *Errors*: ``ValueError`` when *physical_offset* is not the end of our log (and the log is not empty).
        """

    def truncate_to(self, offset: int) -> None:
        """Forget every byte of the log from *offset* on, zero what stays of its file, and shorten queues and index."""

    # State

    @property
    def writable(self) -> bool:
        """Whether appends are accepted; False when closed, fenced or the disk is above its hard limit."""

    def set_writable(self, writable: bool) -> None:
        """Refuse (False) or accept (True) appends, for a role change or a fence."""

    def runtime_info(self) -> dict[str, str]:
        """Return figures for the broker's runtime info, with the reference's key names."""
