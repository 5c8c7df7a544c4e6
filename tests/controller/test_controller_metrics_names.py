"""Families, labels, bounds and units of a controller are those of the reference (ControllerMetricsConstant.java)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from test_controller_metrics import METRICS_PORT, metered
from trio.testing import MockClock

from understudy.controller.meter import MOST_ELECTIONS, ControllerMeter
from understudy.controller.metrics import ControllerMetrics
from understudy.remoting.client import open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import request
from understudy.remoting.fields import CommandError
from understudy.runtime.metrics import Family
from understudy.testkit.quorum.controllers import API_PORT, ControllerHost
from understudy.testkit.sim.clock import VirtualClock

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "controller" / "metric_families.json").read_text()
)
LABELS_OF_ALL = {"address", "group", "peer_id"}
REQUEST_TYPES = {
    "CONTROLLER_ALTER_SYNC_STATE_SET",
    "CONTROLLER_ELECT_MASTER",
    "CONTROLLER_REGISTER_BROKER",
    "CONTROLLER_GET_REPLICA_INFO",
    "CONTROLLER_GET_METADATA_INFO",
    "CONTROLLER_GET_SYNC_STATE_DATA",
    "CONTROLLER_BROKER_HEARTBEAT",
    "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    "CONTROLLER_GET_CONTROLLER_CONFIG",
    "CONTROLLER_CLEAN_BROKER_DATA",
    "CONTROLLER_GET_NEXT_BROKER_ID",
    "CONTROLLER_APPLY_BROKER_ID",
}
CODES = (1001, 1002, 1003, 1004, 1005, 1006, 904, 1009, 1010, 1011, 1012, 1013)
OURS = {"CONTROLLER_EXPLAIN_MASTER", "CONTROLLER_QUORUM_FACTS"}


def metrics_of(host: ControllerHost) -> ControllerMetrics:
    controller = host.controller
    assert controller is not None
    assert controller.failover is not None
    assert controller.failover.meter is not None
    return ControllerMetrics(
        controller.failover.meter,
        controller.peers,
        controller.member,
        controller.metadata,
        controller.liveness,
        controller.failover,
        host.world.clock,
        host.disk,
        controller.settings.current.controller_store_path,
    )


def labels_of(family: Family) -> set[str]:
    return set().union(*(sample.labels for sample in family.samples)) - {"le"}


async def test_names_kinds_labels_bounds_and_units_are_those_of_the_reference(autojump_clock: MockClock) -> None:
    async with metered({"a": 2}) as cluster:
        active = await cluster.wait_active()
        async with open_client(cluster.brokers["a-1"].world) as client:
            for code in CODES:
                await client.invoke(f"{active.name}:{API_PORT}", request(code, {}), 3_000)
        metrics = metrics_of(active)
        found = {family.name: family for family in metrics.collect()}
        labels = metrics.labels("DefaultControllerGroup")
        stream = await cluster.network.host("prometheus").connect(active.name, METRICS_PORT, 1)
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        text = b""
        while part := await stream.receive_some(65_536):
            text += part
    assert LABELS_OF_ALL == labels.keys()
    of_the_reference = {name for name in found if not name.startswith("rocketmq_")}
    assert GOLDEN.keys() == of_the_reference
    for name, golden in GOLDEN.items():
        family = found[name]
        assert golden["type"] == family.kind, name
        assert (golden["instrument"], golden["unit"]) == family.name_and_unit, name
        assert family.samples, name
        assert set(golden["labels"]) == labels_of(family), name
        bounds = [sample.labels["le"] for sample in family.samples if sample.suffix == "_bucket"]
        assert golden["bounds"] * (len(bounds) // (len(golden["bounds"]) or 1)) == bounds, name
        assert f"# TYPE {name} {golden['type']}\n".encode() in text.replace(b"\r\n", b"\n")
    types = {sample.labels["request_type"] for sample in found["request_total"].samples}
    assert types - OURS == REQUEST_TYPES
    statuses = {sample.labels["request_handle_status"] for sample in found["request_total"].samples}
    assert statuses == {"success", "failed"}


def test_an_answer_that_says_there_was_no_election_counts_as_none() -> None:
    meter = ControllerMeter(VirtualClock())
    for code in (
        ResponseCode.SUCCESS,
        ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ResponseCode.CONTROLLER_NOT_LEADER,
    ):
        meter.elected("C", "a", code)
    [family] = [family for family in meter.families() if family.name == "election_total"]
    assert {sample.labels["election_result"]: sample.value for sample in family.samples} == {
        "new_master_elected": 1,
        "keep_current_master": 1,
        "no_master_elected": 2,
    }


def test_elections_of_very_many_groups_are_counted_together() -> None:
    meter = ControllerMeter(VirtualClock())
    for number in range(MOST_ELECTIONS + 50):
        meter.elected("C", f"made up {number}", 0)
    [family] = [family for family in meter.families() if family.name == "election_total"]
    assert len(family.samples) == MOST_ELECTIONS
    assert sum(sample.value for sample in family.samples) == MOST_ELECTIONS + 50
    assert family.samples[-1].labels == {"otel.metric.overflow": "true"}
    assert family.samples[-1].value == 51


async def test_only_operations_that_were_replicated_have_a_latency(autojump_clock: MockClock) -> None:
    meter = ControllerMeter(VirtualClock())

    async def done() -> int:
        await trio.sleep(0.002)
        return 7

    async def refused() -> int:
        await trio.lowlevel.checkpoint()
        raise CommandError(ResponseCode.SYSTEM_ERROR, "nobody knows")

    assert await meter.operation(done()) == 7
    with pytest.raises(CommandError, match="nobody knows"):
        await meter.operation(refused())
    families = {family.name: family for family in meter.families()}
    counted = {
        sample.labels["dLedger_operation_status"]: sample.value for sample in families["dledger_op_total"].samples
    }
    assert counted == {"success": 1, "timeout": 1}
    timed = families["dledger_op_latency_microseconds"].samples
    assert {sample.labels["dLedger_operation_status"] for sample in timed} == {"success"}
