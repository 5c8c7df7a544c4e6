"""A master that lost the end of its log with the power takes it back from its slaves before it is online."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from container_ring import Ring, records, run, send_raw

from understudy.broker.broker import Broker
from understudy.container.preonline import completion
from understudy.container.preonline.handshake import Member
from understudy.container.role_services import RoleServices
from understudy.format.json_dialect import loads
from understudy.ha.slave import HaSlave
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

TOPIC = "orders"
FILE_BYTES = 16 * 1024
DURABLE_SECONDS = 12.0
"""Longer than ``flushCommitLogThoroughInterval``."""


class Group(Ring):
    """A master on c1 and its slaves on c2 and c3.

    Attributes:
        durable: the end of the log when all was on the disk.
    """

    durable: int

    @property
    def master(self) -> Broker:
        return self.cluster.brokers("c1")["g"]

    def slave(self, number: int = 1) -> Broker:
        return self.cluster.brokers(f"c{number + 1}")["g"]

    @property
    def end(self) -> int:
        return self.master.store.max_physical_offset

    async def send(self, count: int, text: bytes, properties: dict[str, str] | None = None) -> None:
        for number in range(count):
            await self.producer.send(Message(TOPIC, text + b" %d" % number, dict(properties or {})))

    async def online(self, seconds: float = 90) -> None:
        await until(lambda: not self.master.registration.isolated, seconds)

    async def report(self) -> dict[str, Any]:
        return dict(loads((await self.ask(self.master, RequestCode.GET_PRE_ONLINE_REPORT)).body))


@asynccontextmanager
async def open_group(source: random.Random, slaves: int = 1, **extra: str) -> AsyncIterator[Group]:
    """Open a group with everything that matters at its default but that slaves act; its messages are on the disk."""
    async with SimCluster(source) as cluster:
        size = {"mappedFileSizeCommitLog": str(FILE_BYTES), "haTransferWholeLog": "true"}
        keys = {"brokerName": "g", "enableSlaveActingMaster": "true", **size, **extra}
        await cluster.start_name_server("n1")
        await cluster.start_container("c1", [{**keys, "brokerId": "0"}])
        for number in range(1, slaves + 1):
            role = {"brokerId": str(number), "brokerRole": "SLAVE", "slaveReadEnable": "true"}
            await cluster.start_container(f"c{number + 1}", [{**keys, **role}])
        world, servers = cluster.client_world(), cluster.name_servers
        async with open_client(world) as client, open_producer(world, servers, "writers") as producer:
            group = Group(cluster, client, producer)
            await group.online()
            await group.send(5, b"durable")
            await trio.sleep(DURABLE_SECONDS)
            group.durable = group.end
            yield group


async def copied(group: Group, *slaves: int) -> None:
    for number in slaves:
        await until(lambda number=number: content(group.slave(number)) == content(group.master), 30)


def content(broker: Broker) -> bytes:
    store, found = broker.store, b""
    while part := store.slice(len(found), store.max_physical_offset - len(found)):
        found += part
    return found


def bodies(broker: Broker, topic: str = TOPIC) -> list[bytes]:
    return sorted(bytes(record.body) for record in records(broker, topic))


async def lose_end(group: Group, count: int = 4) -> bytes:
    """Send what the slave copies and the master does not write before its power fails; return the slave's log."""
    await group.send(count, b"lost")
    await copied(group, 1)
    whole = content(group.slave())
    await fail(group)
    return whole


async def fail(group: Group) -> None:
    """Take the power of the master, and all that was not on the disk."""
    await group.cluster.kill("c1", power=True)
    disk, folder = group.cluster.host("c1").disk, "/data/g-0"
    for name in disk.listdir(f"{folder}/commitlog"):
        kept = min(max(group.durable - int(name), 0), FILE_BYTES)
        disk.damage(f"{folder}/commitlog/{name}", lambda data, kept=kept: data[:kept] + bytes(len(data) - kept))  # type: ignore[misc]
    if disk.exists(f"{folder}/recovery.mark"):
        disk.remove(f"{folder}/recovery.mark")


@pytest.mark.parametrize("away_seconds", [1, 30])
@pytest.mark.parametrize("extra", [{}, {"brokerRole": "SYNC_MASTER", "totalReplicas": "2"}])
def test_a_master_takes_the_end_of_its_log_back_and_goes_on_behind_it(away_seconds: int, extra: dict[str, str]) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, **extra) as group:
            # given a slave, one that acts or not, which has messages that its master lost
            whole = await lose_end(group)
            await trio.sleep(away_seconds)
            await group.cluster.restart("c1")
            lost = len(whole) - group.end
            assert group.end == group.durable
            await group.online()
            # then the master has them before it is online, as if nothing had been
            assert content(group.master) == whole
            assert bodies(group.master) == bodies(group.slave())
            report = await group.report()
            assert (report["takenBytes"], report["slaves"][0]["takenBytes"]) == (lost, lost)
            assert report["slaves"][0]["aheadBytes"] == 0
            # and both go on together, of one history
            async with open_producer(group.cluster.client_world("later"), group.cluster.name_servers, "w") as producer:
                await producer.send(Message(TOPIC, b"after"))
            await copied(group, 1)
            await until(lambda: group.slave().history.value == group.master.history.value, 10)
            assert group.master.history.value.lives[-1].start == len(whole)

    run(scenario)


