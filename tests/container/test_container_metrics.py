"""Brokers of one container share a port of metrics, where their files name one, and each is shown as itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.container.broker_files import AddBrokerError
from understudy.container.hosted import BrokerIdentity
from understudy.mqclient.api import message, open_producer, real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.port_blocks import PortBlocks

A, B, C = (BrokerIdentity("DefaultCluster", f"broker-{letter}", 0) for letter in "abc")


@pytest.fixture
def keys(port_blocks: PortBlocks) -> dict[str, str]:
    """What the files of all brokers say."""
    return {
        "metricsExporterType": "2",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": str(port_blocks.take()),
        "defaultTopicQueueNums": "1",
    }


@asynccontextmanager
async def three(keys: dict[str, str]) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=3, broker_config=keys) as cluster:
        yield cluster


async def scrape(keys: dict[str, str]) -> str:
    with trio.fail_after(30):
        async with await trio.open_tcp_stream("127.0.0.1", int(keys["metricsPromExporterPort"])) as stream:
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            data = b"".join([part async for part in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return body.decode()


def nodes(text: str) -> set[str]:
    return set(re.findall(r'node_id="([^"]*)"', text))


def came_in(text: str, node: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith("rocketmq_messages_in_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if f'node_id="{node}"' in line)


async def test_one_port_shows_every_broker_under_its_own_name_and_a_removed_one_no_more(keys: dict[str, str]) -> None:
    async with three(keys) as cluster:
        async with open_producer(real_world(), cluster.namesrv_address, "senders") as producer:
            await producer.send(message("Metered", b"x"))
        text = await scrape(keys)
        assert {"broker-a", "broker-b", "broker-c"} == nodes(text)
        assert 1 == sum(came_in(text, node) for node in nodes(text))
        for name, broker in cluster.brokers.items():
            stored = sum(figures.messages for _, figures in broker.stats.puts())
            assert stored == came_in(text, name)

        # all samples of a name stand together, behind one line that says what it is
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
        assert len(names) == len(set(names))

        # the first one leaves, who serves the port; then all but the last
        await cluster.container.remove_broker(A)
        assert {"broker-b", "broker-c"} == nodes(await scrape(keys))
        await cluster.container.remove_broker(C)
        assert {"broker-b"} == nodes(await scrape(keys))
        again = await cluster.add_broker("broker-a", {**keys, "metricsExporterType": "prom"})
        assert again.metrics is not None
        assert {"broker-a", "broker-b"} == nodes(await scrape(keys))
        for identity in (A, B):
            await cluster.container.remove_broker(identity)
        with pytest.raises(OSError, match="all attempts to connect"):
            await scrape(keys)


async def test_one_whose_metrics_fail_costs_the_others_nothing(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with three(keys) as cluster:
        broken: Broker = cluster.brokers["broker-b"]
        monkeypatch.setattr(broken.stats, "puts", lambda: 1 / 0)
        text = await scrape(keys)
    assert not came_in(text, "broker-b")
    for node in ("broker-a", "broker-c"):
        assert f'rocketmq_broker_permission{{cluster="DefaultCluster",node_id="{node}"' in text
    assert [record for record in caplog.records if "ZeroDivisionError" in record.getMessage()]


async def test_a_port_that_somebody_else_has_is_one_line(keys: dict[str, str]) -> None:
    port = int(keys["metricsPromExporterPort"])
    listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
    try:
        async with LocalCluster(brokers=0) as cluster:
            with pytest.raises(AddBrokerError) as refused:
                await cluster.add_broker("broker-a", keys)
            said = str(refused.value)
            assert f"127.0.0.1:{port}" in said
            assert "metricsPromExporterPort" in said
            assert "\n" not in said
            assert not cluster.brokers
    finally:
        for listener in listeners:
            await listener.aclose()
