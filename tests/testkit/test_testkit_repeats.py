"""The judge of repeats and losses: what a row of the table covers, and what no row does."""

from __future__ import annotations

import random
from pathlib import Path

import attrs
import pytest

from understudy.testkit.drills.acting_allowances import ALLOWED, allowed_table, judge
from understudy.testkit.drills.acting_answers import answers_table
from understudy.testkit.drills.acting_losses import may_be_lost
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.acting_traffic import SimulatedTraffic
from understudy.testkit.drills.met_faults import FLUSH_SECONDS, Home, Met, with_unserved

CUT = Met("cut", Home.MASTER, 100.0, 120.0)
POWER = Met("power", Home.MASTER, 100.0, 102.0, flushed=False)


def repeat(due: float, *met: Met, came: int = 2, delayed: bool = True) -> Repeat:
    return Repeat("key", delayed, due, (due,) * came, met)


@pytest.mark.parametrize(
    ("met", "due", "row"),
    [
        (Met("kill", Home.MASTER, 100.0, 110.0), 99.5, "sudden death"),
        (CUT, 99.5, "silence"),
        (CUT, 103.5, "silence"),
        (Met("cut-off-servers", Home.MASTER, 100.0, 120.0), 110.0, "both at once"),
    ],
)
def test_a_row_covers_what_was_due_in_its_window(met: Met, due: float, row: str) -> None:
    counts, violations = judge([repeat(due, met)])
    assert (dict(counts), violations) == ({row: 1}, [])


@pytest.mark.parametrize(
    ("due", "other", "allowed"),
    [
        pytest.param(90.0, Met("cut", Home.SLAVE, 95.0, 105.0, host="c2"), True, id="a slave was away"),
        pytest.param(89.0, Met("cut", Home.SLAVE, 95.0, 105.0, host="c2"), False, id="it had been written"),
        pytest.param(90.0, None, False, id="the slaves gave it back"),
        pytest.param(90.0, Met("cut", Home.SLAVE, 50.0, 70.0, host="c2"), False, id="a slave was away long before"),
        pytest.param(90.0, Met("slow", Home.MASTER, 95.0, 105.0), False, id="the same host"),
    ],
)
def test_what_was_not_flushed_comes_again_only_where_slaves_may_not_have_had_it(
    due: float, other: Met | None, allowed: bool
) -> None:
    others = () if other is None else (other,)
    counts, violations = judge([repeat(due, POWER, *others)])
    assert (dict(counts), bool(violations)) == ({"not flushed": 1} if allowed else {}, not allowed)
    assert judge([repeat(due, attrs.evolve(POWER, flushed=True), *others)])[1]


