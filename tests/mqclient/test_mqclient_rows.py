"""Queues stay in their machine room, and an unknown group is called one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.mqclient.allocation import AVERAGELY, BY_CIRCLE, nearby
from understudy.mqclient.errors import RouteNotFoundError
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import open_session
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster

BY_PREFIX = nearby(AVERAGELY, lambda queue: queue.broker_name[:2], lambda client_id: client_id[:2])
QUEUES = [MessageQueue("T", f"{room}-broker", number) for room in ("r1", "r2", "r3") for number in range(4)]


def test_queues_of_a_room_without_members_are_shared_by_all() -> None:
    members = ["r1-a", "r1-b", "r2-a"]
    assert BY_PREFIX.name == "MACHINE_ROOM_NEARBY-AVG"
    assert BY_PREFIX.allocate("r1-a", QUEUES, members) == [*QUEUES[0:2], *QUEUES[8:10]]
    assert BY_PREFIX.allocate("r1-b", QUEUES, members) == [*QUEUES[2:4], QUEUES[10]]
    assert BY_PREFIX.allocate("r2-a", QUEUES, members) == [*QUEUES[4:8], QUEUES[11]]
    assert BY_PREFIX.allocate("r3-a", QUEUES, members) == []


@given(st.sets(st.sampled_from([f"r{room}-{name}" for room in range(5) for name in "abc"]), min_size=1))
def test_every_queue_has_one_owner_and_leaves_its_room_only_when_nobody_is_there(members: set[str]) -> None:
    ordered = sorted(members)
    rooms = {member[:2] for member in members}
    for strategy in (BY_PREFIX, nearby(BY_CIRCLE, lambda queue: queue.broker_name[:2], lambda member: member[:2])):
        shares = {member: strategy.allocate(member, QUEUES, ordered) for member in ordered}
        assert sorted(queue for share in shares.values() for queue in share) == sorted(QUEUES)
        for member, share in shares.items():
            assert all(queue.broker_name[:2] in (member[:2],) or queue.broker_name[:2] not in rooms for queue in share)


async def test_a_group_that_was_never_there_is_called_unknown_not_its_inner_topic_missing() -> None:
    async with LocalCluster() as cluster, open_session(real_world(), cluster.namesrv_address) as session:
        with pytest.raises(RouteNotFoundError, match="no consumer of the group gg was ever connected; check its name"):
            await session.route("%RETRY%gg")
