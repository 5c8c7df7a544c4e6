"""Lost messages that come back while a master serves: what else may be written, entered or said meanwhile."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_master_holes import FILE_BYTES, KEYS, TOPIC, content, lose_for_all, open_filled_pair

from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.store import repair
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

NOBODY_ACTS = {"enableSlaveActingMaster": "false"}


def test_nothing_of_a_slave_whose_log_is_another_one_is_taken() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given messages that the slave has and the master loses with the power
            parting = pair.master.store.max_physical_offset
            for _ in range(2):
                await pair.producer.send(Message(TOPIC, b"OLD" + source.randbytes(3000)))
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await pair.cluster.kill("c2")
            await pair.cluster.kill("c1", power=True)
            disk = pair.cluster.host("c1").disk
            for name in disk.listdir("/data/g-0/commitlog"):
                kept = min(max(parting - int(name), 0), FILE_BYTES)
                disk.damage(
                    f"/data/g-0/commitlog/{name}", lambda data, kept=kept: data[:kept] + bytes(len(data) - kept)
                )  # type: ignore[misc]
            if disk.exists("/data/g-0/recovery.mark"):
                disk.remove("/data/g-0/recovery.mark")
            await pair.cluster.restart("c1")
            await pair.online()
            assert pair.master.store.max_physical_offset == parting
            # and a new life, of which the master loses the first ones as well
            begins = []
            async with open_producer(pair.cluster.client_world("x"), pair.cluster.name_servers, "later") as producer:
                for _ in range(6):
                    begins.append(pair.master.store.max_physical_offset)
                    await producer.send(Message(TOPIC, b"NEW" + source.randbytes(5000)))
            await trio.sleep(15)
            await pair.lose([begins[0]], length=begins[2] - begins[0])
            await pair.cluster.restart("c1")
            await pair.online()
            # when the slave is back, whose log ends within what is missing
            await pair.cluster.restart("c2")
            await trio.sleep(20)
            # then nothing of it is in the master's log
            assert pair.master.store.hole == parting
            assert b"OLD" not in content(pair.master)

    run(scenario)


def test_messages_of_batch_queues_that_come_meanwhile_follow_those_that_were_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "_DISPATCH_BYTES", 8192)

    async def others_work() -> None:
        await trio.sleep(0.002)

    monkeypatch.setattr(repair.trio.lowlevel, "checkpoint", others_work)

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            fields = topic_fields("batches") | {
                "attributes": "+queue.type=BatchCQ",
                "readQueueNums": "1",
                "writeQueueNums": "1",
            }
            assert (await pair.ask(pair.master, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
            await trio.sleep(1)
            old = [b"old%d" % number for number in range(20)]
            for body in old:
                await send_raw(pair, pair.master, body, "", "batches")
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            await pair.cluster.kill("c2")
            await pair.lose([pair.starts[1] + 2000])
            await pair.cluster.restart("c1")
            await pair.online()
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert pair.master.store.hole == pair.starts[1]
                await until(lambda: pair.master.store.writable, 10)
                await pair.cluster.restart("c2")
                sent: list[bytes] = []
                number = 0
                while pair.master.store.hole is not None:
                    body, number = b"new%d" % number, number + 1
                    await trio.sleep(0.001)
                    if await send_raw(pair, pair.master, body, "", "batches") == 0:
                        sent.append(body)
                assert sent
                found = records(pair.master, "batches")
                assert [bytes(each.body) for each in found] == old + sent
                assert [each.queue_offset for each in found] == list(range(len(found)))

    run(scenario)


def test_what_nobody_has_is_not_entered_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[float] = []
    enter_again = repair.Repair._enter_again

    async def count(self: repair.Repair) -> None:
        entered.append(trio.current_time())
        await enter_again(self)

    monkeypatch.setattr(repair.Repair, "_enter_again", count)

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given a slave with a new disk, that copies what stands in for the lost messages
            await lose_for_all(pair)
            assert entered == []
            assert pair.master.store.hole == pair.starts[1]

    run(scenario)


def test_damage_up_to_the_end_of_a_file_stays_noted_while_nobody_has_what_was_there() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            last = max(start for start in pair.starts if start + 12_300 < FILE_BYTES)
            await pair.cluster.kill("c2")
            await pair.lose([last], length=FILE_BYTES - last)
            await pair.cluster.restart("c1")
            await pair.online()
            assert pair.master.store.hole == last
            pair.cluster.host("c2").disk.wipe()
            await pair.cluster.restart("c2")
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 60)
            await trio.sleep(20)
            assert pair.master.store.hole == last

    run(scenario)


@pytest.mark.parametrize("seconds", [0.5, 20], ids=["soon", "later"])
def test_a_slave_with_a_new_disk_gets_what_another_one_gives_back(seconds: float) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            whole = content(pair.master)
            third = {**KEYS, **NOBODY_ACTS, "brokerId": "2", "brokerRole": "SLAVE"}
            await pair.cluster.start_container("c3", [third])
            await until(lambda: pair.cluster.brokers("c3")["g"].store.max_physical_offset == len(whole), 30)
            await pair.cluster.kill("c2")
            pair.cluster.host("c2").disk.wipe()
            await pair.lose([pair.starts[1] + 2000])
            # when the one that has nothing comes first, and then the one that has everything
            network = pair.cluster.network
            network.partition({pair.cluster.address("c1")}, {pair.cluster.address("c3")})
            await pair.cluster.restart("c1")
            await pair.cluster.restart("c2")
            await trio.sleep(seconds)
            network.heal()
            await until(lambda: pair.master.store.hole is None, 30)
            await until(lambda: content(pair.slave) == content(pair.master), 30)
            assert content(pair.slave) == whole

    run(scenario)
