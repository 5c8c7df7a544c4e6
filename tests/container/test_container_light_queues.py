"""Light queues through a failover: copied, served by the slave that acts, numbered on by the master that returns."""

from __future__ import annotations

import random

import trio
from container_ring import Ring, acting, open_ring, records, run, send_raw

from understudy.broker.broker import Broker
from understudy.format.record import decode_records
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until

ON = {"enableLmq": "true", "enableMultiDispatch": "true", "slaveReadEnable": "true"}
LIGHT = GROUP = "%LMQ%device"


async def send(ring: Ring, broker: Broker, body: bytes, more: str = "") -> None:
    properties = f"UNIQ_KEY\x01{body.hex():0>32}\x02INNER_MULTI_DISPATCH\x01{LIGHT}\x02{more}"
    assert await send_raw(ring, broker, body, properties) == 0


async def pull(ring: Ring, broker: Broker, offset: int) -> list[bytes]:
    header = {
        "consumerGroup": GROUP,
        "topic": LIGHT,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "1",
    }
    answer = await ring.ask(broker, RequestCode.PULL_MESSAGE, header)
    assert answer.code == 0, answer.remark
    return [record.body for record in decode_records(answer.body)]


async def commit(ring: Ring, broker: Broker, offset: int) -> None:
    header = {"consumerGroup": GROUP, "topic": LIGHT, "queueId": "0", "commitOffset": str(offset)}
    assert (await ring.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


def committed(broker: Broker) -> int:
    return broker.offsets.query(GROUP, LIGHT, 0)


def test_light_queues_and_their_offsets_survive_the_loss_of_the_master_and_its_return() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, ON, replicas=2) as ring:
            master = ring.broker("g0", 0)
            host = ring.shape.container_of("g0", 0)
            for number in range(4):
                await send(ring, master, b"m%d" % number)
            await commit(ring, master, 1)
            # Given a message that waits for its time, and a slave that has copied all
            await send(ring, master, b"delayed", "DELAY\x014\x02")  # 30 s
            slave = ring.broker("g0", 1)
            await until(lambda: committed(slave) == 1, 30)
            assert slave.store.max_queue_offset(LIGHT, 0) == 4
            # When the master is lost, its slave serves the light queue and takes offsets
            await ring.cluster.kill(host)
            await until(lambda: slave in acting(ring), 30)
            assert await pull(ring, slave, 1) == [b"m1", b"m2", b"m3"]
            await commit(ring, slave, 3)
            # and what falls due meanwhile enters the light queue of the group that it goes to
            other = ring.broker("g1", 0)
            await until(lambda: other.store.max_queue_offset(LIGHT, 0) == 1, 60)
            assert await pull(ring, other, 0) == [b"delayed"]
            # Then the master that returns knows the offset, and goes on with the next number
            await ring.cluster.restart(host)
            await until(lambda: not ring.broker("g0", 0).registration.isolated, 60)
            master = ring.broker("g0", 0)
            await until(lambda: committed(master) == 3, 30)
            await send(ring, master, b"m4")
            assert await pull(ring, master, 3) == [b"m3", b"m4"]
            numbers = [each.properties.get("INNER_MULTI_QUEUE_OFFSET") for each in records(master)]
            assert numbers == ["0", "1", "2", "3", "4"]
            await until(lambda: ring.broker("g0", 1).store.max_queue_offset(LIGHT, 0) == 5, 30)
            await trio.sleep(5)
            assert committed(ring.broker("g0", 1)) == 3

    run(scenario)
