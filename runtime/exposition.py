"""Families of metrics as the text that a Prometheus server reads, by prometheus_client.

To import this takes longer than a name server needs to start: only what serves metrics does. The library's global
registry and its counters are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from understudy.runtime.metrics import Family, Labels

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOTAL = "_total"


class _Families(Collector):
    def __init__(self, families: Iterable[Family], labels: Labels) -> None:
        self._families = families
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            if not family.samples:
                continue
            name = family.name.removesuffix(_TOTAL) if family.kind == "counter" else family.name
            metric = Metric(name, family.text, family.kind)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, {**self._labels, **sample.labels}, sample.value)
            yield metric


def exposition(families: Iterable[Family], labels: Labels | None = None) -> bytes:
    """Return the text that a Prometheus server reads (exposition format 0.0.4).

    Args:
        families: what was collected; one without samples is left out.
        labels: added to every sample; a sample's own label of the same name wins.

    Returns:
        The text; characters that the name of a label cannot have are underscores in it.
    """
    return generate_latest(_Families(families, labels or {}))
