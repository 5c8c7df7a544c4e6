"""What a slave that acts handed out: its table alone, and what two of them make of each other."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.pop import acting
from understudy.broker.pop.acting import CLOCKS_DIFFER_MS, ActingPops
from understudy.broker.pop.acting_rows import KnownAck
from understudy.broker.pop.order import OrderRecord, newest
from understudy.broker.pop.revive_log import AHEAD_MS, Ack, CheckPoint, again, entry_of, message_of
from understudy.broker.pop.stepped_clock import ClockSteps
from understudy.broker.replicated.acting_pops import Home, ReplicatedActingPops
from understudy.broker.replicated.table import Answer
from understudy.store.status import PutRejected

POINT = CheckPoint("t", "g", 2, 100, 1_000, 60_000, "a", (100, 101, 103))


class Clock:
    def __init__(self, now_ms: int = 5_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def table(broker_id: int = 1, clock: Clock | None = None) -> ActingPops:
    return ActingPops("a", lambda: broker_id, clock or Clock(), ClockSteps())


def open_offsets(pops: ActingPops) -> list[int]:
    return [offset for row in pops.rows() for offset in row.point.open_offsets]


def add(pops: ActingPops, entry: CheckPoint | Ack, *, logged: bool = False) -> None:
    pops.add(entry, 3, POINT.revive_ms, logged=logged)


def test_what_was_handed_out_here_and_acknowledged_leaves_no_trace() -> None:
    pops = table()
    add(pops, POINT)
    add(pops, Ack(POINT.key, (100, 103), True))
    assert open_offsets(pops) == [101]
    add(pops, Ack(POINT.key, (101,)))
    assert pops.empty


@pytest.mark.parametrize("ack_first", [True, False])
def test_an_acknowledgement_of_what_the_master_handed_out_stays(ack_first: bool) -> None:
    pops, ack = table(), Ack(POINT.key, (100, 101))
    add(pops, ack if ack_first else POINT, logged=True)
    add(pops, POINT if ack_first else ack, logged=True)
    assert open_offsets(pops) == [103]
    assert pops.acks[POINT.key].offsets == {100, 101}
    pops.settled(next(pops.rows()).point, 103)
    assert open_offsets(pops) == []
    # That it was put into a retry topic the master must know, too: it may have the check point out of its timer already
    assert pops.acks[POINT.key].offsets == {100, 101, 103}


@pytest.mark.parametrize("logged", [True, False])
def test_the_master_hears_of_what_was_worked_off_unless_it_waits_still(logged: bool) -> None:
    pops, expected = table(), {POINT.key: {101, 103}} if logged else {}
    add(pops, POINT, logged=logged)
    add(pops, again(POINT, 100, 60_000))
    for offset in POINT.offsets:  # the first one went around again, under the same key
        pops.settled(POINT, offset)
    assert open_offsets(pops) == [100]
    assert {key: known.offsets for key, known in pops.acks.items()} == expected


def test_room_is_left_for_acknowledgements_of_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "MOST", 4)
    pops = table()
    points = [CheckPoint("t", "g", 2, number, 1_000, 60_000, "a", (number,)) for number in range(4)]
    for point in points:
        add(pops, point, logged=True)
        pops.settled(point, point.start_offset)
    assert list(pops.acks) == [points[0].key, points[1].key]
    add(pops, Ack(points[3].key, (3,)))
    assert len(pops.acks) == 3


def test_what_goes_around_again_is_another_check_point_with_the_same_key() -> None:
    pops = table()
    add(pops, POINT)
    later = again(POINT, 100, 60_000)
    add(pops, later)
    pops.settled(POINT, 100)
    assert later.key == POINT.key
    assert sorted(open_offsets(pops)) == [100, 101, 103]
    assert [row.point for row in pops.ripe(POINT.revive_ms + 1, 8)] == [POINT.acked(100)]
    add(pops, Ack(POINT.key, (100,)))
    assert sorted(open_offsets(pops)) == [101, 103]


def test_the_first_ones_are_ripe_first() -> None:
    pops = table()
    for number in (5, 3, 4):
        point = CheckPoint("t", "g", 0, number, number * 1_000, 500, "a", (number,))
        pops.add(point, 0, point.revive_ms, logged=False)
    assert pops.due_ms() == 3_500
    assert open_offsets(pops) == [5, 3, 4]
    assert [row.point.start_offset for row in pops.ripe(5_000, 2)] == [3, 4]
    assert [row.point.start_offset for row in pops.ripe(4_000, 2)] == [3]


def test_too_much_is_refused_and_changes_nothing_but_for_what_comes_out_of_the_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acting, "MOST", 1)
    monkeypatch.setattr(acting, "MOST_LOGGED_ACKS", 2)
    pops = table()
    add(pops, POINT)
    other = CheckPoint("t", "g", 2, 200, 1_000, 60_000, "a", (200,))
    with pytest.raises(PutRejected):
        add(pops, other)
    add(pops, Ack(other.key, (200,)))
    with pytest.raises(PutRejected):
        add(pops, Ack(("t", "g", 0, 0, 0, "a"), (0,)))
    assert open_offsets(pops) == [100, 101, 103]
    add(pops, attrs.evolve(other, start_offset=201, offsets=(201,)), logged=True)
    assert open_offsets(pops) == [100, 101, 103, 201]
    for number in range(3):
        add(pops, Ack(("t", "g", 0, number, 0, "a"), (number,)), logged=True)
    assert len(pops.acks) == 2


@pytest.mark.parametrize("how", ["acknowledged before", "acknowledged after", "put into a retry topic"])
def test_acknowledgements_are_kept_while_the_master_or_this_broker_may_need_them(how: str) -> None:
    pops = table(clock=Clock(0))
    acks = Ack(POINT.key, POINT.offsets, True)
    if how == "acknowledged before":
        add(pops, acks, logged=True)
    pops.since_ms, pops.master_asks = 0, True
    after_ms = POINT.revive_ms + 1
    # given a check point that is not due yet, or open
    pops.forget_needless(after_ms)
    assert bool(pops.acks) == (how == "acknowledged before")
    add(pops, POINT, logged=True)
    if how == "acknowledged after":
        add(pops, acks)
    elif how == "put into a retry topic":
        for offset in POINT.offsets:
            pops.forget_needless(after_ms)
            pops.settled(POINT, offset)
    assert pops.acks[POINT.key] == KnownAck(frozenset(POINT.offsets), 3, POINT.revive_ms, True)
    copy = table()
    copy.load(json.loads(json.dumps(pops.to_json())))
    assert copy.acks == pops.acks
    # when the timer is not past it, it was due when the master was there, or nobody acts, then they stay
    pops.forget_needless(POINT.revive_ms)
    for pops.since_ms in (None, POINT.revive_ms - CLOCKS_DIFFER_MS):
        pops.forget_needless(after_ms)
    assert pops.acks
    # nor while the master is one of the reference, whose timer will have the check point out all the same
    pops.since_ms, pops.master_asks = 0, False
    pops.forget_needless(after_ms)
    assert pops.acks
    pops.master_asks, before = True, pops.revision
    pops.forget_needless(after_ms)
    assert pops.empty
    assert pops.revision != before
    # and of what was acknowledged here and has not come out of the own timer, the master's log may have the check point
    add(pops, acks)
    pops.forget_needless(after_ms)
    assert pops.acks


def test_the_newer_table_counts_whole() -> None:
    first, copy = table(1), table(2)
    add(first, POINT)
    copy.join(first)
    assert open_offsets(copy) == open_offsets(first) == [100, 101, 103]
    add(copy, Ack(POINT.key, (100, 101, 103), True))  # it acts now, and the point is done
    copy.join(first)
    assert copy.empty
    first.join(copy)
    assert first.empty


def test_a_master_that_took_it_empties_its_slave_and_no_other() -> None:
    master, slave, other = table(0), table(1), table(2)
    add(slave, POINT)
    master.join(slave)
    for each in master.homeward():
        master.written(each)
    add(other, Ack(("t", "g", 0, 7, 7, "a"), (7,)))  # acted at the same time, and was not heard yet
    slave.join(master)
    other.join(master)
    assert slave.empty
    assert not other.empty
    master.join(other)
    assert not master.empty


def test_what_the_log_has_is_left_out_of_what_is_taken_late() -> None:
    slave, master = table(1), table(0)
    home = Home(lambda: True, lambda entry, queue, deliver_ms: message_of(entry, "revive", queue, 0, 1, b"\0" * 8))
    replicated, own = ReplicatedActingPops(master, lambda: table(0), home), attrs.evolve(POINT, start_offset=200)
    add(slave, POINT, logged=True)
    add(slave, again(POINT, 101, 60_000), logged=True)
    add(slave, own)
    add(slave, Ack(POINT.key, (100,)))
    answer = Answer({}, json.dumps(slave.to_json()).encode())
    assert replicated.take_back(answer, lambda key, queue_id: None, late=True)
    assert [(row.point.start_offset, row.point.re_puts) for row in master.rows()] == [(101, 1), (200, 0)]
    assert list(master.acks) == [POINT.key]
    slave.join(master)
    assert (slave.points, slave.acks) == (master.points, master.acks)


def test_what_goes_into_a_log_is_what_is_known_when_it_is_written() -> None:
    pops, later = table(), again(POINT, 101, 60_000)
    for entry in (POINT, later, Ack(POINT.key, (100,))):
        add(pops, entry, logged=True)
    told, homeward = list[str](), pops.homeward()
    pops.on_change.append(lambda: told.append(pops.revision))
    acks = next(homeward)
    assert (acks.entry, acks.queue, acks.deliver_ms) == (Ack(POINT.key, (100,), True), 3, POINT.revive_ms)
    add(pops, Ack(POINT.key, (103,)))
    pops.written(acks)
    pops.drop(later)
    (point,) = homeward
    assert (point.entry, point.deliver_ms) == (POINT.acked(100).acked(103), POINT.revive_ms - AHEAD_MS)
    pops.written(point)
    # then it is not forgotten what is newer than what was written, and nobody hears of each
    assert (list(pops.rows()), pops.acks[POINT.key].offsets, len(told)) == ([], {100, 103}, 2)
    pops.tell()
    assert told[-1] == pops.revision


def test_two_that_acted_at_once_are_put_together() -> None:
    first, second = table(1), table(2)
    add(first, POINT)
    second.join(first)
    add(first, Ack(POINT.key, (100,)))
    add(second, Ack(POINT.key, (101,)))
    add(second, Ack(("t", "g", 0, 7, 7, "a"), (7,)))
    first.join(second)
    assert open_offsets(first) == [103]
    assert first.acks.keys() == second.acks.keys()
    before = first.revision
    first.join(second)
    assert first.revision == before


def test_a_broker_that_lost_its_disk_is_newer_than_what_others_saw_of_it() -> None:
    clock = Clock()
    before, copy, after = table(1, clock), table(2, clock), table(1, clock)
    add(before, POINT)
    copy.join(before)
    clock.now_ms += 1
    add(after, Ack(("t", "g", 0, 7, 7, "a"), (7,)))
    copy.join(after)
    assert copy.acks


def test_what_the_log_does_not_have_is_left_out() -> None:
    pops, strange = table(), CheckPoint("t", "g", 2, 500, 1_000, 60_000, "b", (500,))
    add(pops, POINT)
    add(pops, strange)
    before = pops.revision
    pops.cut(lambda key, queue_id: 101 if (key, queue_id) == ("t@g", 2) else None)
    assert sorted(open_offsets(pops)) == [100, 500]
    assert pops.revision == before


def test_what_the_log_of_one_slave_does_not_have_is_taken_from_another() -> None:
    clock = Clock()
    master, short, whole = table(0, clock), table(1, clock), table(2, clock)
    add(whole, POINT)
    short.join(whole)
    # given two slaves that acted at once, and one whose log ends before what it knows to be handed out
    add(short, CheckPoint("t", "g", 3, 500, 1_000, 60_000, "a", (500,)))
    add(whole, CheckPoint("t", "g", 4, 600, 1_000, 60_000, "a", (600,)))
    short.cut(lambda key, queue_id: 0 if (key, queue_id) == ("t@g", 2) else None)
    # when their master asks that one first
    for each in (short, whole):
        master.join(each)
    assert sorted(open_offsets(master)) == [100, 101, 103, 500, 600]


entries = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans(), st.sets(st.integers(0, 2))),
    max_size=12,
)


@given(entries)
def test_a_table_survives_its_file(rows: list[tuple[int, int, bool, bool, set[int]]]) -> None:
    pops = table()
    for queue_id, start, is_point, logged, offsets in rows:
        point = CheckPoint("t", "g", queue_id, start, 9, 60, "a", (start, start + 1, start + 2))
        entry = point if is_point else Ack(point.key, tuple(start + each for each in offsets))
        pops.add(entry, 1, 69, logged=logged)
    found = table()
    found.load(json.loads(json.dumps(pops.to_json())))
    assert (found.points, found.acks, found.changes) == (pops.points, pops.acks, pops.changes)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"changes": []}, "changes is no JSON object"),
        ({"points": {}}, "points must be a list"),
        ({"points": [{"queue": 1}]}, "points 0: point is no text"),
        ({"points": [{"queue": 999, "point": POINT.body.decode()}]}, "points 0: queue is 999"),
        ({"points": [{"queue": 1, "point": "{"}]}, "points 0: "),
        ({"points": [{"queue": 1, "point": POINT.body.decode(), "made": [1]}]}, "points 0: made is not a broker id"),
        ({"points": [{"queue": 1, "point": POINT.body.decode(), "made": [1, -1]}]}, "points 0: made is"),
        ({"acks": [{"queue": 1, "ack": '{"t":"t","c":"g","aol":[1]}'}]}, "acks 0: reviveTime"),
        ({"changes": {"x": 1}}, "changes is"),
    ],
)
def test_a_damaged_table_is_told_and_changes_nothing(content: dict[str, object], why: str) -> None:
    pops = table()
    add(pops, POINT)
    with pytest.raises(ValueError, match=why):
        pops.load(content)
    assert open_offsets(pops) == [100, 101, 103]


def test_entries_are_told_from_other_due_messages() -> None:
    message = message_of(POINT, "rmq_sys_REVIVE_LOG_c", 5, 60_000, 1, b"\0" * 8)
    assert entry_of(message, "rmq_sys_REVIVE_LOG_c", "a") == (POINT, 5, 60_000)
    assert entry_of(message, "another topic", "a") is None


def test_of_what_was_popped_in_order_the_newest_counts() -> None:
    old = OrderRecord(10, 60, (1, 2), 10, acked=1)
    assert newest(old, OrderRecord(11, 60, (3,), 11)).offsets == (3,)
    both = newest(old, OrderRecord(10, 60, (1, 2), 12, acked=2, visible_ms={2: 99}))
    assert (both.acked, both.consumed_ms, both.visible_ms) == (3, 12, {2: 99})