def test_consumers_go_on_behind_what_came_back_and_due_messages_come_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            # given a group that has read what the master lost, and messages that fall due later
            await group.send(3, b"delayed", {"DELAY": "4"})
            whole = await lose_end(group)
            queues = [queue for queue in range(4) if group.slave().store.max_queue_offset(TOPIC, queue)]
            for queue in queues:
                await group.commit(group.slave(), group.slave().store.max_queue_offset(TOPIC, queue), queue_id=queue)
            await trio.sleep(2)
            await group.cluster.restart("c1")
            await group.online()
            assert content(group.master)[: len(whole)] == whole
            for queue in queues:
                end = group.master.store.max_queue_offset(TOPIC, queue)
                assert group.master.offsets.query("readers", TOPIC, queue) == end
                assert group.master.offsets.correction("readers", TOPIC, queue, end) is None
            await trio.sleep(40)
            assert sum(body.startswith(b"delayed") for body in bodies(group.master)) == 3

    run(scenario)


def test_of_several_slaves_the_longest_gives_and_the_others_copy() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            await copied(group, 1, 2)
            # given a slave that was away for a while, and one that has everything
            await group.cluster.kill("c2")
            await group.send(4, b"lost")
            await copied(group, 2)
            whole = content(group.slave(2))
            await fail(group)
            await group.cluster.restart("c2")
            assert len(content(group.slave(1))) < len(whole)
            await group.cluster.restart("c1")
            await group.online()
            assert content(group.master) == whole
            await copied(group, 1, 2)
            assert {each["brokerId"]: each["takenBytes"] > 0 for each in (await group.report())["slaves"]} == {
                1: False,
                2: True,
            }

    run(scenario)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_a_master_that_dies_while_it_takes_its_log_back_asks_for_the_rest(
    power: bool, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = completion.read_log, list[int]()

    async def little(broker: Broker, member: Member, offset: int) -> Any:
        asked.append(offset)
        if len(asked) == 5 + pieces:
            await trio.sleep_forever()
        part, end, header = await read(broker, member, offset)
        return part[:1_000], end, header

    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            monkeypatch.setattr(completion, "read_log", little)
            whole = await lose_end(group, 40)
            await group.cluster.restart("c1")
            # given a master that has got a part when its process, or its machine, dies
            await until(lambda: len(asked) == 5 + pieces, 30)
            assert not group.master.store.writable
            await group.cluster.kill("c1", power=power)
            await group.cluster.restart("c1")
            # then it takes no send before it has the rest
            assert not group.master.store.writable
            await group.online()
            assert content(group.master) == whole
            await copied(group, 1)

    run(scenario)


def test_a_slave_with_half_a_record_gives_all_others_and_asks_for_that_one_anew() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            whole = await lose_end(group)
            slave = group.slave()
            (size,) = {
                int.from_bytes(whole[-length:][:4], "big") for length in [len(slave.store.read(last(slave)) or b"")]
            }
            # given a slave whose copy of one more message ended in its middle
            slave.store.append_raw(len(whole), size.to_bytes(4, "big") + b"half of a message")
            await group.cluster.restart("c1")
            await group.online()
            assert content(group.master) == whole
            async with open_client(group.cluster.client_world("later")) as group.client:
                assert await send_raw(group, group.master, b"after", "") == 0
            await copied(group, 1)

    run(scenario)


def last(broker: Broker) -> int:
    found = broker.store.record_before(broker.store.max_physical_offset)
    assert found is not None
    return found


async def refused(self: HaSlave, *rest: object) -> str:
    return "held up"


def test_a_slave_that_cannot_give_is_told_of_and_the_master_goes_on_without(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            whole = await lose_end(group)

            # given a slave that cannot answer the question, as one of the reference
            async def unknown(*args: object) -> Any:
                raise completion.RefusedError("READ_LOG with 3: not supported")

            monkeypatch.setattr(completion, "read_log", unknown)
            await group.cluster.restart("c1")
            await group.online()
            assert len(content(group.master)) < len(whole)
            report = await group.report()
            assert (report["takenBytes"], report["slaves"][0]["aheadBytes"]) == (0, len(whole) - group.end)
            assert "not supported" in report["trouble"]
            assert "cannot give what is missing" in caplog.text
            assert group.master.store.writable

    run(scenario)


def test_a_slave_with_another_history_gives_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            # given a master that went on without what its slave has
            await lose_end(group)
            await group.cluster.kill("c2")
            await group.cluster.restart("c1")
            await group.online()
            async with open_client(group.cluster.client_world("later")) as group.client:
                assert await send_raw(group, group.master, b"new", "") == 0
            await trio.sleep(DURABLE_SECONDS)
            # when the power fails once more, and the slave is there
            await group.cluster.kill("c1", power=True)
            await group.cluster.restart("c2")
            await group.cluster.restart("c1")
            own = content(group.master)
            assert len(own) < len(content(group.slave()))
            await group.online()
            # then the master keeps what it has
            assert content(group.master) == own
            rules = group.master.session.rules
            assert isinstance(rules, RoleServices)
            assert rules.report is not None
            assert "other bytes" in rules.report.trouble

    run(scenario)


def test_a_master_without_time_goes_on_with_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    read = completion.read_log

    async def slow(broker: Broker, member: Member, offset: int) -> Any:
        await trio.sleep(2)
        part, end, header = await read(broker, member, offset)
        return part[:500], end, header

    async def scenario(source: random.Random) -> None:
        async with open_group(source, preOnlineMaxWaitMillis="15000") as group:
            whole = await lose_end(group, 40)
            monkeypatch.setattr(completion, "read_log", slow)
            await group.cluster.restart("c1")
            before = group.end
            began = trio.current_time()
            await group.online()
            assert trio.current_time() - began < 40
            own = content(group.master)
            assert whole.startswith(own)
            assert before < len(own) < len(whole)
            assert len(bodies(group.master)) == len(records(group.master))
            assert "there was no time" in (await group.report())["trouble"]

    run(scenario)
