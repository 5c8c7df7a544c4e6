"""What a broker shows when somebody scrapes; how far groups are behind, also those that want some tags only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from understudy.broker import lag
from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.filters import tag_codes
from understudy.broker.lag import lag_pieces
from understudy.broker.storage import BrokerStartError
from understudy.container.hosted import host_broker
from understudy.mqclient.api import (
    ConsumeFrom,
    PullConsumerOptions,
    message,
    open_producer,
    open_pull_consumer,
    real_world,
)
from understudy.runtime.metrics_ports import SharedEndpoint
from understudy.runtime.pace import run_steps
from understudy.runtime.properties import ConfigError
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

METERED = {
    "metricsExporterType": "PROM",
    "metricsPromExporterHost": "127.0.0.1",
    "metricsPromExporterPort": "0",
    "metricsLabel": "rack:r1",
    "defaultTopicQueueNums": "1",
}
TAGS = ("red", "green", "blue")
REPEAT = 20


async def scrape(broker: Broker) -> dict[str, float]:
    """Return every sample, the labels all of them have taken away."""
    assert isinstance(broker.metrics, SharedEndpoint)
    stream = await trio.open_tcp_stream(*broker.metrics.address)
    data = b""
    async with stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        async for part in stream:
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    samples = {}
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            sample, _, number = line.rpartition(" ")
            for own in ('cluster="DefaultCluster"', 'node_id="broker-a"', 'node_type="broker"', 'rack="r1"'):
                assert own in sample
            sample = re.sub(r'(cluster|node_id|node_type|rack)="[^"]*",?', "", sample).replace(",}", "}")
            samples[sample.removesuffix("{}")] = float(number)
    return samples


def of(name: str, group: str, *, retry: bool = False) -> str:
    topic = f"%RETRY%{group}" if retry else "Metered"
    flag = str(retry).lower()
    return f'{name}{{consumer_group="{group}",is_retry="{flag}",is_system="false",topic="{topic}"}}'


async def test_a_scrape_has_no_more_series_of_a_metric_than_the_limit_and_nothing_is_missing_in_the_sum() -> None:
    async with LocalCluster(broker_config=METERED | {"metricsOtelCardinalityLimit": "4"}) as cluster:
        broker = cluster.brokers["broker-a"]
        for number in range(50):
            broker.stats.topic(f"made-up-{number}").add(0, 1, 100)
        shown = await scrape(broker)
    came_in = {name: value for name, value in shown.items() if name.startswith("rocketmq_messages_in_total{")}
    assert (4, 50) == (len(came_in), sum(came_in.values()))
    assert 47 == came_in['rocketmq_messages_in_total{otel_metric_overflow="true"}']
    families = [name.partition("{")[0] for name in shown if "_bucket" not in name]
    assert max(families.count(name) for name in families) <= 4


@pytest.mark.covers("SL-12")
async def test_lag_is_what_was_produced_and_of_wanted_tags_only_for_who_wants_them() -> None:
    produced = REPEAT * len(TAGS)
    options = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=False)
    async with LocalCluster(broker_config=METERED) as cluster:
        broker, servers = cluster.brokers["broker-a"], cluster.namesrv_address
        async with open_producer(real_world(), servers, "senders") as producer:
            for _ in range(REPEAT):
                for tag in TAGS:
                    await producer.send(message("Metered", b"x" * 100, tag=tag))

            # given a group of all messages that is offline, and a group of one tag that is there; neither took any
            for group in ("all", "some"):
                assert broker.groups.get(group) is not None  # made by being asked for
                broker.offsets.commit(group, "Metered", 0, 0)
            async with open_pull_consumer(real_world(), servers, "some", options) as consumer:
                await consumer.subscribe({"Metered": "red || blue"})
                await until(lambda: broker.consumers.find_subscription("some", "Metered"))
                shown = await scrape(broker)
                # then the lag is all that was produced for the one, and two tags of three for the other
                assert shown[of("rocketmq_consumer_lag_messages", "all")] == produced
                assert shown[of("rocketmq_consumer_lag_messages", "some")] == 2 * REPEAT
                assert shown[of("rocketmq_consumer_lag_latency_milliseconds", "all")] >= 0

                # when half is consumed
                broker.offsets.commit("all", "Metered", 0, produced // 2)
                broker.offsets.commit("some", "Metered", 0, produced // 2)
                shown = await scrape(broker)
                assert shown[of("rocketmq_consumer_lag_messages", "all")] == produced / 2
                assert shown[of("rocketmq_consumer_lag_messages", "some")] == REPEAT
                # when tags are not to be looked at, everything counts
                lags = [each for each in lag_pieces(broker, 0, estimate=False) if each is not None]
                [unfiltered] = [each for each in lags if (each.group, each.topic) == ("some", "Metered")]
                assert unfiltered.messages == produced / 2
                # when everything is
                for group in ("all", "some"):
                    broker.offsets.commit(group, "Metered", 0, produced)
                shown = await scrape(broker)
                assert shown[of("rocketmq_consumer_lag_messages", "all")] == 0
                assert shown[of("rocketmq_consumer_lag_messages", "some")] == 0
                assert shown[of("rocketmq_consumer_lag_latency_milliseconds", "all")] == 0


async def test_a_long_filtered_lag_is_projected_from_its_first_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "COUNTED_MESSAGES", 30)
    async with LocalCluster(broker_config=METERED) as cluster:
        broker = cluster.brokers["broker-a"]
        async with open_producer(real_world(), cluster.namesrv_address, "senders") as producer:
            for number in range(90):
                await producer.send(message("Metered", b"x", tag=TAGS[number % 3]))
        codes = tag_codes("red")
        assert run_steps(lag.count_in_steps(broker.store, "Metered", 0, 0, 90, codes)) == 30
        assert run_steps(lag.count_in_steps(broker.store, "Metered", 0, 0, 90, None)) == 90
        assert run_steps(lag.count_in_steps(broker.store, "Metered", 0, 88, 90, codes)) == 0
        assert run_steps(lag.count_in_steps(broker.store, "Metered", 0, 90, 90, codes)) == 0


async def test_traffic_connections_storage_and_services_are_shown_under_the_references_names() -> None:
    options = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=False)
    async with LocalCluster(broker_config=METERED) as cluster:
        broker, servers = cluster.brokers["broker-a"], cluster.namesrv_address
        async with (
            open_producer(real_world(), servers, "senders") as producer,
            open_pull_consumer(real_world(), servers, "readers", options) as consumer,
        ):
            for _ in range(10):
                await producer.send(message("Metered", b"x" * 100))
            await consumer.subscribe({"Metered": "*"})
            seen = 0
            with trio.fail_after(20):
                while seen < 10:
                    seen += len(await consumer.poll(timeout_ms=1000))
            # (a client's heartbeat may come after its first message)
            await until(lambda: broker.producers.groups)
            shown = await scrape(broker)
        assert shown['rocketmq_messages_in_total{is_system="false",message_type="normal",topic="Metered"}'] == 10
        assert shown['rocketmq_throughput_in_total{is_system="false",message_type="normal",topic="Metered"}'] > 1000
        assert shown[of("rocketmq_messages_out_total", "readers")] == 10
        assert shown[of("rocketmq_throughput_out_total", "readers")] > 1000
        assert sum(number for name, number in shown.items() if name.startswith("rocketmq_producer_connections")) == 1
        assert any('consumer_group="readers"' in name for name in shown if "consumer_connections" in name)
        assert shown["rocketmq_broker_permission"] == 6
        assert shown["rocketmq_topic_number"] == len(broker.topics.rows)
        assert shown["rocketmq_consumer_group_number"] == len(broker.groups.rows)
        assert shown['rocketmq_processor_watermark{processor="send"}'] == 0
        assert shown['rocketmq_processor_watermark{processor="admin"}'] == 0
        assert shown['rocketmq_storage_size_bytes{storage_medium="disk",storage_type="local"}'] > 1000
        assert shown['rocketmq_broker_service{service="schedule"}'] == 1
        assert shown['rocketmq_broker_service{service="metrics"}'] == 1


async def test_kinds_can_be_switched_off() -> None:
    off = {"enableLagAndDlqMetrics": "false", "enableMessageStoreMetrics": "false", "enableStatsMetrics": "false"}
    off |= {"enablePopMetrics": "false", "enableRemotingMetrics": "false"}
    async with LocalCluster(broker_config={**METERED, **off}) as cluster:
        shown = await scrape(cluster.brokers["broker-a"])
        kinds = ("lag", "storage", "permission", "_pop_", "rpc_latency")
        assert not any(kind in name for name in shown for kind in kinds)


async def test_nothing_is_served_by_default_and_two_brokers_do_not_mix() -> None:
    async with LocalCluster(brokers=0) as cluster:
        quiet = await cluster.add_broker("broker-b")
        assert quiet.metrics is None
        assert "metrics" not in quiet.services.running()
        metered = await cluster.add_broker("broker-a", METERED)
        assert metered.metrics is not None
        shown = await scrape(metered)
        assert not any("broker-b" in name for name in shown)


async def test_wrong_settings_stop_the_start_with_one_line(tmp_path: Path) -> None:
    wrong = {
        "metricsExporterType": "GRAPHITE",
        "storePathRootDir": str(tmp_path),
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
    }
    with pytest.raises(ConfigError, match=r"^b\.conf: metricsExporterType=GRAPHITE is none of"):
        BrokerOptions.from_properties(wrong, "b.conf")
    # and one that came by a live update, with the next start of the same options
    options, _ = BrokerOptions.from_properties({**wrong, "metricsExporterType": "PROM"})
    options.broker.metrics_label = "x"
    with pytest.raises(BrokerStartError, match="metricsLabel: "):
        await host_broker(real_world(), options)
