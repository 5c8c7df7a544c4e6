"""Static topics in two broker groups: made, used and moved while messages are sent and read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell
from static_rig import TOPIC, Client, open_groups, run

from understudy.broker.admin.static_topics import ITEMS_MAX
from understudy.format.json_dialect import dumps, loads
from understudy.mqadmin.command import CommandFailedError
from understudy.mqclient.admin import static_topics
from understudy.mqclient.admin.static_plans import BrokerTopic
from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.session import Session
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until


@pytest.fixture(autouse=True)
def plans_go_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


async def made(client: Client, queues: int, brokers: str = "broker-a") -> None:
    await shell(client.cluster, f"updateStaticTopic -t {TOPIC} -qn {queues} -b {brokers}")


async def moved(client: Client, brokers: str) -> None:
    await shell(client.cluster, f"remappingStaticTopic -t {TOPIC} -b {brokers}")


@pytest.mark.covers("R349", "IT-16")
def test_a_queue_that_moves_is_read_on_without_gap_and_without_repeat() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            # given a static topic at one group, with messages
            await made(client, 2)
            assert {name: len(info["currIdMap"]) for name, info in (await client.mappings()).items()} == {
                "broker-a": 2,
                "broker-b": 0,
            }
            sent: dict[int, list[bytes]] = {0: [], 1: []}

            async def send(count: int) -> None:
                for _ in range(count):
                    for global_id, bodies in sent.items():
                        body = b"%d %d" % (global_id, len(bodies))
                        answer = await client.send(global_id, body)
                        assert answer.code == 0, answer.remark
                        assert (answer.ext or {})["queueId"] == str(global_id)
                        bodies.append(body)

            await send(7)
            first = await client.read_all(0)
            assert first == list(enumerate(sent[0]))
            # when all queues move to the other group, and back, and messages go on
            await moved(client, "broker-b")
            assert await client.leader(0) == "broker-b"
            await send(5)
            await moved(client, "broker-a")
            assert await client.leader(1) == "broker-a"
            await send(3)
            # then a reader finds each message once, in order, at offsets that only grow
            for global_id, bodies in sent.items():
                found = await client.read_all(global_id)
                assert [body for _, body in found] == bodies
                offsets = [offset for offset, _ in found]
                assert offsets == [*range(7), *range(10_000, 10_005), *range(20_000, 20_003)]
            # and one that has read the first piece goes on with the second
            assert [body for _, body in await client.read_all(0, 7)] == sent[0][7:]

    run(scenario)


def test_where_groups_stand_and_where_queues_end_are_told_in_logical_offsets() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 1)
            for number in range(4):
                await client.send(0, b"%d" % number)
            group = {"consumerGroup": "readers"}
            # given a group that has read half of the first piece
            await client.pull(0, 0)
            assert (await client.ask(0, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=2, **group)).code == 0
            await moved(client, "broker-b")
            for number in range(3):
                await client.send(0, b"later %d" % number)
            # then it goes on where it was, though another group of brokers leads the queue
            assert await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group) == 2
            assert await client.offset_of(0, RequestCode.GET_MIN_OFFSET) == 0
            assert await client.offset_of(0, RequestCode.GET_MAX_OFFSET) == 10_003
            # as `topicStatus` tells, physical queues beside
            status = [line.split() for line in (await shell(client.cluster, f"topicStatus -t {TOPIC}")).splitlines()]
            assert [line[:4] for line in status if len(line) > 4 and line[0] != "#Broker"] == [
                ["__syslo__global__", "0", "0", "10003"],
                ["broker-a", "0", "0", "4"],
                ["broker-b", "0", "0", "3"],
            ]
            # and a commit behind the first piece counts there, one before it here
            await client.pull(0, 10_000)
            for offset in (10_001, 10_003):
                assert (await client.ask(0, RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=offset, **group)).code == 0
                assert await client.offset_of(0, RequestCode.QUERY_CONSUMER_OFFSET, **group) == offset
            assert client.broker("broker-a").offsets.query("readers", TOPIC, 0) == 2
            assert client.broker("broker-b").offsets.query("readers", TOPIC, 0) == 3
            # and times are looked for in both pieces
            search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            assert await client.offset_of(0, search, timestamp=0) == 0
            times = [
                client.broker(name).store.store_time_of(TOPIC, 0, offset)
                for name, offset in (("broker-a", 2), ("broker-b", 1))
            ]
            assert await client.offset_of(0, search, timestamp=times[0]) == 2
            assert await client.offset_of(0, search, timestamp=times[1]) == 10_001
            earliest = await client.ask(0, RequestCode.GET_EARLIEST_MSG_STORETIME)
            assert int((earliest.ext or {})["timestamp"]) == client.broker("broker-a").store.store_time_of(TOPIC, 0, 0)

    run(scenario)


def test_a_compressed_registration_tells_the_mapping_too() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source, compressedRegister="true") as client:
            await made(client, 3)
            (led, none) = [(await client.mappings())[name] for name in ("broker-a", "broker-b")]
            assert (led["currIdMap"], led["totalQueues"], none["currIdMap"]) == ({"0": 0, "1": 1, "2": 2}, 3, {})
            assert led["epoch"] == none["epoch"] > 0

    run(scenario)


def test_only_the_leader_of_a_queue_takes_messages_and_answers_readers() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 1)
            await client.send(0, b"one")
            await moved(client, "broker-b")
            refused = await client.send(0, b"two", at="broker-a")
            assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
            for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
                assert (await client.ask(0, code, "broker-a")).code == ResponseCode.NOT_LEADER_FOR_QUEUE
            assert (await client.pull(0, 0, at="broker-a")).code == ResponseCode.NOT_LEADER_FOR_QUEUE
            assert (await client.send(7, b"no such queue", at="broker-b")).code == ResponseCode.NOT_LEADER_FOR_QUEUE
            # what would be stored at a later time is refused: the queue may have moved by then
            late = await client.send(0, b"late", properties="DELAY\x011\x02")
            assert late.code == ResponseCode.MESSAGE_ILLEGAL
            assert "delayed" in (late.remark or "")
            assert await client.read_all(0) == [(0, b"one")]

    run(scenario)


@pytest.mark.covers("R349", "IT-16")
def test_producer_and_consumer_run_on_while_queues_move() -> None:
    got: list[bytes] = []
    places: dict[tuple[int, int], bytes] = {}

    async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for each in batch:
            got.append(each.body)
            assert places.setdefault((each.queue_id, each.queue_offset), each.body) == each.body

    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 3, "broker-a,broker-b")
            cluster = client.cluster
            options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
            world, servers = cluster.client_world("reader"), cluster.name_servers
            async with (
                open_producer(cluster.client_world("writer"), servers, "writers") as producer,
                open_push_consumer(world, servers, "readers", {TOPIC: "*"}, listen, options),
                trio.open_nursery() as nursery,
            ):
                sent: list[bytes] = []

                async def write() -> None:
                    while True:
                        body = b"%d" % len(sent)
                        await producer.send(message(TOPIC, body))
                        sent.append(body)
                        await trio.sleep(0.1)

                nursery.start_soon(write)
                for brokers in ("broker-b", "broker-a", "broker-a,broker-b"):
                    await trio.sleep(60)
                    await moved(client, brokers)
                await trio.sleep(60)
                nursery.cancel_scope.cancel()
                await until(lambda: set(got) >= set(sent), 60)
            assert len(sent) > 1_000
            # Each message has one place, in the queue that the consumer sees.
            assert len(places) == len(sent)
            assert {queue_id for queue_id, _ in places} == {0, 1, 2}
            assert len(got) == len(sent)

    run(scenario)


def test_a_group_that_lost_the_end_of_its_piece_keeps_no_reader_waiting() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 1)
            await client.send(0, b"lost")
            await moved(client, "broker-b")
            await client.send(0, b"kept")
            await client.cluster.kill("c1", power=True)  # before the message was flushed
            # while its group is away readers wait
            refused = await client.pull(0, 0)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            await client.cluster.restart("c1")
            await trio.sleep(60)
            assert client.broker("broker-a").store.max_queue_offset(TOPIC, 0) == 0
            assert await client.read_all(0) == [(10_000, b"kept")]

    run(scenario)


def test_mappings_survive_a_power_failure_and_go_with_their_topic() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 1)
            await client.send(0, b"one")
            await moved(client, "broker-b")
            await client.send(0, b"two")
            await trio.sleep(15)  # the log is on the disk
            for host in ("c1", "c2"):
                await client.cluster.kill(host, power=True)
            for host in ("c1", "c2"):
                await client.cluster.restart(host)
            await until(
                lambda: not any(client.broker(name).registration.isolated for name in ("broker-a", "broker-b")), 60
            )
            await trio.sleep(60)
            assert await client.leader(0) == "broker-b"
            assert [body for _, body in await client.read_all(0)] == [b"one", b"two"]
            # a deleted topic leaves no mapping behind, here or at name servers
            await shell(client.cluster, f"deleteTopic -c DefaultCluster -t {TOPIC}")
            assert [client.broker(name).queue_mappings.rows for name in ("broker-a", "broker-b")] == [{}, {}]
            await shell(client.cluster, f"updateTopic -c DefaultCluster -t {TOPIC} -r 1 -w 1")
            await trio.sleep(60)
            assert await client.mappings() == {}
            assert (await client.send(0, b"plain", at="broker-a")).code == 0

    run(scenario)


@pytest.mark.parametrize("taken", range(4))
def test_a_move_that_fails_half_way_is_finished_by_its_file(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*taken* brokers have taken their part before the operator's tool is gone: new leader, old one, both again."""
    save, calls = static_topics.save_static_topic, 0

    async def dying(session: Session, address: str, topic: BrokerTopic, *, force: bool) -> None:
        nonlocal calls
        if calls == taken:
            raise ClientError("the tool is gone")
        calls += 1
        await save(session, address, topic, force=force)

    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 2)
            for number in range(3):
                await client.send(0, b"%d" % number)
            with monkeypatch.context() as patched:
                patched.setattr(static_topics, "save_static_topic", dying)
                with pytest.raises(ClientError, match="the tool is gone"):
                    await moved(client, "broker-b")
            assert calls == taken
            assert {body for _, body in await client.read_all(0)} == {b"0", b"1", b"2"}
            plan = newest(tmp_path)
            # then its file may be carried out as often as one likes
            for _ in range(2):
                await shell(client.cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b -mf {plan}")
            await client.send(0, b"3")
            assert await client.read_all(0) == [(0, b"0"), (1, b"1"), (2, b"2"), (10_000, b"3")]
            with pytest.raises(CommandFailedError, match="plan of kind REMAPPING"):
                await shell(client.cluster, f"updateStaticTopic -t {TOPIC} -qn 4 -b broker-b -mf {plan}")

    run(scenario)


def newest(folder: Path) -> Path:
    """Return the file of the last plan."""
    return max(folder.glob(f"{TOPIC}-*.after"))


def test_a_waiting_reader_is_told_at_once_when_its_queue_moves_or_a_message_comes() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 1)
            answers: list[tuple[float, int]] = []

            async def wait_at(offset: int, at: str) -> None:
                read = await client.pull(0, offset, wait_ms=30_000, at=at)
                answers.append((trio.current_time(), read.code))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_at, 0, "broker-a")
                await trio.sleep(5)
                assert answers == []
                await client.send(0, b"one")
            assert [code for _, code in answers] == [ResponseCode.SUCCESS]
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_at, 1, "broker-a")
                await trio.sleep(1)
                await moved(client, "broker-b")
            assert answers[-1][1] == ResponseCode.NOT_LEADER_FOR_QUEUE
            assert answers[-1][0] - began < 10

    run(scenario)