@pytest.mark.parametrize(
    ("due", "other", "allowed"),
    [
        pytest.param(103.5, None, False, id="no slave acts"),
        pytest.param(103.5, Met("cut", Home.MASTER, 70.0, 95.0), True, id="the master is not back yet"),
        pytest.param(104.5, Met("cut", Home.MASTER, 70.0, 95.0), False, id="it held back by then"),
        pytest.param(98.5, Met("cut", Home.MASTER, 70.0, 95.0), False, id="the next one knew"),
        pytest.param(103.5, Met("cut", Home.MASTER, 60.0, 85.0), False, id="the master was back"),
        pytest.param(103.5, Met("kill", Home.SERVER, 103.0, 110.0), True, id="a name server lost the master"),
        pytest.param(101.5, Met("kill", Home.SERVER, 103.0, 110.0), False, id="it did not act yet"),
        pytest.param(103.5, Met("kill", Home.SLAVE, 95.0, 130.0), False, id="another slave"),
        pytest.param(103.5, Met("slow", Home.MASTER, 95.0, 130.0), False, id="the master was slow only"),
        pytest.param(103.5, Met("clock-forward", Home.SERVER, 95.0, 130.0), False, id="a name server's wall clock"),
        pytest.param(
            103.5, Met("reset", Home.MASTER, 95.0, 96.0), True, id="name servers lost the master's connection"
        ),
    ],
)
@pytest.mark.parametrize("kind", ["pause", "cut-in"])
def test_a_lost_slave_repeats_only_what_it_may_have_delivered_when_it_acted(
    kind: str, due: float, other: Met | None, allowed: bool
) -> None:
    met = Met(kind, Home.SLAVE, 100.0, 120.0)
    counts, violations = judge([repeat(due, *([met] if other is None else [met, other]))])
    assert (dict(counts), bool(violations)) == ({"acting slave lost": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(
    ("came", "allowed"),
    [
        pytest.param(98.5, False, id="the next one knew"),
        pytest.param(99.5, True, id="it had just begun to act"),
        pytest.param(103.5, True, id="its clock was behind"),
        pytest.param(104.5, False, id="it held back by then"),
    ],
)
def test_a_lost_slave_repeats_what_it_delivered_late_when_it_acted(came: float, allowed: bool) -> None:
    met = Met("pause", Home.SLAVE, 100.0, 120.0, host="s"), Met("pause", Home.MASTER, 89.0, 101.0, host="m")
    counts, violations = judge([attrs.evolve(repeat(97.0, *met), came=(came, 112.0))])
    assert (dict(counts), bool(violations)) == ({"acting slave lost": 1} if allowed else {}, not allowed)
    # and no other row looks at when a message came
    assert judge([attrs.evolve(repeat(80.0, CUT), came=(99.5, 112.0))])[1]


@pytest.mark.parametrize(
    ("slave", "due", "allowed"),
    [
        pytest.param(Met("cut-in", Home.SLAVE, 95.0, 101.0), 96.0, True, id="it was deaf"),
        pytest.param(Met("cut-in", Home.SLAVE, 90.0, 97.0), 92.0, True, id="it had just been deaf"),
        pytest.param(Met("cut-in", Home.SLAVE, 90.0, 95.0), 92.0, False, id="it had asked again"),
        pytest.param(Met("cut-in", Home.SLAVE, 95.0, 101.0), 93.5, False, id="it knew of that"),
        pytest.param(Met("slow", Home.SLAVE, 95.0, 101.0), 96.0, False, id="it was slow only"),
        pytest.param(Met("cut-in", Home.SLAVE, 101.0, 110.0), 98.0, False, id="it became deaf later"),
    ],
)
@pytest.mark.parametrize("kind", ["cut", "cut-in"])
def test_what_a_deaf_slave_did_not_hear_may_come_again(slave: Met, due: float, allowed: bool, kind: str) -> None:
    counts, violations = judge([repeat(due, attrs.evolve(CUT, kind=kind), slave)])
    assert (counts["deaf slave"], bool(violations)) == (int(allowed), not (allowed or counts))


@pytest.mark.parametrize(
    ("lost", "other", "row"),
    [
        (Met("kill", Home.SLAVE, 100.0, 120.0, host="s"), Met("kill", Home.MASTER, 80.0, 110.0), "acting slave lost"),
        (Met("kill", Home.MASTER, 100.0, 120.0, host="m"), Met("cut-in", Home.SLAVE, 95.0, 101.0), "deaf slave"),
        (Met("kill", Home.OTHER, 100.0, 120.0, host="o"), Met("cut", Home.MASTER, 80.0, 110.0), "escape unanswered"),
    ],
)
def test_who_has_ended_puts_out_nothing_more(lost: Met, other: Met, row: str) -> None:
    assert judge([repeat(100.9, lost, other)])[0] == {row: 1}
    assert judge([repeat(101.1, lost, other)])[1]


GONE = Met("power", Home.SLAVE, 95.0, 117.0, host="c1")
FIRST, LATER = Met("cut-in", Home.SERVER, 100.0, 130.0, host="n1"), Met("cut-out", Home.SERVER, 101.0, 121.0, host="n2")


@pytest.mark.parametrize(
    ("due", "met", "allowed"),
    [
        pytest.param(96.0, (GONE, FIRST, LATER), True, id="the slave was away, then both name servers"),
        pytest.param(104.5, (GONE, FIRST, LATER), True, id="the master had not held back yet"),
        pytest.param(105.5, (GONE, FIRST, LATER), False, id="the master held back by then"),
        pytest.param(93.5, (GONE, FIRST, LATER), False, id="the slave knew it"),
        pytest.param(96.0, (GONE, FIRST), False, id="the other name server shows the master"),
        pytest.param(96.0, (GONE, attrs.evolve(FIRST, end=99.5), LATER), False, id="the first one was back"),
        pytest.param(96.0, (GONE, FIRST, attrs.evolve(LATER, kind="slow")), False, id="the other one was slow only"),
        pytest.param(96.0, (FIRST, LATER), False, id="the slave was there"),
        pytest.param(96.0, (attrs.evolve(GONE, end=96.5), FIRST, LATER), False, id="the slave was back before"),
    ],
)
def test_a_slave_that_was_away_may_be_shown_no_master_by_the_first_name_server_that_is_back(
    due: float, met: tuple[Met, ...], allowed: bool
) -> None:
    counts, violations = judge([repeat(due, *with_unserved(met, ("n1", "n2")))])
    assert (dict(counts), bool(violations)) == ({"slave shown first": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(
    ("due", "slow", "allowed"),
    [
        pytest.param(108.7, Met("slow", Home.SLAVE, 90.0, 115.0, host="c2"), True, id="the copy was under way"),
        pytest.param(108.5, Met("slow", Home.SLAVE, 90.0, 115.0, host="c2"), False, id="it was there by then"),
        pytest.param(108.7, Met("slow", Home.SLAVE, 90.0, 105.0, host="c2"), False, id="the link was quick again"),
        pytest.param(108.7, Met("slow", Home.OTHER, 90.0, 115.0, host="c3"), False, id="another link"),
    ],
)
def test_a_copy_may_be_late_on_a_slow_link_when_a_slave_begins_to_act(due: float, slow: Met, allowed: bool) -> None:
    cut = Met("cut-off-servers", Home.MASTER, 100.0, 120.0, host="c1")
    found = attrs.evolve(repeat(due, cut, slow), hosts=frozenset({"c1", "c2"}))
    counts, violations = judge([found])
    assert (dict(counts), bool(violations)) == ({"both at once": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(repeat(99.5), id="no fault at all"),
        pytest.param(repeat(104.5, CUT), id="the master knew it by then"),
        pytest.param(repeat(98.5, CUT), id="its slaves knew it by then"),
        pytest.param(repeat(100.5, Met("kill", Home.MASTER, 100.0, 110.0)), id="due after the death"),
        pytest.param(repeat(90.0, attrs.evolve(POWER, flushed=True)), id="it was on the disk"),
        pytest.param(repeat(103.0, Met("cut", Home.MASTER, 100.0, 101.0)), id="the fault was over"),
        pytest.param(repeat(103.5, Met("cut", Home.SERVER, 100.0, 120.0)), id="another one's fault"),
        pytest.param(repeat(99.5, CUT, came=3), id="three times"),
        pytest.param(repeat(108.0, Met("cut-off-servers", Home.MASTER, 100.0, 120.0)), id="no slave acted yet"),
        pytest.param(repeat(113.0, Met("cut-off-servers", Home.MASTER, 100.0, 120.0)), id="it had noticed"),
        pytest.param(repeat(99.5, CUT, delayed=False), id="a plain message"),
        pytest.param(attrs.evolve(repeat(99.5, CUT), recognizable=True), id="the slave had the master's copy"),
    ],
)
def test_every_other_repeat_is_a_violation(found: Repeat) -> None:
    counts, violations = judge([found])
    assert not counts
    assert [each.rule for each in violations] == ["repeated"]


AWAY = Met("pause", Home.MASTER, 100.0, 112.0, host="c1")
LAST = Met("kill", Home.SLAVE, 110.5, 130.0, host="c2")


RETURNS = attrs.evolve(AWAY, kind="power", end=108.0, returned=112.0)
CUT_OFF = Met("cut", Home.SLAVE, 104.0, 120.0, host="c3")


@pytest.mark.parametrize(
    ("due", "met", "hosts", "allowed"),
    [
        pytest.param(105.0, (AWAY, LAST), "c1 c2", True, id="nobody else knew"),
        pytest.param(105.0, (AWAY, attrs.evolve(LAST, kind="suspend")), "c1 c2", True, id="it was suspended"),
        pytest.param(98.5, (AWAY, LAST), "c1 c2", False, id="the slave had not begun to act for it"),
        pytest.param(111.0, (AWAY, LAST), "c1 c2", False, id="due when the slave was gone"),
        pytest.param(105.0, (AWAY, LAST), "c1 c2 c3", False, id="another slave copied from it"),
        pytest.param(
            105.0, (AWAY, LAST, Met("cut", Home.SLAVE, 108.0, 120.0, host="c3")), "c1 c2 c3", True, id="all were away"
        ),
        pytest.param(105.0, (attrs.evolve(AWAY, end=109.0), LAST), "c1 c2", False, id="the master was back before"),
        pytest.param(105.0, (attrs.evolve(AWAY, end=131.0), LAST), "c1 c2", False, id="the slave was back first"),
        pytest.param(102.0, (RETURNS, CUT_OFF, LAST), "c1 c2 c3", True, id="the master was waiting for the other one"),
        pytest.param(105.0, (RETURNS, LAST), "c1 c2 c3", False, id="the other one answered the master"),
        pytest.param(105.0, (RETURNS, LAST), "c1 c2", False, id="the master had nobody else to ask"),
        pytest.param(
            102.0, (attrs.evolve(RETURNS, end=107.0), CUT_OFF, LAST), "c1 c2 c3", False, id="it waited for long enough"
        ),
        pytest.param(
            102.0, (attrs.evolve(RETURNS, returned=110.4), CUT_OFF, LAST), "c1 c2 c3", False, id="it was online"
        ),
        pytest.param(105.0, (LAST,), "c1 c2", False, id="the master was never away"),
        pytest.param(
            105.0, (attrs.evolve(AWAY, kind="clock-forward"), LAST), "c1 c2", False, id="the master was there"
        ),
    ],
)
def test_what_only_the_last_member_knew_may_come_again(
    due: float, met: tuple[Met, ...], hosts: str, allowed: bool
) -> None:
    counts, violations = judge([attrs.evolve(repeat(due, *met), hosts=frozenset(hosts.split()))])
    assert (counts["last member lost"], bool(violations)) == (int(allowed), not (allowed or counts))


UNHEARD = Met("cut-off-servers", Home.MASTER, 95.5, 120.0, host="m")
UNCOPIED = Met("cut-copies", Home.MASTER, 100.0, 130.0, host="m")


@pytest.mark.parametrize(
    ("due", "met", "allowed"),
    [
        pytest.param(103.9, (UNHEARD, UNCOPIED), True, id="until it holds back"),
        pytest.param(104.1, (UNHEARD, UNCOPIED), False, id="it held back by then"),
        pytest.param(99.9, (UNHEARD, UNCOPIED), False, id="it was copied"),
        pytest.param(100.5, (UNCOPIED,), False, id="name servers heard it"),
        pytest.param(100.5, (attrs.evolve(UNHEARD, host="s"), UNCOPIED), False, id="they heard another host not"),
        pytest.param(100.5, (attrs.evolve(UNHEARD, end=99.0), UNCOPIED), False, id="they heard it again"),
        pytest.param(103.5, (UNHEARD, attrs.evolve(UNCOPIED, end=101.0)), False, id="it was copied again"),
    ],
)
def test_a_master_whose_copies_end_while_no_name_server_hears_it_delivers_a_moment_longer(
    due: float, met: tuple[Met, ...], allowed: bool
) -> None:
    counts, violations = judge([repeat(due, *met)])
    assert (dict(counts), bool(violations)) == ({"no copies either": 1} if allowed else {}, not allowed)
    assert judge([attrs.evolve(repeat(due, *met), recognizable=True)])[1]


def test_every_row_says_why_and_is_told_apart_by_its_name() -> None:
    assert len({row.name for row in ALLOWED}) == len(ALLOWED)
    assert all(row.why and row.most == 2 for row in ALLOWED)


def test_the_page_about_failovers_shows_the_tables_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "failover.md").read_text(encoding="utf-8")
    for table in (allowed_table(), answers_table()):
        assert table in page, "docs/failover.md: put the lines of ./understudy bench sim-acting --allowed there"


@pytest.mark.parametrize(
    ("acknowledged", "due", "met", "expected"),
    [
        (99.0, None, POWER, True),
        (100.0 - FLUSH_SECONDS - 0.1, None, POWER, False),
        (100.1, None, POWER, False),
        (99.0, None, attrs.evolve(POWER, flushed=True), False),
        (99.0, None, attrs.evolve(POWER, home=Home.SLAVE), False),
        (50.0, 99.0, attrs.evolve(POWER, home=Home.SLAVE), True),
        (99.0, None, Met("kill", Home.MASTER, 100.0, 102.0, flushed=False), False),
    ],
)
def test_only_what_had_not_been_flushed_may_be_lost(
    acknowledged: float, due: float | None, met: Met, expected: bool
) -> None:
    assert may_be_lost(acknowledged, due, [met, Met("slow", Home.SLAVE, 90.0, 95.0, host="c2")]) is expected
    # nothing may where the slaves were well: they have it
    assert not may_be_lost(acknowledged, due, [met])
    assert not may_be_lost(acknowledged, due, [met, Met("slow", Home.SLAVE, 60.0, 70.0, host="c2")])


@pytest.mark.parametrize(
    ("places", "log_end", "expected"),
    [
        pytest.param([("g0", 500), ("g1", 90)], 500, True, id="the slave had the master's copy"),
        pytest.param([("g0", 500), ("g1", 90)], 499, False, id="it had not"),
        pytest.param([("g0", 500), ("g0", 900)], 500, False, id="the master came back and delivered it again"),
        pytest.param([("g1", 500), ("g1", 900)], 500, False, id="it was elsewhere from the beginning"),
    ],
)
def test_a_slave_knows_what_its_master_delivered_into_the_log_that_both_have(
    places: list[tuple[str, int]], log_end: int, expected: bool
) -> None:
    traffic = SimulatedTraffic(random.Random(1), 1.0)
    traffic.history.sent("key", "sender", ("orders", "g0", 0), acknowledged=True)
    traffic.came["key"], traffic.places["key"] = [99.5, 101.0], places
    had = {("g0", 99.5, 101.0): log_end}
    (found,) = traffic.repeats(
        lambda group: (), lambda group: frozenset(), lambda group, end, *times: had[group, *times] >= end
    )
    assert found.recognizable is expected


@pytest.mark.parametrize(
    ("answered", "came", "met", "expected"),
    [
        (99.0, 99.1, POWER, True),
        (99.0, 99.1, attrs.evolve(POWER, flushed=True), False),
        (80.0, 99.1, POWER, False),
        (101.0, 101.1, POWER, False),
        (None, 99.1, POWER, True),
    ],
)
def test_what_came_before_it_was_flushed_may_have_left_its_offset(
    answered: float | None, came: float, met: Met, expected: bool
) -> None:
    traffic = SimulatedTraffic(random.Random(1), 1.0)
    queue = ("orders", "g0", 0)
    traffic.history.sent("key", "sender", queue, acknowledged=answered is not None)
    if answered is not None:
        traffic.answered["key"] = answered
    traffic.history.delivered("key", "readers", queue, 7)
    traffic.came["key"] = [came]
    assert traffic.perhaps_gone(lambda group: (met,) if group == "g0" else ()) == ({"key"} if expected else set())


@pytest.mark.parametrize(
    ("due", "came", "expected"),
    [
        pytest.param(80.0, 97.0, True, id="a slave delivered it late, shortly before the loss"),
        pytest.param(80.0, 88.0, False, id="late, but flushed since"),
        pytest.param(101.0, 104.0, False, id="after the loss"),
        pytest.param(99.0, 104.0, True, id="its copy may have come back before it came"),
    ],
)
def test_the_copy_of_a_delayed_message_was_stored_between_its_time_and_its_coming(
    due: float, came: float, expected: bool
) -> None:
    traffic = SimulatedTraffic(random.Random(1), 1.0)
    traffic.answered["key"], traffic.due["key"], traffic.came["key"] = 79.0, due, [came]
    traffic.history.delivered("key", "readers", ("orders", "g0", 0), 7)
    assert traffic.perhaps_gone(lambda group: (POWER,)) == ({"key"} if expected else set())


STEPPED = Met("clock-back", Home.MASTER, 95.0, 105.0, host="c1", jump_seconds=-20.0)


@pytest.mark.parametrize(
    ("key", "answered", "met", "due", "by_clock"),
    [
        pytest.param("delayed-0-1", 100.0, STEPPED, 130.4, (110.4,), id="stored by a clock that was behind"),
        pytest.param("timed-0-1", 100.0, STEPPED, 131.0, (111.0,), id="the timer delivers when a second is over"),
        pytest.param("delayed-0-1", 94.0, STEPPED, 130.4, (), id="before it was"),
        pytest.param("delayed-0-1", 106.0, STEPPED, 130.4, (), id="when it was right again"),
        pytest.param("delayed-0-1", 100.0, attrs.evolve(STEPPED, home=Home.SLAVE), 130.4, (), id="another clock"),
        pytest.param("delayed-0-1", None, STEPPED, 130.4, (), id="nobody knows when"),
        pytest.param("delayed-0-1", 100.0, CUT, 130.4, (), id="no clock"),
    ],
)
def test_a_message_is_due_by_the_clock_of_who_stored_it(
    key: str, answered: float | None, met: Met, due: float, by_clock: tuple[float, ...]
) -> None:
    traffic = SimulatedTraffic(random.Random(1), 1.0)
    traffic.history.sent(key, key, ("orders", "g0", 0), acknowledged=answered is not None)
    if answered is not None:
        traffic.answered[key] = answered
    traffic.due[key], traffic.came[key], traffic.places[key] = 130.4, [140.0, 140.1], [("g0", 500), ("g0", 900)]
    (found,) = traffic.repeats(lambda group: (met,), lambda group: frozenset(("c1", "c2")))
    assert (found.due, found.by_clock) == (due, pytest.approx(by_clock))


def test_a_fault_explains_a_repeat_of_what_was_due_then_by_the_clock_of_who_stored_it() -> None:
    # Given a message that a broker delivers and dies, twenty seconds before it is due by right clocks
    dead = Met("kill", Home.MASTER, 111.2, 120.0, host="c1")
    hosts = frozenset(("c1", "c2"))
    found = Repeat("key", True, 131.0, (125.0, 125.0), (STEPPED, dead), hosts, longest_delay_seconds=50.0)
    assert judge([found])[1]
    counts, violations = judge([attrs.evolve(found, by_clock=(111.0,))])
    assert (dict(counts), violations) == ({"sudden death": 1}, [])
