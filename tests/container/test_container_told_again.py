"""A slave that was told that its master comes back waits for it, as long as that one is on its way and no longer."""

from __future__ import annotations

import random

import trio
from container_ring import acting, open_ring, run

from understudy.broker.member_events import Answered, Arrived, Follow, Following, LoseMaster, Notice, Noticed
from understudy.broker.member_view import Own, State, step
from understudy.container.preonline.handshake import Done, Member, Members, begin
from understudy.container.preonline.handshake import step as handshake
from understudy.testkit.drills.acting_watch import RingWatch
from understudy.testkit.drills.ring import Ring as Shape
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until


def test_no_slave_acts_while_its_master_waits_for_other_slaves() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            shape = Shape(replicas=4)
            await shape.start(cluster)
            watch = RingWatch(cluster, shape)
            await until(watch.complete, 60)
            # given a group whose slaves 2 and 3 cannot reach the log of their master
            for broker_id in (2, 3):
                slave = watch.broker("g0", broker_id)
                assert slave is not None
                slave.options.store.ha_master_address = "10.9.9.9:10912"
            await cluster.kill("c1")
            first = watch.broker("g0", 1)
            await until(lambda: watch.delivers("g0", 1), 5)
            # when the master comes back, and waits ten seconds for each of them
            await cluster.restart("c1")
            master = watch.broker("g0", 0)
            assert first is not None and master is not None
            await until(lambda: not watch.delivers("g0", 1), 5)
            began = trio.current_time()
            while master.presence.isolated:
                assert trio.current_time() - began < 40
                # then the slave that it told first goes on waiting
                assert not watch.delivers("g0", 1)
                await trio.sleep(0.01)
            assert trio.current_time() - began > 19

    run(scenario)


def test_a_master_that_dies_soon_after_its_return_is_acted_for_within_seconds() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            await ring.cluster.kill("c1")
            await until(lambda: acting(ring) == [ring.broker("g0", 1)], 5)
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: not master.presence.isolated, 30)
            await trio.sleep(1)
            assert acting(ring) == []
            await ring.cluster.kill("c1")
            assert await until(lambda: acting(ring) == [ring.broker("g0", 1)], 12) < 0.5

    run(scenario)


def test_an_old_entry_that_goes_is_no_loss_of_a_master_that_has_just_said_that_it_comes_back() -> None:
    slave = State(Own(1, "s1:1", True), members={0: "m:1", 1: "s1:1"})
    gone = Notice(1, "s1:1", "m:1", None)
    _, lost = step(slave, Noticed(gone, following=Following("m:1")), 5.0)
    _, kept = step(slave, Noticed(gone, following=Following("m:1", returning=True)), 5.0)
    assert (LoseMaster() in lost, LoseMaster() in kept) == (True, False)
    _, back = step(slave, Noticed(Notice(0, "m:1", None, "m:2"), following=Following("m:1", returning=True)), 6.0)
    assert Follow("m:1", "m:2") in back


def test_a_master_has_arrived_when_it_is_listed_anew() -> None:
    returning = Following("m:1", returning=True)
    alone, both = State(Own(1, "s1:1", True), members={1: "s1:1"}), {0: "m:1", 1: "s1:1"}
    state, actions = step(alone, Answered("n1", both, following=returning), 5.0)
    assert Arrived() in actions
    # an entry that was there all the time may be of its former life
    _, actions = step(state, Answered("n1", both, following=returning), 6.0)
    assert Arrived() not in actions


def test_whom_a_returning_broker_has_told_is_known_in_every_phase() -> None:
    one, two = Member(1, "s1:1"), Member(2, "s2:1")
    state = begin(Member(0, "m:1"), (), lone=False, now=0.0, patience_seconds=60, timeout_seconds=10)
    told = []
    for event in (Members((one, two)), *[Done()] * 8):
        state = handshake(state, event, 0.0)
        told.append(state.told)
    # it completes its log, announces itself, waits for copies and takes over: of one slave, then of the other
    assert told == [(), (), (one,), (one,), (one,), (one,), (one, two), (one, two), (one, two)]
