"""Metrics as values: families of samples, histograms, and where they go.

Nothing here is counted twice: who owns a number keeps it as an integer, and makes families of it when somebody scrapes;
``exposition.py`` makes their text. Pure; there is no registry and no module-level state, so that several servers in one
process never mix their numbers.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import attrs

Labels = Mapping[str, str]
Kind = Literal["counter", "gauge", "histogram"]

MAX_SERIES = 50_000
OVERFLOW: Labels = {"otel.metric.overflow": "true"}
"""Of the series that stands for all those beyond a limit, as OpenTelemetry has it."""

_UNITS = frozenset({"bytes", "milliseconds", "seconds"})


@attrs.frozen
class Sample:
    """One number of a family.

    Args:
        value: the number.
        labels: what distinguishes it within its family.
        suffix: behind the family's name, for the parts of a histogram.
    """

    value: float
    labels: Labels = attrs.field(factory=dict)
    suffix: str = ""


@attrs.frozen
class Family:
    """All samples of one name.

    Args:
        name: as Prometheus shows it; that of a counter ends with ``_total``.
        kind: counter, gauge or histogram.
        text: one line of help.
        samples: its numbers; a family without any is left out of the text.
        instrument: what OpenTelemetry calls it, and its unit there; without, what follows from *name*, see
            :attr:`name_and_unit`.
    """

    name: str
    kind: Kind
    text: str
    samples: Sequence[Sample]
    instrument: tuple[str, str] | None = None

    @property
    def name_and_unit(self) -> tuple[str, str]:
        """Return what OpenTelemetry calls it, which has no unit in its name, and its unit."""
        if self.instrument is not None:
            return self.instrument
        name, _, unit = self.name.rpartition("_")
        return (name, unit) if unit in _UNITS else (self.name, "")


Collect = Callable[[], Iterable[Family]]
"""Makes all families of a server as of now; must not wait."""

Pieces = Callable[[], Iterable[Family | None]]
"""The same in pieces: ``None`` where others may have their turn, once there are some more samples."""

PIECE_SAMPLES = 50
"""So many are made, or written, between two turns of others."""


@attrs.frozen
class MetricsSettings:
    """Where metrics are served.

    Args:
        host, port: where to listen.
        labels: added to every sample.
        max_series: most series of a family, see ``series_limit.py``.
    """

    host: str
    port: int
    labels: Labels
    max_series: int = MAX_SERIES


@attrs.frozen
class PushSettings:
    """Where metrics are pushed to, by OTLP over gRPC.

    Args:
        host, port: of the collector.
        secure: whether the connection is secured by TLS.
        headers: header fields that go with each call; they may hold secrets.
        interval_seconds: from one push to the next.
        timeout_seconds: for a connection, and for the answer to each call.
        delta: counters and histograms tell what came since the push before, not since the start.
        labels: added to every sample.
        max_series: most series of a family, see ``series_limit.py``.
    """

    host: str
    port: int
    secure: bool
    headers: tuple[tuple[str, str], ...] = attrs.field(repr=False)
    interval_seconds: float
    timeout_seconds: float
    delta: bool
    labels: Labels
    max_series: int = MAX_SERIES

    @property
    def authority(self) -> str:
        """Host and port as they stand in an address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class LogSettings:
    """That metrics are written into the log.

    Args:
        interval_seconds: from one time to the next.
        labels: added to every sample.
        max_series: most series of a family, see ``series_limit.py``.
    """

    interval_seconds: float
    labels: Labels
    max_series: int = MAX_SERIES


ExportSettings = MetricsSettings | PushSettings | LogSettings


def gauge(name: str, text: str, value: float) -> Family:
    """Return a gauge of one number."""
    return Family(name, "gauge", text, [Sample(value)])


def counter(name: str, text: str, value: float) -> Family:
    """Return a counter of one number."""
    return Family(name, "counter", text, [Sample(value)])


class Observations:
    """What was observed under one set of labels of a :class:`Histogram`.

    Args:
        bounds: of its buckets.
    """

    __slots__ = ("_bounds", "buckets", "total")

    def __init__(self, bounds: list[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count one observation, or the same one *times* over."""
        self.buckets[bisect.bisect_left(self._bounds, value)] += times
        self.total += value * times


class Histogram:
    """Counts observations by size, for each set of labels.

    Args:
        bounds: upper bounds of the buckets, ascending; what is beyond the last one is counted in a bucket of its own.
        limit: most sets of labels; what comes beyond it is counted under one of them, :data:`OVERFLOW`.
    """

    def __init__(self, bounds: Sequence[float], limit: int = 1000) -> None:
        self._bounds = list(bounds)
        self._limit = limit
        self._rows: dict[tuple[tuple[str, str], ...], Observations] = {}

    def of(self, labels: tuple[tuple[str, str], ...]) -> Observations:
        """Return what counts those with *labels*; keep it where they come often."""
        row = self._rows.get(labels)
        if row is None:
            if len(self._rows) >= self._limit - 1:
                labels = tuple(OVERFLOW.items())
            row = self._rows.setdefault(labels, Observations(self._bounds))
        return row

    def observe(self, value: float, labels: tuple[tuple[str, str], ...] = ()) -> None:
        """Count one observation."""
        self.of(labels).add(value)

    def family(self, name: str, text: str, instrument: tuple[str, str] | None = None) -> Family:
        """Return everything observed so far; see :class:`Family`."""
        samples: list[Sample] = []
        for key, row in self._rows.items():
            samples += histogram_samples(self._bounds, row.buckets, row.total, dict(key))
        return Family(name, "histogram", text, samples, instrument)


def histogram_samples(bounds: Sequence[float], buckets: Sequence[int], total: float, labels: Labels) -> list[Sample]:
    """Return the samples of one set of labels.

    Args:
        bounds: upper bounds of the buckets, ascending.
        buckets: how many observations are in each, and at the end how many are beyond.
        total: all observations together.
        labels: of all of them.
    """
    samples, below = list[Sample](), 0
    for bound, count in zip([*bounds, math.inf], buckets, strict=True):
        below += count
        samples.append(Sample(below, {**labels, "le": _bound(bound)}, "_bucket"))
    return [*samples, Sample(total, labels, "_sum"), Sample(below, labels, "_count")]


def read_labels(text: str) -> dict[str, str]:
    """Read the key ``metricsLabel``: ``name:value`` pairs with commas between. Raises ``ValueError``."""
    labels = {}
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        name, colon, value = part.partition(":")
        if not (colon and name.strip() and value.strip()):
            raise ValueError(f"{part!r} is not of the form name:value")
        labels[name.strip()] = value.strip()
    return labels


def _bound(value: float) -> str:
    if math.isinf(value):
        return "+Inf"
    return repr(float(value))
