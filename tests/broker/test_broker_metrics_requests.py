"""How long requests took, and of which types and sizes messages were, as a scrape shows it."""

from __future__ import annotations

from collections.abc import Mapping

import trio
from test_broker_metrics import METERED, scrape

from understudy.mqclient.api import real_world
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

UNKNOWN = 77_777
TIMES = "rocketmq_rpc_latency_milliseconds"
SIZES = "rocketmq_message_size"


def send(topic: str, body: bytes, properties: Mapping[str, str] | None = None, *, oneway: bool = False) -> Command:
    pairs = {"UNIQ_KEY": "7F0000010A2B18B4AAC21234567890AB", **(properties or {})}
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "h": "0", "i": text}
    fields |= {"g": str(real_world().clock.wall_ms()), "j": "0", "k": "false", "m": "false"}
    return request(RequestCode.SEND_MESSAGE_V2, fields, body, oneway=oneway)


def pull(offset: int, *, wait_ms: int = 0) -> Command:
    fields = {"consumerGroup": "g", "topic": "Metered", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "9"}
    fields |= {"sysFlag": "6" if wait_ms else "4", "commitOffset": "0", "suspendTimeoutMillis": str(wait_ms)}
    fields |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    return request(RequestCode.PULL_MESSAGE, fields)


async def ask(client: RemotingClient, address: str, command: Command) -> int:
    return (await client.invoke(address, command, 5_000)).code


def took(code: str, answered: str = "success", result: str = "success", *, polling: bool = False) -> str:
    return (
        f'{TIMES}_count{{is_long_polling="{str(polling).lower()}",protocol_type="remoting",request_code="{code}",'
        f'response_code="{answered}",result="{result}"}}'
    )


async def test_requests_are_timed_by_code_answer_and_way() -> None:
    async with LocalCluster(broker_config=METERED) as cluster, open_client(real_world()) as client:
        broker = cluster.brokers["broker-a"]
        address = broker.identity.address
        assert ResponseCode.SUCCESS == await ask(client, address, send("Metered", b"x"))
        assert ResponseCode.SUCCESS == await ask(client, address, send("Metered", b"x"))
        assert ResponseCode.SYSTEM_ERROR == await ask(client, address, send("Metered", b""))
        await client.invoke_oneway(address, send("Metered", b"x", oneway=True), 5_000)
        assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED == await ask(client, address, request(UNKNOWN, {}))
        assert ResponseCode.SUCCESS == await ask(client, address, pull(0))
        assert ResponseCode.SUCCESS == await ask(client, address, request(RequestCode.GET_BROKER_CONFIG, {}))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, client, address, pull(3, wait_ms=60_000))
            await until(lambda: len(broker.hold))
            assert ResponseCode.SUCCESS == await ask(client, address, send("Metered", b"x"))
        shown = await scrape(broker)
        assert 3 == shown[took("send_message_v2")]
        assert 1 == shown[took("send_message_v2", "system_error")]
        assert 1 == shown[took("send_message_v2", result="oneway")]
        assert 1 == shown[took(str(UNKNOWN), "request_code_not_supported")]
        assert 1 == shown[took("pull_message")]
        assert 1 == shown[took("pull_message", polling=True)]
        assert 1 == shown[took("get_broker_config")]
        whole = {name.partition("{")[2]: value for name, value in shown.items() if name.startswith(f"{TIMES}_count")}
        for labels, count in whole.items():  # every request is in a bucket, and took some time
            bucket = labels.replace("protocol_type", 'le="+Inf",protocol_type')
            assert count == shown[f"{TIMES}_bucket{{{bucket}"]
            assert 0 < shown[f"{TIMES}_sum{{{labels}"] < 60_000 * count


async def test_sends_that_wait_for_the_disk_are_timed_until_their_answer() -> None:
    async with (
        LocalCluster(broker_config={**METERED, "flushDiskType": "SYNC_FLUSH"}) as cluster,
        open_client(real_world()) as client,
    ):
        broker = cluster.brokers["broker-a"]
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, client, broker.identity.address, send("Metered", b"x"))
        shown = await scrape(broker)
        assert 5 == shown[took("send_message_v2")]
        assert broker.acknowledgements is not None and not len(broker.acknowledgements)


async def test_types_and_sizes_of_messages_are_shown_under_the_topic_that_they_are_stored_in() -> None:
    async with LocalCluster(broker_config=METERED) as cluster, open_client(real_world()) as client:
        broker = cluster.brokers["broker-a"]
        address = broker.identity.address
        for body, properties in (
            (b"x", {}),
            (b"x" * 2000, {}),
            (b"x", {"__SHARDINGKEY": "a"}),
            (b"x", {"TIMER_DELAY_MS": "60000"}),
            (b"x", {"DELAY": "1"}),
            (b"x", {"TRAN_MSG": "true", "PGROUP": "p"}),
        ):
            assert ResponseCode.SUCCESS == await ask(client, address, send("Metered", body, properties))
        await until(lambda: "delay" in {kind.type for kind in broker.stats.topic("Metered").figures()})
        shown = await scrape(broker)

    def came(topic: str, type_: str, *, system: bool = False) -> tuple[float, float, float]:
        labels = f'is_system="{str(system).lower()}",message_type="{type_}",topic="{topic}"'
        small = shown[
            f'{SIZES}_bucket{{is_system="{str(system).lower()}",le="1024.0",message_type="{type_}",topic="{topic}"}}'
        ]
        return shown[f"rocketmq_messages_in_total{{{labels}}}"], shown[f"{SIZES}_count{{{labels}}}"], small

    assert (2, 2, 1) == came("Metered", "normal")
    assert (1, 1, 1) == came("Metered", "fifo")
    assert (1, 1, 1) == came("Metered", "delay")  # the one that is due by now
    assert (1, 1, 1) == came("rmq_sys_wheel_timer", "delay", system=True)
    assert (1, 1, 1) == came("SCHEDULE_TOPIC_XXXX", "delay", system=True)
    assert (1, 1, 1) == came("RMQ_SYS_TRANS_HALF_TOPIC", "transaction", system=True)
    assert not [name for name in shown if 'message_type="transaction",topic="Metered"' in name]
    asked = 'le="60.0",storage_medium="disk",storage_type="local",topic="Metered"'
    assert 1 == shown[f"rocketmq_delay_message_latency_seconds_bucket{{{asked}}}"]
