"""Up to where another replica's log is ours, when it tells no history: single records are compared.

A record holds its times and its unique key, so two different messages are never the same bytes. One question is enough
as long as the logs have not parted; otherwise the place is found by halving.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from understudy.broker.broker import Broker
from understudy.broker.replicated.rules import read_object
from understudy.container.preonline.asking import QUESTION_TIMEOUT_MS, ask
from understudy.container.preonline.handshake import Member
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.store.message_store import MessageStore


async def end_of_log(broker: Broker, member: Member) -> int:
    """Return where the log of *member* ends (bytes). Raises ``RemotingError``, ``RefusedError``."""
    return await _offset(broker, member, "commitLogMaxOffset")


async def beginning_of_log(broker: Broker, member: Member) -> int:
    """Return where the log of *member* begins (bytes). Raises ``RemotingError``, ``RefusedError``."""
    return await _offset(broker, member, "commitLogMinOffset")


async def is_active(broker: Broker, member: Member) -> bool:
    """Return whether *member* acts for its master now. Raises ``RemotingError``, ``RefusedError``."""
    return await _figure(broker, member, "brokerActive") == "true"


async def _offset(broker: Broker, member: Member, key: str) -> int:
    text = await _figure(broker, member, key)
    return int(text) if text.isdecimal() else 0


async def _figure(broker: Broker, member: Member, key: str) -> str:
    answer = await ask(broker, member, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = read_object(answer.body).get("table")
    return str(table.get(key, "")) if isinstance(table, Mapping) else ""


async def common_end(broker: Broker, member: Member) -> float:
    """Return the physical offset (bytes) where the log of *member* parts from ours.

    Infinity when one of them continues the other.

    Raises:
        RemotingError, RefusedError: *member* does not answer.
    """
    store, theirs = broker.store, await end_of_log(broker, member)
    last = _last_within(store, min(theirs, store.max_physical_offset))
    if last is None or await _same(broker, member, last):
        return math.inf
    # What begins before low is the same, what begins at high is not.
    low, high = max(store.min_physical_offset, 0), last
    while high - low > 1:
        middle = (low + high) // 2
        record = store.record_before(middle + 1)
        if record is None or record < low or await _same(broker, member, record):
            low = middle
        else:
            high = record
    return float(high)


def _last_within(store: MessageStore, end: int) -> int | None:
    """Return where the last record begins that is whole before *end*."""
    found = store.record_before(end)
    while found is not None:
        record = store.read(found)
        if record is not None and found + len(record) <= end:
            return found
        found = store.record_before(found)
    return None


async def _same(broker: Broker, member: Member, physical_offset: int) -> bool:
    """Return whether *member* has the same record at that offset."""
    command = request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)})
    answer = await broker.client.invoke_repeatable(member.address, command, QUESTION_TIMEOUT_MS)
    own = broker.store.read(physical_offset)
    return answer.code == ResponseCode.SUCCESS and own is not None and bytes(own) == answer.body
