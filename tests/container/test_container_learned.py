"""What a returning master takes over while it waits for another slave, and what it leaves to the slave that acts."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, records, run
from test_container_acting_pop import came_back, dead_master, pop_at_slave
from test_container_lost_end import copied, fail, open_group

from understudy.broker.broker import Broker
from understudy.container.preonline.handshake import Phase
from understudy.container.role_services import RoleServices
from understudy.format import names
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.testkit.drills.ring import container_of
from understudy.testkit.sim.cluster import LinkQuality
from understudy.testkit.waiting import until

GROUP = "poppers"
POP = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": "-1",
    "maxMsgNums": "32",
    "invisibleTime": "40000",
    "pollTime": "0",
    "initMode": "0",
    "bornTime": "0",
}


def master_of(ring: Ring) -> Broker:
    return ring.broker("g0", 0)


async def waiting_master(ring: Ring) -> Broker:
    """Let the master of g0 come back while its second slave is away, and its first one acts: it waits for that one."""
    await ring.cluster.restart("c1")
    await trio.sleep(3)
    assert master_of(ring).registration.isolated
    assert "schedule" in ring.broker("g0", 1).services.running()
    return master_of(ring)


def test_what_the_acting_slave_knows_is_taken_before_another_one_is_waited_for() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a slave that acts, and a second one that is away
            await ring.cluster.kill(container_of("g0", 2))
            await trio.sleep(1)
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in ring.broker("g0", 1).services.running(), 10)
            await ring.commit(ring.broker("g0", 1), 17)
            # when the master comes back, and the slave that acts is lost while it waits for the second one
            master = await waiting_master(ring)
            await ring.cluster.kill("c2")
            # then it has what that one knew before
            await until(lambda: not master.registration.isolated, 60)
            assert master.offsets.query("readers", TOPIC, 0) == 17

    run(scenario)


def test_what_a_client_commits_at_the_master_while_it_asks_its_slaves_is_not_set_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a slave that acts, where a group went on, and a slow link to it
            await ring.cluster.kill("c1")
            await until(lambda: "schedule" in ring.broker("g0", 1).services.running(), 10)
            await ring.commit(ring.broker("g0", 1), 17)
            slow, at = LinkQuality(delay_seconds=(0.3, 0.3)), ring.cluster.address
            ring.cluster.network.set_link(at("c1"), at("c2"), slow)
            # when the master comes back, and a client with an old route commits there after the slave was asked
            await ring.cluster.restart("c1")
            rules = master_of(ring).session.rules
            assert isinstance(rules, RoleServices)
            await until(lambda: rules.returning is not None and rules.returning.phase is Phase.TAKE_OVER, 20, 0.01)
            await trio.sleep(1.4)
            assert master_of(ring).registration.isolated
            await ring.commit(master_of(ring), 20)
            # then it stands
            await until(lambda: not master_of(ring).registration.isolated, 60)
            assert master_of(ring).offsets.query("readers", TOPIC, 0) == 20

    run(scenario)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_was_popped_at_the_slave_is_left_to_it_as_long_as_it_acts(acknowledged: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            for number in range(4):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
            await trio.sleep(3)
            # given messages that were popped at a slave that acts, and a second slave that is away
            await ring.cluster.kill(container_of("g0", 2))
            await trio.sleep(1)
            await dead_master(ring)
            popped = await pop_at_slave(ring, 4)
            await ack(ring.producer.session, popped[0])
            # when the others are acknowledged there, or come again from there, while the master waits for the second
            await trio.sleep(0.5 if acknowledged else 5.5)
            master = await waiting_master(ring)
            for each in popped[1:] if acknowledged else ():
                await ack(ring.producer.session, each)
            await until(lambda: not master.registration.isolated, 30)
            await ring.cluster.restart(container_of("g0", 2))
            await ring.online()
            await trio.sleep(40)
            # then the master brings none of them again
            again = () if acknowledged else popped[1:]
            assert came_back(ring) == Counter(each.message.body.decode() for each in again)

    run(scenario)


def test_what_was_popped_behind_a_lost_end_comes_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            await copied(group, 1, 2)
            await group.send(4, b"lost")
            await copied(group, 1, 2)
            # given a second slave that is away, and a master that lost the end of its log with its power
            await group.cluster.kill("c3")
            await trio.sleep(1)
            await fail(group)
            slave = group.slave(1)
            await until(slave.pops.serves, 40)
            await trio.sleep(1)
            # when its messages are popped at the slave that acts
            answer = await group.ask(slave, RequestCode.POP_MESSAGE, POP)
            assert answer.code == ResponseCode.SUCCESS
            await trio.sleep(2)
            await group.cluster.restart("c1")
            await trio.sleep(1)
            await group.online()
            # then the master brings all of them again
            await trio.sleep(70)
            retry = names.pop_retry_topic(GROUP, TOPIC)
            found = [bytes(record.body) for record in records(group.master, retry)]
            assert Counter(found) == Counter(
                [b"durable %d" % number for number in range(5)] + [b"lost %d" % number for number in range(4)]
            )

    run(scenario)
