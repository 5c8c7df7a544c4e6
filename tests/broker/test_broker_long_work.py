"""Single requests that would take long are done in pieces, or so much of them as there is time for."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, TypeVar, cast

import pytest
import trio
import trio.testing
from broker_rig import FakeConnection, NoNetwork, Rig, open_rig, properties, pull_header
from test_broker_pop import BATCH_ACK, prepare

from understudy.broker import hold as hold_module
from understudy.broker.admin.answers import MOST_ROWS
from understudy.broker.hold import PullHold
from understudy.broker.locks import QUEUES_OF_A_STEP, QueueLocks
from understudy.broker.parked_pulls import AT_ONCE, CONDITION_CHARACTERS, ParkedPull
from understudy.broker.processors.ack import SMALL_BATCH_BYTES
from understudy.broker.property_filter import CHARACTERS_OF_A_READ, PropertyFilter
from understudy.broker.sql_filter import expression
from understudy.broker.sql_filter.expression import Expression, compile_expression
from understudy.broker.topics import TopicConfig
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.runtime import pace
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import RealDisk
from understudy.runtime.pace import run_steps
from understudy.runtime.threads import InPlace
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.turns import turns_beside

T = TypeVar("T")


class Beside(InPlace):
    """Threads that tell whether they are at work."""

    working = False

    async def run(self, function: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        self.working = True
        try:
            return function()
        finally:
            self.working = False


def long_condition(number: int = 0, characters: int = 6_000) -> str:
    return " OR ".join([f"a = {number}"] * (characters // 10))


class TestConditions:
    async def test_a_read_asks_a_long_condition_of_few_messages_and_goes_on_behind_them(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"enablePropertyFilter": "true"}) as rig:
            rig.broker.topics.update([TopicConfig("T", 4, 4)])
            for number in range(200):
                rig.send("T", b"m", properties(a="7" if number == 150 else "1"))
            text = long_condition(7, 8_000)
            most = CHARACTERS_OF_A_READ // len(text)
            assert 1 <= most < 20
            offset, reads = 0, 0
            await rig.wait(rig.tell(11, pull_header("T", 0, 0, expressionType="SQL92", subscription=text)))  # known now
            while offset < 150:
                answer = rig.pull("T", 0, offset, expressionType="SQL92", subscription=text)
                found = int((answer.ext or {})["nextBeginOffset"])
                assert offset < found <= offset + most
                offset, reads = found, reads + 1
                if answer.body:
                    break
            assert answer.body
            assert reads >= 150 // most
            # A short one is asked of all of them at once.
            answer = rig.pull("T", 0, 0, expressionType="SQL92", subscription="a = 7")
            assert (answer.code, (answer.ext or {})["nextBeginOffset"]) == (0, "200")

    async def test_long_conditions_that_nobody_has_named_before_are_compiled_beside_the_loop(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beside, compiling = Beside(), list[bool]()

        def counted(text: str) -> Expression:
            compiling.append(beside.working)
            return compile_expression(text)

        monkeypatch.setattr(expression, "compile_expression", counted)
        world = World(SystemClock(), cast(Any, NoNetwork()), RealDisk(), Random(7), threads=beside)
        async with open_rig(str(tmp_path), {"enablePropertyFilter": "true"}, world=world) as rig:
            rig.broker.topics.update([TopicConfig("T", 4, 4)])
            rig.send("T", b"m", properties(a="7"))
            asked = []
            for number in range(8):
                more = {"expressionType": "SQL92", "subscription": long_condition(number + 100), "sysFlag": "4"}
                asked.append(rig.tell(11, pull_header("T", 0, 0, **more)))
                body = {"subscriptionData": {"expressionType": "SQL92", "subString": long_condition(number + 200)}}
                asked.append(rig.tell(46, None, json.dumps(body).encode()))
            asked.append(rig.tell(11, pull_header("T", 0, 0, expressionType="SQL92", subscription="( " * 300)))
            assert [20, 0] * 8 + [23] == [(await rig.wait(each)).code for each in asked]
            assert compiling == [True] * 17
            # a short one is compiled in place, and a long one that is known is not compiled at all
            rig.pull("T", 0, 0, expressionType="SQL92", subscription="a = 8")
            rig.pull("T", 0, 0, expressionType="SQL92", subscription=long_condition(107))
            assert compiling == [True] * 17 + [False]

    async def test_a_parked_pull_is_answered_by_the_condition_that_it_was_parked_with(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_rig(str(tmp_path), {"enablePropertyFilter": "true"}) as rig:
            rig.broker.topics.update([TopicConfig("T", 4, 4)])
            text = long_condition(7)
            more = {"expressionType": "SQL92", "subscription": text, "sysFlag": "6", "suspendTimeoutMillis": "15000"}
            held = rig.tell(11, pull_header("T", 0, 0, **more))
            await trio.testing.wait_all_tasks_blocked()
            assert len(rig.broker.hold) == 1

            def never(text: str) -> Expression:
                raise AssertionError(f"compiled again: {text[:20]}")

            monkeypatch.setattr(expression, "compile_expression", never)
            rig.broker.conditions._cache._kept.clear()  # more conditions were named since than are remembered
            rig.send("T", b"m", properties(a="7"))
            assert (await rig.wait(held)).code == 0

    async def test_many_long_conditions_are_not_asked_of_each_message_that_arrives(self) -> None:
        hold = PullHold(VirtualClock())
        asked: list[str] = []

        class Noted(PropertyFilter):
            def passes(self, properties: bytes) -> bool:
                asked.append("passes")
                return super().passes(properties)

        def park(text: str) -> ParkedPull:
            connection = cast(Connection, FakeConnection())
            each = ParkedPull(connection, Command(11), Noted(compile_expression(text)))
            hold.park(each, ("T", 0), 60_000)
            return each

        tagged = ParkedPull(cast(Connection, FakeConnection()), Command(11), frozenset({7}))
        hold.park(tagged, ("T", 0), 60_000)  # waits on, whatever the others do
        first = park(long_condition(1))
        hold.arrived("T", 0, 1, 0, 0, b"a\x012\x02")
        assert (asked, first.ready) == (["passes"], False)
        second = park(long_condition(2))
        assert CONDITION_CHARACTERS < len(long_condition(1)) * 2
        hold.arrived("T", 0, 2, 0, 0, b"a\x012\x02")
        assert (asked, first.ready, second.ready) == (["passes"], True, True)  # left to who answers
        third = park("a = 2")
        hold.arrived("T", 0, 3, 0, 0, b"a\x012\x02")
        assert (asked, third.ready) == (["passes"] * 2, True)  # those that left count no more
        assert not tagged.ready
        fourth, fifth = park(long_condition(4)), park(long_condition(5))
        hold.drop(fourth.connection)
        hold.arrived("T", 0, 4, 0, 0, b"a\x012\x02")
        assert (asked, fifth.ready) == (["passes"] * 3, False)

    async def test_pulls_that_cost_much_are_answered_for_some_milliseconds_at_once(self) -> None:
        class Clock(VirtualClock):
            now = 0.0

            def monotonic(self) -> float:
                return self.now

        clock = Clock()
        hold = PullHold(clock)
        answered = 0

        def answer(parked: ParkedPull) -> None:
            nonlocal answered
            answered += 1
            clock.now += cost

        hold.answer = answer
        for cost, expected in ((0.0, AT_ONCE), (hold_module.AT_ONCE_SECONDS / 3, 4), (1.0, 1)):
            answered = 0
            for _ in range(AT_ONCE):
                hold.park(ParkedPull(cast(Connection, FakeConnection()), Command(11), None), ("T", 0), 60_000)
            hold.arrived("T", 0, 1, 0, 0, None)
            hold.answer_ready()
            assert answered == expected
            cost = 0.0
            hold.answer_ready()


@pytest.mark.parametrize("entries", [4, 200])
async def test_a_large_batch_of_acknowledgements_is_taken_in_pieces(
    entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    async with open_rig(str(tmp_path)) as rig:
        prepare(rig)
        for _ in range(8):
            rig.send("T", b"x")
        bits = base64.b64encode(b"\x01").decode()
        entry = {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "pt": 1, "it": 5_000, "rq": 0, "b": bits}
        body = json.dumps({"brokerName": "broker-a", "acks": [entry] * entries}).encode()
        assert (len(body) > SMALL_BATCH_BYTES) is (entries == 200)

        async def acknowledge() -> None:
            answer = await rig.wait(rig.tell(BATCH_ACK, None, body))
            assert answer.code == 0, answer.remark

        assert (await turns_beside(acknowledge) >= entries) is (entries == 200)


async def longest_piece(rig: Rig, monkeypatch: pytest.MonkeyPatch, command: Callable[[], Command]) -> int:
    """Return how many Python functions were called at most between two turns of another task, while it was answered."""
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    calls, most = 0, 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def other() -> None:
        nonlocal calls, most
        while True:
            calls = 0
            await trio.lowlevel.checkpoint()
            most = max(most, calls)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        asked = command()
        sys.setprofile(count)
        try:
            answer = await rig.wait(asked)
        finally:
            sys.setprofile(None)
        nursery.cancel_scope.cancel()
    assert answer.code == 0, answer.remark
    return most


MANY = 6_000
ALL_QUEUES = [{"topic": "T", "brokerName": "broker-a", "queueId": number} for number in range(MANY)]
LONG_REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "lock": (41, {"clientId": "c", "consumerGroup": "g", "mqSet": ALL_QUEUES}),
    "unlock": (42, {"clientId": "c", "consumerGroup": "g", "mqSet": ALL_QUEUES}),
    "groups": (225, {"groupConfigList": [{"groupName": f"g{number}"} for number in range(MANY)]}),
    "topics": (18, {"topicConfigList": [{"topicName": f"t{n}", "readQueueNums": 1, "perm": 6} for n in range(MANY)]}),
    "heartbeat": (
        34,
        {
            "clientID": "c",
            "consumerDataSet": [
                {
                    "groupName": "g",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "subscriptionDataSet": [
                        {"topic": f"t{number}", "subString": "*", "subVersion": 1} for number in range(MANY)
                    ],
                }
            ],
        },
    ),
}


class Elsewhere(InPlace):
    """Threads whose work is not counted."""

    async def run(self, function: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        counting = sys.getprofile()
        sys.setprofile(None)
        try:
            return function()
        finally:
            sys.setprofile(counting)


@pytest.mark.parametrize("what", LONG_REQUESTS)
async def test_no_piece_of_a_long_request_grows_with_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, body = LONG_REQUESTS[what]
    world = World(SystemClock(), cast(Any, NoNetwork()), RealDisk(), Random(7), threads=Elsewhere())
    async with open_rig(str(tmp_path), world=world) as rig:
        data = json.dumps(body).encode()
        most = await longest_piece(rig, monkeypatch, lambda: rig.tell(code, {}, data))
        assert most < MANY, most
        tables = {"groups": rig.broker.groups.rows, "topics": rig.broker.topics.rows}
        if what in tables:
            assert len(tables[what]) >= MANY
        if what == "lock":
            assert rig.broker.locks.owner("g", ("T", "broker-a", MANY - 1), rig.broker.world.clock.wall_ms()) == "c"
        info = rig.broker.consumers.get("g")
        assert (info is not None and len(info.subscriptions) == MANY) is (what == "heartbeat")


@pytest.mark.parametrize(("code", "name"), [(18, "topicConfigList"), (225, "groupConfigList")])
async def test_a_list_that_is_too_long_for_one_piece_is_refused(code: int, name: str, tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rows = [{"topicName": f"n{number}", "groupName": f"n{number}"} for number in range(MOST_ROWS + 1)]
        answer = await rig.wait(rig.tell(code, {}, json.dumps({name: rows}).encode()))
        assert answer.code == 29 and f"a request may have {MOST_ROWS}: send them in several" in (answer.remark or "")
        assert rig.broker.topics.get("n0") is None and rig.broker.groups.find("n0") is None


def test_locks_that_nobody_refreshes_are_forgotten_in_steps() -> None:
    locks = QueueLocks(lifetime_ms=100)
    queues = [("T", "b", number) for number in range(4 * QUEUES_OF_A_STEP)]
    locks.lock("old", "c", queues, 0)
    locks.lock("new", "c", queues, 0)
    locks.lock("new", "c", queues[:5], 150)
    steps = locks.expiring(160)
    for _ in range(2):  # others lock and unlock meanwhile
        next(steps)
        locks.unlock("old", "c", queues[-2:])
        locks.lock("between", "c", queues, 160)
    assert 5 <= sum(1 for _ in steps) <= 9
    assert not locks.any_held("old", 160) and locks._groups.keys() == {"new", "between"}
    assert locks.any_held("new", 160) and not locks.any_held("new", 251)
    assert [locks.owner("new", queue, 160) for queue in queues[:6]] == ["c"] * 5 + [None]


def test_a_lock_in_steps_takes_what_others_have_left() -> None:
    locks = QueueLocks()
    queues = [("T", "b", number) for number in range(3 * QUEUES_OF_A_STEP)]
    first = locks.locking("g", "one", queues, 0)
    next(first)
    assert locks.lock("g", "two", queues, 0) == queues[QUEUES_OF_A_STEP:]
    locks.unlock("g", "two", queues[-1:])
    assert run_steps(first) == [*queues[:QUEUES_OF_A_STEP], queues[-1]]
