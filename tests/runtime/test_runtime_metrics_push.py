"""Pushes of metrics to a collector over real sockets, also one that is away, hangs, refuses or is none."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
import trustme

pytest.importorskip("opentelemetry.proto.metrics")

from otlp_collector import Collector, open_collector, open_other, refused_points, series_of
from trio.testing import MockClock

from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.runtime.metrics import Family, LogSettings, PushSettings, Sample, counter
from understudy.runtime.metrics_export import make_exporter
from understudy.runtime.metrics_log import MetricsLog
from understudy.runtime.metrics_push import MetricsPush
from understudy.runtime.network import ByteStream
from understudy.runtime.tls_server import CertificateFiles, ServerTls, TlsMode
from understudy.runtime.world import real_world
from understudy.testkit.waiting import until

SETTINGS = PushSettings("127.0.0.1", 1, False, (("x-tenant", "blue"),), 0.05, 5.0, True, {"node": "n0"})
NOT_TAKEN = "metrics were not taken"
TAKEN_AGAIN = "metrics are taken again"


@attrs.define
class Server:
    """What is measured: each look finds one more."""

    looks: int = 0
    more: list[Family] = attrs.field(factory=list)

    def collect(self) -> list[Family]:
        self.looks += 1
        return [counter("looks_total", "how often", self.looks), *self.more]


@asynccontextmanager
async def pushing(server: Server, port: int, **changed: object) -> AsyncIterator[trio.CancelScope]:
    """Push what *server* has; ends when its scope is cancelled, or with the block."""
    settings = attrs.evolve(SETTINGS, port=port, **changed)  # type: ignore[arg-type]
    exporter = make_exporter(real_world(), settings, server.collect, "meter")
    assert isinstance(exporter, MetricsPush)
    await exporter.bind()
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            await exporter.run()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield scope
            scope.cancel()


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if text in each.getMessage()]


def told_looks(collector: Collector) -> object:
    return sum(series_of(each)['looks_total{node="n0"}'] for each in collector.requests)  # type: ignore[misc]


async def test_what_is_there_is_pushed_at_each_interval_and_once_more_at_the_end() -> None:
    server = Server()
    async with open_collector() as collector:
        async with pushing(server, collector.port) as scope:
            request = await collector.taken(2)
            scope.cancel()
        assert "meter" == request.resource_metrics[0].scope_metrics[0].scope.name
        assert {'looks_total{node="n0"}': 1} == series_of(request)
        assert server.looks == len(collector.requests) == told_looks(collector)
    for headers in collector.headers:
        expected = {"content-type": "application/grpc", "te": "trailers", "x-tenant": "blue", "grpc-timeout": "5000m"}
        assert expected.items() <= headers.items()
        assert headers["user-agent"].startswith("understudy/")


async def test_what_a_refusing_collector_missed_is_told_later_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse() -> bytes:
        raise RpcError(StatusCode.RESOURCE_EXHAUSTED, "zu viel: ä%")

    server = Server()
    with caplog.at_level(logging.INFO, "understudy"):
        async with open_collector() as collector:
            collector.answer = refuse
            async with pushing(server, collector.port) as scope:
                await until(lambda: len(collector.headers) >= 3)
                assert [] == collector.requests
                collector.answer = None
                await collector.taken(2)
                scope.cancel()
            assert server.looks == told_looks(collector)
    (line,) = lines(caplog, NOT_TAKEN)
    assert f"collector=http://127.0.0.1:{collector.port}" in line
    assert 'why="gRPC status 8: zu viel: ä%"' in line
    (again,) = lines(caplog, TAKEN_AGAIN)
    assert int(again.rpartition("missed=")[2]) >= 3


async def test_points_that_a_collector_rejects_are_said(caplog: pytest.LogCaptureFixture) -> None:
    async def reject() -> bytes:
        return refused_points(7)

    async with open_collector() as collector:
        collector.answer = reject
        async with pushing(Server(), collector.port):
            await collector.taken(3)
    (line,) = lines(caplog, NOT_TAKEN)
    assert 'why="7 points rejected: too old"' in line


async def nothing(stream: ByteStream) -> None:
    while await stream.receive_some(65_536):
        pass


async def web_page(stream: ByteStream) -> None:
    await stream.receive_some(65_536)
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await nothing(stream)


async def hang_up(stream: ByteStream) -> None:
    await stream.receive_some(65_536)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (hang_up, "the connection was closed instead of an answer"),
        (web_page, "no HTTP/2 is spoken there"),
        (nothing, "no answer within 0.1 s"),
    ],
)
async def test_who_is_no_collector_costs_one_line_and_is_asked_again(
    answer: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    async def serve(stream: ByteStream) -> None:
        nonlocal asked
        asked += 1
        await answer(stream)  # type: ignore[operator]

    server = Server()
    async with open_other(serve) as port, pushing(server, port, timeout_seconds=0.1):
        await until(lambda: asked >= 3)
    (line,) = lines(caplog, NOT_TAKEN)
    assert why in line
    assert server.looks >= asked
    assert [] == lines(caplog, "could not be made")


async def test_a_collector_that_is_away_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with open_other(nothing) as port:
        pass
    server = Server()
    async with pushing(server, port):
        await until(lambda: server.looks >= 3)
    (line,) = lines(caplog, NOT_TAKEN)
    assert 'why="Connection refused"' in line


async def test_a_stop_waits_for_a_hanging_collector_no_longer_than_the_timeout() -> None:
    server = Server()
    async with open_other(nothing) as port, pushing(server, port, timeout_seconds=0.3) as scope:
        await until(lambda: server.looks >= 1)
        begin = trio.current_time()
        scope.cancel()
    assert trio.current_time() - begin < 10


async def test_far_more_than_a_window_or_a_request_is_pushed_and_others_have_their_turns() -> None:
    turns = 0
    series = 5_000

    def collect() -> Iterator[Family | None]:
        samples = [Sample(number, {"topic": f"{number:0200}"}) for number in range(series)]
        yield Family("large_total", "counter", "many", samples)

    async with open_collector() as collector:
        settings = attrs.evolve(SETTINGS, port=collector.port, interval_seconds=0.01, timeout_seconds=30.0)
        push = MetricsPush(real_world(), settings, collect, "m")
        await push.bind()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(push.run)
                while len(collector.requests) < 3:
                    await trio.lowlevel.checkpoint()
                    turns += 1
                nursery.cancel_scope.cancel()
    found = [key for each in collector.requests[:3] for key in series_of(each)]
    assert series == len(set(found)) == len(found)
    assert turns > 100


async def test_a_failing_look_is_logged_and_the_next_is_pushed(caplog: pytest.LogCaptureFixture) -> None:
    looks = 0

    def collect() -> list[Family]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("unlucky")
        return [counter("a_total", "", 1)]

    async with open_collector() as collector:
        async with pushing(Server(), collector.port):
            pass
        push = MetricsPush(real_world(), attrs.evolve(SETTINGS, port=collector.port), collect, "m")
        collector.requests.clear()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(push.run)
                await collector.taken(1)
                nursery.cancel_scope.cancel()
    (line,) = lines(caplog, "metrics could not be made")
    assert "RuntimeError: unlucky" in line


async def test_tls_is_spoken_to_collectors_whose_certificate_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    both = tmp_path / "both.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(both)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = ServerTls(real_world().clock, CertificateFiles(str(both), str(both), protocols=("h2",)), TlsMode.ENFORCING)
    changed = {"host": "localhost", "secure": True}
    async with open_collector(tls) as collector:
        server = Server()
        async with pushing(server, collector.port, **changed):  # given an authority that nobody knows
            await until(lambda: server.looks >= 2)
        (line,) = lines(caplog, NOT_TAKEN)
        assert f"collector=https://localhost:{collector.port}" in line
        assert "CERTIFICATE_VERIFY_FAILED" in line
        assert [] == collector.headers
        # when the system knows it
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert str(tmp_path / "ca.pem") == ssl.get_default_verify_paths().cafile
        async with pushing(Server(), collector.port, **changed):
            await collector.taken(1)
        # then another name is refused all the same
        caplog.clear()
        other = Server()
        async with pushing(other, collector.port, secure=True):
            await until(lambda: other.looks >= 1)
            await until(lambda: lines(caplog, NOT_TAKEN))


async def test_one_that_hangs_in_the_handshake_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    async with open_other(nothing) as port, pushing(server, port, secure=True, timeout_seconds=0.1):
        await until(lambda: server.looks >= 2)
    (line,) = lines(caplog, NOT_TAKEN)
    assert "no TLS handshake within 0.1 s" in line


async def test_the_log_has_a_line_for_each_sample_at_each_interval(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    family = Family("a_total", "counter", "", [Sample(3, {"topic": "T"}), Sample(4, {"topic": "x\n\x1b[0m y"})])
    exporter = make_exporter(real_world(), LogSettings(10.0, {"node": "n0"}), lambda: [family, None], "m")
    assert isinstance(exporter, MetricsLog)
    await exporter.bind()
    with caplog.at_level(logging.INFO, "understudy"), trio.move_on_after(25):
        await exporter.run()
    expected = [
        'a_total value=3 labels="node=n0,topic=T"',
        'a_total value=4 labels="node=n0,topic=x\\n\\\\x1b[0m y"',
    ]
    assert expected * 2 == lines(caplog, "a_total")
