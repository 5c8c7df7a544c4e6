"""What the cluster means to the real Java client: every scenario of the driver in `bench/java`, in one JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import peer_processes
import pytest
from peer_processes import PeerCluster

# scenario: the requirement and catalogue rows that it shows
SCENARIOS: dict[str, tuple[str, ...]] = {
    "send_receive": ("IT-01", "R352"),
    "order_per_queue": (),
    "send_async": ("IT-09",),
    "send_oneway": ("IT-10",),
    "send_batch": (),
    "query_key": (),
    "view_by_id": (),
    "compression": (),
    "unicode": (),
    "namespace": (),
    "large_message": (),
    "missing_topic": ("R353",),
    "auto_create_topic": ("R314",),
    "topic_permission": (),
    "tag_filter": ("IT-07",),
    "sql_filter": (),
    "orderly": (),
    "orderly_suspend": (),
    "broadcast": (),
    "pull_from_offset": ("R351", "R352"),
    "lite_subscribe": (),
    "lite_assign_seek": (),
    "offset_persistence": (),
    "consume_from_last": (),
    "rebalance": (),
    "queue_lock": ("SL-04",),
    "long_poll": ("R354",),
    "pull_block": ("R350", "R354"),
    "retry_dlq": (),
    "retry_default": (),
    "delay_level": (),
    "timer": ("SC-05",),
    "timer_recall": ("SC-05",),
    "tx_commit": ("TX-01", "CT-21"),
    "tx_rollback": ("TX-01",),
    "tx_check_commit": ("TX-03", "TX-12"),
    "tx_check_rollback": ("TX-03", "TX-12"),
    "pop": (),
    "pop_retry": ("PP-03",),
    "pop_orderly": (),
    "request_reply": (),
    "message_trace": (),
    "offset_by_time": (),
    "balance_four": ("IT-03",),
    "broadcast_late": ("IT-04",),
    "broadcast_groups": ("IT-04",),
    "broadcast_tags": ("IT-04",),
    "several_topics": ("IT-08",),
    "async_failures": ("IT-09",),
    "message_validity": ("IT-12",),
    "same_instance": ("IT-15",),
    "admin_topic": ("R314", "R316"),
    "admin_group": (),
    "admin_consume_stats": (),
    "admin_connections": (),
    "admin_reset_online": ("SL-10",),
    "admin_reset_offline": (),
    "admin_clone_offset": (),
    "admin_consume_directly": (),
    "admin_group_disabled": (),
    "admin_cluster": ("NS-01",),
    "admin_broker_config": (),
    "admin_kv_config": ("NS-17",),
    "admin_write_permission": ("NS-09",),
}


def _parameters() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.covers(*rows)] if rows else []) for name, rows in SCENARIOS.items()]


def play_client(
    cluster: PeerCluster, place_of: Callable[[str], Path], items: Sequence[pytest.Function]
) -> dict[str, dict[str, Any]]:
    place_of("java")
    return peer_processes.run_interop(cluster.namesrv, [item.callspec.params["scenario"] for item in items])


@pytest.mark.slow
@pytest.mark.parametrize("scenario", _parameters())
def test_scenario(scenario: str, client_results: Callable[[ModuleType], Any], request: pytest.FixtureRequest) -> None:
    # given a cluster of servers in processes of their own; when the driver played the scenario
    result = client_results(request.module).get(scenario)
    # then the client saw what RocketMQ means
    assert result is not None, f"the driver was ended before {scenario} was done"
    assert result["ok"], f"{scenario}: {result['detail']}"
