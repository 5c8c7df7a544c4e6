"""Where a consumer's progress is kept: at the brokers for shared groups, in a file for broadcasting ones."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from typing import Protocol

import trio

from understudy.format.json_dialect import ObjectKey, loads
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.leaders import address_of
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, load_table, save_table

log = get_logger("mqclient.offsets")


class OffsetStore(Protocol):
    """Progress by queue. The offset is the position of the next message to consume."""

    def known(self, queue: MessageQueue) -> int | None:
        """Return the newest offset in memory."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, only_forward: bool = False) -> None:
        """Remember *offset* in memory; with *only_forward* a smaller one is ignored."""
        ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """Return the durable offset, ``None`` when there is none. Raises :class:`ClientError`."""
        ...

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Make the offsets in memory of *queues* durable; failures are logged and tried again with the next call."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory."""
        ...


class _InMemory:
    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def known(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, only_forward: bool = False) -> None:
        before = self._offsets.get(queue)
        if before == offset or (only_forward and before is not None and offset < before):
            return
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)


class BrokerOffsets(_InMemory):
    """Offsets at the brokers (RemoteBrokerOffsetStore.java).

    An offset is written when it has moved, and when another member of the group serves it now: that one may not know
    what was told to the former.

    Args:
        session: the client.
        group: consumer group.
    """

    def __init__(self, session: Session, group: str) -> None:
        super().__init__()
        self._session = session
        self._group = group
        self._told: dict[MessageQueue, tuple[str, int]] = {}

    def forget(self, queue: MessageQueue) -> None:
        super().forget(queue)
        self._told.pop(queue, None)

    async def stored(self, queue: MessageQueue) -> int | None:
        address = address_of(self._session, queue)
        answer = await self._session.call(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": self._group, **queue_fields(queue)},
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if answer.code != ResponseCode.SUCCESS:
            return None
        return int((answer.ext or {})["offset"])

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        # Side by side for each broker: one that does not answer must not hold up what others would take.
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        async with trio.open_nursery() as nursery:
            for mine in by_broker.values():
                nursery.start_soon(self._persist_one_after_the_other, mine)

    @trio.lowlevel.enable_ki_protection
    async def _persist_one_after_the_other(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            offset = self._offsets.get(queue)
            if offset is None:
                continue
            try:
                await self._write(queue, offset)
            except ClientError as error:
                log.warning("offset not stored", group=self._group, queue=queue, offset=offset, why=error)

    async def _write(self, queue: MessageQueue, offset: int) -> None:
        """Store *offset* at the broker now, unless it has it. Raises :class:`ClientError`."""
        address = address_of(self._session, queue)
        if self._told.get(queue) == (address, offset):
            return
        ext = {"consumerGroup": self._group, "commitOffset": offset, **queue_fields(queue)}
        try:
            await self._session.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:  # the topic was deleted: nobody will ask for the offset
                raise
        if queue in self._offsets:
            self._told[queue] = (address, offset)


class FileOffsets(_InMemory):
    """Offsets of one broadcasting client in a file (LocalFileOffsetStore.java).

    Args:
        disk: where the file is.
        folder: folder of this client and group; created when missing.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        super().__init__()
        self._disk = disk
        self._path = os.path.join(folder, "offsets.json")
        self._writing = trio.Lock()
        self._saved: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """Read the file. Raises :class:`ClientError` when it and its backup are unreadable."""

        def read() -> dict[MessageQueue, int]:
            self._disk.make_folder(os.path.dirname(self._path))
            table = load_table(self._disk, self._path).data or {}
            found = {}
            for key, offset in (table.get("offsetTable") or {}).items():
                queue = loads(key)
                found[MessageQueue(queue["topic"], queue["brokerName"], int(queue["queueId"]))] = int(offset)
            return found

        try:
            self._saved = await self._disk.in_thread(read)
            self._offsets = dict(self._saved)
        except (TableDamagedError, OSError) as error:
            raise ClientError(f"stored progress cannot be read: {error}") from error

    async def stored(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        async with self._writing:
            offsets = dict(self._offsets)
            if offsets == self._saved:
                return
            table = {"offsetTable": {queue_key(queue): offset for queue, offset in sorted(offsets.items())}}
            try:
                await self._disk.in_thread(lambda: save_table(self._disk, self._path, table))
            except OSError as error:
                log.warning("offsets not stored", path=self._path, why=error)
            else:
                self._saved = offsets

    def forget(self, queue: MessageQueue) -> None:
        """Keep the offset: the queue may come back, and no broker remembers it."""


def queue_fields(queue: MessageQueue) -> dict[str, object]:
    """Return the header fields that name *queue*."""
    return {"topic": queue.topic, "queueId": queue.queue_id, "bname": queue.broker_name}


def queue_key(queue: MessageQueue) -> ObjectKey:
    """Return *queue* as a key of a JSON map."""
    return ObjectKey({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic})


def queue_body(queue: MessageQueue) -> dict[str, object]:
    """Return *queue* as a JSON object."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def parse_queue(value: object) -> MessageQueue:
    """Return the queue in *value*, a JSON object or its text. Raises :class:`ClientError`."""
    fields = loads(value) if isinstance(value, (str, bytes)) else value
    if not isinstance(fields, dict):
        raise ClientError(f"{value!r} is no message queue")
    return MessageQueue(str(fields.get("topic")), str(fields.get("brokerName")), int(fields.get("queueId", -1)))
