"""Families of metrics as requests of OTLP: kinds, names, and since when they count; the keys that ask for them."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto.metrics")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_collector import Series, refused_points, series_of

from understudy.namesrv.config import MetricsKeys
from understudy.remoting.metrics_keys import read_headers, read_metrics_settings, read_target
from understudy.runtime.metrics import Family, Histogram, LogSettings, PushSettings, Sample, counter, gauge
from understudy.runtime.otlp import REQUEST_POINTS, ExportRequest, Told, rejected
from understudy.runtime.properties import ConfigError

BEGIN = 1_000


def told(*families: Family, by: Told, at: int, taken: bool = True) -> list[ExportRequest]:
    """Return the requests of a round; the collector takes all of them, or none."""
    requests = [each for each in by.requests(families, at) if each is not None]
    for request in requests if taken else []:
        by.take(request)
    return requests


def only(requests: list[ExportRequest]) -> ExportMetricsServiceRequest:
    (request,) = requests
    return ExportMetricsServiceRequest.FromString(request.content)


def times(request: ExportMetricsServiceRequest) -> set[tuple[int, int]]:
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    return {
        (point.start_time_unix_nano, point.time_unix_nano)
        for metric in metrics
        for point in getattr(metric, metric.WhichOneof("data")).data_points
    }


def shown(*families: Family, by: Told, at: int, taken: bool = True) -> tuple[Series, set[tuple[int, int]]]:
    request = only(told(*families, by=by, at=at, taken=taken))
    return series_of(request), times(request)


def test_kinds_names_units_and_labels_are_those_of_the_protocol() -> None:
    sizes = Histogram([1, 10])
    for value in (0.5, 5, 5, 100):
        sizes.observe(value, (("kind", "k"),))
    families = [
        Family("a_total", "counter", "All a", [Sample(3, {"topic": "T"}), Sample(4, {"topic": "Ü", "node": "own"})]),
        gauge("b_lag_milliseconds", "One b", 2.5),
        None,
        attrs.evolve(gauge("c_behind_bytes", "One c", 7), instrument=("c_behind_bytes", "bytes")),
        sizes.family("d_microseconds", "All d", ("d", "us")),
        Family("e", "gauge", "nothing", []),
    ]
    request = only(told(*families, by=Told("meter", {"node": "n0"}, False, BEGIN), at=2_000))  # type: ignore[arg-type]
    (resource,) = request.resource_metrics
    assert [] == list(resource.resource.attributes)  # the reference's is empty, too
    (scope,) = resource.scope_metrics
    assert "meter" == scope.scope.name
    a, b, c, d = scope.metrics
    assert ("a_total", "", "All a", True, 2) == (
        a.name,
        a.unit,
        a.description,
        a.sum.is_monotonic,
        a.sum.aggregation_temporality,
    )
    assert [("b_lag", "milliseconds"), ("c_behind_bytes", "bytes"), ("d", "us")] == [
        (x.name, x.unit) for x in (b, c, d)
    ]
    assert 2 == d.histogram.aggregation_temporality
    assert {
        'a_total{node="n0",topic="T"}': 3,
        'a_total{node="own",topic="Ü"}': 4,
        'b_lag_milliseconds{node="n0"}': 2.5,
        'c_behind_bytes{node="n0"}': 7,
        'd_microseconds{kind="k",node="n0"}': (1, 2, 1, 110.5, 1.0, 10.0, float("inf")),
    } == series_of(request)
    assert {(BEGIN, 2_000)} == times(request)


def test_what_counts_since_the_start_says_so_and_when_it_began_anew() -> None:
    by = Told("m", {}, False, BEGIN)
    assert ({"a_total{}": 3}, {(BEGIN, 2_000)}) == shown(counter("a_total", "", 3), by=by, at=2_000)
    assert ({"a_total{}": 3}, {(BEGIN, 3_000)}) == shown(counter("a_total", "", 3), by=by, at=3_000)
    assert ({"a_total{}": 9}, {(BEGIN, 4_000)}) == shown(counter("a_total", "", 9), by=by, at=4_000)
    assert ({"a_total{}": 2}, {(4_000, 5_000)}) == shown(counter("a_total", "", 2), by=by, at=5_000)
    assert ({"a_total{}": 3}, {(4_000, 6_000)}) == shown(counter("a_total", "", 3), by=by, at=6_000)


def test_deltas_are_what_came_since_the_collector_took_the_last() -> None:
    by = Told("m", {}, True, BEGIN)
    first = only(told(counter("a_total", "", 3), gauge("g", "", 8), by=by, at=2_000))
    assert 1 == first.resource_metrics[0].scope_metrics[0].metrics[0].sum.aggregation_temporality
    assert {"a_total{}": 3, "g{}": 8} == series_of(first)
    # when two are refused
    assert ({"a_total{}": 2}, {(2_000, 3_000)}) == shown(counter("a_total", "", 5), by=by, at=3_000, taken=False)
    assert ({"a_total{}": 4}, {(2_000, 4_000)}) == shown(counter("a_total", "", 7), by=by, at=4_000, taken=False)
    # then the next has it all
    assert ({"a_total{}": 5}, {(2_000, 5_000)}) == shown(counter("a_total", "", 8), by=by, at=5_000)
    assert ({"a_total{}": 0}, {(5_000, 6_000)}) == shown(counter("a_total", "", 8), by=by, at=6_000)
    # and a counter that went back has counted from 0
    assert ({"a_total{}": 1}, {(6_000, 7_000)}) == shown(counter("a_total", "", 1), by=by, at=7_000)


def test_deltas_of_a_histogram_are_of_each_bucket() -> None:
    by, sizes = Told("m", {}, True, BEGIN), Histogram([1, 10])
    sizes.observe(5)
    shown(sizes.family("h", ""), by=by, at=2_000)
    sizes.observe(5)
    sizes.observe(0.5)
    inf = float("inf")
    assert ({"h{}": (1, 1, 0, 5.5, 1.0, 10.0, inf)}, {(2_000, 3_000)}) == shown(sizes.family("h", ""), by=by, at=3_000)
    again = Histogram([1, 10])
    again.observe(7)
    assert ({"h{}": (0, 1, 0, 7.0, 1.0, 10.0, inf)}, {(3_000, 4_000)}) == shown(again.family("h", ""), by=by, at=4_000)


def test_many_series_are_several_requests_of_which_each_counts_alone() -> None:
    def family(add: int) -> Family:
        samples = [Sample(number + add, {"n": str(number)}) for number in range(2 * REQUEST_POINTS + 5)]
        return Family("a_total", "counter", "", samples)

    by = Told("m", {}, True, BEGIN)
    first, *others = told(family(0), by=by, at=2_000, taken=False)
    assert 2 == len(others)
    by.take(first)
    requests = [ExportMetricsServiceRequest.FromString(each.content) for each in told(family(1), by=by, at=3_000)]
    assert [REQUEST_POINTS, REQUEST_POINTS, 5] == [len(series_of(each)) for each in requests]
    assert {1} == set(series_of(requests[0]).values())
    assert REQUEST_POINTS + 1 == series_of(requests[1])[f'a_total{{n="{REQUEST_POINTS}"}}']
    assert [{(2_000, 3_000)}, {(BEGIN, 3_000)}] == [times(each) for each in requests[:2]]


def test_series_that_are_gone_are_forgotten() -> None:
    by = Told("m", {}, False, BEGIN)
    old, other = counter("old_total", "", 9), gauge("other", "", 1)
    told(old, by=by, at=2_000)
    # while a refused round has it, it is remembered
    told(old, by=by, at=3_000, taken=False)
    assert {(2_000, 4_000)} == times(only(told(counter("old_total", "", 2), by=by, at=4_000)))
    # once a round lacks it, it is not, even if nothing of that round was taken
    told(other, by=by, at=5_000, taken=False)
    assert {(BEGIN, 6_000)} == times(only(told(counter("old_total", "", 1), by=by, at=6_000)))


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4))
def test_any_label_can_be_told(labels: dict[str, str]) -> None:
    request = only(told(Family("m", "gauge", "", [Sample(1, labels)]), by=Told("m", {}, False, 0), at=1))
    (point,) = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert {key.encode("utf-8", "replace"): value.encode("utf-8", "replace") for key, value in labels.items()} == {
        each.key.encode(): each.value.string_value.encode() for each in point.attributes
    }


def test_what_a_collector_says_against_points_is_read() -> None:
    assert "" == rejected(b"")
    assert "12 points rejected: too old" == rejected(refused_points(12))
    with pytest.raises(ValueError, match="none of OTLP"):
        rejected(b"\xff\xff\xff")


# --- the keys ----------------------------------------------------------------------------------------------------


def keys(**changed: object) -> MetricsKeys:
    given = MetricsKeys(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target="http://h:4317")
    return attrs.evolve(given, **changed)


def test_the_keys_of_the_reference_are_read() -> None:
    expected = PushSettings("h", 4317, False, (), 60.0, 3.0, False, {})
    for kind in ("OTLP_GRPC", "otlp_grpc", "1", " 1 "):
        assert (expected, "") == read_metrics_settings(keys(metrics_exporter_type=kind))
    changed = keys(
        metrics_grpc_exporter_target="otel.example:443",
        metrics_grpc_exporter_header="X-Tenant:blue, authorization:Bearer a:b",
        metric_grpc_exporter_interval_in_mills=5_000,
        metric_grpc_exporter_time_out_in_mills=100,
        metrics_in_delta=True,
        metrics_label="zone:z1",
    )
    headers = (("x-tenant", "blue"), ("authorization", "Bearer a:b"))
    labels = {"zone": "z1", "aggregation": "delta"}
    settings, _ = read_metrics_settings(changed)
    assert PushSettings("otel.example", 443, True, headers, 5.0, 0.1, True, labels) == settings
    assert "Bearer" not in repr(settings)
    for kind in ("LOG", "3"):
        logged = keys(metrics_exporter_type=kind, metric_logging_exporter_interval_in_mills=1_000)
        assert (LogSettings(1.0, {}), "") == read_metrics_settings(logged)


def test_without_a_collector_nothing_is_pushed_and_that_is_said() -> None:
    settings, warning = read_metrics_settings(keys(metrics_grpc_exporter_target=" "))
    assert settings is None
    assert "metricsExporterType=OTLP_GRPC pushes nothing without metricsGrpcExporterTarget" in warning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:4317", ("h", 4317, True)),
        ("https://h", ("h", 443, True)),
        ("http://h/", ("h", 80, False)),
        ("HTTP://10.0.0.1:1", ("10.0.0.1", 1, False)),
        ("http://[::1]:4317", ("::1", 4317, False)),
        ("ftp://h:1", None),
        ("grpc://h:1", None),
        ("h:0", None),
        ("h:65536", None),
        ("h:port", None),
        ("http://", None),
        ("http://h:1/v1/metrics", None),
        ("http://user:secret@h:1", None),
        ("http://h:1?x", None),
        ("a b:1", None),
        ("http://[::1:4317", None),
    ],
)
def test_targets(text: str, expected: tuple[str, int, bool] | None) -> None:
    assert expected == read_target(text)
    if expected is None:
        with pytest.raises(ConfigError, match=r"^metricsGrpcExporterTarget=.*: expected http://host:port") as refused:
            read_metrics_settings(keys(metrics_grpc_exporter_target=text))
        assert "metricsGrpcExporterTarget" == refused.value.key
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["secret", "a:", ":secret", "te:secret", "grpc-timeout:secret", "a b:secret", "a:secrét"]
)
def test_headers_that_cannot_be_sent_are_refused_without_a_word_of_them(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^metricsGrpcExporterHeader: its part 2 ") as refused:
        read_headers(f"fine:1,{text}")
    assert "secr" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("metricGrpcExporterIntervalInMills", {"metric_grpc_exporter_interval_in_mills": 0}),
        ("metricGrpcExporterTimeOutInMills", {"metric_grpc_exporter_time_out_in_mills": 0}),
        (
            "metricLoggingExporterIntervalInMills",
            {"metrics_exporter_type": "LOG", "metric_logging_exporter_interval_in_mills": 0},
        ),
    ],
)
def test_times_must_be_some(key: str, changed: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=0: expected at least 1"):
        read_metrics_settings(keys(**changed))


def test_a_missing_library_is_said_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs h2 and opentelemetry-proto: pip install 'understudy\[otlp\]'"):
        read_metrics_settings(keys())
