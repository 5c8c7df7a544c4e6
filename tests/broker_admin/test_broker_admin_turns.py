"""Requests about large tables are worked on in pieces: others have their turn meanwhile."""

from __future__ import annotations

import json

import attrs
import pytest
from admin_rig import Rig

from understudy.broker.admin import cluster_queues
from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import loads
from understudy.runtime import pace
from understudy.testkit.turns import in_each_turn, turns_beside

QUEUES = 300
ASKED = {"topic": "T", "group": "g", "consumerGroup": "g", "timestamp": "0", "isForce": "true", "compareGroup": "g"}


@pytest.mark.parametrize("code", [21, 43, 201, 202, 208, 222, 303, 308, 317])
async def test_others_have_their_turn_beside_a_large_answer(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    rig = Rig()
    rig.topic("T", QUEUES)
    rig.group("g")
    for number in range(QUEUES):
        rig.topic(f"T{number}")
        rig.group(f"g{number}")
        rig.offsets.commit("g", "T", number, 1)
        rig.offsets.commit(f"g{number}", f"T{number}", 0, 1)

    async def ask() -> None:
        answer = await rig.ask(code, ASKED | {"isOrder": "false"})
        assert 0 == answer.code, answer.remark

    assert await turns_beside(ask) >= QUEUES


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

    async with in_each_turn(lambda: seen.append(len(rig.offsets.queues("new", "T")))):
        answer = await rig.ask(314, {"srcGroup": "g", "destGroup": "new", "topic": "T", "offline": "true"})
    assert answer.code == 0
    assert rig.offsets.queues("new", "T") == dict.fromkeys(range(queues), 7)
    assert set(rig.offsets.stamps["T@new"]) == set(range(queues))
    assert set(seen) <= {0, queues}
    assert seen.count(0) >= 8


def listed(count: int, **more: object) -> bytes:
    rows = [{"topicName": f"T{number}", "readQueueNums": 1, "perm": 6} | more for number in range(count)]
    return json.dumps({"topicConfigList": rows}).encode()


async def test_a_long_list_of_topics_is_checked_in_pieces_and_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    rig, made = Rig(), list[int]()
    before = len(rig.topics.rows)
    async with in_each_turn(lambda: made.append(len(rig.topics.rows) - before)):
        answer = await rig.ask(18, body=listed(QUEUES))
    assert (0, QUEUES) == (answer.code, len(rig.topics.rows) - before), answer.remark
    assert set(made) <= {0, QUEUES}
    # when each row is read, and again when it is checked against the table
    assert made.count(0) >= 2 * QUEUES


async def test_a_topic_that_changes_while_a_list_is_checked_keeps_what_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    rig, turns = Rig(), 0
    rig.topic("T0")

    def change() -> None:
        nonlocal turns
        turns += 1
        if turns == QUEUES + QUEUES // 2:  # the rows are read, and the first of them is checked
            rig.topics.update([TopicConfig("T0", 9, 9, attributes={"message.type": "FIFO"})])

    async with in_each_turn(change):
        answer = await rig.ask(18, body=listed(QUEUES))
    row = rig.topics.get("T0")
    assert row is not None and turns > QUEUES + QUEUES // 2
    assert (0, 1, {"message.type": "FIFO"}) == (answer.code, row.read_queue_nums, row.attributes)


async def test_the_queues_of_a_wide_topic_are_named_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(cluster_queues, "QUEUES_OF_A_PIECE", 1)
    rig, turns = Rig(), list[int]()
    rig.topic("T", QUEUES)
    question = {"topic": "T", "consumerGroup": "nobody", "clientId": "c", "messageModel": "CLUSTERING"}
    async with in_each_turn(lambda: turns.append(1)):
        answer = await rig.ask(400, body=json.dumps(question | {"strategyName": "AVG"}).encode())
    assert 0 == answer.code, answer.remark
    assert len(turns) >= QUEUES


async def test_the_retry_topics_of_a_deleted_topic_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    rig, made = Rig(), list[int]()
    rig.topic("T")
    retries = [f"%RETRY%g{number}+T" for number in range(QUEUES)]
    for number, retry in enumerate(retries):
        rig.topic(retry)
        rig.offsets.commit(f"g{number}", "T", 0, 1)
    last = rig.topics.rows[retries[-1]]

    def look() -> None:
        left = sum(retry in rig.topics.rows for retry in retries)
        if left <= QUEUES // 2 and not made:  # the topic is made again, and so is one that it brings along
            made.append(left)
            rig.topics.update([attrs.evolve(last, perm=4)])

    async with in_each_turn(look):
        answer = await rig.ask(215, {"topic": "T"})
    assert 0 == answer.code, answer.remark
    assert made > [1]
    assert {retries[-1]} == {retry for retry in retries if retry in rig.topics.rows}
    assert ["T", *retries[:-1]] == rig.broker.store.deleted
