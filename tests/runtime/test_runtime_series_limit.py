"""Most series of a metric: which stand apart, what is told of the others, and that every way out keeps to it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from understudy.namesrv.config import MetricsKeys
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.runtime.exposition import exposition_pieces
from understudy.runtime.metrics import Family, Histogram, Kind, LogSettings, MetricsSettings, Sample
from understudy.runtime.metrics_export import make_exporter
from understudy.runtime.properties import ConfigError
from understudy.runtime.series_limit import SeriesLimit
from understudy.runtime.world import real_world

OTHERS = "others"
OVERFLOW = "otel.metric.overflow"


class Limited:
    """One exporter's limit, and what it says."""

    def __init__(self, limit: int) -> None:
        self.said: list[str] = []
        self._limit = SeriesLimit(limit, self.said.append)

    def family(self, family: Family) -> Family:
        (found,) = [each for each in self._limit.limited([family]) if each is not None]
        return found

    def shown(self, kind: Kind, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return what is told of a family by the label of each series."""
        samples = [Sample(value, {"topic": topic}) for topic, value in numbers.items()]
        found = self.family(Family("m_total", kind, "", samples)).samples
        assert all(len(sample.labels) == 1 for sample in found)
        return {OTHERS if OVERFLOW in each.labels else each.labels["topic"]: each.value for each in found}


@pytest.mark.parametrize("kind", ["counter", "gauge"])
def test_as_many_series_as_the_limit_are_told_as_they_are(kind: Kind) -> None:
    limited = Limited(3)
    numbers = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert (numbers, []) == (limited.shown(kind, numbers), limited.said)


def test_what_is_beyond_is_one_series_the_sum_of_counters_and_the_largest_gauge() -> None:
    numbers = {"a": 1.0, "b": 2.0, "c": 9.0, "d": 4.0}
    counters, gauges = Limited(3), Limited(3)
    assert {"a": 1, "b": 2, OTHERS: 13} == counters.shown("counter", numbers)
    assert {"a": 1, "b": 2, OTHERS: 9} == gauges.shown("gauge", numbers)
    counters.shown("counter", numbers)
    assert ["m_total"] == counters.said  # once
    assert {OTHERS: 16} == Limited(1).shown("counter", numbers)


def test_a_gauge_that_fits_again_is_told_as_it_is() -> None:
    limited = Limited(2)
    limited.shown("gauge", {"a": 1, "b": 2, "c": 3})
    assert {"b": 2, "c": 3} == limited.shown("gauge", {"b": 2, "c": 3})


def test_counters_keep_their_place_and_the_others_never_go_down() -> None:
    limited = Limited(3)
    assert {"a": 1, "b": 1, OTHERS: 30} == limited.shown("counter", {"a": 1, "b": 1, "c": 10, "d": 20})
    # "a" is gone: nobody takes its place with what was told of it already
    assert {"b": 2, OTHERS: 31} == limited.shown("counter", {"b": 2, "c": 10, "d": 21})
    # "d" is gone: what was counted in it was counted
    assert {"b": 2, OTHERS: 31} == limited.shown("counter", {"b": 2, "c": 12})
    assert {"b": 3, OTHERS: 35} == limited.shown("counter", {"b": 3, "c": 15, "d": 1})
    assert {"a": 2, OTHERS: 35} == limited.shown("counter", {"a": 2})


@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(0, 5), max_size=10), max_size=8), st.integers(1, 11))
def test_nothing_is_lost_or_told_twice_of_counters_that_only_grow(rounds: list[dict[int, int]], limit: int) -> None:
    limited, numbers, before = Limited(limit), dict[str, float](), dict[str, float]()
    for added in rounds:
        for topic, more in added.items():
            numbers[str(topic)] = numbers.get(str(topic), 0) + more
        shown = limited.shown("counter", numbers)
        assert sum(numbers.values()) == sum(shown.values())
        assert len(shown) <= limit
        if OTHERS in before:
            assert all(shown[topic] >= value for topic, value in before.items())
        before = shown


def test_histograms_are_added_up_bucket_by_bucket() -> None:
    sizes = Histogram([1, 10])
    for topic in "abcd":
        for value in (0.5, 5, 50):
            sizes.observe(value, (("topic", topic),))
    sizes.observe(0.25, (("topic", "d"),))
    family = Limited(3).family(sizes.family("h", "sizes"))
    lines = b"".join(exposition_pieces([family], {"node": "n0"})).decode().splitlines()[2:]
    assert 'h_count{node="n0",topic="b"} 3.0' in lines
    assert [
        'h_bucket{le="1.0",node="n0",otel_metric_overflow="true"} 3.0',
        'h_bucket{le="10.0",node="n0",otel_metric_overflow="true"} 5.0',
        'h_bucket{le="+Inf",node="n0",otel_metric_overflow="true"} 7.0',
        'h_sum{node="n0",otel_metric_overflow="true"} 111.25',
        'h_count{node="n0",otel_metric_overflow="true"} 7.0',
    ] == [_sorted(line) for line in lines[-5:]]
    assert 3 * 5 == len(lines)
    whole = sizes.family("h", "sizes")
    assert whole.samples == Limited(4).family(whole).samples  # 20 samples, but 4 series


def _sorted(line: str) -> str:
    name, _, rest = line.partition("{")
    labels, _, value = rest.partition("}")
    return f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}"


def test_what_a_histogram_has_folded_itself_is_folded_with_the_others() -> None:
    sizes = Histogram([1], limit=3)
    for topic in "abcde":
        sizes.observe(1, (("topic", topic),))
    family = Limited(2).family(sizes.family("h", "sizes"))
    counts = [(dict(each.labels), each.value) for each in family.samples if each.suffix == "_count"]
    assert [({"topic": "a"}, 1), ({OVERFLOW: "true"}, 4)] == counts


def test_others_have_turns_while_many_series_are_folded() -> None:
    for kind in ("counter", "gauge"):
        family = Family("m", kind, "", [Sample(1, {"topic": str(number)}) for number in range(1_000)])
        found = list(SeriesLimit(10, lambda _: None).limited([family]))
        assert found.count(None) > 15
        assert 10 == max(len(each.samples) for each in found if each is not None)


# --- ways out ----------------------------------------------------------------------------------------------------


def test_a_collector_is_told_the_others_as_opentelemetry_marks_them_and_deltas_stay_whole() -> None:
    pytest.importorskip("opentelemetry.proto.metrics")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from understudy.runtime.otlp import Told

    limit, told = SeriesLimit(3, lambda _: None), Told("m", {"node": "n0"}, True, 1)
    sums, counts = dict[str, int](), dict[str, int]()
    for now in range(2, 6):
        for topic in ("a", "b", "c", "d", "e"):
            counts[topic] = counts.get(topic, 0) + now
        if now == 4:
            del counts["a"], counts["d"]
        samples = [Sample(value, {"topic": topic}) for topic, value in counts.items()]
        families = limit.limited([Family("m_total", "counter", "", samples)])
        (request,) = (each for each in told.requests(families, now) if each is not None)
        told.take(request)
        assert len(told._marks) <= 3
        message = ExportMetricsServiceRequest.FromString(request.content)
        for point in message.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points:
            labels = {each.key: each.value for each in point.attributes}
            assert "n0" == labels["node"].string_value
            if OVERFLOW in labels:
                assert "bool_value" == labels[OVERFLOW].WhichOneof("value")
                assert labels[OVERFLOW].bool_value
            name = OTHERS if OVERFLOW in labels else labels["topic"].string_value
            sums[name] = sums.get(name, 0) + point.as_int
    # "a" begins anew at 5; of the others "c" and "e" count 14, and "d", whose count was lost with it, 5
    assert {"a": 2 + 3 + 5, "b": 14, OTHERS: 2 * 14 + 5} == sums


def test_the_log_has_the_limit_too(caplog: pytest.LogCaptureFixture) -> None:
    family = Family("m", "gauge", "", [Sample(number, {"topic": str(number)}) for number in range(9)])

    async def write() -> None:
        with trio.move_on_after(0.2):
            await make_exporter(real_world(), LogSettings(0.05, {}, 4), lambda: [family], "m").run()

    with caplog.at_level("INFO"):
        trio.run(write)
    lines = [record.getMessage() for record in caplog.records]
    assert any("value=8" in line and f"{OVERFLOW}=true" in line for line in lines)
    assert 1 == sum("a metric has too many series" in line and "metric=m" in line for line in lines)
    assert not any("value=7" in line for line in lines)


def test_the_key_is_read_for_each_way_out() -> None:
    def settings(**more: object) -> object:
        return read_metrics_settings(MetricsKeys(metrics_otel_cardinality_limit=7, **more))[0]  # type: ignore[arg-type]

    assert MetricsSettings("0.0.0.0", 5557, {}, 7) == settings(metrics_exporter_type="PROM")
    assert LogSettings(10.0, {}, 7) == settings(metrics_exporter_type="LOG")
    pushed = settings(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target="http://h:1")
    assert 7 == getattr(pushed, "max_series")  # noqa: B009
    with pytest.raises(ConfigError, match="metricsOtelCardinalityLimit=0: expected at least 1 series"):
        read_metrics_settings(MetricsKeys(metrics_exporter_type="PROM", metrics_otel_cardinality_limit=0))