def test_a_mapping_that_contradicts_what_a_broker_has_changes_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            await made(client, 1)
            broker = client.broker("broker-a")
            known = broker.queue_mappings.table[TOPIC]
            fields = {**topic_fields(TOPIC), "readQueueNums": "1", "writeQueueNums": "1"}
            body = known.to_json()
            for change, why in (
                ({"epoch": known.epoch - 1}, "small epoch"),
                ({"bname": "broker-b"}, "none of ledger for broker-a"),
                ({"hostedQueues": {}}, "missing"),
                (
                    {"epoch": known.epoch + 1, "hostedQueues": {"0": [{"bname": "broker-a", "queueId": 4}]}},
                    "another one",
                ),
                ({"hostedQueues": 7}, "hostedQueues"),
                # clients keep an object for each of them
                ({"totalQueues": (1 << 31) - 1}, "65535 logical queues at most"),
                ({"hostedQueues": {**body["hostedQueues"], "7": [{"bname": "broker-b"}]}}, "no logical queue 7"),
                ({"hostedQueues": {"0": [{}] * (ITEMS_MAX + 1)}}, "20000 items at most"),
                ({"hostedQueues": dict.fromkeys(map(str, range(ITEMS_MAX + 1)), 1)}, "20000 items at most"),
                ({"hostedQueues": {"0": [{"bname": "broker-a", "logicOffset": 1 << 62}]}}, "greater than"),
            ):
                command = request(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, fields, dumps({**body, **change}))
                answer = await client.invoke(broker.identity.address, command)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert why in (answer.remark or ""), answer.remark
            assert broker.queue_mappings.table[TOPIC] == known
            # and the topic with its mapping is told to who asks for it
            ext = {"topic": TOPIC, "lo": "true"}
            told = await client.invoke(broker.identity.address, request(RequestCode.GET_TOPIC_CONFIG, ext))
            assert loads(told.body)["mappingDetail"] == body
            plain = await client.invoke(
                broker.identity.address, request(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})
            )
            assert "mappingDetail" not in loads(plain.body)

    run(scenario)
