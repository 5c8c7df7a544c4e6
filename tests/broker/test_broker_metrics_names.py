"""Families, labels and bounds are those of a scrape of the real system; dashboard and alerts fit them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
from test_broker_metrics import METERED

from understudy.broker.broker import Broker
from understudy.broker.metrics import pieces
from understudy.broker.services import Service
from understudy.mqclient.api import (
    ConsumeFrom,
    Message,
    PopConsumerOptions,
    PullConsumerOptions,
    ReceivedMessage,
    TransactionState,
    World,
    message,
    open_pop_consumer,
    open_producer,
    open_pull_consumer,
    open_transaction_producer,
    real_world,
)
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "broker" / "metric_families.json"
GOLDEN: dict[str, dict[str, Any]] = json.loads(DATA.read_text())
VALUES = {
    "request_code": [code.name.lower() for code in RequestCode],
    "response_code": [code.name.lower() for code in ResponseCode],
    "service": [service.value for service in Service],
}
LEFT_OUT: dict[str, str] = json.loads((DATA.parent / "metrics_left_out.json").read_text())
"""What brokers do not show, and why."""


async def decide(world: World, servers: str, broker: Broker) -> None:
    """Send three transactions: one is committed, one rolled back, and one left open."""

    async def undecided(half: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with open_transaction_producer(world, servers, "deciders", undecided) as producer:
        for state in TransactionState:
            half = Message("Metered", b"x")
            await producer.decide(half, await producer.prepare(half), state)
    counts = broker.transactions.counts
    await until(lambda: counts.commits and counts.rollbacks and any(counts.open.values()))


async def consume(world: World, servers: str, broker: Broker) -> None:
    """Pull, then pop three messages: one is acknowledged, one given up, and one comes again."""
    from_first = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    async with open_pull_consumer(world, servers, "pullers", from_first) as puller:
        await puller.subscribe({"Metered": "*"})
        assert await puller.poll(20_000)
    options = PopConsumerOptions(invisible_ms=500)
    async with open_pop_consumer(world, servers, "poppers", {"Metered": "*"}, options) as popper:
        done, lost, *_ = await popper.pop("Metered", max_messages=3)
        await popper.ack(done)
        await popper.give_up(lost)
    log = broker.pops.log.counts
    await until(lambda: log.written and log.read and log.returned, seconds=60)


async def judge_traffic(cluster: LocalCluster, broker: Broker) -> None:
    """Judge what is shown while a producer and a consumer are there, and a group is behind."""
    world, servers = real_world(), cluster.namesrv_address
    async with open_producer(world, servers, "senders") as producer:
        for _ in range(3):
            await producer.send(Message("Metered", b"x"))
        await producer.send(message("Metered", b"x", delay_ms=500))
        await producer.send(message("Metered", b"x", delay_ms=60_000))
    await decide(world, servers, broker)
    await consume(world, servers, broker)
    await until(lambda: broker.timer.delivered.of["Metered"])
    async with open_client(world) as client:
        body = {"clientID": "c", "consumerDataSet": [{"groupName": "readers", "subscriptionDataSet": []}]}
        body["producerDataSet"] = [{"groupName": "senders"}]  # type: ignore[list-item]
        beat = request(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
        assert (await client.invoke(broker.identity.address, beat, 3_000)).code == 0
        assert broker.groups.get("offline") is not None  # made by being asked for
        broker.offsets.commit("offline", "Metered", 0, 0)
        assert_like_the_reference({family.name: family for family in filter(None, pieces(broker))})


def assert_like_the_reference(found: dict[str, Any]) -> None:
    assert not found.keys() & LEFT_OUT.keys(), "there is something that is said to be left out"
    for name, golden in GOLDEN.items():
        if name in LEFT_OUT:
            continue
        family = found[name]
        assert golden["type"] == family.kind, name
        for sample in family.samples:
            assert set(golden["labels"]) == sample.labels.keys() - {"le"}, name
        if golden["bounds"]:
            bounds = [sample.labels["le"] for sample in family.samples if sample.suffix == "_bucket"]
            assert golden["bounds"] * (len(bounds) // len(golden["bounds"]) or 1) == bounds, name
    without = [name for name in GOLDEN.keys() - LEFT_OUT.keys() if not found[name].samples]
    assert not without, "their labels were compared with nothing"


async def test_names_labels_and_bounds_are_those_of_the_reference() -> None:
    async with LocalCluster(broker_config=METERED) as cluster:
        await judge_traffic(cluster, cluster.brokers["broker-a"])


@attrs.frozen
class Asked:
    """One expression of the dashboard or the alerts, and what is written with its result."""

    expression: str
    text: str

    @property
    def names(self) -> set[str]:
        """The metrics in it, as families."""
        found = set(re.findall(r"\brocketmq_\w+", self.expression))
        return {re.sub("_(bucket|sum|count)$", "", name) for name in found}

    @property
    def selected(self) -> list[tuple[str, str, str]]:
        """Label, kind of comparison and value of each condition."""
        return re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', self.expression)

    @property
    def kept(self) -> list[set[str]]:
        """The labels that each sum in it keeps."""
        return [set(re.findall(r"\w+", part)) for part in re.findall(r"\bby \(([^)]*)\)", self.expression)]

    @property
    def shown(self) -> set[str]:
        """The labels that the text has."""
        return set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", self.text))


def everything_asked() -> list[Asked]:
    board = json.loads((ROOT / "conf" / "metrics" / "dashboard.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    alerts = (ROOT / "conf" / "metrics" / "alerts.yml").read_text()
    expressions = re.findall(r"^ +expr: (.*)$", alerts, re.MULTILINE)
    summaries = re.findall(r"^ +summary: (.*)$", alerts, re.MULTILINE)
    assert len(expressions) == len(summaries) == len(re.findall(r"^ +- alert: ", alerts, re.MULTILINE))
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in board["panels"]]
    assert len(places) == len(set(places)) == len({panel["id"] for panel in board["panels"]})
    return [
        *(Asked(target["expr"], target["legendFormat"]) for target in targets),
        *map(Asked, expressions, summaries),
    ]


async def test_the_dashboard_and_the_alerts_ask_for_what_is_exported_by_labels_that_it_has() -> None:
    async with LocalCluster(broker_config=METERED) as cluster:
        broker = cluster.brokers["broker-a"]
        await judge_traffic(cluster, broker)
        families = list(filter(None, pieces(broker)))
    labels = {family.name: set(GOLDEN.get(family.name, {}).get("labels", ())) for family in families}
    for family in families:
        labels[family.name] |= {"cluster", "node_type", "node_id"}.union(*(each.labels for each in family.samples))
    asked = everything_asked()
    assert len(asked) > 30
    for each in asked:
        assert each.names, each
        assert each.names <= labels.keys(), each
        assert each.expression.count("(") == each.expression.count(")"), each
        known = set.intersection(*(labels[name] for name in each.names))
        assert {label for label, _, _ in each.selected} <= known, each
        assert set().union(*each.kept) <= known, each
        assert each.shown <= (set.intersection(*each.kept) if each.kept else known), each
        if "_quantile(" in each.expression:
            assert all("le" in kept for kept in each.kept), each
        for label, kind, value in each.selected:
            if label in VALUES:
                matching = [name for name in VALUES[label] if re.fullmatch(value, name)]
                assert matching, each
                assert kind.endswith("~") or [value] == matching, each
