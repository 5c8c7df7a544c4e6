"""Families of metrics as the text that a Prometheus server reads, by prometheus_client.

To import this takes longer than a name server needs to start: only what serves metrics does. The library's global
registry and its counters are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from understudy.runtime.metrics import PIECE_SAMPLES, Family, Labels, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOTAL = "_total"
_HEAD_LINES = 2  # of a family: what it is, and of which kind


class _Samples(Collector):
    """Some samples of one family."""

    def __init__(self, family: Family, samples: Sequence[Sample], labels: Labels) -> None:
        self._family = family
        self._samples = samples
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        family = self._family
        name = family.name.removesuffix(_TOTAL) if family.kind == "counter" else family.name
        metric = Metric(name, family.text, family.kind)
        for sample in self._samples:
            labels = {_one_line(label): value for label, value in {**self._labels, **sample.labels}.items()}
            metric.add_sample(family.name + sample.suffix, labels, sample.value)
        yield metric


@lru_cache(maxsize=1000)
def _one_line(label: str) -> str:
    """Return the name of a label without the end of a line; the library lets one pass as the last character."""
    return label.replace("\n", "_")


def exposition_pieces(families: Iterable[Family | None], labels: Labels | None = None) -> Iterator[bytes]:
    """Make the text that a Prometheus server reads (exposition format 0.0.4), in pieces.

    Args:
        families: what was collected; one without samples is left out.
        labels: added to every sample; a sample's own label of the same name wins.

    Returns:
        The pieces, an empty one for each ``None``; joined they are the text. Characters that the name of a label cannot
        have are underscores in it.
    """
    for family in families:
        if family is None:
            yield b""
            continue
        for first in range(0, len(family.samples), PIECE_SAMPLES):
            piece = _Samples(family, family.samples[first : first + PIECE_SAMPLES], labels or {})
            text = generate_latest(piece)
            yield text.split(b"\n", _HEAD_LINES)[_HEAD_LINES] if first else text
