"""Families of metrics as requests of OTLP, the protocol of OpenTelemetry's collectors. Pure.

The messages are those of ``opentelemetry-proto``; to import this needs the extra ``otlp``. A counter or histogram tells
since when it counts, so what was told of each is remembered here, and only once the collector has taken it: what a
collector missed is in the next request.

Source: metrics.proto and metrics_service.proto of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, AGGREGATION_TEMPORALITY_DELTA

from understudy.runtime.metrics import OVERFLOW, PIECE_SAMPLES, Family, Labels

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
REQUEST_POINTS = 2000
"""In one request: with long labels about a megabyte, where collectors take four."""

Key = tuple[str, tuple[tuple[str, str], ...]]


@attrs.frozen
class Mark:
    """What was told of one counter or histogram.

    Args:
        values: a counter's only one; of a histogram the count of each bucket, and the sum behind them.
        start_ns: since when they count, in wall nanoseconds.
        told_ns: as of when they were told.
    """

    values: tuple[float, ...]
    start_ns: int
    told_ns: int


@attrs.frozen
class Point:
    """One series of a family as of now; *bounds* are those of a histogram, see :class:`Mark` for *values*."""

    labels: Labels
    values: tuple[float, ...]
    bounds: tuple[float, ...] = ()


@attrs.frozen
class ExportRequest:
    """A request, and what to remember once it was taken; hand it to :meth:`Told.take` then."""

    content: bytes
    marks: Mapping[Key, Mark]


def rejected(answer: bytes) -> str:
    """Return what a collector that took a request says against it, ``""`` if nothing. Raises ``ValueError``."""
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except Exception:  # protobuf's DecodeError is of another class in each of its implementations
        raise ValueError("the answer is none of OTLP") from None
    if not partial.rejected_data_points:
        return ""
    return f"{partial.rejected_data_points} points rejected: {partial.error_message[:200]}"


class Told:
    """What a collector knows of one server.

    Args:
        meter: name of the instrumentation scope.
        labels: put on every point; a sample's own label of the same name wins.
        delta: counters and histograms tell what came since they were told before.
        begin_ns: since when series count that were not told before, in wall nanoseconds.
    """

    def __init__(self, meter: str, labels: Labels, delta: bool, begin_ns: int) -> None:
        self._meter = meter
        self._labels = labels
        self._delta = delta
        self._temporality = AGGREGATION_TEMPORALITY_DELTA if delta else AGGREGATION_TEMPORALITY_CUMULATIVE
        self._begin_ns = begin_ns
        self._marks: dict[Key, Mark] = {}

    def take(self, request: ExportRequest) -> None:
        """Remember a request that the collector has taken."""
        self._marks.update(request.marks)

    def requests(self, families: Iterable[Family | None], now_ns: int) -> Iterator[ExportRequest | None]:
        """Make requests of all *families*, and forget series that are not among them any more.

        Args:
            families: as of now.
            now_ns: wall nanoseconds.

        Returns:
            The requests, with ``None`` between them where others may have their turn.
        """
        kept: dict[Key, Mark] = {}
        message, marks, count = self._message(), dict[Key, Mark](), 0
        for family in families:
            yield None
            if family is None:
                continue
            metric: Any = None
            for point in _points(family):
                if metric is None:
                    metric = self._metric(message, family)
                self._add(metric, family, point, now_ns, marks, kept)
                count += 1
                if count == REQUEST_POINTS:
                    yield ExportRequest(message.SerializeToString(), marks)
                    message, marks, count, metric = self._message(), {}, 0, None
                elif count % PIECE_SAMPLES == 0:
                    yield None
        self._marks = kept
        if count:
            yield ExportRequest(message.SerializeToString(), marks)

    def _message(self) -> ExportMetricsServiceRequest:
        message = ExportMetricsServiceRequest()
        message.resource_metrics.add().scope_metrics.add().scope.name = self._meter
        return message

    def _metric(self, message: ExportMetricsServiceRequest, family: Family) -> Any:
        """Begin a family in *message*; return where its points belong."""
        metric: Any = message.resource_metrics[0].scope_metrics[0].metrics.add()
        metric.name, metric.unit = family.name_and_unit
        metric.description = family.text
        if family.kind == "gauge":
            return metric.gauge
        kind = metric.sum if family.kind == "counter" else metric.histogram
        kind.aggregation_temporality = self._temporality
        if family.kind == "counter":
            kind.is_monotonic = True
        return kind

    def _add(
        self, metric: Any, family: Family, point: Point, now_ns: int, marks: dict[Key, Mark], kept: dict[Key, Mark]
    ) -> None:
        added = metric.data_points.add(time_unix_nano=now_ns, start_time_unix_nano=self._begin_ns)
        for label, value in {**self._labels, **point.labels}.items():
            told = added.attributes.add(key=_text(label)).value
            if label in OVERFLOW:
                told.bool_value = True
            else:
                told.string_value = _text(value)
        values = point.values
        if family.kind != "gauge":
            key = family.name, tuple(point.labels.items())
            before = self._marks.get(key)
            if before is not None:
                kept[key] = before
            values, added.start_time_unix_nano = self._since(before, values)
            marks[key] = Mark(point.values, added.start_time_unix_nano, now_ns)
        if family.kind == "histogram":
            *buckets, total = values
            added.explicit_bounds.extend(point.bounds)
            added.bucket_counts.extend(int(each) for each in buckets)
            added.count, added.sum = int(sum(buckets)), total
        elif isinstance(values[0], float):
            added.as_double = values[0]
        else:
            added.as_int = int(values[0])

    def _since(self, before: Mark | None, values: tuple[float, ...]) -> tuple[tuple[float, ...], int]:
        """Return the values to tell, and since when they count, in wall nanoseconds."""
        if before is None:
            return values, self._begin_ns
        counts = slice(0, max(len(values) - 1, 1))  # the sum of a histogram may go down, its counts never do
        if any(now < then for now, then in zip(values[counts], before.values[counts], strict=True)):
            return values, before.told_ns  # it counts anew
        if not self._delta:
            return values, before.start_ns
        return tuple(now - then for now, then in zip(values, before.values, strict=True)), before.told_ns


def _points(family: Family) -> Iterator[Point]:
    """Return the series of a family; the samples of one histogram stand together there, its count is the last."""
    if family.kind != "histogram":
        for sample in family.samples:
            yield Point(sample.labels, (sample.value,))
        return
    bounds, counts, below, total = list[float](), list[float](), 0.0, 0.0
    for sample in family.samples:
        if sample.suffix == "_bucket":
            bounds.append(float(sample.labels["le"]))
            counts.append(sample.value - below)
            below = sample.value
        elif sample.suffix == "_sum":
            total = sample.value
        else:
            yield Point(sample.labels, (*counts, total), tuple(bounds[:-1]))  # the last bucket has no bound
            bounds, counts, below, total = [], [], 0.0, 0.0


def _text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
