"""Families, labels and bounds are those of a scrape of the real system; dashboard and alerts fit them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from test_broker_metrics import METERED

from understudy.broker.broker import Broker
from understudy.broker.metrics import pieces
from understudy.mqclient.api import Message, message, open_producer, real_world
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "broker" / "metric_families.json"
GOLDEN: dict[str, dict[str, Any]] = json.loads(DATA.read_text())
LEFT_OUT = {
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": "nothing scans a buffer",
    "rocketmq_proxy_up": "of a proxy",
    "target_info": "of OpenTelemetry",
}


async def judge_traffic(cluster: LocalCluster, broker: Broker) -> None:
    """Judge what is shown while a producer and a consumer are there, and a group is behind."""
    world, servers = real_world(), cluster.namesrv_address
    async with open_producer(world, servers, "senders") as producer:
        await producer.send(Message("Metered", b"x"))
        await producer.send(message("Metered", b"x", delay_ms=60_000))
    await until(lambda: broker.timer.entered.of["Metered"])
    broker.transactions.counts.latency.observe(1, (("topic", "Metered"),))
    async with open_client(world) as client:
        body = {"clientID": "c", "consumerDataSet": [{"groupName": "readers", "subscriptionDataSet": []}]}
        body["producerDataSet"] = [{"groupName": "senders"}]  # type: ignore[list-item]
        beat = request(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
        assert (await client.invoke(broker.identity.address, beat, 3_000)).code == 0
        assert broker.groups.get("offline") is not None  # made by being asked for
        broker.offsets.commit("offline", "Metered", 0, 0)
        assert_like_the_reference({family.name: family for family in filter(None, pieces(broker))})


def assert_like_the_reference(found: dict[str, Any]) -> None:
    for name, golden in GOLDEN.items():
        if name in LEFT_OUT:
            assert name not in found, f"{name} is there now: take it out of LEFT_OUT"
            continue
        family = found[name]
        assert golden["type"] == family.kind, name
        for sample in family.samples:
            assert set(golden["labels"]) == sample.labels.keys() - {"le"}, name
        if golden["bounds"]:
            bounds = [sample.labels["le"] for sample in family.samples if sample.suffix == "_bucket"]
            assert golden["bounds"] * (len(bounds) // len(golden["bounds"]) or 1) == bounds, name
    shown = {name for name, family in found.items() if family.samples}
    assert len(shown & GOLDEN.keys()) >= 25, sorted(GOLDEN.keys() - shown)


async def test_names_labels_and_bounds_are_those_of_the_reference() -> None:
    async with LocalCluster(broker_config=METERED) as cluster:
        await judge_traffic(cluster, cluster.brokers["broker-a"])


async def test_the_dashboard_and_the_alerts_ask_for_what_is_exported() -> None:
    async with LocalCluster(broker_config=METERED) as cluster:
        exported = {family.name for family in filter(None, pieces(cluster.brokers["broker-a"]))}
    board = json.loads((ROOT / "conf" / "metrics" / "dashboard.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    alerts = (ROOT / "conf" / "metrics" / "alerts.yml").read_text()
    asked += re.findall(r"^ +expr: (.*)$", alerts, re.MULTILINE)
    assert len(asked) > 20
    for expression in asked:
        names = set(re.findall(r"\brocketmq_\w+", expression))
        assert names, expression
        assert names <= exported, expression
        assert expression.count("(") == expression.count(")"), expression
    assert len(re.findall(r"^ +- alert: ", alerts, re.MULTILINE)) == alerts.count("summary:")
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in board["panels"]]
    assert len(places) == len(set(places))
