"""One kind of request fills what is there for it; every other kind is answered as if nothing were."""

from __future__ import annotations

import random

import pytest
import trio
from broker_rig import pull_header, send_header

from understudy.format.json_dialect import dumps, loads
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

SUBSCRIPTION = {"topic": "T", "subString": "*", "subVersion": 1, "expressionType": "TAG"}


def heartbeat(client_id: str, group: str = "readers") -> bytes:
    member = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [SUBSCRIPTION],
    }
    return dumps({"clientID": client_id, "consumerDataSet": [member], "producerDataSet": []})


def relay(client_id: str) -> dict[str, str]:
    return {"consumerGroup": "readers", "clientId": client_id, "jstackEnable": "false"}


async def others_are_served(client: RemotingClient, address: str, *, also_sends: bool) -> None:
    """Ask one of each kind; all must be answered within a tenth of a second."""
    began = trio.current_time()
    for code, ext, body in (
        (RequestCode.HEART_BEAT, None, heartbeat("other", "others")),
        (RequestCode.PULL_MESSAGE, pull_header("T", 0, 0, "others"), b""),
        (RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, b""),
        (RequestCode.GET_BROKER_RUNTIME_INFO, None, b""),
        *([(RequestCode.SEND_MESSAGE_V2, send_header("T"), b"through")] if also_sends else []),
    ):
        answer = await client.invoke(address, request(code, ext, body), 1_000)
        assert answer.code == 0, (code, answer.remark)
    assert trio.current_time() - began < 0.1


@pytest.mark.covers("R321", "R323", "R324")
def test_sends_that_wait_for_a_slow_disk_are_bounded_and_hold_up_nothing_else() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            keys = {"brokerName": "a", "flushDiskType": "SYNC_FLUSH", "sendThreadPoolQueueCapacity": "50"}
            await cluster.start_container("c1", [{**keys, "syncFlushTimeout": "30000"}])
            broker = cluster.brokers("c1")["a"]
            address = broker.identity.address
            async with open_client(cluster.client_world()) as client, open_client(cluster.client_world("d")) as other:
                first = await client.invoke(address, request(310, send_header("T"), b"first"), 3_000)
                assert first.code == 0
                # given a disk that takes ten seconds for a sync, and sixty sends
                cluster.host("c1").disk.sync_seconds = 10
                codes: list[tuple[float, int, str]] = []
                began = trio.current_time()

                async def send() -> None:
                    answer = await client.invoke(address, request(310, send_header("T"), bytes(1000)), 60_000)
                    codes.append((trio.current_time() - began, answer.code, (answer.remark or "")[:10]))

                async with trio.open_nursery() as nursery:
                    for _ in range(60):
                        nursery.start_soon(send)
                    await trio.sleep(0.5)
                    # then as many wait as the key says, the rest heard at once that the broker is busy
                    assert len(broker.acknowledgements) == 50
                    assert [(code, remark) for _, code, remark in codes] == [(2, "[OVERLOAD]")] * 10
                    # and every other kind is served, here and on another connection
                    await others_are_served(client, address, also_sends=False)
                    await others_are_served(other, address, also_sends=False)
                late = [(after > 5, code) for after, code, _ in codes[10:]]
                assert late == [(True, 0)] * 50
                assert broker.store.max_queue_offset("T", 0) == 51

    run_seed(scenario, 1)


