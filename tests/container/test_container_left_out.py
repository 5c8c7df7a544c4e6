"""A master that went on without a slave: what that slave alone knows is taken over once it can be reached."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from container_ring import TOPIC, Ring, acting, cut_between, drop, members_at, open_ring, run

from understudy.broker.broker import Broker
from understudy.broker.merge import Reason, Row, StampedOffset, merge, stamped, unmoved, up_to_date
from understudy.format.json_dialect import loads
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until


async def left_out(ring: Ring, master: Broker, slave: Broker) -> None:
    """Let *master* be dropped while *slave* cannot be reached; return when it serves again without it."""
    await drop(ring, master, "n1")
    await until(lambda: slave in acting(ring), 1, 0.001)
    for group in ("readers", "moved", "sought", "unknown"):
        await ring.commit(slave, 17, group)
    slave.offsets.assign_reset("reset", TOPIC, 0, 3)
    await until(lambda: master.registration.isolated, 3)
    await trio.sleep(4)
    assert (await ring.info(master))["preOnline"].startswith("under way: ")
    await until(lambda: 0 in members_at(ring, "n1"), 20)
    await until(lambda: acting(ring) == [], 2)


def first_slave_alone(ring: Ring) -> Callable[[], None]:
    """Cut the first slave of g0 off from both others: what it is told is known there only. Returns what mends it."""
    mends = [cut_between(ring, "c2", other) for other in ("c1", "c3")]

    def mend() -> None:
        for each in mends:
            each()

    return mend


@pytest.mark.parametrize("restarts", [False, True], ids=["the link comes back", "its process starts anew meanwhile"])
def test_what_a_slave_was_told_that_was_left_out_is_taken_over_where_nobody_has_moved_since(restarts: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            # given four groups, and a master that was dropped and came back without its first slave
            for group in ("readers", "moved", "sought", "reset"):
                await ring.commit(master, 10, group)
            await trio.sleep(2.1)
            mend = first_slave_alone(ring)
            await left_out(ring, master, slave)
            # and groups that moved at the master since, one forward, one back
            await ring.commit(master, 12, "moved")
            await ring.commit(master, 4, "sought")
            await trio.sleep(10)
            assert master.offsets.query("readers", TOPIC, 0) == 10
            # when the slave can be reached again
            if restarts:
                await ring.cluster.kill("c2")
                await ring.cluster.restart("c2")
            mend()
            await until(lambda: master.offsets.query("readers", TOPIC, 0) == 17, 15)
            # then what it knew is taken over, but for what somebody has moved
            there = {group: master.offsets.query(group, TOPIC, 0) for group in ("moved", "sought", "reset", "unknown")}
            assert there == {"moved": 12, "sought": 4, "reset": 3, "unknown": 17}
            # and the report of that return tells it
            report = loads((await ring.ask(master, RequestCode.GET_PRE_ONLINE_REPORT)).body)
            assert "slave 1 was heard later" in report["trouble"]
            rows = {row["key"].partition("@")[2]: row for row in report["rows"] if row["slaveId"] == 1}
            assert (rows["readers"]["before"], rows["readers"]["slave"], rows["readers"]["merged"]) == (10, 17, 17)
            assert rows["moved"]["why"] == rows["sought"]["why"] == Reason.MOVED.value
            # and the group is complete, with nobody asking any more
            await ring.online()
            assert "late take-over" not in master.services.running()
            assert members_at(ring, "n1") == [0, 1, 2]

    run(scenario)


def test_a_master_that_is_dropped_again_takes_over_in_pre_online_what_is_still_missing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 10)
            await trio.sleep(2.1)
            mend = first_slave_alone(ring)
            await left_out(ring, master, slave)
            assert "late take-over" in master.services.running()
            await trio.sleep(0.5)  # a heartbeat that is under way as it comes would register it anew at once
            # when it is dropped again and the link comes back meanwhile
            await drop(ring, master, "n1")
            await until(lambda: master.registration.isolated, 2, 0.001)
            mend()
            await until(lambda: 0 in members_at(ring, "n1"), 20)
            # then there is one report, of a whole return
            assert master.offsets.query("readers", TOPIC, 0) == 17
            report = loads((await ring.ask(master, RequestCode.GET_PRE_ONLINE_REPORT)).body)
            assert [each["brokerId"] for each in report["slaves"]] == [1, 2]
            assert "late take-over" not in master.services.running()

    run(scenario)


def test_a_slave_that_will_never_answer_is_remembered_until_an_operator_ends_that() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            await ring.commit(master, 10)
            await trio.sleep(2.1)
            first_slave_alone(ring)
            await left_out(ring, master, slave)
            await ring.cluster.kill("c2")
            # given a master that went on without a slave, and has started once more since
            await ring.cluster.kill("c1")
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 40)
            roster = loads((await ring.ask(master, RequestCode.GET_BROKER_ROSTER)).body)
            assert any("online without slave 1" in warning for warning in roster["warnings"])
            # when an operator knows that it is gone for good
            assert (await ring.ask(master, RequestCode.FINISH_PRE_ONLINE)).code == 0
            # then nobody asks for it any more, in this life or the next one
            await until(lambda: "late take-over" not in master.services.running(), 1)
            assert loads((await ring.ask(master, RequestCode.GET_BROKER_ROSTER)).body)["warnings"] == []
            assert (await ring.ask(master, RequestCode.FINISH_PRE_ONLINE)).code == 22
            await trio.sleep(70)  # it is forgotten as a member
            assert master.member_group.memory.left_out == ()
            await ring.cluster.kill("c1")
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.registration.isolated, 40)
            assert "late take-over" not in master.services.running()

    run(scenario)


def test_only_places_that_stand_where_they_stood_move() -> None:
    before = stamped({"t@g": {0: 5, 1: 5, 2: 5, 3: 5}})
    own = stamped({"t@g": {0: 5, 1: 6, 2: 3}, "t@new": {0: 2}})
    other = stamped({"t@g": {0: 9, 1: 9, 2: 9, 3: 9}, "t@new": {0: 8}, "t@other": {0: 1}})
    rows = {(row.key, row.queue_id): row for row in unmoved(merge(own, other), before)}
    assert {key: row.merged.offset for key, row in rows.items()} == {
        ("t@g", 0): 9,
        ("t@g", 1): 6,  # went on
        ("t@g", 2): 3,  # was sought back
        # queue 3 was removed meanwhile
        ("t@new", 0): 2,  # began here meanwhile
        ("t@other", 0): 1,
    }
    assert rows["t@g", 1] == Row("t@g", 1, StampedOffset(0, 6), StampedOffset(0, 9), StampedOffset(0, 6), Reason.MOVED)
    assert not rows["t@g", 2].changed


def test_what_has_moved_since_it_was_compared_is_merged_once_more() -> None:
    then, other = stamped({"t@g": {0: 5, 1: 5, 2: 5, 3: 5}}), stamped({"t@g": {0: 9, 1: 9, 2: 9, 3: 9, 4: 9}})
    now = stamped({"t@g": {0: 5, 1: 12, 2: 7, 4: 10}})
    rows = {row.queue_id: row for row in up_to_date(merge(then, other), now)}
    assert {queue: row.merged.offset for queue, row in rows.items()} == {
        0: 9,
        1: 12,  # went on, further than there
        2: 9,  # went on, but not so far
        # queue 3 was removed meanwhile
        4: 10,  # began here meanwhile
    }
    assert [queue for queue, row in rows.items() if row.changed] == [0, 2]
    assert rows[1].reason is Reason.MOVED
