"""Requests about large tables are worked on in pieces: others have their turn meanwhile."""

from __future__ import annotations

import pytest
import trio
from admin_rig import Rig

from understudy.format.json_dialect import loads
from understudy.runtime import pace

QUEUES = 300
ASKED = {"topic": "T", "group": "g", "consumerGroup": "g", "timestamp": "0", "isForce": "true", "compareGroup": "g"}


@pytest.mark.parametrize("code", [21, 43, 201, 202, 208, 222, 303, 308, 317])
async def test_others_have_their_turn_beside_a_large_answer(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    rig, turns = Rig(), 0
    rig.topic("T", QUEUES)
    rig.group("g")
    for number in range(QUEUES):
        rig.topic(f"T{number}")
        rig.group(f"g{number}")
        rig.offsets.commit("g", "T", number, 1)
        rig.offsets.commit(f"g{number}", f"T{number}", 0, 1)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        answer = await rig.ask(code, ASKED | {"isOrder": "false"})
        nursery.cancel_scope.cancel()
    assert 0 == answer.code, answer.remark
    assert turns >= QUEUES, turns


async def test_a_reset_of_all_queues_is_answered_and_waits_for_their_pulls() -> None:
    rig = Rig()
    rig.topic("T", QUEUES)
    rig.group("g")
    answer = await rig.ask(222, ASKED)
    table = loads(answer.body)["offsetTable"]
    assert (QUEUES, {0}) == (len(table), set(table.values()))
    assert [0] * QUEUES == [rig.offsets.pending_reset("g", "T", each) for each in range(QUEUES)]
    assert ["offsets"] == rig.saves.saved


async def test_cloning_the_offsets_of_very_many_queues_is_done_in_pieces_and_seen_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    rig, seen = Rig(), list[int]()
    queues = 5_000
    rig.topic("T", queues)
    rig.group("g")
    for number in range(queues):
        rig.offsets.commit("g", "T", number, 7)

    async def other() -> None:
        while True:
            seen.append(len(rig.offsets.queues("new", "T")))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        answer = await rig.ask(314, {"srcGroup": "g", "destGroup": "new", "topic": "T", "offline": "true"})
        nursery.cancel_scope.cancel()
    assert answer.code == 0
    assert rig.offsets.queues("new", "T") == dict.fromkeys(range(queues), 7)
    assert set(rig.offsets.stamps["T@new"]) == set(range(queues))
    assert set(seen) <= {0, queues}
    assert seen.count(0) >= 8