@pytest.mark.covers("R321", "R323")
def test_questions_to_a_silent_consumer_are_bounded_and_hold_up_nothing_else() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            keys = {"adminBrokerThreadPoolNums": "2", "adminBrokerThreadPoolQueueCapacity": "3"}
            await cluster.start_container("c1", [{"brokerName": "a", **keys}])
            address = cluster.brokers("c1")["a"].identity.address

            def never(connection: Connection, command: Command) -> None:
                """Leave the question unanswered."""

            async with (
                open_client(cluster.client_world("mute"), handlers={307: never}) as mute,
                open_client(cluster.client_world()) as client,
            ):
                # given a consumer that never answers, and eight questions about it
                joined = await mute.invoke(address, request(RequestCode.HEART_BEAT, None, heartbeat("mute")), 1_000)
                assert joined.code == 0
                await client.invoke(address, request(310, send_header("T"), b"first"), 3_000)
                codes: list[int] = []

                async def ask() -> None:
                    question = request(RequestCode.GET_CONSUMER_RUNNING_INFO, relay("mute"))
                    codes.append((await client.invoke(address, question, 60_000)).code)

                async with trio.open_nursery() as nursery:
                    for _ in range(8):
                        nursery.start_soon(ask)
                    await trio.sleep(0.5)
                    # then two are under way, three wait, the rest is refused at once, and nobody else notices
                    assert codes == [2, 2, 2]
                    await others_are_served(client, address, also_sends=True)
                # those that waited too long are refused as well, those under way end with a timeout
                assert sorted(codes) == [2] * 6 + [207] * 2

    run_seed(scenario, 1)


@pytest.mark.covers("IT-23")
def test_a_member_without_heartbeat_is_gone_after_two_minutes_and_the_others_hear_of_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "a"}])
            broker = cluster.brokers("c1")["a"]
            address, told = broker.identity.address, list[float]()

            def changed(connection: Connection, command: Command) -> None:
                assert (command.ext or {})["consumerGroup"] == "readers"
                told.append(trio.current_time())

            async with (
                open_client(cluster.client_world("silent")) as silent,
                open_client(cluster.client_world("loyal"), handlers={40: changed}) as loyal,
            ):
                connection = await silent.connection(address, 1_000)
                began = trio.current_time()
                for client, name in ((silent, "silent"), (loyal, "loyal")):
                    await client.invoke(address, request(RequestCode.HEART_BEAT, None, heartbeat(name)), 1_000)
                await trio.sleep(1)
                told.clear()
                # given a member that goes on asking things, but sends no heartbeat, and one that does both
                while connection.alive and trio.current_time() - began < 200:
                    await trio.sleep(5)
                    assert (await loyal.invoke(address, request(34, None, heartbeat("loyal")), 1_000)).code == 0
                    if connection.alive:
                        await connection.invoke(request(30, {"topic": "T", "queueId": "0"}), 1_000)
                # then it is cut off after two minutes, the group goes on without it, and the other one was told
                assert 120 <= trio.current_time() - began <= 140
                assert len(told) == 1
                listed = await loyal.invoke(address, request(38, {"consumerGroup": "readers"}), 1_000)
                assert loads(listed.body) == {"consumerIdList": ["loyal"]}

    run_seed(scenario, 1)


@pytest.mark.covers("SC-04")
def test_each_delay_level_is_kept_within_a_fifth_of_a_second() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "a"}])
            broker = cluster.brokers("c1")["a"]
            arrived: list[tuple[int, float]] = []
            began = trio.current_time()
            broker.store.arrived.append(
                lambda topic, queue_id, *rest: arrived.append((queue_id, trio.current_time())) if topic == "T" else None
            )
            async with open_client(cluster.client_world()) as client:
                sent: dict[int, float] = {}
                for level in (4, 3, 2, 1):
                    sent[level] = trio.current_time()
                    header = send_header("T", f"DELAY\x01{level}\x02", level - 1)
                    for _ in range(10):
                        answer = await client.invoke(broker.identity.address, request(310, header, b"later"), 1_000)
                        assert answer.code == 0
                assert trio.current_time() - began < 1
                await trio.sleep(32)
            waits = {1: 1.0, 2: 5.0, 3: 10.0, 4: 30.0}
            assert len(arrived) == 40
            for queue_id, at in arrived:
                level = queue_id + 1
                assert waits[level] - 0.001 <= at - sent[level] <= waits[level] + 0.2, (level, at - sent[level])

    run_seed(scenario, 1)
