"""A loss of power took bytes out of the middle of a master's log: its slaves give them back before it is online."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from container_ring import Ring, records, run, send_raw

from understudy.broker.broker import Broker
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

FILE_BYTES = 64 * 1024
KEYS = {
    "brokerName": "g",
    "totalReplicas": "2",
    "enableSlaveActingMaster": "true",
    "slaveReadEnable": "true",
    "flushDiskType": "ASYNC_FLUSH",
    "haTransferWholeLog": "true",
    "mappedFileSizeCommitLog": str(FILE_BYTES),
}
TOPIC = "orders"


def content(broker: Broker) -> bytes:
    store, found = broker.store, b""
    while part := store.slice(len(found), store.max_physical_offset - len(found)):
        found += part
    return found


class Pair(Ring):
    """A master on c1, its slave on c2, and where each message of their log begins."""

    starts: list[int]

    @property
    def master(self) -> Broker:
        return self.cluster.brokers("c1")["g"]

    @property
    def slave(self) -> Broker:
        return self.cluster.brokers("c2")["g"]

    @property
    def third(self) -> Broker:
        return self.cluster.brokers("c3")["g"]

    async def add_third(self, **extra: str) -> None:
        """Start another slave, on c3, and wait until it has the log, durably."""
        await self.cluster.start_container("c3", [{**KEYS, **extra, "brokerId": "2", "brokerRole": "SLAVE"}])
        await until(lambda: self.third.store.max_physical_offset == self.master.store.max_physical_offset, 30)
        await trio.sleep(15)

    async def lose(self, places: list[int], length: int = 300, host: str = "c1") -> None:
        """Take power from *host*, and bytes at *places* from the log there."""
        await self.cluster.kill(host, power=True)
        disk, store = self.cluster.host(host).disk, {"c1": "/data/g-0", "c2": "/data/g-1"}[host]
        for place in places:
            start = place - place % FILE_BYTES
            at = place - start
            disk.damage(
                f"{store}/commitlog/{start:020d}",
                lambda data, at=at: data[:at] + bytes(length) + data[at + length :],  # type: ignore[misc]
            )
        if disk.exists(f"{store}/recovery.mark"):
            disk.remove(f"{store}/recovery.mark")

    async def online(self) -> None:
        await until(lambda: not self.master.registration.isolated, 60)

    async def serve_without(self, hole: int, after: int, spared: int = 20) -> None:
        """Let the slave be away, and the master serve without what it had from *hole* to *after*, but for its end."""
        await self.cluster.kill("c2")
        await self.lose([hole], length=after - hole - spared)
        await self.cluster.restart("c1")
        await self.online()
        await until(lambda: self.master.store.writable, 10)


@asynccontextmanager
async def open_filled_pair(source: random.Random, **extra: str) -> AsyncIterator[Pair]:
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [{**KEYS, **extra, "brokerId": "0", "brokerRole": "SYNC_MASTER"}])
        await cluster.start_container("c2", [{**KEYS, **extra, "brokerId": "1", "brokerRole": "SLAVE"}])
        world, servers = cluster.client_world(), cluster.name_servers
        async with open_client(world) as client, open_producer(world, servers, "writers") as producer:
            pair = Pair(cluster, client, producer)
            await pair.online()
            pair.starts = []
            for _ in range(12):
                pair.starts.append(pair.master.store.max_physical_offset)
                await producer.send(Message(TOPIC, source.randbytes(12_000)))
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            yield pair


async def lose_for_all(pair: Pair) -> None:
    """Have a message lost for good: its master loses it with its power, and its slave has a new disk."""
    await pair.cluster.kill("c2")
    await pair.lose([pair.starts[1] + 2_000])
    await pair.cluster.restart("c1")
    await pair.online()
    pair.cluster.host("c2").disk.wipe()
    await pair.cluster.restart("c2")
    await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 30)
    await trio.sleep(60)


@pytest.mark.parametrize("seed", range(3))
def test_a_master_with_holes_gets_every_message_back_from_its_slave(seed: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            whole, bodies = content(pair.slave), sorted(record.body for record in records(pair.slave))
            # given a master that lost bytes of messages that its slave has, in several files
            await pair.lose([start + 2_000 for start in source.sample(pair.starts[1:-1], 3)])
            # when it comes back
            await pair.cluster.restart("c1")
            assert pair.master.store.hole is not None
            await until(lambda: not pair.master.registration.isolated, 30, 0.001)
            # then its slave copies from it when it goes online, though it had to connect anew
            serving = pair.master.replication.master
            assert serving is not None
            assert [each.acknowledged >= 0 for each in serving.status()] == [True]
            await pair.online()
            # and it has them, byte for byte, and takes sends
            assert pair.master.store.hole is None
            assert content(pair.master)[: len(whole)] == whole
            assert sorted(record.body for record in records(pair.master)) == bodies
            await pair.producer.send(Message(TOPIC, b"after"))
            await until(lambda: content(pair.slave) == content(pair.master), 10)

    run(scenario, seed)


def test_a_master_for_which_no_slave_acts_serves_soon_and_gets_them_back_meanwhile() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, enableSlaveActingMaster="false") as pair:
            whole, bodies = content(pair.slave), sorted(record.body for record in records(pair.slave))
            # given a master that lost bytes while its slave is away as well
            await pair.cluster.kill("c2")
            await pair.lose([start + 2_000 for start in source.sample(pair.starts[1:-1], 3)])
            await pair.cluster.restart("c1")
            await pair.online()
            await until(lambda: pair.master.store.writable, 2)
            await pair.producer.send(Message(TOPIC, b"without the slave"))
            await trio.sleep(20)
            assert pair.master.store.hole is not None
            assert "holes of the log" in pair.master.services.running()
            # when the slave is back, while messages come in
            await pair.cluster.restart("c2")
            for number in range(40):
                await pair.producer.send(Message(TOPIC, b"%d" % number))
                await trio.sleep(0.2)
            await until(lambda: pair.master.store.hole is None, 30)
            # then it has them, byte for byte, and what came in is behind
            assert content(pair.master)[: len(whole)] == whole
            assert {record.body for record in records(pair.master)} >= set(bodies)
            await until(lambda: content(pair.slave) == content(pair.master), 10)
            await until(lambda: "holes of the log" not in pair.master.services.running(), 10)

    run(scenario)


async def lose_the_end_of_a_queue(pair: Pair) -> tuple[int, int]:
    """Lose the last message of a queue that a group has read to its end, not the end of the log.

    Returns the queue's id and where it ended.
    """
    queue, other = (await pair.producer.queues(TOPIC))[:2]
    hole = pair.master.store.max_physical_offset
    await pair.producer.send(Message(TOPIC, b"lost" * 200), queue=queue)
    await pair.producer.send(Message(TOPIC, b"kept"), queue=other)
    read = pair.master.store.max_queue_offset(TOPIC, queue.queue_id)
    await pair.commit(pair.master, read, queue_id=queue.queue_id)
    await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
    await trio.sleep(15)
    await pair.lose([hole])
    return queue.queue_id, read


def test_consumers_of_what_came_back_are_not_sent_back_before_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            # given a group that has read all of a queue whose end lies in a hole of the master
            queue_id, read = await lose_the_end_of_a_queue(pair)
            # when the master comes back, and its slave does not know of the commit
            pair.slave.offsets.committed.clear()
            await pair.cluster.restart("c1")
            assert pair.master.store.max_queue_offset(TOPIC, queue_id) < read
            await pair.online()
            # then the group goes on behind what came back
            assert pair.master.offsets.query("readers", TOPIC, queue_id) == read
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await send_raw(pair, pair.master, b"new", "") == 0
            assert pair.master.offsets.correction("readers", TOPIC, queue_id, read) is None

    run(scenario)


def test_consumers_that_read_what_is_lost_go_on_behind_what_came_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            queue_id, read = await lose_the_end_of_a_queue(pair)
            await pair.cluster.restart("c1")
            await pair.online()
            # when others were stored since
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await send_raw(pair, pair.master, b"new", "") == 0
            # then a consumer that had come further before the power failed does not skip them
            assert pair.master.offsets.correction("readers", TOPIC, queue_id, read + 1) == read

    run(scenario)


@pytest.mark.parametrize("after_ms", [0, 5, 20, 100])
def test_a_master_that_dies_while_it_gets_its_bytes_back_gets_them_the_next_time(after_ms: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            whole = content(pair.slave)
            await pair.lose([start + 2_000 for start in (pair.starts[1], pair.starts[5])])
            pair.cluster.host("c1").disk.sync_seconds = 0.02
            await pair.cluster.restart("c1")
            await until(lambda: not pair.master.store.writable, 60)
            await trio.sleep(after_ms / 1_000)
            await pair.cluster.kill("c1", power=True)
            await pair.cluster.restart("c1")
            await pair.online()
            assert pair.master.store.hole is None
            assert content(pair.master)[: len(whole)] == whole

    run(scenario)


def test_a_master_whose_slave_lacks_the_same_comes_back_with_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            # given the same message lost on both sides
            await pair.lose([pair.starts[3] + 2_000])
            await pair.lose([pair.starts[3] + 2_000], host="c2")
            await pair.cluster.restart("c2")
            await pair.cluster.restart("c1")
            # then the master says so and goes on; nothing of either log has changed
            await pair.online()
            assert pair.master.store.hole == pair.starts[3]
            assert "this slave cannot give them" in caplog.text
            assert len(records(pair.master)) == 11
            await pair.producer.send(Message(TOPIC, b"after"))

    run(scenario)


def test_master_and_slave_give_each_other_what_they_lack() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            whole = content(pair.master)
            # given holes on both sides, that of the slave behind that of its master
            await pair.lose([pair.starts[3] + 2_000])
            await pair.lose([pair.starts[7] + 2_000], host="c2")
            await pair.cluster.restart("c2")
            assert pair.slave.store.hole == pair.starts[7]
            await pair.cluster.restart("c1")
            await pair.online()
            # then both logs have everything again
            assert (pair.master.store.hole, content(pair.master)) == (None, whole)
            await until(lambda: content(pair.slave) == whole, 30)
            assert pair.slave.store.hole is None

    run(scenario)


def test_a_master_takes_what_a_slave_with_a_shorter_log_has_and_gives_it_no_damage() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            second = bytes(pair.slave.store.read(pair.starts[1]) or b"")
            # given a master that lost two messages that follow each other, and a slave that lost all from the second on
            await pair.lose([pair.starts[1] + 2_000], length=12_000)
            await pair.lose([pair.starts[2]], length=FILE_BYTES - pair.starts[2], host="c2")
            disk = pair.cluster.host("c2").disk
            for name in disk.listdir("/data/g-1/commitlog")[1:]:
                disk.remove(f"/data/g-1/commitlog/{name}")
            await pair.cluster.restart("c2")
            assert pair.slave.store.max_physical_offset == pair.starts[2]
            # when it comes back
            await pair.cluster.restart("c1")
            await pair.online()
            # then it has the first of them, and says that the second is missing
            assert pair.master.store.hole == pair.starts[2]
            assert len(records(pair.master)) == 11
            assert pair.master.store.read(pair.starts[1]) == second
            # and the slave becomes like it, and copies on
            await pair.producer.send(Message(TOPIC, b"after"))
            await until(lambda: content(pair.slave) == content(pair.master), 20)
            assert len(records(pair.slave)) == len(records(pair.master)) == 12

    run(scenario)


def test_a_slave_with_holes_does_not_act_and_no_delayed_message_is_passed() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            # given delayed messages, and a slave that lost the bytes of some when its master had just died
            starts = []
            for number in range(6):
                starts.append(pair.master.store.max_physical_offset)
                delayed = Message(TOPIC, b"%d" % number + source.randbytes(4_000), properties={"DELAY": "5"})
                await pair.producer.send(delayed)
            end = pair.master.store.max_physical_offset
            await until(lambda: pair.slave.store.max_physical_offset == end, 10)
            await trio.sleep(15)
            await pair.cluster.kill("c1")
            await pair.lose([starts[1] + 1_000, starts[2] + 1_000], host="c2")
            # when it is the only member for a while, and they fall due
            await pair.cluster.restart("c2")
            assert pair.slave.store.hole == starts[1]
            await trio.sleep(70)
            assert "schedule" not in pair.slave.services.running()
            answer = await pair.info(pair.slave)
            assert answer["brokerActiveReason"] == "messages are missing in its log, and the master may have them"
            # then each is delivered once when the master is back
            await pair.cluster.restart("c1")
            await pair.online()

            def came() -> list[bytes]:
                mine = [
                    each.body[:1] for each in records(pair.master) if each.topic == TOPIC and len(each.body) == 4_001
                ]
                return sorted(mine)

            await until(lambda: len(came()) >= 6, 30)
            await trio.sleep(5)
            assert came() == [b"%d" % number for number in range(6)]
            # and the slave acts again once it has what was missing
            await until(lambda: pair.slave.store.hole is None, 30)
            await pair.cluster.kill("c1")
            await until(lambda: "schedule" in pair.slave.services.running(), 30)

    run(scenario)
