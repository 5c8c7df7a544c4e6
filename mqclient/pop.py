"""Single pop requests, acknowledgements of what they brought, and longer times for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from understudy.format.json_dialect import dumps
from understudy.mqclient.popped import NOTHING, PoppedMessage, PopRequest, pop_fields, popped_messages
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode, ResponseCode

_HEADROOM_MS = 15_000  # a held request is answered late by a busy broker; only then the connection is doubted


async def pop(session: Session, wanted: PopRequest) -> list[PoppedMessage]:
    """Ask a broker for messages.

    Raises:
        BrokerError: the broker refused (no permission, unknown group, no timer, ...).
        NotConnectedError: no answer.
        RecordDamagedError: the answer cannot be cut into records, or names none of its handles.
    """
    answer = await session.call(
        session.master_address(wanted.broker_name),
        RequestCode.POP_MESSAGE,
        pop_fields(wanted, session.world.clock.wall_ms()),
        timeout_ms=wanted.hold_ms + _HEADROOM_MS,
        accept=(ResponseCode.SUCCESS, *NOTHING),
    )
    if answer.code in NOTHING:
        return []
    tags, accepts = wanted.subscription.tags, wanted.subscription.accepts
    return [
        each
        for each in popped_messages(wanted, answer)
        if not tags or each.message.damage or accepts(each.message.tags)
    ]


async def ack(session: Session, popped: PoppedMessage) -> None:
    """Say that a message is consumed; it does not come again. Raises :class:`ClientError`: it may come again."""
    await session.call(session.master_address(popped.receipt.broker_name), RequestCode.ACK_MESSAGE, popped.fields)


async def ack_all(session: Session, popped: Sequence[PoppedMessage]) -> None:
    """Say that several messages are consumed, in one request to each broker. Raises :class:`ClientError`."""
    by_broker: dict[str, list[PoppedMessage]] = {}
    for each in popped:
        by_broker.setdefault(each.receipt.broker_name, []).append(each)
    for broker_name, some in by_broker.items():
        body = dumps({"brokerName": broker_name, "acks": _batches(some)})
        await session.call(session.master_address(broker_name), RequestCode.BATCH_ACK_MESSAGE, None, body)


def _batches(popped: Iterable[PoppedMessage]) -> list[dict[str, Any]]:
    """Return the entries of a batch: one for what one pop got out of one queue."""
    entries: dict[tuple[str, str, str, int, int, int], dict[str, Any]] = {}
    bits: dict[tuple[str, str, str, int, int, int], int] = {}
    for each in popped:
        receipt, topic = each.receipt, each.message.topic
        key = (each.group, topic, receipt.retry, receipt.queue_id, receipt.start_offset, receipt.pop_ms)
        entries[key] = {
            "c": each.group, "t": topic, "r": receipt.retry, "so": receipt.start_offset, "q": receipt.queue_id,
            "rq": receipt.revive_queue, "pt": receipt.pop_ms, "it": receipt.invisible_ms,
        }  # fmt: skip
        bits[key] = bits.get(key, 0) | 1 << (receipt.offset - receipt.start_offset)
    for place, entry in entries.items():
        number = bits[place]
        entry["b"] = b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()
    return list(entries.values())


async def change_invisible(session: Session, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
    """Let a message belong to its consumer for *invisible_ms* from now on.

    Returns:
        The message with its new receipt, the only one that counts from now on.

    Raises:
        ClientError: the time is as it was.
    """
    receipt = popped.receipt
    answer = await session.call(
        session.master_address(receipt.broker_name),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        {**popped.fields, "invisibleTime": invisible_ms},
    )
    header = answer.ext or {}
    changed = attrs.evolve(
        receipt,
        start_offset=receipt.offset,
        pop_ms=int(header["popTime"]),
        invisible_ms=int(header["invisibleTime"]),
        revive_queue=int(header["reviveQid"]),
    )
    return attrs.evolve(popped, receipt=changed)
