"""Every server pushes its metrics where its file asks for it: the same that a scrape of that moment shows."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

pytest.importorskip("opentelemetry.proto.metrics")

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from otlp_collector import Collector, Series, open_collector, open_other, series_of

from understudy.broker.broker import Broker
from understudy.broker.metrics import pieces
from understudy.container.hosted import BrokerIdentity
from understudy.mqclient.api import Message, open_producer, real_world
from understudy.programs import mqbroker, mqcontroller, mqnamesrv
from understudy.proxy.config import config_of
from understudy.runtime.background import open_background
from understudy.runtime.exposition import exposition_pieces
from understudy.runtime.network import ByteStream
from understudy.runtime.properties import ConfigError
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

#: What the real broker pushed: names, units, kinds.
OF_THE_REFERENCE = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "broker" / "otlp_metrics.json").read_text()
)
LEFT_OUT = {"rocketmq_pop_buffer_scan_time_consume"}
NOT_BY_THIS_TRAFFIC = {
    "rocketmq_consumer_connections",
    "rocketmq_messages_out_total",
    "rocketmq_producer_connections",
    "rocketmq_throughput_out_total",
}
FINISH = "rocketmq_finish_message_latency"
TIMELY = ("_latency_milliseconds", "_reserve_time_milliseconds", "rocketmq_waiting_bytes{")
BIN = Path(sys.executable).parent


def keys_for(port: int, **more: object) -> dict[str, str]:
    keys = {
        "metricsExporterType": "OTLP_GRPC",
        "metricsGrpcExporterTarget": f"http://127.0.0.1:{port}",
        "metricsGrpcExporterHeader": "x-tenant:blue",
        "metricGrpcExporterIntervalInMills": "100",
        "metricsLabel": "rack:r1",
    }
    return keys | {key: str(value) for key, value in more.items()}


def scraped(broker: Broker) -> Series:
    """Return what a scrape of *broker* would show, histograms as of each bucket."""
    labels = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a", "rack": "r1"}
    found: Series = {}
    buckets: dict[str, list[tuple[float, float]]] = {}
    for line in b"".join(exposition_pieces(pieces(broker), labels)).decode().splitlines():
        name, _, value = line.rpartition(" ")
        if "_bucket{" in name:
            place, _, rest = name.partition('le="')
            bound, _, after = rest.partition('"')
            series = (place + after.removeprefix(",")).replace("_bucket{", "{").replace(",}", "}")
            buckets.setdefault(series, []).append((math.inf if bound == "+Inf" else float(bound), float(value)))
        elif not line.startswith("#"):
            found[name] = float(value)
    for series, counts in buckets.items():
        of_each = [count - before for (_, count), (_, before) in zip(counts, [(0, 0.0), *counts], strict=False)]
        total = found.pop(series.replace("{", "_sum{"))
        del found[series.replace("{", "_count{")]
        found[series] = (*of_each, total, *(bound for bound, _ in counts))
    return found


def told_of(scope: str, metric: Metric) -> dict[str, object]:
    kind = metric.WhichOneof("data")
    assert kind is not None
    number = None if kind == "histogram" else getattr(metric, kind).data_points[0].WhichOneof("value")
    return {"scope": scope, "unit": metric.unit, "kind": kind, "number": number}


def lasting(series: Series) -> Series:
    return {name: value for name, value in series.items() if not any(each in name for each in TIMELY)}


async def test_a_broker_pushes_what_a_scrape_shows_under_the_references_names() -> None:
    async with open_collector() as collector:
        async with LocalCluster(broker_config=keys_for(collector.port)) as cluster:
            broker = cluster.brokers["broker-a"]
            async with open_producer(real_world(), cluster.namesrv_address, "senders") as producer:
                for _ in range(10):
                    await producer.send(Message("Metered", b"x" * 100))
            assert broker.groups.get("readers") is not None  # made by being asked for
            broker.offsets.commit("readers", "Metered", 0, 0)
            broker.transactions.counts.latency.observe(7, (("topic", "Metered"),))
            assert broker.services.running() >= {"metrics"}
            with trio.fail_after(60):
                while True:
                    pushed = series_of(await collector.taken(len(collector.requests) + 2))
                    if lasting(scraped(broker)) == lasting(pushed):  # what was sent may still be under way
                        break
            assert set(scraped(broker)) == set(pushed)
            request = collector.requests[-1]
        common = 'cluster="DefaultCluster",is_system="false",message_type="normal",node_id="broker-a"'
        common += ',node_type="broker",rack="r1",topic="Metered"'
        assert 10 == pushed[f"rocketmq_messages_in_total{{{common}}}"]
        size = pushed[f"rocketmq_message_size{{{common}}}"]
        assert isinstance(size, tuple)
        assert 10 in size
        assert any(isinstance(value, tuple) and value[0] == 0 and 7.0 in value for value in pushed.values())
        (scope,) = request.resource_metrics[0].scope_metrics
        found = {metric.name: told_of(scope.scope.name, metric) for metric in scope.metrics}
        shared = found.keys() & OF_THE_REFERENCE.keys()
        assert {name: OF_THE_REFERENCE[name] for name in shared} == {name: found[name] for name in shared}
        assert ("ms", "histogram") == (found[FINISH]["unit"], found[FINISH]["kind"])
        assert LEFT_OUT == OF_THE_REFERENCE.keys() - shared - NOT_BY_THIS_TRAFFIC
        assert {"blue"} == {headers["x-tenant"] for headers in collector.headers}


async def test_brokers_of_a_container_push_side_by_side_and_one_that_is_removed_no_more() -> None:
    def nodes(collector: Collector, begin: int) -> set[str]:
        return {name for each in collector.requests[begin:] for key in series_of(each) for name in names_in(key)}

    def names_in(key: str) -> Iterable[str]:
        return (name for name in ("broker-a", "broker-b") if f'node_id="{name}"' in key)

    async with open_collector() as collector, LocalCluster(broker_config=keys_for(collector.port)) as cluster:
        await cluster.add_broker("broker-b")
        with trio.fail_after(60):
            while nodes(collector, 0) != {"broker-a", "broker-b"}:
                await collector.taken(len(collector.requests) + 1)
            await cluster.container.remove_broker(BrokerIdentity("DefaultCluster", "broker-b", 0))
            begin = len(collector.requests)
            await collector.taken(begin + 5)
        assert {"broker-a"} == nodes(collector, begin)


@attrs.define
class Program:
    """A program that runs, and what it has said so far."""

    process: trio.Process
    said: bytes = b""

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for part in self.process.stdout:
            self.said += part

    async def stop(self) -> float:
        """Tell it to stop, and return how many seconds that took."""
        begin = trio.current_time()
        self.process.send_signal(signal.SIGTERM)
        assert 0 == await self.process.wait(), self.said
        return trio.current_time() - begin


@asynccontextmanager
async def running(name: str, *arguments: object) -> AsyncIterator[Program]:
    """Run a server until it has booted, and kill it at the end if it still runs."""
    command = [str(BIN / name), *map(str, arguments)]
    environment = {**os.environ, "UNDERSTUDY_LOG": "INFO"}
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    program = Program(process)
    try:
        with trio.fail_after(120):
            async with open_background() as nursery:
                nursery.start_soon(program.listen)
                await until(lambda: b" success" in program.said)
                yield program
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def file_of(folder: Path, keys: dict[str, str]) -> Path:
    path = folder / "server.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


def only_key(series: Series, begin: str) -> str:
    (key,) = (key for key in series if key.startswith(begin))
    return key


async def test_the_stop_of_a_name_server_pushes_what_was_counted_until_then(
    tmp_path: Path, port_blocks: PortBlocks
) -> None:
    (port,) = port_blocks.middles(1)
    more = {"bindAddress": "127.0.0.1", "listenPort": port, "kvConfigPath": tmp_path / "kv.json"}
    async with open_collector() as collector:
        keys = keys_for(collector.port, **more) | {"metricGrpcExporterIntervalInMills": "3600000"}
        async with running("mqnamesrv", "-c", file_of(tmp_path, keys)) as program:
            assert [] == collector.requests
            await program.stop()
        (request,) = collector.requests
    assert "namesrv-meter" == request.resource_metrics[0].scope_metrics[0].scope.name
    topics = only_key(series_of(request), "rocketmq_namesrv_topics")
    assert f':{port}",node_type="namesrv",rack="r1"' in topics


async def test_a_controller_pushes_with_its_own_labels_in_deltas_if_it_shall(
    tmp_path: Path, port_blocks: PortBlocks
) -> None:
    api, raft = port_blocks.middles(2)
    more = {
        "controllerDLegerPeers": f"n0-127.0.0.1:{api}",
        "controllerDLegerSelfId": "n0",
        "controllerRaftPeers": f"n0-127.0.0.1:{raft}",
        "controllerStorePath": tmp_path / "controller",
        "metricsInDelta": "true",
    }
    async with open_collector() as collector:
        path = file_of(tmp_path, keys_for(collector.port, **more))
        async with running("mqcontroller", "-c", path) as program:
            request = await collector.taken(2)
            await program.stop()
    (scope,) = request.resource_metrics[0].scope_metrics
    assert "controller" == scope.scope.name
    role = only_key(series_of(request), "role{")
    assert 'aggregation="delta"' in role
    assert 'peer_id="n0",rack="r1"' in role
    kinds = {metric.name: metric.sum.aggregation_temporality for metric in scope.metrics if metric.HasField("sum")}
    assert {1} == set(kinds.values())
    assert "rocketmq_controller_syncs_total" in kinds


async def test_a_proxy_pushes_too(tmp_path: Path, port_blocks: PortBlocks) -> None:
    grpc, remoting = port_blocks.middles(2)
    async with open_collector() as collector, LocalCluster() as cluster:
        keys: dict[str, object] = {**keys_for(collector.port), "metricsExporterType": 1, "proxyName": "p-one"}
        keys |= {"grpcServerPort": grpc, "remotingListenPort": remoting, "namesrvAddr": cluster.namesrv_address}
        path = tmp_path / "proxy.json"
        path.write_text(json.dumps(keys))
        async with running("mqproxy", "-pc", path) as program:
            request = await collector.taken(1)
            await program.stop()
    up = only_key(series_of(request), "rocketmq_proxy_up")
    assert 'node_id="p-one",node_type="proxy",proxy_mode="cluster",rack="r1"' in up


async def test_a_hanging_collector_holds_up_a_stop_no_longer_than_the_timeout(
    tmp_path: Path, port_blocks: PortBlocks
) -> None:
    async def hang(stream: ByteStream) -> None:
        while await stream.receive_some(65_536):
            pass

    (port,) = port_blocks.middles(1)
    more = {"bindAddress": "127.0.0.1", "listenPort": port, "kvConfigPath": tmp_path / "kv.json"}
    async with open_other(hang) as other:
        keys = keys_for(other, metricGrpcExporterTimeOutInMills=500, **more)
        async with running("mqnamesrv", "-c", file_of(tmp_path, keys)) as program:
            await until(lambda: b"no answer within 0.5 s" in program.said)
            assert await program.stop() < 20  # far less on a machine with nothing else to do
    assert 1 == program.said.count(b"metrics were not taken")


@pytest.mark.parametrize(
    ("main", "lines"),
    [
        (mqnamesrv.main, "listenPort=0"),
        (mqbroker.main, "listenPort=0"),
        (mqcontroller.main, "controllerDLegerPeers=n0-127.0.0.1:1\ncontrollerDLegerSelfId=n0"),
    ],
)
def test_a_bad_target_stops_the_start_with_its_key_and_line(
    main: Callable[[list[str]], int], lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(f"{lines}\nmetricsExporterType=1\nmetricsGrpcExporterTarget=http://collector:none\n")
    assert 0 != main(["-c", str(path)])
    error = capsys.readouterr().err
    place = f"{path}:{len(path.read_text().splitlines())}"
    assert f"{place}: metricsGrpcExporterTarget=http://collector:none: expected http://host:port" in error


def test_a_bad_target_in_a_proxys_file_stops_its_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^p\.json: metricsGrpcExporterTarget=nowhere:port: expected http://"):
        config_of({"metricsExporterType": 1, "metricsGrpcExporterTarget": "nowhere:port"}, "p.json")
