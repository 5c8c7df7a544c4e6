"""Most series of a metric that leave a server; what is beyond is told together, in one series.

A name that somebody makes up for each message would otherwise be a series for each of them, in every text and push and
at whoever keeps them. Pure.

Source: the specification of OpenTelemetry's metrics, cardinality limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from understudy.runtime.metrics import OVERFLOW, PIECE_SAMPLES, Family, Sample

_Key = tuple[tuple[str, str], ...]
_Part = tuple[str, str | None]
"""Suffix and bound: what the samples of one series differ in. A counter has one part."""

_BOUND = "le"
_OVERFLOW_KEY: _Key = tuple(OVERFLOW.items())


class SeriesLimit:
    """The limit of one exporter.

    Which series of a counter or histogram stand apart is remembered once there are too many, and never changes then:
    one that left the others would be told again from its beginning, with what was told of it before. Those of a gauge
    are the first of each time.

    Args:
        limit: most series of a family, that of the others included.
        say: called with a family's name when it first has more.
    """

    def __init__(self, limit: int, say: Callable[[str], None]) -> None:
        self._limit = limit
        self._say = say
        self._said: set[str] = set()
        self._others: dict[str, _Others] = {}

    def limited(self, families: Iterable[Family | None]) -> Iterator[Family | None]:
        """Give *families* with no more series than the limit, and ``None`` where others may have their turn."""
        for family in families:
            if family is None or (len(family.samples) <= self._limit and family.name not in self._others):
                yield family
            elif family.kind == "gauge":
                yield from self._limited_gauge(family)
            else:
                yield from self._limited_counts(family)

    def _limited_gauge(self, family: Family) -> Iterator[Family | None]:
        """Fold a gauge: the largest of the others stands for them, which is what alerts are about."""
        self._warn(family.name)
        apart = self._limit - 1
        largest = family.samples[apart].value
        for number, sample in enumerate(islice(family.samples, apart, None)):
            if number % PIECE_SAMPLES == 0:
                yield None
            largest = max(largest, sample.value)
        yield _with_samples(family, [*family.samples[:apart], Sample(largest, OVERFLOW)])

    def _limited_counts(self, family: Family) -> Iterator[Family | None]:
        others = self._others.get(family.name)
        if others is None:
            keys = dict[_Key, None]()
            for number, sample in enumerate(family.samples):
                if number % PIECE_SAMPLES == 0:
                    yield None
                keys[_series(sample)] = None
                if len(keys) > self._limit:
                    break
            else:
                yield family
                return
            self._warn(family.name)
            apart = [key for key in keys if key != _OVERFLOW_KEY][: self._limit - 1]
            others = self._others[family.name] = _Others(frozenset(apart))
        samples, sums = list[Sample](), dict[_Part, float]()
        for number, sample in enumerate(family.samples):
            if number % PIECE_SAMPLES == 0:
                yield None
            if _series(sample) in others.apart:
                samples.append(sample)
            else:
                part = sample.suffix, sample.labels.get(_BOUND)
                sums[part] = sums.get(part, 0) + sample.value
        for (suffix, bound), value in others.counted(sums).items():
            labels = OVERFLOW if bound is None else {**OVERFLOW, _BOUND: bound}
            samples.append(Sample(value, labels, suffix))
        yield _with_samples(family, samples)

    def _warn(self, name: str) -> None:
        if name not in self._said:
            self._said.add(name)
            self._say(name)


class _Others:
    """What is told of all series of a counter or histogram that do not stand apart.

    Args:
        apart: the series that do.
    """

    def __init__(self, apart: frozenset[_Key]) -> None:
        self.apart = apart
        self._before: dict[_Part, float] = {}
        self._told: dict[_Part, float] = {}

    def counted(self, sums: dict[_Part, float]) -> dict[_Part, float]:
        """Return what to tell, which never goes down: when series are gone, their count stays in it.

        Args:
            sums: of those that are there now.
        """
        before, self._before = self._before, sums
        if all(sums.get(part, 0) >= value for part, value in before.items()):
            told = self._told
            self._told = {part: told.get(part, 0) + value - before.get(part, 0) for part, value in sums.items()}
        return self._told


def _series(sample: Sample) -> _Key:
    return tuple(label for label in sample.labels.items() if label[0] != _BOUND)


def _with_samples(family: Family, samples: list[Sample]) -> Family:
    return Family(family.name, family.kind, family.text, samples, family.instrument)
