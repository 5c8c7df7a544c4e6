"""Ways of metrics out of a server: an endpoint to scrape, pushes to a collector, or the log.

Each way is imported only where it is asked for: their libraries take longer to import than a name server to start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from understudy.runtime.clock import Clock
from understudy.runtime.log import Logger, get_logger
from understudy.runtime.metrics import ExportSettings, Family, MetricsSettings, Pieces, PushSettings
from understudy.runtime.series_limit import SeriesLimit
from understudy.runtime.world import World

log = get_logger("runtime.metrics")


class Exporter(Protocol):
    """One way out."""

    async def bind(self) -> None:
        """Take what it needs. Raises ``ListenError``."""
        ...

    async def unbind(self) -> None:
        """Give that back, where :meth:`run` never began."""
        ...

    async def run(self) -> None:
        """Do it until cancelled; :meth:`bind` first."""
        ...


def make_exporter(world: World, settings: ExportSettings, collect: Pieces, meter: str) -> Exporter:
    """Return the exporter that *settings* ask for.

    Args:
        world: network and clock.
        settings: where metrics go.
        collect: makes the families, in pieces.
        meter: name of the instrumentation scope, as OpenTelemetry calls what measures.
    """
    limit = SeriesLimit(settings.max_series, lambda name: _say_too_many(name, settings.max_series))

    def limited() -> Iterable[Family | None]:
        return limit.limited(collect())

    if isinstance(settings, MetricsSettings):
        return world.metrics_ports.exporter(world, settings, limited)
    if isinstance(settings, PushSettings):
        from understudy.runtime.metrics_push import MetricsPush

        return MetricsPush(world, settings, limited, meter)
    from understudy.runtime.metrics_log import MetricsLog

    return MetricsLog(world, settings, limited)


def _say_too_many(name: str, limit: int) -> None:
    log.warning(
        "a metric has too many series; those beyond the limit are told together",
        metric=name,
        metricsOtelCardinalityLimit=limit,
    )


class Intervals:
    """When to do something again; what takes longer than an interval leaves some out.

    Args:
        clock: whose time it is.
        seconds: from the begin of one to the begin of the next.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._begin = clock.monotonic()

    def left_seconds(self) -> float:
        """Return how long it is until the next."""
        return self._seconds - (self._clock.monotonic() - self._begin) % self._seconds


async def contained(run: Callable[[], Awaitable[object]], log: Logger) -> None:
    """Run *run*; its errors are logged in *log*, for metrics must never end a server."""
    try:
        await run()
    except Exception as error:
        log.error("metrics could not be made", why=f"{type(error).__name__}: {error}", exc=error)
