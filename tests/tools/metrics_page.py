"""Writes ``docs/metrics.md``: every metric of brokers, name servers and proxies, with its labels, and what is left out.

Run it after a metric was added or changed: ``.venv/bin/python tests/tools/metrics_page.py``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import trio

from understudy.broker.broker import Broker
from understudy.broker.metrics import pieces
from understudy.namesrv.metrics import collect as of_name_server
from understudy.proxy.metrics import Numbers
from understudy.proxy.metrics import collect as of_proxy
from understudy.runtime.load import Load
from understudy.runtime.metrics import Family
from understudy.testkit.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"
DATA = ROOT / "tests" / "data" / "broker"
OF_THE_REFERENCE: dict[str, dict[str, Any]] = json.loads((DATA / "metric_families.json").read_text())
LEFT_OUT: dict[str, str] = json.loads((DATA / "metrics_left_out.json").read_text())
NOT_IN_THE_SCRAPE = {
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "rocketmq_pop_revive_retry_messages_total",
    "rocketmq_rollback_messages_total",
    "rocketmq_send_to_dlq_messages_total",
    "rocketmq_topic_create_execution_time_milliseconds",
}
"""Of the reference, but its scrape that was captured has no sample of them."""
KEYS = {
    "enable_connection_metrics": "enableConnectionMetrics",
    "enable_lag_and_dlq_metrics": "enableLagAndDlqMetrics",
    "enable_message_store_metrics": "enableMessageStoreMetrics",
    "enable_pop_metrics": "enablePopMetrics",
    "enable_request_metrics": "enableRequestMetrics",
    "enable_stats_metrics": "enableStatsMetrics",
    "enable_transaction_metrics": "enableTransactionMetrics",
}
METERED = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": "0"}

HEAD = """# Metrics

Made from the code by `tests/tools/metrics_page.py`; a test compares the two. How to have metrics served, pushed or
logged is in [deployment.md](deployment.md), the keys are in [settings.md](settings.md), what differs from the reference
is in [differences.md](differences.md), and the metrics of controllers are in [controller.md](controller.md).

Every sample has `cluster`, `node_type` and `node_id` (the broker's name) beside its own labels, and those of
`metricsLabel`. A metric without a sample does not appear. *yes* below: name, labels and bounds are the reference's.

Each key in the last column is `true` by default, as in the reference; `false` leaves its metrics out of a running
broker, `enableRemotingMetrics` from the next start on. Times of requests are the only ones that cost something while
nobody scrapes: some 4 % of a busy broker's time, and nothing where `metricsExporterType` is `DISABLE`.
"""


def page() -> str:
    """Return the page."""
    return trio.run(_page)


async def _page() -> str:
    async with LocalCluster(broker_config=METERED) as cluster:
        broker = cluster.brokers["broker-a"]
        _count_something(broker)
        families = list(filter(None, pieces(broker)))
        keys = _keys_of(broker, {family.name for family in families})
        routes = of_name_server(cluster.name_server.table, 0, Load())
    calls = of_proxy("cluster", Numbers(0, 0, 0, 0, 0, 0), Counter({("SendMessage", 20_000): 1}), Load())
    left_out = "\n".join(f"* `{name}`: {why}" for name, why in LEFT_OUT.items())
    return "\n".join(
        [
            HEAD,
            _table("Brokers", families, keys),
            _bounds(families),
            f"## Left out\n\nMetrics of the reference that brokers here do not have:\n\n{left_out}\n",
            _table("Name servers", routes),
            _table("Proxies", calls),
        ]
    )


def _count_something(broker: Broker) -> None:
    """Have a sample, and so the labels, of what is neither there from the start nor in the scrape of the reference."""
    broker.stats.given_up("group", "topic")
    with broker.stats.creations.of_topic("topic"), broker.stats.creations.of_groups():
        pass
    broker.transactions.counts.rollbacks["topic"] += 1
    broker.pops.log.counts.returned["group", "topic", "PUT_OK"] += 1


def _keys_of(broker: Broker, names: set[str]) -> dict[str, str]:
    """Return which key each metric hangs on: the one without which it is gone."""
    found = {"rocketmq_rpc_latency_milliseconds": "enableRemotingMetrics"}
    config = broker.options.broker
    for field, key in KEYS.items():
        setattr(config, field, False)
        found |= dict.fromkeys(names - {family.name for family in pieces(broker) if family is not None}, key)
        setattr(config, field, True)
    return found


def _table(title: str, families: Iterable[Family], keys: Mapping[str, str] | None = None) -> str:
    lines = [
        f"## {title}",
        "",
        "| metric | kind | labels | of the reference | what it tells |",
        "|---|---|---|---|---|",
    ]
    if keys is not None:
        lines = [lines[0], "", f"{lines[2]} key |", f"{lines[3]}---|"]
    for family in sorted(families, key=lambda each: each.name):
        golden = OF_THE_REFERENCE.get(family.name)
        labels = set(golden["labels"]) if golden else set()
        labels = labels.union(*(each.labels for each in family.samples)) - {"le"}
        told = ", ".join(f"`{label}`" for label in sorted(labels))
        same = "yes" if golden or family.name in NOT_IN_THE_SCRAPE else ""
        row = f"| `{family.name}` | {family.kind} | {told} | {same} | {family.text} |"
        lines.append(row if keys is None else f"{row} {f'`{keys[family.name]}`' if family.name in keys else ''} |")
    return "\n".join(lines) + "\n"


def _bounds(families: Iterable[Family]) -> str:
    lines = ["Upper bounds of the buckets of histograms:", ""]
    for family in sorted(families, key=lambda each: each.name):
        if family.kind == "histogram":
            golden = OF_THE_REFERENCE.get(family.name)
            bounds = (
                golden["bounds"] if golden else [each.labels["le"] for each in family.samples if "le" in each.labels]
            )
            lines.append(f"* `{family.name}`: {' '.join(bound.removesuffix('.0') for bound in bounds[:-1])}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
