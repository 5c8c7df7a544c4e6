"""A cluster in this process, and a producer that has made its topic."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mqclient_rig import TOPIC, master

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.producer import Producer, open_producer
from understudy.runtime.world import World, real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually


@pytest.fixture
async def world() -> World:
    return real_world()


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as running:
        yield running


@pytest.fixture
async def producer(cluster: LocalCluster, world: World) -> AsyncIterator[Producer]:
    async with open_producer(world, cluster.namesrv_address, "pg") as opened:
        await topics.save_topic(opened.session, await master(opened), TopicSettings(TOPIC, 4, 4))
        await eventually(lambda: topics.exists(opened.session, TOPIC))
        yield opened
