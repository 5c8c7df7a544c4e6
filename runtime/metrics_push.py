"""Pushes of metrics to an OpenTelemetry collector, by OTLP over gRPC. Off unless the settings ask for it.

* A push has a connection of its own: nothing is kept, and nothing can be half dead, from one interval to the next.
* A collector that is away, slow or refuses costs a push at most its timeouts, and one line in the log until it takes
  metrics again. What it missed of counters and histograms is in the next push.
* One push is made and sent at a time, so no more of them wait in memory.
* What was counted until a server stops is pushed before it ends, within the timeout.
"""

from __future__ import annotations

import ssl

import trio

from understudy.runtime.background import open_shielded
from understudy.runtime.grpc_calls import CallFailedError, GrpcCalls
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Pieces, PushSettings
from understudy.runtime.metrics_export import Intervals, contained
from understudy.runtime.network import ByteStream
from understudy.runtime.otlp import METHOD, ExportRequest, Told, rejected
from understudy.runtime.pace import Pace
from understudy.runtime.tls_server import dial_tls
from understudy.runtime.world import World

log = get_logger("runtime.metrics")

_NS_PER_MS = 1_000_000


class MetricsPush:
    """Pushes the metrics of one server.

    Args:
        world: network and clock.
        settings: where, and how often.
        collect: makes the families, in pieces.
        meter: name of the instrumentation scope.
    """

    def __init__(self, world: World, settings: PushSettings, collect: Pieces, meter: str) -> None:
        self._world = world
        self._settings = settings
        self._collect = collect
        self._told = Told(meter, settings.labels, settings.delta, world.clock.wall_ms() * _NS_PER_MS)
        self._context: ssl.SSLContext | None = None
        self._missed = 0

    @property
    def collector(self) -> str:
        """Where to, as the settings have it."""
        return f"{'https' if self._settings.secure else 'http'}://{self._settings.authority}"

    async def bind(self) -> None:
        """Read whom the system trusts, for TLS."""
        if self._settings.secure:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["h2"])
        log.info("metrics are pushed", collector=self.collector, seconds=self._settings.interval_seconds)
        await trio.lowlevel.checkpoint()

    async def unbind(self) -> None:
        """Nothing is held."""
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Push until cancelled, and once more then."""
        stopping, done = trio.Event(), trio.Event()
        async with (
            open_shielded() as tasks
        ):  # what is under way goes on: a collector that has taken it must not get it twice
            tasks.start_soon(self._push_all, stopping, done)
            try:
                await trio.sleep_forever()
            finally:
                stopping.set()
                with self._world.clock.move_on_after(self._settings.timeout_seconds) as scope:
                    scope.shield = True
                    await done.wait()

    async def _push_all(self, stopping: trio.Event, done: trio.Event) -> None:
        clock = self._world.clock
        intervals = Intervals(clock, self._settings.interval_seconds)
        last = False
        while not last:
            with clock.move_on_after(intervals.left_seconds()):
                await stopping.wait()
            last = stopping.is_set()
            await contained(self._push, log)
        done.set()

    async def _push(self) -> None:
        requests = await self._make()
        try:
            complaint = await self._send(requests)
        except (OSError, CallFailedError, ValueError, trio.BrokenResourceError) as error:
            self._say(getattr(error, "strerror", None) or str(error))
        else:
            self._say(complaint)

    async def _make(self) -> list[ExportRequest]:
        requests = []
        now_ns = self._world.clock.wall_ms() * _NS_PER_MS
        async with Pace(self._world) as pace:
            for request in self._told.requests(self._collect(), now_ns):
                if request is not None:
                    requests.append(request)
                await pace.breathe()
        return requests

    async def _send(self, requests: list[ExportRequest]) -> str:
        """Send all *requests*; return what the collector says against them, ``""`` if nothing."""
        settings, complaint = self._settings, ""
        stream = await self._connect()
        try:
            calls = GrpcCalls(self._world.clock, stream, settings.authority, settings.secure)
            for request in requests:
                answer = await calls.call(METHOD, request.content, settings.headers, settings.timeout_seconds)
                self._told.take(request)
                complaint = rejected(answer) or complaint
        finally:
            await stream.aclose()
        return complaint

    async def _connect(self) -> ByteStream:
        settings = self._settings
        stream: ByteStream = await self._world.network.connect(settings.host, settings.port, settings.timeout_seconds)
        if self._context is None:
            return stream
        try:
            with self._world.clock.move_on_after(settings.timeout_seconds):
                return await dial_tls(stream, self._context, settings.host)
            raise TimeoutError(f"no TLS handshake within {settings.timeout_seconds:g} s")
        except BaseException:
            await stream.aclose()
            raise

    def _say(self, why: str) -> None:
        """Log the first of several failures, and the end of them."""
        if why:
            if not self._missed:
                log.warning(
                    "metrics were not taken; they are pushed again at every interval",
                    collector=self.collector,
                    why=why,
                )
            self._missed += 1
        elif self._missed:
            log.info("metrics are taken again", collector=self.collector, missed=self._missed)
            self._missed = 0
