"""Controllers under `metricsExporterType=PROM`: what a scrape shows, before and after faults."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import msgspec
import pytest
import trio
from controller_desk import Desk
from trio.testing import MockClock

from understudy.controller.commands import ElectMaster, encode
from understudy.controller.configuration import ControllerConfig
from understudy.controller.metadata import Metadata
from understudy.controller.meter import ControllerMeter
from understudy.controller.raft.errors import CommandRefusedError
from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.runtime.exposition import exposition_pieces
from understudy.testkit.quorum.controllers import API_PORT, ControllersResult, SimControllers
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.waiting import until

METRICS_PORT = 5557


class MeteredControllers(SimControllers):
    def config(self, name: str) -> ControllerConfig:
        return attrs.evolve(
            super().config(name), metrics_exporter_type="PROM", metrics_prom_exporter_host=name, metrics_label="zone:z1"
        )

    async def scrape(self, name: str) -> dict[str, float]:
        """Return every sample of one controller, its common labels taken away."""
        stream = await self.network.host("prometheus").connect(name, METRICS_PORT, 1)
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        while part := await stream.receive_some(65_536):
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        common = re.compile(r'(address|group|peer_id|zone)="[^"]*",?')
        samples = {}
        for line in body.decode().splitlines():
            if line.startswith("#"):
                continue
            sample, _, number = line.rpartition(" ")
            assert f'peer_id="{name}"' in sample
            assert 'zone="z1"' in sample
            sample = common.sub("", sample).replace(",}", "}").removesuffix("{}")
            samples[sample] = float(number)
        return samples


@asynccontextmanager
async def metered(groups: dict[str, int]) -> AsyncIterator[MeteredControllers]:
    outcome = ControllersResult(0)
    async with trio.open_nursery() as nursery:
        cluster = MeteredControllers(random.Random(2), nursery, outcome, groups, 3)
        cluster.start()
        for group, count in groups.items():
            await cluster.wait_in_sync(group, count)
        yield cluster
        assert outcome.violations == []
        nursery.cancel_scope.cancel()


@pytest.mark.covers("R265", "R336")
async def test_exactly_one_controller_shows_the_leaders_role(autojump_clock: MockClock) -> None:
    async with metered({"a": 2}) as cluster:
        active = await cluster.wait_active()
        shown = {name: await cluster.scrape(name) for name in cluster.names}
        assert sorted(samples["role"] for samples in shown.values()) == [2, 2, 3]
        assert shown[active.name]["role"] == 3
        assert [name for name in cluster.names if shown[name]["rocketmq_controller_active"]] == [active.name]
        terms = {samples["rocketmq_controller_term"] for samples in shown.values()}
        assert len(terms) == 1
        for samples in shown.values():
            assert samples["rocketmq_controller_leader_known"] == 1
            assert samples["rocketmq_controller_connected_members"] == 2
            assert samples["dledger_disk_usage_bytes"] > 0
            assert samples['active_broker_num{broker_set="a",cluster="C"}'] == 2


async def test_requests_operations_and_elections_are_counted_as_the_reference_names_them(
    autojump_clock: MockClock,
) -> None:
    async with metered({"a": 2}) as cluster:
        active = await cluster.wait_active()
        before = await cluster.scrape(active.name)
        assert before['request_total{request_handle_status="success",request_type="CONTROLLER_BROKER_HEARTBEAT"}'] > 0
        assert before['dledger_op_total{dLedger_operation_status="success",dledger_operation="append"}'] >= 3
        elections = 'election_total{broker_set="a",cluster="C",election_result="new_master_elected"}'
        elected = before[elections]
        assert elected >= 1
        kind = 'request_type="CONTROLLER_APPLY_BROKER_ID"'
        buckets = [value for key, value in before.items() if key.startswith("request_latency") and kind in key]
        assert buckets
        assert max(buckets) >= 2

        await cluster.master_host("a").kill()
        await trio.sleep(3)
        after = await cluster.scrape(active.name)
        assert after[elections] == elected + 1
        assert after['active_broker_num{broker_set="a",cluster="C"}'] == 1
        assert after["rocketmq_controller_groups_without_master"] == 0
        assert after["rocketmq_controller_decisions_total"] > before["rocketmq_controller_decisions_total"]

        async with open_client(cluster.brokers["a-1"].world) as client:
            await client.invoke(f"{active.name}:{API_PORT}", request(1004, {"brokerName": "zz"}), 3000)
        failed = 'request_total{request_handle_status="failed",request_type="CONTROLLER_GET_REPLICA_INFO"}'
        assert (await cluster.scrape(active.name))[failed] >= 1


@pytest.mark.covers("R269", "R270", "R266")
async def test_the_newest_candidacy_is_shown_with_every_voters_answer(autojump_clock: MockClock) -> None:
    async with metered({"a": 1}) as cluster:
        first = await cluster.wait_active()
        term = (await cluster.scrape(first.name))["rocketmq_controller_term"]
        await first.kill(power=True)
        second = await cluster.wait_active()
        shown = await cluster.scrape(second.name)
        won = f'rocketmq_controller_election_round{{last_log_index="[0-9]+",last_log_term="{term:.0f}",outcome="won",'
        assert any(re.match(won.replace("{", "\\{", 1) + f'term="{term + 1:.0f}"', key) for key in shown)
        answers = [key for key in shown if key.startswith("rocketmq_controller_election_answer")]
        voters = sorted(name for name in cluster.names if name != first.name)
        for stage in ("pre_vote", "vote"):
            for voter in voters:
                answer = f'rocketmq_controller_election_answer{{answer="ACCEPT",stage="{stage}",voter="{voter}"}}'
                assert answer in answers
        assert not any(f'voter="{first.name}"' in key for key in answers)


@pytest.mark.covers("R267", "R302")
async def test_without_a_majority_the_last_controller_shows_that_nobody_leads(autojump_clock: MockClock) -> None:
    async with metered({"a": 1}) as cluster:
        active = await cluster.wait_active()
        for host in cluster.controllers.values():
            if host is not active:
                await host.kill(power=True)
        await trio.sleep(2)
        shown = await cluster.scrape(active.name)
        assert shown["role"] < 3
        assert shown["rocketmq_controller_active"] == 0
        assert shown["rocketmq_controller_leader_known"] == 0
        assert shown["rocketmq_controller_connected_members"] == 0


async def test_log_entries_that_cannot_be_applied_are_counted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with metered({"a": 1}) as cluster:
        active = await cluster.wait_active()
        skipped = "rocketmq_controller_skipped_entries_total"
        assert (await cluster.scrape(active.name))[skipped] == 0
        assert active.controller is not None
        metadata = active.controller.metadata
        # given an entry that cannot be read, and one at which the work fails
        unread = msgspec.msgpack.encode(["alter", "a", 1, 1, 1, [True, 2], [1, 2]])
        monkeypatch.setattr(metadata, "_elect", lambda command, features: 1 // 0)
        for payload in (unread, encode(ElectMaster("a", None, False, {}, False))):
            with pytest.raises(CommandRefusedError, match="log entry 99 cannot be applied"):
                Metadata.apply(metadata, 99, 0, 1, payload)
        assert (await cluster.scrape(active.name))[skipped] == 2


async def test_a_handler_that_fails_is_counted_as_failed(autojump_clock: MockClock) -> None:
    desk, meter = Desk(), ControllerMeter(VirtualClock())
    desk.handlers.clear()
    desk.requests.register(desk, meter)  # type: ignore[arg-type]
    assert (await desk.ask(1003, {"brokerName": "a", "brokerId": "x"})).code == 1
    assert (await desk.ask(904, {"brokerName": "a"})).code == 2005
    assert (await desk.ask(1005)).code == 0
    text = b"".join(exposition_pieces(meter.families())).decode()
    for name, status in (
        ("CONTROLLER_REGISTER_BROKER", "failed"),
        ("CONTROLLER_BROKER_HEARTBEAT", "failed"),
        ("CONTROLLER_GET_METADATA_INFO", "success"),
    ):
        assert f'request_total{{request_handle_status="{status}",request_type="{name}"}} 1' in text


async def test_nothing_is_served_unless_asked_for(autojump_clock: MockClock) -> None:
    outcome = ControllersResult(0)
    async with trio.open_nursery() as nursery:
        cluster = SimControllers(random.Random(2), nursery, outcome, {"a": 1}, 1)
        cluster.start()
        await until(lambda: any(host.leads for host in cluster.controllers.values()))
        with pytest.raises(OSError, match="no listener at n0:5557"):
            await cluster.network.host("prometheus").connect("n0", METRICS_PORT, 1)
        nursery.cancel_scope.cancel()


async def test_the_log_says_once_that_elections_wait_and_once_that_they_go_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with metered({"a": 1}) as cluster:
        active = await cluster.wait_active()
        dead = [host for host in cluster.controllers.values() if host is not active]
        for host in dead:
            await host.kill(power=True)
        await trio.sleep(10)
        for host in dead:
            host.start()
        await cluster.wait_active()
        await trio.sleep(5)
    waits = [record.getMessage() for record in caplog.records if "no controller is active" in record.getMessage()]
    assert len(waits) == 1
    assert "this member reaches no majority; elections wait, routes and traffic go on" in waits[0]
    assert "connected=nobody" in waits[0]
