"""Families of metrics as text, and the endpoint that serves them."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.namesrv.config import MetricsKeys
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.runtime.exposition import exposition_pieces
from understudy.runtime.http_server import Answer, HttpLimits, HttpServer, Request
from understudy.runtime.metrics import Family, Histogram, MetricsSettings, Sample, counter, gauge, read_labels
from understudy.runtime.metrics_endpoint import MAX_CONNECTIONS, MAX_HEAD_BYTES, REQUEST_SECONDS, MetricsEndpoint
from understudy.runtime.network import ByteStream, ListenError
from understudy.runtime.properties import ConfigError
from understudy.runtime.world import World, real_world
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.sim.network import SimNetwork


class TestText:
    def test_families_become_lines_with_help_type_and_common_labels(self) -> None:
        families = [
            Family("a_total", "counter", "All a", [Sample(3, {"topic": "T"}), Sample(2.5, {"topic": "U"})]),
            gauge("b", "One b", 7),
            Family("c", "gauge", "nothing", []),
        ]
        assert b"".join(exposition_pieces(families, {"node": "n0"})).decode() == (
            "# HELP a_total All a\n# TYPE a_total counter\n"
            'a_total{node="n0",topic="T"} 3.0\na_total{node="n0",topic="U"} 2.5\n'
            '# HELP b One b\n# TYPE b gauge\nb{node="n0"} 7.0\n'
        )
        assert b"".join(exposition_pieces([])) == b""
        assert b"".join(exposition_pieces([counter("x_total", "x", 1)])).endswith(b"\nx_total 1.0\n")

    def test_a_histogram_counts_up_to_each_bound(self) -> None:
        histogram = Histogram([1, 10])
        for value in (0.5, 1, 5, 100):
            histogram.observe(value, (("kind", "k"),))
        lines = b"".join(exposition_pieces([histogram.family("h", "sizes")])).decode().splitlines()[2:]
        assert lines == [
            'h_bucket{kind="k",le="1.0"} 2.0',
            'h_bucket{kind="k",le="10.0"} 3.0',
            'h_bucket{kind="k",le="+Inf"} 4.0',
            'h_sum{kind="k"} 106.5',
            'h_count{kind="k"} 4.0',
        ]

    def test_a_flood_of_labels_does_not_grow_a_histogram(self) -> None:
        histogram = Histogram([1], limit=5)
        for number in range(100):
            histogram.observe(1, (("client", str(number)),))
        counts = [sample for sample in histogram.family("h", "").samples if sample.suffix == "_count"]
        assert 5 == len(counts)
        assert {"otel.metric.overflow": "true"} == counts[-1].labels
        assert sum(sample.value for sample in counts) == 100

    @given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=4))
    @example({"A\n": ""})
    def test_labels_cannot_break_a_line(self, labels: dict[str, str]) -> None:
        text = b"".join(exposition_pieces([Family("m", "gauge", "x\ny", [Sample(1, labels)])])).decode()
        lines = text.split("\n")
        assert len(lines) == 4
        assert re.fullmatch(r'm(\{([a-zA-Z0-9_]+="([^"\\\n]|\\["\\n])*",?)*\})? 1\.0', lines[2], re.DOTALL)


class TestSettings:
    def test_the_references_keys_are_read(self) -> None:
        keys = MetricsKeys(metrics_exporter_type="PROM", metrics_label="zone:a, rack:b")
        settings, warning = read_metrics_settings(keys)
        assert (settings, warning) == (MetricsSettings("0.0.0.0", 5557, {"zone": "a", "rack": "b"}), "")
        keys = MetricsKeys(
            metrics_exporter_type="2", metrics_prom_exporter_host="127.0.0.1", metrics_prom_exporter_port=1
        )
        assert read_metrics_settings(keys)[0] == MetricsSettings("127.0.0.1", 1, {})
        assert read_metrics_settings(MetricsKeys()) == (None, "")

    def test_what_is_wrong_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="metricsExporterType=MAYBE is none of DISABLE, OTLP_GRPC, PROM, LOG"):
            read_metrics_settings(MetricsKeys(metrics_exporter_type="MAYBE"))
        with pytest.raises(ConfigError, match="metricsLabel: 'zone' is not of the form name:value"):
            read_metrics_settings(MetricsKeys(metrics_exporter_type="PROM", metrics_label="zone"))
        assert read_labels("") == {}


class Scrapes:
    def __init__(self) -> None:
        source = random.Random(1)
        self.network = SimNetwork(source)
        self.world = World(VirtualClock(), self.network.host("server"), SimDisk(source), source)
        self.count = 0
        self.more: list[Family] = []

    def collect(self) -> list[Family]:
        self.count += 1
        if self.count == 13:
            raise RuntimeError("unlucky")
        return [*self.more, gauge("scrapes", "how often", self.count)]

    async def ask(self, data: bytes) -> bytes:
        stream = await self.network.host("prometheus").connect("server", 5557, 1)
        await stream.send_all(data)
        answer = b""
        with trio.fail_after(30):
            while part := await stream.receive_some(4096):
                answer += part
        await stream.aclose()
        return answer


@asynccontextmanager
async def endpoint() -> AsyncIterator[Scrapes]:
    scrapes = Scrapes()
    served = MetricsEndpoint(scrapes.world, MetricsSettings("server", 5557, {"node": "n0"}), scrapes.collect)
    await served.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.serve)
        yield scrapes
        nursery.cancel_scope.cancel()
    await served.unbind()


class TestEndpoint:
    async def test_a_scrape_collects_once_and_ends_the_connection(self, autojump_clock: MockClock) -> None:
        async with endpoint() as scrapes:
            head, _, body = (await scrapes.ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"Content-Type: text/plain; version=0.0.4" in head
            assert f"Content-Length: {len(body)}".encode() in head
            assert body.endswith(b'scrapes{node="n0"} 1.0\n')
            assert (await scrapes.ask(b"HEAD / HTTP/1.0\r\n\r\n")).endswith(b"\r\n\r\n")
            assert scrapes.count == 2

    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n", b"404"),
            (b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n", b"405"),
            (b"GET /metrics HTTP/1.1\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 1e9\r\n\r\n", b"400"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
            (b"hello\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/2\r\n\r\n", b"400"),
            (b"\xff\xfe \xff HTTP/1.1\r\n\r\n", b"400"),
            (b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n", b"431"),
        ],
    )
    async def test_other_requests_are_told_what_is_wrong(
        self, data: bytes, status: bytes, autojump_clock: MockClock
    ) -> None:
        async with endpoint() as scrapes:
            assert (await scrapes.ask(data)).startswith(b"HTTP/1.1 " + status)
            assert scrapes.count == 0

    @pytest.mark.parametrize("data", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 4000])
    async def test_silent_and_slow_clients_are_bounded_and_shut_nobody_out(
        self, data: bytes, autojump_clock: MockClock
    ) -> None:
        async with endpoint() as scrapes:
            idle = []
            for number in range(5 * MAX_CONNECTIONS):
                host = "prometheus" if number % 2 else "idle"
                idle.append(await scrapes.network.host(host).connect("server", 5557, 1))
                await idle[-1].send_all(data)
            await trio.sleep(0.1)
            began = trio.current_time()
            assert b"200 OK" in await scrapes.ask(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
            assert trio.current_time() - began < 1
            for stream in idle[:-MAX_CONNECTIONS]:
                assert await stream.receive_some(10) == b""
            assert trio.current_time() - began < 1
            for stream in idle:
                assert await stream.receive_some(10) == b""
            assert trio.current_time() - began <= REQUEST_SECONDS + 1

    async def test_clients_that_never_read_give_way(self, autojump_clock: MockClock) -> None:
        async with endpoint() as scrapes:
            scrapes.count = 50
            scrapes.more = [gauge(f"large_{number}", "x" * 100_000, 1) for number in range(100)]
            deaf = [await scrapes.network.host("prometheus").connect("server", 5557, 1) for _ in range(MAX_CONNECTIONS)]
            for stream in deaf:
                await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
            await trio.sleep(0.1)
            assert scrapes.count == 50 + MAX_CONNECTIONS // 2  # those that a single host may have
            assert b"200 OK" in await scrapes.ask(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")

    async def test_a_scrape_that_is_read_is_not_cut_off_by_connections_of_silent_hosts(
        self, autojump_clock: MockClock
    ) -> None:
        async with endpoint() as scrapes:
            scrapes.count = 50
            scrapes.more = [gauge(f"large_{number}", "x" * 100_000, 1) for number in range(30)]
            # given a scrape that is read slowly, and silent connections of its host and of others all the time
            stream = await scrapes.network.host("prometheus").connect("server", 5557, 1)
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
            answer, silent = b"", list[ByteStream]()
            while part := await stream.receive_some(64 << 10):
                answer += part
                for host in ("prometheus", *(f"idle{number}" for number in range(4))):
                    silent.append(await scrapes.network.host(host).connect("server", 5557, 1))
                await trio.sleep(0.05)
            # then all of it comes
            head, _, body = answer.partition(b"\r\n\r\n")
            assert len(silent) > 5 * MAX_CONNECTIONS
            assert f"Content-Length: {len(body)}".encode() in head

    async def test_peers_that_leave_before_their_answer_shut_nobody_out(self) -> None:
        going_on, asked = trio.Event(), 0

        async def handler(request: Request) -> Answer:
            nonlocal asked
            asked += 1
            if request.path == "/slow":
                await going_on.wait()
            return Answer(body=request.path.encode())

        source = random.Random(1)
        network = SimNetwork(source)
        world = World(VirtualClock(), network.host("server"), SimDisk(source), source)
        served = HttpServer(world, "server", 80, handler, HttpLimits(connections=4))
        await served.bind()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.run)
            waiting = [await network.host("a").connect("server", 80, 1) for _ in range(2)]
            for stream in waiting:
                await stream.send_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked()
            # those that wait for their answers are not thrown out
            refused = await network.host("a").connect("server", 80, 1)
            assert await refused.receive_some(100) == b""
            # one that has left is
            await waiting[0].aclose()
            await trio.testing.wait_all_tasks_blocked()
            stream = await network.host("a").connect("server", 80, 1)
            await stream.send_all(b"GET /quick HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await stream.receive_some(1000)).endswith(b"/quick")
            going_on.set()
            assert (await waiting[1].receive_some(1000)).endswith(b"/slow")
            nursery.cancel_scope.cancel()
        assert asked == 3

    async def test_others_have_their_turns_while_a_large_text_is_made_and_who_asks_meanwhile_shares_one(self) -> None:
        made = turns = 0
        answers: list[bytes] = []

        def collect() -> Iterator[Family | None]:
            nonlocal made
            made += 1
            samples = list[Sample]()
            for number in range(10_000):
                samples.append(Sample(number, {"topic": str(number)}))
                yield None
            yield Family("large", "gauge", "many", samples)

        served = MetricsEndpoint(real_world(), MetricsSettings("127.0.0.1", 0, {}), collect)
        await served.bind()

        async def ask() -> None:
            async with await trio.open_tcp_stream(*served.address) as stream:
                await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
                answers.append(b"".join([part async for part in stream]))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served.serve)
                async with trio.open_nursery() as asking:
                    for _ in range(MAX_CONNECTIONS // 2):
                        asking.start_soon(ask)
                    while len(answers) < MAX_CONNECTIONS // 2:
                        await trio.lowlevel.checkpoint()
                        turns += made > 0
                nursery.cancel_scope.cancel()
        await served.unbind()
        assert all(answer.endswith(b'large{topic="9999"} 9999.0\n') for answer in answers)
        assert {1} == {answer.count(b"# TYPE large gauge") for answer in answers}
        assert {10_000} == {answer.count(b"\nlarge{") for answer in answers}
        assert made <= 3  # the first, those that came meanwhile, and those that came meanwhile again
        assert turns > 20

    async def test_a_failed_collection_is_an_answer_not_an_end(self, autojump_clock: MockClock) -> None:
        async with endpoint() as scrapes:
            scrapes.count = 12
            assert b"500 Internal" in await scrapes.ask(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
            assert b"200 OK" in await scrapes.ask(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")

    async def test_a_port_in_use_is_refused(self, autojump_clock: MockClock) -> None:
        async with endpoint() as scrapes:
            other = MetricsEndpoint(scrapes.world, MetricsSettings("server", 5557, {}), scrapes.collect)
            with pytest.raises(ListenError):
                await other.bind()
