"""A topic is deleted for good although a name server dies while that goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from understudy.broker.broker import Broker
from understudy.mqclient.admin import cluster, topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.errors import NotConnectedError, RouteNotFoundError
from understudy.mqclient.session import Session, open_session
from understudy.testkit.drills.ring import Ring
from understudy.testkit.sim.cluster import NAME_SERVER_PORT, SimCluster
from understudy.testkit.waiting import eventually

PAIR = Ring(replicas=2, name_servers=2)
TOPIC = "Orders"


async def shows(session: Session) -> bool:
    """Return whether the name server of *session* routes the topic."""
    try:
        await session.fresh_route(TOPIC)
    except RouteNotFoundError:
        return False
    return True


async def knows_all(session: Session) -> bool:
    """Return whether all brokers are registered at the name server of *session*."""
    try:
        brokers = (await cluster.cluster_info(session)).brokers
    except NotConnectedError:
        return False
    return {name: {0, 1} for name in PAIR.groups} == {name: set(each.addresses) for name, each in brokers.items()}


async def none_has(brokers: Sequence[Broker]) -> bool:
    """Return whether none of *brokers* has the topic."""
    return all(broker.topics.get(TOPIC) is None for broker in brokers)


@pytest.mark.covers("R317")
async def test_a_topic_that_is_deleted_while_a_name_server_dies_does_not_come_back(autojump_clock: MockClock) -> None:
    async with SimCluster(random.Random(5)) as whole:
        await PAIR.start(whole)
        world = whole.client_world()
        first, second = (f"{whole.address(name)}:{NAME_SERVER_PORT}" for name in PAIR.servers)
        async with (
            open_session(world, first) as of_first,
            open_session(world, second) as of_second,
            open_session(world, [first, second]) as both,
        ):
            await eventually(lambda: knows_all(of_first), 60, 1)
            masters = [broker.identity.address for group in PAIR.groups if (broker := PAIR.broker_of(whole, group, 0))]
            # given a topic that both name servers route
            for address in masters:
                await topics.save_topic(both, address, TopicSettings(TOPIC, 4, 4))
            await eventually(lambda: shows(of_first), 60, 1)
            await eventually(lambda: shows(of_second), 60, 1)
            await trio.sleep(10)  # slaves know that their logs continue their masters': before that they delete nothing
            # when one of them dies in the middle of the deletion
            await topics.delete_topic_in_broker(both, masters[0], TOPIC)
            await whole.kill("n1")
            await topics.delete_topic_in_broker(both, masters[1], TOPIC)
            with pytest.raises(NotConnectedError):
                await topics.delete_topic_in_name_servers(both, TOPIC)
            # (what a slave tells a new name server before its master does counts there, so it must have learned of it)
            slaves = [broker for group in PAIR.groups if (broker := PAIR.broker_of(whole, group, 1))]
            await eventually(lambda: none_has(slaves), 5, 0.1)
            await whole.restart("n1")
            await eventually(lambda: knows_all(of_first), 120, 1)
            # then nobody routes it, and no broker, slave or master, brings it back
            await trio.sleep(90)
            assert [False, False] == [await shows(of_first), await shows(of_second)]
            # also when brokers and the other name server start anew
            for name in ("n2", *PAIR.containers):
                await whole.kill(name)
                await whole.restart(name)
                await trio.sleep(60)
            await eventually(lambda: knows_all(of_second), 120, 1)
            assert [False, False] == [await shows(of_first), await shows(of_second)]
            for group in PAIR.groups:
                for number in (0, 1):
                    broker = PAIR.broker_of(whole, group, number)
                    assert broker is not None
                    assert broker.topics.get(TOPIC) is None
