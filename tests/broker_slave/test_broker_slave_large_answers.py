"""Large tables of a master are read in a thread, once, and only their rows are taken on the event loop."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from slave_rig import open_pair, run

from understudy.broker.replicated import acting_pops, packed
from understudy.broker.replicated.table import Answer
from understudy.broker.topics import TopicConfig
from understudy.remoting.bodies import LARGE_BODY_BYTES
from understudy.runtime.threads import InPlace
from understudy.testkit.waiting import until

TOPICS = 500


def test_large_answers_are_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    read, loads = list[object](), list[int]()

    async def noted(self: InPlace, function: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        before = len(loads)
        result = function()
        if len(loads) > before:
            read.append(result)
            del loads[before:]
        return result

    from understudy.broker.replicated import rules

    loads_of = rules.loads

    def counted(data: bytes) -> Any:
        loads.append(len(data))
        return loads_of(data)

    monkeypatch.setattr(InPlace, "run", noted)
    monkeypatch.setattr(rules, "loads", counted)

    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            pair.master.topics.update([TopicConfig(f"topic-{number}", 1, 1) for number in range(TOPICS)])
            for number in range(TOPICS):
                pair.master.offsets.commit("readers", f"topic-{number}", 0, number)
            await until(lambda: f"topic-{TOPICS - 1}" in pair.slave.topics.rows, 10)
            await until(lambda: pair.slave.offsets.query("readers", f"topic-{TOPICS - 1}", 0) == TOPICS - 1, 10)
            assert pair.master.topics.rows["topic-7"] == pair.slave.topics.rows["topic-7"]

    run(scenario)
    assert read, "nothing was read in a thread"
    assert all(size < LARGE_BODY_BYTES for size in loads), "a large answer was read on the loop"


def test_what_is_packed_is_unpacked_in_a_thread_whatever_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, in_thread = list[bool](), False

    async def noted(self: InPlace, function: Callable[[], Any]) -> Any:
        nonlocal in_thread
        await trio.lowlevel.checkpoint()
        in_thread = True
        try:
            return function()
        finally:
            in_thread = False

    body_of = acting_pops.body_of

    def seen(answer: Answer) -> bytes:
        unpacked.append(in_thread)
        return body_of(answer)

    monkeypatch.setattr(InPlace, "run", noted)
    monkeypatch.setattr(acting_pops, "body_of", seen)
    monkeypatch.setattr(packed, "PACKED_FROM_BYTES", 0)

    async def scenario(source: random.Random) -> None:
        async with open_pair(source):
            await until(lambda: bool(unpacked), 30)

    run(scenario)
    assert all(unpacked)
