"""Logs that part: a master that lost its last messages, or one of another group; by their offsets alone all is well."""

from __future__ import annotations

import random

import pytest
import trio
from slave_rig import GROUP, SLAVE, bodies, log_of, open_pair, run

from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until


@pytest.mark.parametrize("lost", [1, 3, 40])
def test_a_slave_that_has_what_its_master_lost_never_continues_with_other_messages(
    lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await pair.send(8)
            await trio.sleep(2)
            # given messages that a slave has got and its master has not flushed when its machine dies
            for number in range(lost):
                await pair.producer.send(Message("orders", b"lost %03d" % number))
            ours = pair.master.store.max_physical_offset
            await until(lambda: pair.slave.store.max_physical_offset == ours, 1)
            before = log_of(pair.slave)
            await pair.cluster.kill("c1", power=True)
            await pair.cluster.restart("c1")
            assert pair.master.store.max_physical_offset < ours
            # when the master stores others of the same length in their place, until its log is the longer one
            sent = 0
            while pair.master.store.max_physical_offset <= ours + 1_000:
                try:
                    await pair.producer.send(Message("orders", b"more %03d" % sent))
                except ClientError:
                    await trio.sleep(1)
                else:
                    sent += 1
            await trio.sleep(60)
            # then the slave has what it had, does not count, and both sides say why
            assert log_of(pair.slave) == before
            serving = pair.master.replication.master
            assert serving is not None
            assert serving.in_sync_count() == 1
            refusals = [each.getMessage() for each in caplog.records if "another history" in each.getMessage()]
            assert refusals
            assert "move this store away" in refusals[0]

    run(scenario)


def test_a_slave_takes_nothing_from_the_master_of_another_group() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            # given two groups whose messages have the same length
            await cluster.start_container("c1", [GROUP])
            await cluster.start_container("c2", [SLAVE])
            await cluster.start_container("c3", [{"brokerName": "broker-b"}])
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                for name in ("broker-a", "broker-b") * 30:
                    sent = await producer.send(Message("orders", b"body"))
                    while sent.queue.broker_name != name:
                        sent = await producer.send(Message("orders", b"body"))
                slave, other = cluster.brokers("c2")["broker-a"], cluster.brokers("c3")["broker-b"]
                await until(lambda: bodies(slave) == bodies(cluster.brokers("c1")["broker-a"]), 10)
                await cluster.kill("c1")
                before = log_of(slave)
                # when the slave of one is led to the master of the other, which has more
                while other.store.max_physical_offset <= len(before) + 1_000:
                    await producer.send(Message("orders", b"body"))
                assert slave.replication.slave is not None
                slave.replication.slave.set_master(other.identity.ha_address)
                await trio.sleep(20)
            # then not a byte is taken
            assert log_of(slave) == before
            assert "another history" in slave.replication.slave.progress().refusal

    run(scenario)
