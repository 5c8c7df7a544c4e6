"""What controller mode promises row by row: defaults, copies, flush modes, cut tails, checkpoints, name servers."""

from __future__ import annotations

import random

import pytest
import trio

from understudy.broker.config import BrokerOptions
from understudy.broker.role import Role
from understudy.broker.switch_replication import SwitchReplication
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import Producer, SendStatus, open_producer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.store.checkpoint import load_checkpoint
from understudy.testkit.led.group import BROKERS, CONTROLLERS, TOPIC, LedGroup, led_group
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true"}


def others(name: str) -> list[str]:
    return [each for each in BROKERS if each != name]


def part(group: LedGroup, name: str) -> SwitchReplication:
    replication = group.brokers[name].replication
    assert isinstance(replication, SwitchReplication)
    return replication


@pytest.mark.covers("R137", "R138", "R139", "R140", "R142", "R143", "R144")
def test_the_defaults_are_the_references() -> None:
    options, _ = BrokerOptions.from_properties({})
    shown = options.properties()
    assert {
        "enableControllerMode": "false",
        "syncBrokerMetadataPeriod": "5000",
        "checkSyncStateSetPeriod": "5000",
        "syncControllerMetadataPeriod": "10000",
        "haMaxTimeSlaveNotCatchup": "15000",
        "allAckInSyncStateSet": "false",
        "syncFromLastFile": "false",
        "asyncLearner": "false",
        "inSyncReplicas": "1",
        "minInSyncReplicas": "1",
    }.items() <= shown.items()


@pytest.mark.covers("R141", "R145", "R146", "R330", "AS-01")
def test_copies_that_are_asked_for_and_a_set_that_has_shrunk() -> None:
    async def scenario(source: random.Random) -> None:
        keys = {**ALL, "inSyncReplicas": "3", "minInSyncReplicas": "1"}
        async with led_group(source, keys) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"0") == 0
            disk = group.cluster.host(first).disk
            assert disk.exists("/data/store/epochFileCheckpoint")
            # the checkpoint says how far all have it
            await until(lambda: load_checkpoint(disk, "/data/store/checkpoint").confirm_offset > 0, 60)
            before = load_checkpoint(disk, "/data/store/checkpoint").confirm_offset
            assert await group.send(first, b"1") == 0
            await until(lambda: load_checkpoint(disk, "/data/store/checkpoint").confirm_offset > before, 60)
            # three copies are asked for, and with one member in the set one is enough
            for name in others(first):
                await group.kill(name)
            await until(lambda: group.members() == [first], 6)
            assert await group.send(first, b"2") == 0
            # fewer members than minInSyncReplicas: refused at once, and nothing is written
            options = group.brokers[first].options
            options.store.min_in_sync_replicas = 2
            end, began = group.brokers[first].store.max_physical_offset, trio.current_time()
            assert await group.send(first, b"3") == 1
            assert trio.current_time() - began < 0.1
            assert group.brokers[first].store.max_physical_offset == end

    run_seed(scenario, 1)


@pytest.mark.covers("R170", "R237")
@pytest.mark.parametrize(
    ("copies", "auto", "code"), [("1", "false", 0), ("2", "false", 0), ("3", "false", 12), ("3", "true", 12)]
)
def test_a_send_waits_for_as_many_copies_as_the_key_says(copies: str, auto: str, code: int) -> None:
    """Fewer will not do while fewer are in sync: ``enableAutoInSyncReplicas`` is for groups that nobody leads."""

    async def scenario(source: random.Random) -> None:
        async with led_group(source, {"inSyncReplicas": copies, "enableAutoInSyncReplicas": auto}) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert await group.send(first, b"0") == 0
            group.cluster.freeze(others(first)[0])  # it stays in the set for a while
            assert await group.send(first, b"1") == code
            if copies != "1":
                # who is elected then has what was acknowledged, whatever the last heartbeats told
                await group.kill(first)
                second = await group.ready(1)
                assert b"0" in group.bodies(second)
                assert (b"1" in group.bodies(second)) or code != 0

    run_seed(scenario, 2)


@pytest.mark.covers("R171", "R240")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_flush_mode_goes_through_a_failover(flush: str) -> None:
    """The log is mapped in each; there is no pool of memory before it, so a file that asks for one is told so."""
    keys = {**ALL, "flushDiskType": flush, "transientStorePoolEnable": "true"}
    _, warnings = BrokerOptions.from_properties(keys)
    assert [line for line in warnings if "transientStorePoolEnable=true has no effect here" in line]

    async def scenario(source: random.Random) -> None:
        async with led_group(source, keys) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            sent = [await group.put(first, b"%d" % number) for number in range(10)]
            await group.kill(first)
            second = await group.ready(2)
            sent += [await group.put(second, b"%d" % number) for number in range(10, 20)]
            # queue offsets go on without a gap or an overlap
            assert sent == [(0, number) for number in range(20)]
            await group.start_broker(first)
            await group.ready(3)
            await until(lambda: all(len(group.bodies(name)) == 20 for name in BROKERS), 10)

    run_seed(scenario, 3)


