"""Batches of messages (320): checked as a whole, stored in one go, very large ones in pieces.

In a topic with batch queues a batch becomes one record, an *inner batch*, when its sender knows them: it sends an id
for the batch as a whole.

Source: SendMessageProcessor.java (sendBatchMessage).
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs

from understudy.broker import delay
from understudy.broker.processors.send_admission import Admission, TopicPlan
from understudy.broker.processors.send_properties import wants_wait
from understudy.format import json_dialect, names
from understudy.format.batch import BatchError, check_batch, cut_batch, holds_more_than, iter_batch
from understudy.format.properties import NAME_END, PAIR_END, find_property, format_properties, parse_properties
from understudy.format.record import FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, FLAG_TRANSACTION_MASK
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Lane
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import reply_head
from understudy.remoting.limits import LaneLimits
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace, run_steps
from understudy.store.properties_digest import KEYS
from understudy.store.status import AppendedBatch, PutRejected, PutStatus

if TYPE_CHECKING:
    from understudy.broker.processors.send import SendParts, SendProcessor

LARGE_BATCH_BYTES = 64 * 1024
LARGE_BATCH_MESSAGES = 1_000
"""Of a batch that is stored without others having their turn."""
PIECE_MESSAGES = 500
"""Of a larger one that are stored at once; some milliseconds."""
LARGE_BATCHES = "large batches"
LARGE_BATCH_LANE = LaneLimits(running=4, waiting=256)


@attrs.define
class Batch:
    """A batch that was admitted.

    Attributes:
        plan: of its topic.
        queue_id: where it goes.
        born_ms, born_host, sys_flag, reconsume_times: what its messages share.
        body: the messages.
    """

    plan: TopicPlan
    queue_id: int
    born_ms: int
    born_host: bytes
    sys_flag: int
    reconsume_times: int
    body: bytes


class SendBatches:
    """The batches among the sends of one broker.

    Args:
        parts: of the broker.
        admission: lets them in.
        sends: the sends of the same receives: what they count, wait for and answer is theirs, too.
    """

    def __init__(self, parts: SendParts, admission: Admission, sends: SendProcessor) -> None:
        self._parts = parts
        self._admission = admission
        self._sends = sends
        self._lane: Lane | None = None  # until the codes are registered

    def register(self, server: RemotingServer) -> None:
        """Take the lane of large batches of *server*."""
        self._lane = server.lane(LARGE_BATCHES, LARGE_BATCH_LANE)

    def send(
        self,
        plan: TopicPlan,
        connection: Connection,
        command: Command,
        queue_id: int,
        properties: str,
        born_ms: int,
        born_host: bytes,
        sys_flag: int,
        reconsume_times: int,
        now_ms: int,
        copies: int,
    ) -> Answer:
        """Store a batch that was let in so far, now or in pieces, and answer as :meth:`SendProcessor.send` does.

        Args:
            plan: what is known of the topic.
            connection: that waits for the answer.
            command: the send; its body is the batch.
            queue_id: of the queue that it goes to.
            properties: of the batch as a whole, as the request has them.
            born_ms: when it was sent (wall time of the client).
            born_host: address of the client, as records have it.
            sys_flag: of the messages.
            reconsume_times: how often they were consumed in vain.
            now_ms: wall time.
            copies: how many replicas must have it, the master included.
        """
        pairs = parse_properties(properties) if properties else {}
        topic = plan.row.name
        if topic.startswith(names.RETRY_PREFIX):
            raise self._admission.refused(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}"
            )
        if sys_flag & FLAG_TRANSACTION_MASK or delay.level_of(pairs) > 0:
            raise self._admission.refused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed or transactional; send its messages one by one"
            )
        batch = Batch(plan, queue_id, born_ms, born_host, sys_flag, reconsume_times, command.body)
        lane, size = self._lane, len(command.body)
        inner = plan.batch_queues and bool(pairs.get("UNIQ_KEY"))
        if (
            lane is not None
            and LARGE_BATCH_BYTES < size <= self._parts.node.options.store.max_message_size
            and holds_more_than(command.body, LARGE_BATCH_MESSAGES)
        ):
            return lane.submit(connection, command, partial(self._large_inner if inner else self._in_pieces, batch))
        if inner:
            try:
                count = run_steps(check_batch(command.body))
            except BatchError as error:
                raise self._broken(error) from None
            return self._inner(batch, connection, command, count, now_ms)
        first, offsets, end = self._append(batch, command.body, now_ms)
        if command.flag & ONEWAY_BIT:
            return None
        return self._answer(connection, command, batch, first, self._sends.message_ids.of(offsets), end, copies)

    def _append(self, batch: Batch, body: bytes, now_ms: int) -> AppendedBatch:
        """Store a batch, or a piece of it, and count it."""
        plan, queue_id = batch.plan, batch.queue_id
        if plan.compaction and not _all_have_keys(body):
            raise self._admission.no_key()
        try:
            stored = self._parts.store.append_batch(
                plan.row.name,
                queue_id,
                body,
                batch.born_ms,
                batch.born_host,
                sys_flag=batch.sys_flag,
                reconsume_times=batch.reconsume_times,
                now_ms=now_ms,
            )
        except PutRejected as error:
            raise self._admission.rejected(error) from None
        offsets = stored.physical_offsets
        self._sends.count(plan.count, queue_id, len(offsets), stored.end_offset - offsets[0] if offsets else 0)
        return stored

    def _inner(self, batch: Batch, connection: Connection, command: Command, count: int, now_ms: int) -> Answer:
        """Store a batch of *count* messages as one record, and answer.

        Args:
            batch: the batch.
            connection, command: as of :meth:`send`.
            count: messages in it.
            now_ms: wall time.
        """
        plan, text = batch.plan, (command.ext or {}).get("i") or ""
        topic, queue_id, sys_flag, pairs = self._admission.rewrite(
            command,
            plan,
            plan.row.name,
            batch.queue_id,
            f"{text}{'' if text.endswith(PAIR_END) else PAIR_END}INNER_NUM{NAME_END}{count}",
            batch.sys_flag | FLAG_INNER_BATCH | FLAG_NEED_UNWRAP,
            batch.reconsume_times,
            now_ms,
        )
        try:
            physical, size, first = self._parts.store.append(
                topic,
                queue_id,
                batch.body,
                format_properties(pairs).encode(),
                batch.born_ms,
                batch.born_host,
                sys_flag=sys_flag,
                reconsume_times=batch.reconsume_times,
                now_ms=now_ms,
            )
        except PutRejected as error:
            raise self._admission.rejected(error) from None
        except UnicodeEncodeError:
            raise self._admission.refused(
                ResponseCode.MESSAGE_ILLEGAL, "the properties are not valid Unicode text"
            ) from None
        self._sends.count(plan.count, queue_id, count, size)
        if command.flag & ONEWAY_BIT:
            return None
        copies = self._sends.copies_of(text)
        ids = self._sends.message_ids.of([physical])
        return self._answer(connection, command, batch, first, ids, physical + size, copies, inner=True)

    async def _large_inner(self, batch: Batch, connection: Connection, command: Command) -> Answer:
        """Check a batch of very many messages while others have their turn, and store it as one record."""
        world = self._parts.node.world
        async with Pace(world) as pace:
            try:
                count = await pace.run(check_batch(batch.body))
            except BatchError as error:
                raise self._broken(error) from None
        now_ms = world.clock.wall_ms()
        if self._admission.refusal is not None:
            raise self._admission.unready(now_ms)
        batch.plan = self._admission.admit(command.ext or {}, batch.plan.row.name)
        led = batch.plan.led
        if led is not None and not led.leads(batch.queue_id):  # it has moved meanwhile
            raise led.not_led(int((command.ext or {}).get("e") or -1))
        self._sends.begin_receive(now_ms)
        try:
            return self._inner(batch, connection, command, count, now_ms)
        finally:
            self._sends.end_receive()

    async def _in_pieces(self, batch: Batch, connection: Connection, command: Command) -> Answer:
        """Store a batch of very many messages in pieces, between which others have their turn.

        Each piece is stored as a batch of its own: other messages of the queue may come between them, and when the
        broker stops taking messages meanwhile, the sender is refused although the first pieces are stored.
        """
        body, ext = batch.body, command.ext or {}
        async with Pace(self._parts.node.world) as pace:
            try:
                ends = await pace.run(cut_batch(body, PIECE_MESSAGES))
            except BatchError as error:
                raise self._broken(error) from None
            first, ids, last = -1, list[bytes](), 0
            for begin, end in pairwise([0, *ends]):
                now_ms = self._parts.node.world.clock.wall_ms()
                if self._admission.refusal is not None:
                    raise self._admission.unready(now_ms)
                batch.plan = self._admission.plans.get(batch.plan.row.name) or self._admission.admit(
                    ext, batch.plan.row.name
                )
                led = batch.plan.led
                if led is not None and not led.leads(batch.queue_id):  # it has moved since the last piece
                    raise led.not_led(int(ext.get("e") or -1))
                self._sends.begin_receive(now_ms)
                try:
                    start, offsets, last = self._append(batch, body[begin:end], now_ms)
                finally:
                    self._sends.end_receive()
                first = start if first < 0 else first
                ids.append(self._sends.message_ids.of(offsets))
                await pace.breathe()
        if command.flag & ONEWAY_BIT:
            return None
        copies = self._sends.copies_of(ext.get("i") or "")
        return self._answer(connection, command, batch, first, b",".join(ids), last, copies)

    def _broken(self, error: BatchError) -> CommandError:
        return self._admission.rejected(PutRejected(PutStatus.MESSAGE_ILLEGAL, str(error)))

    def _answer(
        self,
        connection: Connection,
        command: Command,
        batch: Batch,
        first: int,
        ids: bytes,
        end: int,
        copies: int,
        *,
        inner: bool = False,
    ) -> Answer:
        """Answer a batch that is stored, or let it wait until it is safe."""
        pairs = parse_properties((command.ext or {}).get("i") or "")
        unique = pairs.get("UNIQ_KEY")
        queue_id, led = batch.queue_id, batch.plan.led
        if led is not None:
            queue_id, first = led.told(queue_id, first)
        fields = [b"transactionId", b"batchUniqId"] if inner else [b"transactionId"]
        answer_ext = self._sends.forms.batch % (
            queue_id,
            b"".join(b'"%b":%b,' % (field, json_dialect.dumps(unique)) for field in fields) if unique else b"",
            ids,
            first,
        )
        answer = reply_head(command.opaque or 0, 0, answer_ext, 0)
        if self._sends.waits and wants_wait(pairs):
            return self._sends.park(end, connection, answer, copies)
        return answer


def _all_have_keys(body: bytes) -> bool:
    """Whether each message of a batch has KEYS; of one that is broken the store says what is wrong."""
    try:
        return all(
            (find_property(body[at + length + 2 : end], KEYS) or b"").strip() for _, at, length, end in iter_batch(body)
        )
    except BatchError:
        return True
