"""Whether all replicas of a group have the same offsets: how far consumer groups and delayed messages have come.

A slave copies both from its master, so replicas are asked until all answer the same. What differs after long is read
again, or never, when another one leads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from understudy.broker.replicated.rules import ReplicaTableError, read_levels, read_offsets
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.testkit.history import Verdict, Violation

DIFFERENT_OFFSETS = "offsets"
"""The rule of its violations."""
EQUAL_SECONDS = 160.0
"""Longer than real slaves need. Those of a led group copy every ten seconds, others once a minute, and only from when
they register again, half a minute after their master is back."""
DELAYED = "delayed messages"
_ASK_MS, _PAUSE_SECONDS = 1_000, 0.5

Place = tuple[str, str]
"""Whose progress it is, and in which queue."""
Offsets = Mapping[Place, int]


def offsets_in(consumers: bytes, levels: bytes) -> Offsets:
    """Return all offsets of a replica by their places; a delay level that has none is at 0.

    Args:
        consumers: body of the answer that has all consumer offsets (43).
        levels: body of the answer that has the offset of each delay level (45).

    Raises:
        ReplicaTableError: one of them cannot be read.
    """
    found: dict[Place, int] = {}
    for key, queues in read_offsets(consumers).table.items():
        topic, _, group = key.partition("@")
        found |= {(group, f"{topic}, queue {queue_id}"): offset for queue_id, offset in queues.items()}
    return found | {(DELAYED, f"level {level}"): offset for level, offset in read_levels(levels)[0].items() if offset}


def differing(offsets: Mapping[str, Offsets | None]) -> list[Violation]:
    """Return a violation for each place where replicas differ, with the value of each.

    Args:
        offsets: of each replica, by its name; ``None``: it has not answered.
    """
    silent = [name for name, table in offsets.items() if table is None]
    if silent:
        return [Violation(DIFFERENT_OFFSETS, f"{', '.join(silent)} did not say how far consumers have come")]
    tables = {name: table for name, table in offsets.items() if table is not None}
    found = []
    for whose, queue in sorted({place for table in tables.values() for place in table}):
        values = {name: table.get((whose, queue)) for name, table in tables.items()}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{name} {'none' if value is None else value}" for name, value in values.items())
            found.append(Violation(DIFFERENT_OFFSETS, f"{whose} in {queue}: {said}", group=whose))
    return found


async def with_offsets(
    verdict: Verdict, ask: Mapping[str, Callable[[RequestCode], Awaitable[Command]]], seconds: float = EQUAL_SECONDS
) -> Verdict:
    """Return *verdict*, with a violation for each place where replicas differ, if they still do after *seconds*.

    Args:
        verdict: over what clients saw; they send no more.
        ask: asks a replica; by the replica's name.
        seconds: how long to wait for equal ones.
    """
    end = trio.current_time() + seconds
    while True:
        found = differing({name: await _offsets_of(question) for name, question in ask.items()})
        if not found or trio.current_time() >= end:
            return attrs.evolve(verdict, violations=(*verdict.violations, *found))
        await trio.sleep(_PAUSE_SECONDS)


def questions(
    client: RemotingClient, ports: Sequence[int], kinds: Sequence[str]
) -> dict[str, Callable[[RequestCode], Awaitable[Command]]]:
    """Return what asks each replica of a drill on this machine, for :func:`with_offsets`."""

    def to(port: int) -> Callable[[RequestCode], Awaitable[Command]]:
        return lambda code: client.invoke(f"127.0.0.1:{port}", request(code), _ASK_MS)

    return {f"replica {number} ({kinds[number]})": to(port) for number, port in enumerate(ports)}


def told(verdict: Verdict) -> str:
    """Return in a line whether the offsets of all replicas were equal."""
    count = sum(each.rule == DIFFERENT_OFFSETS for each in verdict.violations)
    return f"offsets of all replicas: {f'different in {count} places' if count else 'equal'}"


async def _offsets_of(ask: Callable[[RequestCode], Awaitable[Command]]) -> Offsets | None:
    try:
        consumers = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        levels = await ask(RequestCode.GET_ALL_DELAY_OFFSET)
        return offsets_in(consumers.body, levels.body) if consumers.code == levels.code == 0 else None
    except (RemotingError, ReplicaTableError):
        return None
