"""The rules of slaves and of waiting sends, without a network: what is taken, who is a member, who is answered when."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker.acknowledgement import Acknowledgements
from understudy.broker.member_events import (
    Answered,
    AskAgain,
    AskOthers,
    Due,
    Event,
    Following,
    LoseMaster,
    Notice,
    Noticed,
    Opinions,
    Registered,
)
from understudy.broker.member_group import members_of_group, members_of_route
from understudy.broker.member_view import Own, State, after_notice, drops, step
from understudy.broker.offsets import OffsetTable
from understudy.broker.replicated.rules import (
    OffsetsAnswer,
    ReplicaTableError,
    Takeover,
    offsets_to_take,
    read_forbidden,
    read_levels,
    read_offsets,
    takeover,
)
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import loads
from understudy.ha.replicas import Replica, copied_up_to
from understudy.runtime.signal import Signal
from understudy.testkit.sim.clock import VirtualClock

OLD, SAME, NEW = DataVersion(0, 1, 10), DataVersion(0, 2, 20), DataVersion(0, 3, 30)
KEY = "orders@readers"


def table(offsets: dict[int, int], stamps: dict[int, int] | None = None) -> OffsetTable:
    found = OffsetTable(lambda: 1_000)
    found.committed[KEY] = dict(offsets)
    if stamps:
        found.stamps[KEY] = dict(stamps)
    return found


def answer(offsets: dict[int, int], stamps: dict[int, int] | None = None) -> OffsetsAnswer:
    return OffsetsAnswer({KEY: offsets}, {KEY: stamps} if stamps else {}, SAME)


# --- whole tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "theirs", "expected"),
    [
        (None, NEW, Takeover(True, delete=True, overwrite=True, adopt=True)),
        (None, SAME, Takeover(True, delete=True, overwrite=True, adopt=True)),
        (None, OLD, Takeover(True)),
        (OLD, OLD, Takeover(False)),
        (DataVersion(), OLD, Takeover(True, overwrite=True)),
    ],
)
def test_an_older_table_only_adds(seen: DataVersion | None, theirs: DataVersion, expected: Takeover) -> None:
    assert expected == takeover(SAME, seen, theirs)


def test_a_table_that_never_changed_is_older_than_any_other() -> None:
    started_later = DataVersion(0, 0, 99)
    assert takeover(started_later, None, DataVersion(0, 0, 5)).adopt
    slave = OffsetTable(lambda: 99)
    slave.take({}, {}, DataVersion(0, 0, 5))
    assert DataVersion(0, 0, 5) == slave.version


# --- offsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "seen", "theirs", "taken"),
    [
        pytest.param({0: 5}, None, {0: 7}, {0: 7}, id="first look, the master is ahead"),
        pytest.param({0: 5}, None, {0: 3}, {}, id="first look, the master is behind"),
        pytest.param({0: 5}, None, {1: 3}, {1: 3}, id="first look, an unknown queue"),
        pytest.param({0: 5}, {0: 5}, {0: 3}, {0: 3}, id="it went back while we watched"),
        pytest.param({0: 5}, {0: 3}, {0: 3}, {}, id="an unchanged smaller value stays refused"),
        pytest.param({0: 5}, {}, {0: 3}, {}, id="a queue that is new there"),
    ],
)
def test_offsets_go_forward_unless_the_master_went_back_before_our_eyes(
    own: dict[int, int], seen: dict[int, int] | None, theirs: dict[int, int], taken: dict[int, int]
) -> None:
    before = None if seen is None else answer(seen)
    assert ({KEY: taken} if taken else {}) == offsets_to_take(table(own), before, answer(theirs))


def test_a_reset_that_we_do_not_know_wins_over_a_larger_offset() -> None:
    assert {KEY: {0: 1}} == offsets_to_take(table({0: 5}), None, answer({0: 1}, {0: 77}))
    assert {} == offsets_to_take(table({0: 5}, {0: 99}), None, answer({0: 1}, {0: 77}))


def test_a_reset_is_newer_than_the_one_it_replaces_even_if_the_clock_went_back() -> None:
    clock = [9_000]
    table = OffsetTable(lambda: clock[0])
    stamps = []
    for clock[0] in (9_000, 1, 20_000):
        table.assign_reset("g", "t", 0, 5)
        stamps.append(table.stamps["t@g"][0])
    assert stamps == [9_000, 9_001, 20_000]


@given(
    st.dictionaries(st.integers(0, 3), st.integers(0, 50)),
    st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 50), min_size=1), min_size=1, max_size=6),
)
def test_after_the_second_look_a_slave_has_what_changed_and_never_less_than_at_the_first(
    own: dict[int, int], looks: list[dict[int, int]]
) -> None:
    slave, seen = table(own), None
    for offsets in looks:
        before = dict(slave.committed[KEY])
        theirs = answer(offsets)
        slave.take(offsets_to_take(slave, seen, theirs), {}, SAME)
        for queue_id, offset in slave.committed[KEY].items():
            if seen is None:
                assert offset == max(before.get(queue_id, -1), offsets.get(queue_id, -1))
            elif queue_id in offsets and seen.table[KEY].get(queue_id, offsets[queue_id]) != offsets[queue_id]:
                assert offset == offsets[queue_id]
        seen = theirs


def test_only_what_changed_is_answered_and_a_reset_moves_the_version() -> None:
    offsets = OffsetTable(lambda: 1_000)
    offsets.commit("readers", "orders", 0, 1)
    offsets.commit("others", "orders", 0, 2)
    known, version = offsets.revision, offsets.version
    assert {} == offsets.to_json(known)["offsetTable"]
    offsets.commit("readers", "orders", 1, 7)
    assert {KEY: {0: 1, 1: 7}} == offsets.to_json(known)["offsetTable"]
    assert version == offsets.version
    offsets.assign_reset("readers", "orders", 1, 2)
    assert offsets.version > version
    first = offsets.stamps[KEY][1]
    offsets.assign_reset("readers", "orders", 1, 3)
    assert offsets.stamps[KEY][1] > first
    again = OffsetTable(lambda: 1_000)
    again.merge_json(offsets.to_json())
    assert (again.committed, again.stamps) == (offsets.committed, offsets.stamps)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"offsetTable":[1]}', b'{"offsetTable":{"a@b":{"x":1}}}'])
def test_nonsense_of_a_master_is_refused(body: bytes) -> None:
    for read in (read_offsets, read_levels):
        with pytest.raises(ReplicaTableError):
            read(body)


def test_what_is_forbidden_is_read_or_refused() -> None:
    assert {"g": {"t": 4}} == read_forbidden({"g": {"t": 4}})
    assert {} == read_forbidden(None)
    with pytest.raises(ReplicaTableError):
        read_forbidden({"g": [1]})


# --- members -------------------------------------------------------------------------------------------------------


def test_members_are_read_from_both_kinds_of_answers() -> None:
    group = b'{"brokerMemberGroup":{"brokerAddrs":{1:"b:2",0:"a:1"},"brokerName":"x","cluster":"c"}}'
    route = b'{"brokerDatas":[{"brokerAddrs":{0:"n:1"},"brokerName":"y","cluster":"c"},'
    route += b'{"brokerAddrs":{0:"a:1",1:"b:2"},"brokerName":"x","cluster":"c"}],"queueDatas":[]}'
    assert {0: "a:1", 1: "b:2"} == members_of_group(loads(group)) == members_of_route(loads(route), "c", "x")
    assert {} == members_of_route(loads(route), "other", "x")
    with pytest.raises(ValueError, match="no JSON object"):
        members_of_group([])


@pytest.mark.parametrize(
    ("members", "notice", "expected"),
    [
        ({0: "a", 1: "b", 2: "c"}, Notice(1, "b", "a", None), {1: "b", 2: "c"}),
        ({1: "b", 2: "c"}, Notice(0, "a", None, "a:ha"), {0: "a", 1: "b", 2: "c"}),
        (None, Notice(1, "b", "a", None), {1: "b"}),
        ({0: "a", 1: "b"}, Notice(None, None, "a", None), {0: "a", 1: "b"}),
    ],
)
def test_a_notice_moves_the_view(members: dict[int, str] | None, notice: Notice, expected: dict[int, str]) -> None:
    assert expected == after_notice(members, notice)


# --- copies --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-1, 100), max_size=5), st.integers(1, 6))
def test_copies_are_counted_by_offset(acknowledged: list[int], copies: int) -> None:
    replicas = {number: Replica(offset, offset) for number, offset in enumerate(acknowledged)}
    reached = copied_up_to(dict(replicas), copies, 100)
    having = 1 + sum(offset >= reached for offset in acknowledged if offset >= 0)
    assert having >= copies or reached == 0
    if reached < 100:
        assert 1 + sum(offset > reached for offset in acknowledged) < copies


class Log:
    def __init__(self) -> None:
        self.flushed_offset = 0
        self.moved = Signal()

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        with trio.move_on_after(timeout_ms / 1000):
            while self.flushed_offset < offset:
                await self.moved.wait()
            return True
        return False

    def flush_to(self, offset: int) -> None:
        self.flushed_offset = offset
        self.moved.set()


class Peer:
    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def write(self, frame: object) -> None:
        assert isinstance(frame, list)
        self.answers += frame


class Waiting:
    """Sends that wait for the flush of *log* and for copies up to :attr:`copied`."""

    def __init__(self, *, flushes: bool) -> None:
        self.log = Log()
        self.copied: dict[int, int] = {}
        self.peer = Peer()
        self.queue = Acknowledgements(
            self.log,
            VirtualClock(),
            lambda: 5_000,
            lambda: 100,
            flushes=flushes,
            copied=lambda copies: self.copied.get(copies, 0),
            copies_timeout_ms=lambda: 3_000,
            late=lambda answer, code: answer.replace(b"ok", b"%d" % code),
        )

    def send(self, offset: int, copies: int) -> None:
        self.queue.add(offset, self.peer, b"ok %d" % offset, copies)


async def test_sends_with_different_needs_do_not_wait_for_each_other(autojump_clock: MockClock) -> None:
    waiting = Waiting(flushes=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.queue.run)
        for offset, copies in ((10, 3), (20, 2), (30, 3), (40, 2)):
            waiting.send(offset, copies)
        # when one slave has everything and the second one nothing
        waiting.copied = {2: 40, 3: 0}
        waiting.queue.settle()
        assert [b"ok 20", b"ok 40"] == waiting.peer.answers
        # then only those that need two slaves run into their limit, each at its own time
        await trio.sleep(2.9)
        waiting.copied[3] = 10
        waiting.queue.settle()
        await trio.sleep(0.2)
        assert [b"ok 20", b"ok 40", b"ok 10", b"12 30"] == waiting.peer.answers
        assert 0 == len(waiting.queue)
        nursery.cancel_scope.cancel()


async def test_a_send_is_answered_when_it_is_both_durable_and_copied(autojump_clock: MockClock) -> None:
    waiting = Waiting(flushes=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.queue.run)
        waiting.send(10, 2)
        waiting.send(20, 2)
        waiting.send(30, 1)
        waiting.log.flush_to(10)
        await wait_all_tasks_blocked()
        assert [] == waiting.peer.answers
        waiting.copied = {2: 20}
        waiting.queue.settle()
        assert [b"ok 10"] == waiting.peer.answers
        waiting.log.flush_to(30)
        await wait_all_tasks_blocked()
        assert [b"ok 10", b"ok 20", b"ok 30"] == waiting.peer.answers
        nursery.cancel_scope.cancel()


async def test_missing_copies_win_over_a_late_flush(autojump_clock: MockClock) -> None:
    waiting = Waiting(flushes=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting.queue.run)
        waiting.send(10, 2)
        waiting.send(20, 2)
        await trio.sleep(1)
        waiting.copied = {2: 10}
        waiting.queue.settle()
        await trio.sleep(4.1)
        assert [b"10 10", b"12 20"] == waiting.peer.answers
        nursery.cancel_scope.cancel()


MASTER_IS_THERE = Noticed(Notice(0, "m", None, "m:ha"), 2, True, Following("m"))


@pytest.mark.parametrize(
    ("own", "news"), [(Own(1, "s", True), MASTER_IS_THERE), (Own(0, "m", False), Registered())], ids=["slave", "master"]
)
@pytest.mark.parametrize("second_opinion", [False, True])
def test_an_answer_that_is_older_than_what_a_name_server_has_told_since_is_asked_for_again(
    own: Own, news: Event, second_opinion: bool
) -> None:
    # given a question that was sent when no name server knew the master
    state = State(own, members={1: "s"})
    state, _ = step(state, Due(("n1", "n2")), 1.0)
    if second_opinion:
        state, _ = step(state, Answered("n1", {1: "s"}, ("n1", "n2"), Following("m")), 1.1)
    # when it is told that the master is there, and the answer comes after that
    state, _ = step(state, news, 1.2)
    late = Opinions((), Following("m")) if second_opinion else Answered("n1", {1: "s"}, ("n1",), Following("m"))
    state, actions = step(state, late, 1.3)
    # then it is asked again, and the master is not lost
    assert actions == (AskAgain(),)
    assert state.members == {0: "m", 1: "s"}
    # and the answer to a later question counts
    state, _ = step(state, Due(("n1",)), 1.4)
    state, actions = step(state, Answered("n1", {1: "s"}, ("n1",), Following("m")), 1.5)
    assert state.members == {1: "s"}
    assert (LoseMaster() in actions) == own.is_slave


@pytest.mark.parametrize(
    ("own_id", "others", "seen"),
    [
        (2, {1: "s", 2: "t"}, {1: "s", 2: "t"}),  # another name server shows who is before it
        (2, {3: "u"}, {2: "t"}),  # who is behind it is nothing to it
        (2, {0: "m", 1: "s"}, {0: "m", 1: "s", 2: "t"}),
        (0, {1: "s"}, {2: "t"}),  # a master counts itself only
        (0, {0: "m"}, {0: "m", 2: "t"}),
    ],
)
def test_a_slave_counts_the_master_and_slaves_before_it_that_another_name_server_shows(
    own_id: int, others: dict[int, str], seen: dict[int, str]
) -> None:
    state = State(Own(own_id, "m" if own_id == 0 else "t", own_id > 0), members={0: "m", 2: "t"})
    state, _ = step(state, Due(("n1", "n2")), 1.0)
    state, asked = step(state, Answered("n1", {2: "t"}, ("n1", "n2"), Following()), 1.1)
    assert asked == (AskOthers(("n2",)),)
    state, _ = step(state, Opinions((others,), Following()), 1.2)
    assert state.members == seen


@pytest.mark.parametrize(
    ("members", "found", "dropped"),
    [
        ({0: "m:1", 1: "s:1"}, {1: "s:1"}, True),
        ({0: "m:1", 1: "s:1"}, {0: "m:1", 1: "s:1"}, False),
        ({0: "m:1", 1: "s:1"}, {}, False),  # a name server that has just started
        ({0: "other:1", 1: "s:1"}, {1: "s:1"}, False),  # it never showed this one
        (None, {1: "s:1"}, False),
    ],
)
def test_a_name_server_drops_whom_it_showed_and_shows_no_more(
    members: dict[int, str] | None, found: dict[int, str], dropped: bool
) -> None:
    assert drops(State(Own(0, "m:1", False), members=members), found) is dropped
