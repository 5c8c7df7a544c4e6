"""The judge of repeats: locks that are lost, copies in several logs, and what no fault explains."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from understudy.mqclient.assigned import AssignedQueue
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.lock_watch import LockWatch
from understudy.testkit.drills.met_faults import Home, Met

CUT = Met("cut", Home.MASTER, 100.0, 120.0)
POWER = Met("power", Home.MASTER, 100.0, 102.0, flushed=False)
AWAY = Met("pause", Home.MASTER, 100.0, 112.0, host="c1")
LAST = Met("kill", Home.SLAVE, 110.5, 130.0, host="c2")


def repeat(due: float, *met: Met, came: int = 2, delayed: bool = True) -> Repeat:
    return Repeat("key", delayed, due, (due,) * came, met)


DEAD = Met("kill", Home.MASTER, 100.0, 110.0, host="c1")


@pytest.mark.parametrize(
    ("came", "met", "hosts", "row"),
    [
        pytest.param(95.0, (DEAD,), "c1 c2", "sudden death", id="its commit was known to the dead master only"),
        pytest.param(93.5, (DEAD,), "c1 c2", None, id="it had been committed"),
        pytest.param(101.0, (DEAD,), "c1 c2", None, id="it was consumed at the slave"),
        pytest.param(95.0, (DEAD,), "c1 c2 c3", None, id="consumers kept their locks"),
        pytest.param(
            95.0, (DEAD, attrs.evolve(LAST, begin=109.0)), "c1 c2 c3", "sudden death", id="locks were lost later"
        ),
        pytest.param(
            95.0,
            (attrs.evolve(DEAD, end=130.0), attrs.evolve(LAST, begin=121.0)),
            "c1 c2 c3",
            None,
            id="locks were lost when it had come again",
        ),
        pytest.param(
            98.0,
            (DEAD, *(Met("kill", Home.SLAVE, 80.0, 96.0, host=host) for host in ("c2", "c3"))),
            "c1 c2 c3",
            None,
            id="locks had been lost before it came",
        ),
        pytest.param(
            95.0,
            (
                attrs.evolve(DEAD, end=102.0),
                *(Met("kill", Home.SLAVE, 119.0, 140.0, host=host) for host in ("c2", "c3")),
            ),
            "c1 c2 c3",
            None,
            id="locks were lost when it had long been committed elsewhere",
        ),
        pytest.param(95.0, (attrs.evolve(DEAD, kind="cut"),), "c1 c2", None, id="the master knew it all the time"),
        pytest.param(105.0, (AWAY, LAST), "c1 c2", "acting slave lost", id="its commit was known to the last one only"),
        pytest.param(93.5, (AWAY, LAST), "c1 c2", None, id="it was committed at the master"),
    ],
)
def test_a_plain_message_comes_again_only_where_its_commit_and_its_lock_got_lost(
    came: float, met: tuple[Met, ...], hosts: str, row: str | None
) -> None:
    found = attrs.evolve(repeat(came, *met, delayed=False), came=(came, 120.0), hosts=frozenset(hosts.split()))
    counts, violations = judge([found])
    assert (dict(counts), bool(violations)) == ({} if row is None else {row: 1}, row is None)


@pytest.mark.parametrize(
    ("came", "acted", "met", "allowed"),
    [
        pytest.param(99.5, 110.2, (AWAY, LAST), True, id="nobody could be told before"),
        pytest.param(93.5, 110.2, (AWAY, LAST), False, id="the master had been told"),
        pytest.param(
            99.5, 110.2, (attrs.evolve(AWAY, end=130.0), attrs.evolve(LAST, begin=115.1)), True, id="nor by then"
        ),
        pytest.param(
            99.5,
            110.2,
            (attrs.evolve(AWAY, end=130.0), attrs.evolve(LAST, begin=115.3)),
            False,
            id="the slave was told",
        ),
        pytest.param(99.5, None, (AWAY, LAST), False, id="that one did not act"),
        pytest.param(99.5, 99.0, (AWAY, LAST), False, id="it had acted before"),
        pytest.param(99.5, 110.2, (attrs.evolve(AWAY, end=109.0), LAST), False, id="the master was back"),
        pytest.param(99.5, 110.2, (attrs.evolve(AWAY, kind="cut-off-servers"), LAST), False, id="it was reached"),
    ],
)
def test_a_commit_is_lost_with_a_slave_that_had_just_begun_to_act(
    came: float, acted: float | None, met: tuple[Met, ...], allowed: bool
) -> None:
    hosts = frozenset(("c1", "c2", "c3"))
    began = () if acted is None else ((acted, "c2"),)
    counts, violations = judge([Repeat("key", False, came, (came, 140.0), met, hosts, acted=began)])
    assert (dict(counts), bool(violations)) == ({"acting slave lost": 1} if allowed else {}, not allowed)


MUTE = Met("cut-out", Home.MASTER, 100.0, 130.0, host="c1")
UNSERVED = Met("cut-in", Home.SERVER, 99.0, 120.0, host="n1", unserved=True)
ALSO = Met("power", Home.SLAVE, 102.0, 140.0, host="c2")


@pytest.mark.parametrize(
    ("came", "again", "met", "row"),
    [
        pytest.param(94.5, 121.0, (MUTE, UNSERVED), "silent master", id="only the silent master knew it"),
        pytest.param(125.0, 131.0, (MUTE, UNSERVED), "silent master", id="it was consumed at the silent master"),
        pytest.param(105.0, 131.0, (MUTE, ALSO), "silent master", id="two of three were away"),
        pytest.param(93.5, 131.0, (MUTE, ALSO), None, id="its commit was copied before"),
        pytest.param(125.0, 131.0, (MUTE, attrs.evolve(ALSO, end=110.0)), None, id="one was back before"),
        pytest.param(105.0, 131.0, (MUTE, attrs.evolve(ALSO, host="c9")), None, id="no member was away"),
        pytest.param(93.5, 121.0, (MUTE, UNSERVED), None, id="its commit was copied"),
        pytest.param(105.0, 109.0, (MUTE, UNSERVED), None, id="locks were held still"),
        pytest.param(105.0, 121.0, (MUTE,), None, id="a slave granted locks"),
        pytest.param(105.0, 121.0, (MUTE, attrs.evolve(UNSERVED, unserved=False)), None, id="another one told"),
        pytest.param(105.0, 131.0, (MUTE, attrs.evolve(UNSERVED, begin=112.0)), None, id="a slave acted before"),
        pytest.param(105.0, 121.0, (MUTE, attrs.evolve(UNSERVED, begin=70.0, end=90.0)), None, id="it was back before"),
        pytest.param(131.5, 140.0, (MUTE, UNSERVED), None, id="the fault was over"),
        pytest.param(
            125.0,
            140.0,
            (MUTE, *(attrs.evolve(ALSO, begin=132.0, host=host) for host in ("c2", "c3"))),
            None,
            id="locks were lost when it was over",
        ),
        pytest.param(
            125.0,
            158.0,
            (
                MUTE,
                attrs.evolve(MUTE, kind="kill", begin=140.0, end=160.0),
                attrs.evolve(UNSERVED, begin=141.0, end=160.0),
            ),
            None,
            id="the master was lost once more when it was over",
        ),
        pytest.param(
            95.0,
            121.0,
            (attrs.evolve(MUTE, kind="kill", end=102.0), UNSERVED),
            "sudden death",
            id="it waits",
        ),
    ],
)
def test_locks_run_out_where_nobody_can_be_asked(
    came: float, again: float, met: tuple[Met, ...], row: str | None
) -> None:
    hosts = frozenset(("c1", "c2", "c3"))
    counts, violations = judge([Repeat("key", False, came, (came, again), met, hosts)])
    assert (dict(counts), bool(violations)) == ({} if row is None else {row: 1}, row is None)


DEAF_MASTER = attrs.evolve(MUTE, kind="cut-in", end=140.0)


@pytest.mark.parametrize(
    ("came", "again", "met", "ran_out", "allowed"),
    [
        pytest.param(105.0, 135.0, DEAF_MASTER, (125.0,), True, id="nobody was there to renew it"),
        pytest.param(94.5, 135.0, DEAF_MASTER, (125.0,), True, id="its commit was on its way"),
        pytest.param(93.5, 135.0, DEAF_MASTER, (125.0,), False, id="its commit was copied"),
        pytest.param(105.0, 135.0, DEAF_MASTER, (), False, id="locks were held"),
        pytest.param(126.0, 135.0, DEAF_MASTER, (125.0,), False, id="it was lost before it came"),
        pytest.param(105.0, 120.0, DEAF_MASTER, (125.0,), False, id="it was lost when it had come again"),
        pytest.param(105.0, 135.0, DEAF_MASTER, (132.0,), False, id="it was renewed while the master heard"),
        pytest.param(105.0, 135.0, attrs.evolve(DEAF_MASTER, end=120.0), (125.0,), False, id="the master heard again"),
        pytest.param(105.0, 135.0, attrs.evolve(DEAF_MASTER, kind="cut"), (125.0,), False, id="nobody was shown it"),
        pytest.param(105.0, 135.0, attrs.evolve(DEAF_MASTER, home=Home.SLAVE), (125.0,), False, id="the master heard"),
    ],
)
def test_a_lock_runs_out_at_a_master_that_is_heard_and_hears_nobody(
    came: float, again: float, met: Met, ran_out: tuple[float, ...], allowed: bool
) -> None:
    hosts = frozenset(("c1", "c2", "c3"))
    counts, violations = judge([Repeat("key", False, came, (came, again), (met,), hosts, ran_out=ran_out)])
    assert (dict(counts), bool(violations)) == ({"silent master": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(
    ("dropped_at", "acting_at", "expected"),
    [
        pytest.param(31.0, None, (31.0,), id="it ran out"),
        pytest.param(29.0, None, (), id="it was taken away"),
        pytest.param(31.0, 0.0, (31.0,), id="a slave had acted before it was granted"),
        pytest.param(31.0, 12.0, (), id="a slave could have renewed it"),
    ],
)
async def test_a_lock_that_runs_out_is_noted_once(
    dropped_at: float, acting_at: float | None, expected: tuple[float, ...], autojump_clock: MockClock
) -> None:
    begun, watch, queue = trio.current_time(), LockWatch(), MessageQueue("orders", "g0", 1)
    assigned = AssignedQueue(queue, locked_at=begun + 0.9)
    held = {queue: assigned}
    for second in range(40):
        if second == dropped_at:
            assigned.dropped = True
        if second == dropped_at + 3:
            held[queue] = AssignedQueue(queue)
        watch.look(held, ["g0"] if acting_at is not None and acting_at <= second < acting_at + 1 else ["g1"])
        await trio.sleep(1)
    assert expected == tuple(seconds - begun for seconds in watch.ran_out(queue))
    assert not watch.ran_out(MessageQueue("orders", "g0", 0))


@pytest.mark.parametrize(
    ("places", "row"),
    [
        ((("g2", 90), ("g1", 500)), "escape unanswered"),
        ((("g0", 90), ("g3", 500)), None),  # nothing is at the master that was away
        ((("g2", 90), ("g2", 500)), None),  # both are
    ],
)
def test_what_was_under_way_to_a_masters_host_that_was_away_is_stored_there_when_it_is_back(
    places: tuple[tuple[str, int], ...], row: str | None
) -> None:
    own = Met("pause", Home.MASTER, 99.0, 112.0, host="c1")
    away = Met("cut", Home.SLAVE, 100.0, 120.0, host="c3", masters=frozenset(("g2",)))
    found = Repeat("key", True, 104.5, (118.0, 121.0), (own, away), frozenset(("c1", "c2", "c3", "c4")), places=places)
    counts, violations = judge([found])
    assert (dict(counts), bool(violations)) == ({} if row is None else {row: 1}, row is None)


@pytest.mark.parametrize(
    ("due", "kind", "own", "places", "allowed"),
    [
        pytest.param(105.0, "cut", Met("kill", Home.MASTER, 80.0, 110.0), (), True, id="nobody knows where they are"),
        pytest.param(110.9, "cut", Met("kill", Home.SERVER, 80.0, 110.0), (), True, id="it was tried until then"),
        pytest.param(111.1, "cut", Met("kill", Home.MASTER, 80.0, 110.0), (), False, id="it was known to be away"),
        pytest.param(89.1, "power", Met("kill", Home.MASTER, 80.0, 110.0), (), True, id="it was due before one acted"),
        pytest.param(88.9, "power", Met("kill", Home.MASTER, 80.0, 110.0), (), False, id="it had long been put"),
        pytest.param(105.0, "slow", Met("kill", Home.MASTER, 80.0, 110.0), (), False, id="it was slow only"),
        pytest.param(105.0, "cut", Met("kill", Home.MASTER, 80.0, 110.0), ("g2", "g1"), True, id="one is there"),
        pytest.param(105.0, "cut", Met("kill", Home.MASTER, 80.0, 110.0), ("g2", "g2"), True, id="both are there"),
        pytest.param(105.0, "cut", Met("kill", Home.MASTER, 80.0, 110.0), ("g1", "g3"), True, id="put with others"),
        pytest.param(105.0, "cut", Met("kill", Home.MASTER, 80.0, 110.0), ("g1", "g1"), False, id="none has escaped"),
        pytest.param(110.9, "power", Met("kill", Home.MASTER, 80.0, 110.0), (), True, id="no power, no answer"),
        pytest.param(101.1, "kill", Met("kill", Home.MASTER, 80.0, 110.0), (), False, id="its connections ended"),
        pytest.param(105.0, "cut", Met("kill", Home.SLAVE, 80.0, 110.0), ("g2", "g1"), False, id="nothing escapes"),
        pytest.param(105.0, "cut", Met("kill", Home.MASTER, 120.5, 130.0), ("g2", "g1"), False, id="nothing did yet"),
    ],
)
def test_what_escaped_and_was_not_answered_is_where_it_went(
    due: float, kind: str, own: Met, places: tuple[str, ...], allowed: bool
) -> None:
    away = Met(kind, Home.OTHER, 100.0, 120.0, host="c2", masters=frozenset(("g2",)))
    found = repeat(due, own, away)
    counts, violations = judge([attrs.evolve(found, places=tuple((group, at) for at, group in enumerate(places)))])
    assert (dict(counts), bool(violations)) == ({"escape unanswered": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(("asleep_from", "allowed"), [(100.5, True), (104.0, False)])
def test_a_host_that_falls_asleep_before_it_can_notice_a_silence_notices_it_later(
    asleep_from: float, allowed: bool
) -> None:
    asleep = Met("suspend", Home.MASTER, asleep_from, asleep_from + 5.5, host="c1")
    counts, violations = judge([repeat(109.4, MUTE, asleep)])
    assert (dict(counts), bool(violations)) == ({"silence": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(("met", "row"), [((MUTE, ALSO), "silent master"), ((MUTE,), None)])
def test_a_delayed_message_that_is_read_again_where_it_stands_is_a_plain_one(
    met: tuple[Met, ...], row: str | None
) -> None:
    again = Repeat("key", True, 110.0, (110.0, 131.0), met, frozenset(("c1", "c2", "c3")), places=(("g0", 500),) * 2)
    counts, violations = judge([again])
    assert (dict(counts), bool(violations)) == ({} if row is None else {row: 1}, row is None)
    assert judge([attrs.evolve(again, places=(("g0", 500), ("g1", 90)))])[1]  # a second copy has another reason


@pytest.mark.parametrize(
    ("places", "met", "row"),
    [
        pytest.param((("g0", 500), ("g1", 90)), (CUT,), "silence", id="another copy"),
        pytest.param((("g0", 500), ("g0", 500)), (CUT,), None, id="the same one, and nobody lost a lock"),
        pytest.param((("g0", 500), ("g0", 500)), (POWER,), "sudden death", id="what stood there was lost"),
        pytest.param((("g0", 500), ("g0", 500)), (attrs.evolve(POWER, begin=90.0),), None, id="it was lost before"),
    ],
)
def test_no_fault_of_who_delivers_explains_that_a_copy_is_read_twice(
    places: tuple[tuple[str, int], ...], met: tuple[Met, ...], row: str | None
) -> None:
    hosts = frozenset(("c1", "c2", "c3"))
    counts, violations = judge([Repeat("key", True, 99.5, (99.5, 118.0), met, hosts, places=places)])
    assert (dict(counts), bool(violations)) == ({} if row is None else {row: 1}, row is None)
    thrice = Repeat("key", True, 99.5, (99.5, 118.0, 119.0), met, hosts, places=(*places, places[1]))
    assert judge([thrice])[1]


@pytest.mark.parametrize(("asleep_from", "allowed"), [(98.0, True), (101.0, False)])
def test_a_host_that_is_suspended_notices_nothing_before_it_wakes(asleep_from: float, allowed: bool) -> None:
    asleep = Met("suspend", Home.MASTER, asleep_from, 103.0, host="c1")
    counts, violations = judge([repeat(106.5, MUTE, asleep)])
    assert (dict(counts), bool(violations)) == ({"silence": 1} if allowed else {}, not allowed)


def test_each_copy_that_comes_again_needs_a_reason() -> None:
    hosts = frozenset(("c1", "c2", "c3"))
    here, elsewhere = ("g0", 500), ("g1", 90)

    def rows(places: tuple[tuple[str, int], ...], *met: Met) -> dict[str, int] | None:
        counts, violations = judge([Repeat("key", True, 101.0, (101.0, 118.0, 121.0), met, hosts, places=places)])
        return None if violations else dict(counts)

    assert rows((here, elsewhere, here), MUTE, UNSERVED) == {"silence": 1, "silent master": 1}
    assert rows((here, elsewhere, here), MUTE) is None
    assert rows((here, elsewhere, ("g1", 300)), MUTE, UNSERVED) is None


@pytest.mark.parametrize(("lost", "allowed"), [(125.0, True), (112.0, True), (109.0, False)])
def test_what_had_long_been_flushed_is_no_other_copy_after_a_loss_of_power(lost: float, allowed: bool) -> None:
    # Given a master that ends when its progress and a commit are known to it alone, and then loses its power
    away, later = attrs.evolve(ALSO, begin=80.0, end=120.0), attrs.evolve(POWER, begin=lost, end=130.0, host="c1")
    places = (("g0", 500), ("g0", 500), ("g0", 900))
    met = (attrs.evolve(DEAD, end=105.0), away, later)
    # When what it delivered is read again, and once more from where it was put afterwards
    found = Repeat("key", True, 99.9, (99.9, 150.0, 150.0), met, frozenset(("c1", "c2")), places=places)
    counts, violations = judge([found])
    # Then the first of them is the same copy, if it cannot have been lost
    assert (dict(counts), bool(violations)) == ({"sudden death": 2} if allowed else {}, not allowed)


SIGNED_OFF = Met("sign-off", Home.MASTER, 100.0, 101.0, host="c1")


@pytest.mark.parametrize(("due", "allowed"), [(98.9, False), (99.1, True), (101.9, True), (102.1, False)])
def test_a_master_that_was_signed_off_delivers_until_it_looks_at_its_group(due: float, allowed: bool) -> None:
    counts, violations = judge([repeat(due, SIGNED_OFF)])
    assert (dict(counts), bool(violations)) == ({"signed off": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(("due", "allowed"), [(99.9, False), (100.05, True), (100.2, False)])
def test_a_master_whose_connections_break_delivers_until_it_is_answered(due: float, allowed: bool) -> None:
    counts, violations = judge([repeat(due, Met("reset", Home.MASTER, 100.0, 101.0, host="c1"))])
    assert (dict(counts), bool(violations)) == ({"dropped": 1} if allowed else {}, not allowed)


@pytest.mark.parametrize(
    ("met", "due"),
    [
        (DEAD, 99.5),
        (MUTE, 99.5),
        (Met("cut-off-servers", Home.MASTER, 100.0, 120.0), 110.0),
        (SIGNED_OFF, 99.5),
    ],
)
def test_no_row_of_a_lost_master_explains_what_the_slave_had_in_its_log(met: Met, due: float) -> None:
    assert not judge([repeat(due, met)])[1]
    assert judge([attrs.evolve(repeat(due, met), recognizable=True)])[1]


@pytest.mark.parametrize("kind", ["slow", "clock-forward", "clock-back", "cut-copies", "reset"])
@pytest.mark.parametrize("home", list(Home))
def test_no_fault_that_silences_nobody_explains_a_repeat(kind: str, home: Home) -> None:
    away = {Home.MASTER: Home.SLAVE, Home.SLAVE: Home.MASTER}.get(home, Home.SLAVE)
    met = Met(kind, home, 100.0, 130.0, host="c1", unserved=True), Met("cut-in", away, 90.0, 97.0, host="c2")
    for due in (99.5, 100.5, 110.0):
        found = attrs.evolve(repeat(due, *met), hosts=frozenset(("c1", "c2")))
        assert judge([found])[1]
        assert judge([attrs.evolve(found, delayed=False, came=(due, 131.0))])[1]
