"""The watcher of a simulated ring: when replicas count as equal, and which one may stand apart."""

from __future__ import annotations

import random

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.container import role_services
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.drills.acting_traffic import READERS, TOPIC
from understudy.testkit.drills.acting_watch import RingWatch
from understudy.testkit.drills.ring import Ring
from understudy.testkit.first_pull import first_pull
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until


async def come_back_alone(cluster: SimCluster, watch: RingWatch) -> None:
    """Let the host of the first group's master come back while the other one stands still."""
    cluster.freeze("c2")
    await cluster.restart("c1")

    def online() -> bool:
        master = watch.broker("g0", 0)
        return master is not None and not master.registration.isolated

    await until(online, 90)


def test_a_slave_stands_apart_only_where_its_master_may_have_lost_what_it_has() -> None:
    async def scenario(source: random.Random) -> None:
        ring = Ring(replicas=2)
        async with SimCluster(source) as cluster, open_client(cluster.client_world("client")) as client:
            await ring.start(cluster, {"flushDiskType": "ASYNC_FLUSH", "flushCommitLogTimed": "true"})
            strict = RingWatch(cluster, ring)
            lenient = RingWatch(cluster, ring, lambda group: group == "g0")
            await until(strict.complete, 60)

            async def ask(code: int, ext: dict[str, str]) -> None:
                for group in ring.groups:
                    master = strict.broker(group, 0)
                    assert master is not None
                    answer = await client.invoke(master.identity.address, request(code, ext), 3_000)
                    assert answer.code == 0, answer.remark

            async def commit(offset: int) -> None:
                for group in ring.groups:
                    for broker_id in range(2):
                        broker = strict.broker(group, broker_id)
                        assert broker is not None
                        broker.groups.get(READERS)
                for queue_id in ("0", "1"):
                    at = {"consumerGroup": READERS, "topic": TOPIC, "queueId": queue_id}
                    await ask(RequestCode.UPDATE_CONSUMER_OFFSET, at | {"commitOffset": str(offset)})

            await ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))
            await commit(0)
            await until(strict.converged, 10)
            # given a master that lost one of its messages with its power, and could not ask its slave for it
            async with open_producer(cluster.client_world("writer"), cluster.name_servers, "writers") as producer:
                for _ in range(2):
                    await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "g0", 0))
                    await trio.sleep(15)
                await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "g0", 0))
            slave = strict.broker("g0", 1)
            assert slave is not None
            await cluster.kill("c1", power=True)
            await come_back_alone(cluster, strict)
            cluster.unfreeze("c2")
            await until(strict.complete, 60)
            master = strict.broker("g0", 0)
            assert master is not None
            master.offsets.commit(READERS, TOPIC, 0, 2)
            await trio.sleep(10)
            # then its slave says that nothing is copied, and counts only where that loss is allowed
            assert any("nothing is copied" in each for each in slave.session.rules.warnings)
            assert (strict.converged(), lenient.converged()) == (False, True)
            # and readers that still ask it wait: the offsets of their group are those of the master's log
            pull = request(RequestCode.PULL_MESSAGE, first_pull(TOPIC, 0, READERS) | {"queueOffset": "2"})
            answer = await client.invoke(slave.identity.address, pull, 3_000)
            assert (answer.code, slave.presence.parted) == (ResponseCode.PULL_NOT_FOUND, True)
            # until it acts
            await cluster.kill("c1")
            await until(lambda: strict.delivers("g0", 1), 20)
            answer = await client.invoke(slave.identity.address, pull, 3_000)
            assert (answer.code, slave.presence.parted) == (ResponseCode.SUCCESS, False)

    run_seed(scenario, 3)


async def ask_nobody(broker: Broker) -> None:
    """Leave the hole open: as it serves, a master asks sooner or later whoever is back."""
    await trio.sleep_forever()


def test_a_hole_of_a_master_that_could_not_ask_its_slave_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_services, "fill_holes", ask_nobody)

    async def scenario(source: random.Random) -> None:
        ring = Ring(replicas=2)
        async with SimCluster(source) as cluster:
            await ring.start(cluster, {"flushDiskType": "ASYNC_FLUSH"})
            power = Accident(cluster, Fault("power", "c1"), ring.hosts)
            pause = Accident(cluster, Fault("pause", "c2"), ring.hosts)
            watches = [RingWatch(cluster, ring, lambda group: True, met) for met in ([power, pause], [power])]
            away, there = watches
            await until(away.complete, 60)
            async with open_producer(cluster.client_world("writer"), cluster.name_servers, "writers") as producer:
                for number in range(3):
                    master = away.broker("g0", 0)
                    assert master is not None
                    if number == 1:
                        middle = master.store.max_physical_offset
                    await producer.send(Message(TOPIC, b"x" * 200), queue=MessageQueue(TOPIC, "g0", 0))
                await trio.sleep(15)
            # given a master with damage in the middle of its log that comes back while its slave stands still
            power.began_at = trio.current_time()
            await cluster.kill("c1", power=True)
            cluster.host("c1").disk.damage(
                "/data/g0-0/commitlog/" + "0" * 20, lambda data: data[: middle + 100] + bytes(50) + data[middle + 150 :]
            )
            cluster.host("c1").disk.remove("/data/g0-0/recovery.mark")
            power.ended_at = pause.began_at = trio.current_time()
            await come_back_alone(cluster, away)
            cluster.unfreeze("c2")
            pause.ended_at = trio.current_time()
            await until(away.complete, 60)
            master = away.broker("g0", 0)
            assert master is not None
            for queue_id, offset in ((0, 3), (1, 0)):
                for broker_id in range(2):
                    broker = away.broker("g0", broker_id)
                    assert broker is not None
                    broker.groups.get(READERS)
                master.offsets.commit(READERS, TOPIC, queue_id, offset)
            # then nothing but what it lost is missing, which counts where the slave could have been asked
            for watch in watches:
                await until(lambda watch=watch: watch._group_converged("g0"), 60)  # type: ignore[misc]
            assert master.store.hole == middle
            assert ([], ["the logs of g0 differ"]) == (away.problems, there.problems)

    run_seed(scenario, 1)
