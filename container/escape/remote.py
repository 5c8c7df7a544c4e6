"""A broker elsewhere as a neighbour: what is asked of it goes over the client.

Source: BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from understudy.broker import delay
from understudy.broker.inner import InnerMessage
from understudy.broker.timer import request as request_rules
from understudy.broker.transactions.half import UNIQUE, Half
from understudy.broker.transactions.judgement import Choice
from understudy.container.escape import choice
from understudy.container.escape.late import Fate, LateCopies, Stored, done
from understudy.container.escape.neighbour import Found, Prepared, first_record
from understudy.container.escape.parts import EscapeParts
from understudy.format import names
from understudy.format.properties import format_properties, parse_properties
from understudy.format.pull_flags import SUBSCRIPTION
from understudy.format.record import FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6, decode_offset_message_id
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.store.status import PutStatus

log = get_logger("container.escape.remote")

SEND_TIMEOUT_MS = 3_000
PULL_TIMEOUT_MS = 10_000
QUESTION_TIMEOUT_MS = 3_000
_PRODUCER_GROUP, _WAIT = "PGROUP", "WAIT"
_HOST_FLAGS = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6  # the target notes its own view of the hosts


class RemoteNeighbour:
    """A broker elsewhere.

    Args:
        parts: who asks.
        address: the broker's own, ``host:port``.
    """

    def __init__(self, parts: EscapeParts, address: str) -> None:
        self._parts = parts
        self._address = address

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool]) -> list[PutStatus]:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`; all are under way at once, in order.

        An answer takes no longer than :data:`SEND_TIMEOUT_MS` and the longest wait of a send for its disk and its
        copies, by the settings of the own group. What is stored late then takes as long as it does.
        """
        statuses = [PutStatus.PUT_TO_REMOTE_BROKER_FAIL] * len(messages)
        late: dict[int, Command] = {}
        connection = await self._connect()
        if connection is None:
            return statuses

        async def send(number: int, *, task_status: trio.TaskStatus[None]) -> None:
            command = send_request(self._parts, messages[number])
            task_status.started()  # the next one follows when this one is written
            answer = await self._ask(connection, command)
            if answer is not None:
                statuses[number] = choice.put_status(answer.code)
                if statuses[number] in choice.LATE:
                    late[number] = answer

        async with trio.open_nursery() as nursery:
            for number in range(len(messages)):
                if not may():
                    break
                await nursery.start(send, number)
        stored = sorted(late)
        safe = await self._safe([(messages[number], late[number]) for number in stored])
        for number, is_safe in zip(stored, safe, strict=True):
            statuses[number] = PutStatus.PUT_OK if is_safe else PutStatus.PUT_TO_REMOTE_BROKER_FAIL
        return statuses

    async def _safe(self, late: Sequence[tuple[InnerMessage, Command]]) -> list[bool]:
        """Return of messages and the answers that they are late, whether they are not to be put again."""
        if not late:
            return []
        parts = self._parts
        log.warning("stored late by a remote master, waiting for it", address=self._address, count=len(late))
        stored = [Stored(_place(answer), message.body, message.born_ms) for message, answer in late]
        copies = any(answer.code != ResponseCode.FLUSH_DISK_TIMEOUT for _, answer in late)
        fates = await LateCopies(parts.node.world.clock, parts.node.world.threads, self._question).fates(
            stored, copies=copies
        )
        promised = parts.node.options.store.flush_disk_type == "SYNC_FLUSH"
        found = [done(fate, promised=promised) for fate in fates]
        for fate in Fate:
            if fate in fates and fate is not Fate.SAFE:
                again = fate is Fate.GONE or promised
                log.warning("not known to be safe at a remote master", address=self._address, fate=fate, again=again)
        return found

    async def _question(self, command: Command) -> Command | None:
        try:
            return await self._parts.client.invoke(self._address, command, QUESTION_TIMEOUT_MS)
        except RemotingError:
            return None

    async def read(self, topic: str, queue_id: int, offset: int) -> Found:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        parts = self._parts
        ext = {
            "consumerGroup": f"InnerConsumerGroup_{parts.node.identity.name}_{parts.node.identity.broker_id}",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "1",
            "sysFlag": str(SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": str(parts.node.world.clock.wall_ms()),
            "expressionType": "TAG",
        }
        try:
            answer = await parts.client.invoke(self._address, request(RequestCode.PULL_MESSAGE, ext), PULL_TIMEOUT_MS)
        except RemotingError as error:
            return Found(None, str(error), True)
        if answer.code == ResponseCode.SUCCESS:
            return first_record([memoryview(answer.body)], "no msg", lacks=True)
        why, retry = choice.read_result(answer.code)
        return Found(None, why, retry, not retry and not choice.is_gone(answer.ext or {}, offset))

    async def prepare(self, half: InnerMessage, may: Callable[[], bool]) -> Prepared | None:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        connection = await self._connect()
        if connection is None or not may():
            return None
        answer = await self._ask(connection, _request(self._parts, half, parse_properties(half.properties)))
        status = PutStatus.PUT_TO_REMOTE_BROKER_FAIL if answer is None else choice.put_status(answer.code)
        if answer is None or (status is not PutStatus.PUT_OK and status not in choice.LATE):
            return None
        if status in choice.LATE and not (await self._safe([(half, answer)]))[0]:
            return None
        place, queue_offset = _place(answer), (answer.ext or {}).get("queueOffset", "")
        if place is None or not queue_offset.isdecimal():
            log.error("a remote master does not say where it put a half message", address=self._address)
            return None
        return Prepared(int(queue_offset), place)

    async def decide(self, half: Half, prepared: Prepared, decided: Choice) -> bool:
        """See :class:`~understudy.container.escape.neighbour.Neighbour`."""
        unique = half.pairs.get(UNIQUE, "")
        ext = {
            "topic": half.topic,
            "producerGroup": half.group or "",
            "tranStateTableOffset": str(prepared.queue_offset),
            "commitLogOffset": str(prepared.physical_offset),
            "commitOrRollback": str(int(decided)),
            "fromTransactionCheck": "true",
            "msgId": unique,
            "transactionId": unique,
        }
        connection = await self._connect()
        if connection is None:
            return False
        answer = await self._ask(connection, request(RequestCode.END_TRANSACTION, ext))
        return answer is not None and answer.code == ResponseCode.SUCCESS

    async def _connect(self) -> Connection | None:
        try:
            return await self._parts.client.connection(self._address, SEND_TIMEOUT_MS)
        except RemotingError as error:
            log.warning("not put to a remote master", address=self._address, why=error)
            return None

    async def _ask(self, connection: Connection, command: Command) -> Command | None:
        """Return what a remote master answers to what it shall store; ``None`` when it does not."""
        keys = self._parts.node.options.store
        timeout_ms = SEND_TIMEOUT_MS + max(keys.sync_flush_timeout, keys.slave_timeout)
        try:
            answer = await connection.invoke(command, timeout_ms)
        except RemotingError as error:
            log.warning("not put to a remote master", address=self._address, why=error)
            return None
        if choice.put_status(answer.code) not in (PutStatus.PUT_OK, *choice.LATE):
            log.warning("refused by a remote master", address=self._address, code=answer.code, why=answer.remark)
        return answer


def _place(answer: Command) -> int | None:
    """Return where a master stored what was sent, in bytes of its log; ``None`` when its answer does not say."""
    try:
        return decode_offset_message_id((answer.ext or {}).get("msgId", ""))[2]
    except ValueError:
        return None


def send_request(parts: EscapeParts, message: InnerMessage) -> Command:
    """Return the request that stores *message* in the queue it names.

    The target shall answer when the copy is as safe as the original was. So the sender's ``WAIT`` goes with it (differs
    because the reference never waits, and may lose what its own group had already copied), but not that of a retry,
    which the broker itself set when it had made the retry durable.
    """
    pairs = parse_properties(message.properties.decode("utf-8", "replace"))
    if delay.DELAY in pairs or not request_rules.asks(pairs):
        for name in (delay.DELAY, *delay.TIMER_REQUESTS):
            pairs.pop(name, None)  # it is due now
    if message.reconsume_times:
        pairs.pop(_WAIT, None)
    return _request(parts, message, pairs)


def _request(parts: EscapeParts, message: InnerMessage, pairs: dict[str, str]) -> Command:
    header = {
        "a": pairs.get(
            _PRODUCER_GROUP, f"InnerProducerGroup_{parts.node.identity.name}_{parts.node.identity.broker_id}"
        ),
        "b": message.topic,
        "c": names.DEFAULT_TOPIC,
        "d": "1" if message.topic.startswith(names.RETRY_PREFIX) else "8",  # who does not have a retry topic makes it
        "e": str(message.queue_id),
        "f": str(message.sys_flag & ~_HOST_FLAGS),
        "g": str(message.born_ms),
        "h": str(message.flag),
        "i": format_properties(pairs),
        "j": str(message.reconsume_times),
        "k": "false",
        "m": "false",
    }
    return request(RequestCode.SEND_MESSAGE_V2, header, message.body)