@pytest.mark.covers("R208", "R209", "R331")
def test_a_broken_last_record_is_cut_before_its_broker_leads() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(5)] == [0] * 5
            for name in others(first):
                await group.kill(name)
            await until(lambda: group.members() == [first], 10)
            end, (path,) = group.brokers[first].store.max_physical_offset, log_files(group, first)
            await group.kill(first)
            # given half a record behind the last one of the only member of the set
            disk = group.cluster.host(first).disk
            disk.damage(path, lambda data: data[:end] + data[:90] + data[end + 90 :])
            await group.start_broker(first)
            await group.ready(1)
            assert group.brokers[first].store.max_physical_offset == end
            assert part(group, first).epochs()[-1].start_offset == end
            assert await group.send(first, b"5") == 0
            for name in others(first):
                await group.start_broker(name)
            await group.ready(3)
            await until(lambda: all(group.bodies(name) == [b"%d" % n for n in range(6)] for name in BROKERS), 10)
            # a former slave that leads copies from nobody any more
            assert group.brokers[first].replication.slave is None

    run_seed(scenario, 4)


def log_files(group: LedGroup, name: str) -> list[str]:
    folder = "/data/store/commitlog"
    disk = group.cluster.host(name).disk
    used = [each for each in sorted(disk.listdir(folder)) if any(disk.read(f"{folder}/{each}")[:4])]
    return [f"{folder}/{each}" for each in used]


@pytest.mark.covers("R157")
def test_of_another_kind_of_store_topics_and_groups_are_kept() -> None:
    topics = (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"topicConfigTable":{"kept":{"order":false,"perm":6,'
        b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"kept","topicSysFlag":0,"writeQueueNums":4}}}'
    )
    groups = (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"subscriptionGroupTable":{"readers":{'
        b'"groupName":"readers","retryMaxTimes":7}}}'
    )

    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            for name in BROKERS:
                await group.kill(name)
                disk = group.cluster.host(name).disk
                disk.remove_tree("/data/store")
                disk.make_folder("/data/store/config")
                for file, content in (("topics.json", topics), ("subscriptionGroup.json", groups)):
                    opened = disk.open(f"/data/store/config/{file}")
                    opened.write_at(0, content)
                    opened.close()
            leader = next(name for name, one in group.controllers.items() if one.member.leads())
            fields = {"clusterName": "DefaultCluster", "brokerName": "g", "isCleanLivingBroker": "true"}
            clean = request(RequestCode.CLEAN_BROKER_DATA, fields)
            assert (await group.client.invoke(f"{group.cluster.address(leader)}:{API_PORT}", clean, 3_000)).code == 0
            for name in BROKERS:
                await group.start_broker(name)
            first = await group.ready(3)
            assert group.brokers[first].topics.get("kept") is not None
            kept = group.brokers[first].groups.get("readers")
            assert kept is not None and kept.retry_max_times == 7

    run_seed(scenario, 5)


@pytest.mark.covers("R123")
def test_of_two_name_servers_either_may_be_lost() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            # given a second name server, of which no controller knows
            await group.cluster.start_name_server("ns2")
            for name in BROKERS:
                await group.kill(name)
                await group.start_broker(name)
                await group.ready(3)
            world = group.cluster.client_world("writer")
            async with open_producer(world, group.cluster.name_servers, "writers") as producer:
                for count, lost in enumerate(("ns", "ns2"), 1):
                    await group.cluster.kill(lost)
                    # then a master is elected, and clients find it by the other one
                    master = await group.ready(3)
                    await group.kill(master)
                    await group.ready(2)
                    sent = await send_until_taken(producer, b"%d" % count)
                    assert sent is SendStatus.OK
                    await group.start_broker(master)
                    await group.ready(3)
                    await group.cluster.restart(lost)
                # and without controllers traffic goes on with both
                for name in CONTROLLERS:
                    await group.kill(name)
                assert await send_until_taken(producer, b"3") is SendStatus.OK
            await until(lambda: len({tuple(group.bodies(name)) for name in BROKERS}) == 1, 10)
            assert set(group.bodies(first)) == {b"1", b"2", b"3"}

    run_seed(scenario, 6)


async def send_until_taken(producer: Producer, body: bytes, seconds: float = 30) -> SendStatus:
    """Send one message, again when nobody takes it."""
    with trio.fail_after(seconds):
        while True:
            try:
                return (await producer.send(Message(TOPIC, body))).status
            except ClientError:
                await trio.sleep(0.5)


CHANGE_SECONDS, SYNC_SECONDS = 0.05, 0.004


def test_an_idle_broker_changes_its_role_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first = await group.ready(3)
            await group.create_topic(first)
            assert [await group.send(first, b"%d" % number) for number in range(100)] == [0] * 100
            broker, epoch = group.brokers[first], group.brokers[first].role.epoch
            # given a disk of which each call takes its time, so that these are counted, too
            disk = group.cluster.host(first).disk
            disk.sync_seconds = SYNC_SECONDS
            for role in (
                Role("SLAVE", part(group, first).own_id, epoch + 1, "another was elected"),
                Role("SYNC_MASTER", 0, epoch + 2, "elected"),
            ):
                began = trio.current_time()
                await broker.change_role(role)
                assert trio.current_time() - began < CHANGE_SECONDS
            assert broker.role.epoch == epoch + 2

    run_seed(scenario, 9)
