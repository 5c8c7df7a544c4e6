"""Where a message goes that a slave may not store, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.identity import Identity
from understudy.broker.inner import InnerMessage
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.node import Node
from understudy.broker.role import Role
from understudy.broker.timer.request import TimerDoor
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.container.escape.bridge import Bridge
from understudy.container.escape.choice import (
    LATE,
    NoTarget,
    Queue,
    Remote,
    put_status,
    read_result,
    remote,
)
from understudy.container.escape.local import LocalNeighbour
from understudy.container.escape.neighbour import Found
from understudy.container.escape.parts import EscapeParts
from understudy.container.escape.remote import RemoteNeighbour
from understudy.format import names
from understudy.remoting.command import Command, request, response
from understudy.store.status import PutStatus
from understudy.testkit.sim.clock import VirtualClock

QUEUES = [Queue("a", 0), Queue("a", 1), Queue("b", 0), Queue("b", 1)]
MASTERS = {"a": "10.0.0.1:10911", "b": "10.0.0.2:10911"}


def always() -> bool:
    return True


def message(topic: str, queue_id: int = 0) -> InnerMessage:
    return InnerMessage(topic, queue_id, b"body", b"", 0, b"")


@attrs.define
class Master:
    """A master of the container: how many queues its topics have, and what was put there."""

    broker_name: str
    topics: dict[str, int]
    takes: bool = True
    refusal: PutStatus | None = None
    taken: list[tuple[str, int]] = attrs.field(factory=list)

    async def takes_messages(self) -> bool:
        await trio.lowlevel.checkpoint()  # as of a broker of another process
        return self.takes

    async def write_queues(self, topic: str) -> int:
        return self.topics.get(topic, 0)

    async def learn(self, row: TopicConfig) -> bool:
        self.topics[row.name] = row.write_queue_nums
        return True

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool]) -> list[PutStatus]:
        if not may():
            return [PutStatus.SERVICE_NOT_AVAILABLE] * len(messages)
        if self.refusal is not None:
            return [self.refusal] * len(messages)
        self.taken += [(each.topic, each.queue_id) for each in messages]
        return [PutStatus.PUT_OK] * len(messages)

    async def read(self, topic: str, queue_id: int, offset: int) -> Found:
        return Found(None, self.broker_name, False)


def bridge(*masters: Master) -> Bridge:
    """Return the escapes of a slave of ``own`` that knows a topic ``rare`` and may not look elsewhere."""
    topics = TopicTable(lambda: 0)
    topics.rows["rare"] = TopicConfig("rare", 2, 2)
    nothing = cast(Any, None)
    node = Node(
        Identity("c", "own", Role("SLAVE", 1), "10.0.0.9", 10911, ""),
        cast(Any, SimpleNamespace(broker=BrokerConfig(), store=MessageStoreConfig())),
        cast(Any, SimpleNamespace(clock=VirtualClock())),
    )
    parts = EscapeParts(node, nothing, list, topics, nothing, [])
    return Bridge(parts, Master("own", {}), lambda: masters)


async def test_masters_of_the_container_that_have_the_topic_take_it_and_the_own_group_never() -> None:
    masters = [
        Master("own", {"T": 4}),
        Master("without", {}),
        Master("hidden", {"T": 4}, takes=False),
        Master("full", {"T": 4}, refusal=PutStatus.SERVICE_NOT_AVAILABLE),
        Master("with", {"T": 2}),
    ]
    statuses = await bridge(*masters).put([message("T", 5), message("nowhere"), message("T", 2)], always)
    assert statuses == [PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.PUT_OK]
    assert [each.taken for each in masters] == [[], [], [], [], [("T", 1), ("T", 0)]]


DAY_MS = 86_400_000


@attrs.define
class Log:
    """Takes everything."""

    taken: list[tuple[str, bytes]] = attrs.field(factory=list)

    async def put(self, messages: Sequence[InnerMessage], may: Callable[[], bool]) -> list[PutStatus]:
        self.taken += [(each.topic, each.body) for each in messages]
        return [PutStatus.PUT_OK] * len(messages)


def beside(log: Log, most_days: int, waiting: int = 0) -> LocalNeighbour:
    """Return a master that keeps timer messages for *most_days*, while *waiting* wait for each second."""
    topics, nothing = TopicTable(lambda: 0), cast(Any, None)
    topics.rows["T"] = TopicConfig("T", 1, 1)
    keys = attrs.evolve(MessageStoreConfig(), timer_max_delay_sec=most_days * 86_400)
    door = TimerDoor(keys, 1000, Random(1), lambda: 0, lambda time_ms: waiting)
    return LocalNeighbour("a", lambda: True, topics, nothing, cast(Any, log), nothing, door, lambda: 0)


@pytest.mark.parametrize("waiting", [0, 1 << 40], ids=["too far ahead", "congested"])
async def test_a_timer_message_that_one_master_cannot_keep_holds_up_no_other_and_is_offered_onward(
    waiting: int,
) -> None:
    first, second = Log(), Log()
    messages = [
        InnerMessage("T", 0, b"first", b"", 0, b""),
        InnerMessage("T", 0, b"rests", b"TIMER_DELIVER_MS\x01%d\x02" % (2 * DAY_MS), 0, b""),
        InnerMessage("T", 0, b"last", b"", 0, b""),
    ]
    refusing = beside(first, 3 if waiting else 1, waiting)
    status = PutStatus.WHEEL_TIMER_FLOW_CONTROL if waiting else PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    assert await refusing.put(messages, always) == [PutStatus.PUT_OK, status, PutStatus.PUT_OK]
    first.taken.clear()
    escapes = bridge(*cast(Any, (refusing, beside(second, 3))))
    assert await escapes.put(messages, always) == [PutStatus.PUT_OK] * 3
    assert first.taken == [("T", b"first"), ("T", b"last")]
    assert second.taken == [(names.TIMER_TOPIC, b"rests")]


async def test_a_topic_that_no_master_has_is_learned_by_the_first_that_can() -> None:
    masters = [Master("own", {}), Master("first", {"T": 1}), Master("second", {"T": 1})]
    statuses = await bridge(*masters).put([message("rare", 1), message("T"), message("rare", 0)], always)
    assert statuses == [PutStatus.PUT_OK] * 3
    assert [each.taken for each in masters] == [[], [("T", 0), ("rare", 1), ("rare", 0)], []]


async def test_nothing_goes_anywhere_from_when_the_slave_does_not_act_any_more() -> None:
    masters = [Master("with", {"T": 2}), Master("without", {})]
    asked = iter((True, False))
    statuses = await bridge(*masters).put([message("T"), message("rare")], lambda: next(asked, False))
    assert statuses == [PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE]
    assert [each.taken for each in masters] == [[("T", 0)], []]


async def test_a_message_is_read_from_the_log_beside_it() -> None:
    escapes = bridge(Master("other", {}))
    assert (await escapes.read("other", "T", 0, 0)).why == "other"
    assert (await escapes.read("own", "T", 0, 0)).why == "own"
    assert await escapes.read("elsewhere", "T", 0, 0) == Found(None, "brokerAddress not found", True)


@given(st.integers(0, 1000), st.sampled_from([None, "topic/10.0.0.1:10911"]))
def test_the_other_group_gets_it(turn: int, specific: str | None) -> None:
    target = remote("a", QUEUES, MASTERS, turn, specific=specific)
    assert isinstance(target, Remote)
    assert (target.broker_name, target.address) == ("b", MASTERS["b"])


def test_messages_that_belong_together_find_the_same_queue_and_others_take_turns() -> None:
    same = {remote("x", QUEUES, MASTERS, turn, specific="key") for turn in range(20)}
    turns = {remote("x", QUEUES, MASTERS, turn) for turn in range(20)}
    assert (len(same), len(turns)) == (1, 4)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (remote("a", QUEUES, MASTERS, 0, allowed=False), PutStatus.SERVICE_NOT_AVAILABLE),
        (remote("a", QUEUES[:2], MASTERS, 0), PutStatus.PUT_TO_REMOTE_BROKER_FAIL),
        (remote("a", QUEUES, {}, 0), PutStatus.PUT_TO_REMOTE_BROKER_FAIL),
    ],
)
def test_without_a_target_the_status_says_so(target: Remote | NoTarget, status: PutStatus) -> None:
    assert isinstance(target, NoTarget)
    assert target.status is status
    assert target.why


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_in_a_log_but_not_safe_is_late_and_not_stored_yet(code: int) -> None:
    assert put_status(code) in LATE
    assert put_status(code) is not PutStatus.PUT_OK


@pytest.mark.parametrize(("code", "status"), [(0, PutStatus.PUT_OK), (14, PutStatus.PUT_TO_REMOTE_BROKER_FAIL)])
def test_every_other_answer_is_final(code: int, status: PutStatus) -> None:
    assert put_status(code) is status


@pytest.mark.parametrize(
    ("code", "expected"), [(19, ("no msg", False)), (20, ("no msg", False)), (1, ("other resp code", True))]
)
def test_what_a_pull_without_a_message_means(code: int, expected: tuple[str, bool]) -> None:
    assert read_result(code) == expected


@pytest.mark.parametrize("code", [19, 20, 21])
@pytest.mark.parametrize(
    ("ext", "lacks"),
    [
        ({"minOffset": "0", "maxOffset": "7"}, True),  # it has not come so far yet
        ({"minOffset": "0", "maxOffset": "8"}, True),  # it has a hole there, or a condition of its own
        ({"minOffset": "0", "maxOffset": "0"}, True),  # it has nothing of the queue
        ({"minOffset": "8", "maxOffset": "9"}, False),
        ({}, True),
        ({"minOffset": "x"}, True),
    ],
)
async def test_only_a_queue_that_begins_later_shows_that_a_message_is_gone(
    code: int, ext: dict[str, str], lacks: bool
) -> None:
    answer = response(request(11, {}), code, "nothing")
    answer.ext = ext

    async def invoke(*asked: object) -> Command:
        return answer

    node = SimpleNamespace(
        identity=SimpleNamespace(name="own", broker_id=1), world=SimpleNamespace(clock=VirtualClock())
    )
    parts = cast(Any, SimpleNamespace(node=node, client=SimpleNamespace(invoke=invoke)))
    assert await RemoteNeighbour(parts, "10.0.0.1:1").read("T", 0, 7) == Found(None, "no msg", False, lacks)
