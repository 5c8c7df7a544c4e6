"""Accidents of a simulated cluster: they meet a host that is there, and do what they say."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from understudy.mqclient.errors import SendFailedError
from understudy.mqclient.message import message
from understudy.mqclient.producer import ProducerOptions, open_producer
from understudy.testkit.sim.clock import StoppableClock
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork
from understudy.testkit.sim.process import SimProcess


def test_an_accident_of_a_host_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            says = r"no host 'c11' in this cluster; did you mean c1\? Hosts: n1, c1"
            for accident in (cluster.kill, cluster.stop, cluster.restart):
                with pytest.raises(ValueError, match=says):
                    await accident("c11")
            for at_once in (cluster.freeze, cluster.unfreeze, cluster.slow, cluster.disk_full):
                with pytest.raises(ValueError, match=says):
                    at_once("c11")
            with pytest.raises(ValueError, match=says):
                cluster.jump("c11", 5)
            with pytest.raises(ValueError, match=says):
                cluster.partition(["c1"], ["c11"])

    run_seed(scenario, 1)


def test_a_host_freezes_slows_down_jumps_and_runs_out_of_space_and_recovers() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a"}])
            world, servers = cluster.client_world(), cluster.name_servers
            async with open_producer(world, servers, "pg", ProducerOptions(send_timeout_ms=2_000)) as producer:

                async def send() -> float:
                    began = trio.current_time()
                    await producer.send(message("T", b"x"))
                    return trio.current_time() - began

                quick = await send()
                cluster.freeze("c1")
                before = cluster.host("c1").clock.monotonic()
                with pytest.raises(SendFailedError):
                    await send()
                assert cluster.host("c1").clock.monotonic() == before
                cluster.unfreeze("c1")
                assert await send() < 0.1
                cluster.slow("c1", LinkQuality(delay_seconds=(0.4, 0.5)))
                assert await send() > 0.4
                cluster.slow("c1")
                assert await send() < max(0.1, 20 * quick)
                wall_ms = cluster.host("c1").clock.wall_ms()
                cluster.jump("c1", -60_000)
                assert cluster.host("c1").clock.wall_ms() < wall_ms - 59_000
                cluster.disk_full("c1")
                assert cluster.host("c1").disk.is_full
                cluster.disk_full("c1", False)
                assert await send() < 1

    run_seed(scenario, 2)


async def test_a_process_that_is_killed_while_it_stands_still_is_gone_at_once(autojump_clock: MockClock) -> None:
    network, clock = SimNetwork(random.Random(1)), StoppableClock()
    process = SimProcess(clock, network.host("h"), SimDisk(random.Random(1), now_ms=clock.wall_ms), random.Random(1))

    async def work(*, task_status: trio.TaskStatus[None]) -> None:
        for _ in range(2):  # the second one is clean-up that begins after the kill
            with process.world.clock.move_on_after(5) as grace:
                grace.shield = True
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(process.run, work)
        clock.stop()
        with trio.move_on_after(1) as soon:
            await process.vanish()
        clock.go_on(counted=True)
    assert not soon.cancelled_caught
