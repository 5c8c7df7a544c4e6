"""Keys by which the reference's servers say where their metrics go.

Source: BrokerConfig.java, BrokerMetricsManager.java.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Protocol
from urllib.parse import urlsplit

from understudy.runtime.metrics import (
    ExportSettings,
    Labels,
    LogSettings,
    MetricsSettings,
    PushSettings,
    read_labels,
)
from understudy.runtime.properties import ConfigError, printable

_TYPES = {"0": "DISABLE", "1": "OTLP_GRPC", "2": "PROM", "3": "LOG"}
_TARGET = "metricsGrpcExporterTarget"
_PORTS = {"https": 443, "http": 80}
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_HEADER_NAME = re.compile("[a-z0-9_.-]+")
_OWN_HEADERS = re.compile("grpc-.*|te|content-type|user-agent|host|connection|transfer-encoding")


class ExporterKeys(Protocol):
    """The keys, as the settings of each server have them.

    Attributes:
        metrics_exporter_type: where metrics go: DISABLE (0), OTLP_GRPC (1) pushes them, PROM (2) serves them, LOG (3)
            logs them.
        metrics_prom_exporter_host: PROM: the address to listen on; empty: all of the host.
        metrics_prom_exporter_port: PROM: the port of ``GET /metrics``.
        metrics_grpc_exporter_target: OTLP_GRPC: ``http://host:port`` or ``https://host:port`` of the collector; without
            it nothing goes.
        metrics_grpc_exporter_header: OTLP_GRPC: header fields of each push, ``name:value``, divided by commas; they may
            be secret.
        metric_grpc_exporter_time_out_in_mills: OTLP_GRPC: milliseconds that the collector has for each answer.
        metric_grpc_exporter_interval_in_mills: OTLP_GRPC: milliseconds between pushes.
        metric_logging_exporter_interval_in_mills: LOG: milliseconds between times at which metrics are logged.
        metrics_label: labels added to each sample, ``name:value``, divided by commas.
        metrics_in_delta: OTLP_GRPC: counters tell what came since the last push, not since the start.
        metrics_otel_cardinality_limit: series of one metric, at most; those beyond are told together in one.
    """

    @property
    def metrics_exporter_type(self) -> str: ...
    @property
    def metrics_prom_exporter_host(self) -> str: ...
    @property
    def metrics_prom_exporter_port(self) -> int: ...
    @property
    def metrics_grpc_exporter_target(self) -> str: ...
    @property
    def metrics_grpc_exporter_header(self) -> str: ...
    @property
    def metric_grpc_exporter_time_out_in_mills(self) -> int: ...
    @property
    def metric_grpc_exporter_interval_in_mills(self) -> int: ...
    @property
    def metric_logging_exporter_interval_in_mills(self) -> int: ...
    @property
    def metrics_label(self) -> str: ...
    @property
    def metrics_in_delta(self) -> bool: ...
    @property
    def metrics_otel_cardinality_limit(self) -> int: ...


def read_metrics_settings(keys: ExporterKeys) -> tuple[ExportSettings | None, str]:
    """Read the reference's keys.

    Args:
        keys: those of a server. Only what its ``metricsExporterType`` (DISABLE, OTLP_GRPC, PROM or LOG, by name or
            number) asks for is looked at.

    Returns:
        The settings, or ``None`` when metrics go nowhere; and a warning, or an empty string.

    Raises:
        ConfigError: a value that its key cannot have, or a library is missing.
    """
    kind = keys.metrics_exporter_type.strip()
    name = _TYPES.get(kind, kind.upper())
    if name not in _TYPES.values():
        raise ConfigError(
            f"metricsExporterType={printable(kind[:64])} is none of {', '.join(_TYPES.values())}", "metricsExporterType"
        )
    try:
        labels = read_labels(keys.metrics_label)
    except ValueError as error:
        raise ConfigError(f"metricsLabel: {error}", "metricsLabel") from None
    if name == "PROM":
        host = keys.metrics_prom_exporter_host.strip() or "0.0.0.0"
        return MetricsSettings(host, keys.metrics_prom_exporter_port, labels, _max_series(keys)), ""
    if name == "LOG":
        every = _seconds("metricLoggingExporterIntervalInMills", keys.metric_logging_exporter_interval_in_mills)
        return LogSettings(every, labels, _max_series(keys)), ""
    if name == "OTLP_GRPC":
        if not keys.metrics_grpc_exporter_target.strip():
            return None, f"metricsExporterType=OTLP_GRPC pushes nothing without {_TARGET}, {_EXPECTED}"
        return _push(keys, labels), ""
    return None, ""


_EXPECTED = "http://host:port or https://host:port of a collector"


def _push(keys: ExporterKeys, labels: Labels) -> PushSettings:
    target = keys.metrics_grpc_exporter_target.strip()
    found = read_target(target)
    if found is None:
        shown = target.rpartition("@")[2]  # what is before it may be secret
        raise ConfigError(f"{_TARGET}={printable(shown)}: expected {_EXPECTED}", _TARGET)
    missing = [name for name, module in _LIBRARIES.items() if not _is_there(module)]
    if missing:
        raise ConfigError(
            f"metricsExporterType=OTLP_GRPC needs {' and '.join(missing)}: pip install 'understudy[otlp]'",
            "metricsExporterType",
        )
    host, port, secure = found
    return PushSettings(
        host,
        port,
        secure,
        read_headers(keys.metrics_grpc_exporter_header),
        _seconds("metricGrpcExporterIntervalInMills", keys.metric_grpc_exporter_interval_in_mills),
        _seconds("metricGrpcExporterTimeOutInMills", keys.metric_grpc_exporter_time_out_in_mills),
        keys.metrics_in_delta,
        {**labels, "aggregation": "delta"} if keys.metrics_in_delta else labels,
        _max_series(keys),
    )


def read_target(text: str) -> tuple[str, int, bool] | None:
    """Return host and port of a collector, and whether it is reached by TLS, as it is without ``http://`` in front.

    Returns:
        ``None`` when *text* says nothing of the kind.
    """
    scheme, slashes, rest = text.partition("://")
    if not slashes:
        scheme, rest = "https", text
    if scheme.lower() not in _PORTS:
        return None
    try:
        parts = urlsplit(f"//{rest}")
        port = parts.port if parts.port is not None else _PORTS[scheme.lower()]
    except ValueError:
        return None
    host = parts.hostname or ""
    if not _HOST.fullmatch(host) or not port or parts.path.strip("/") or "@" in rest or "?" in rest or "#" in rest:
        return None
    return host, port, scheme.lower() == "https"


def read_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Return the header fields in *text*, ``name:value`` with commas between.

    Raises:
        ConfigError: it has others. What they hold may be secret, so that no line has it.
    """
    found = []
    for number, part in enumerate(filter(None, (each.strip() for each in text.split(","))), 1):
        name, _, value = part.partition(":")
        name, value = name.strip().lower(), value.strip()
        fits = _HEADER_NAME.fullmatch(name) and not _OWN_HEADERS.fullmatch(name)
        if not (fits and value and value.isascii() and value.isprintable()):
            raise ConfigError(
                f"metricsGrpcExporterHeader: its part {number} is no name:value of a header field that can be given",
                "metricsGrpcExporterHeader",
            )
        found.append((name, value))
    return tuple(found)


_LIBRARIES = {"h2": "h2", "opentelemetry-proto": "opentelemetry.proto.metrics"}


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _max_series(keys: ExporterKeys) -> int:
    limit = keys.metrics_otel_cardinality_limit
    if limit < 1:
        raise ConfigError(
            f"metricsOtelCardinalityLimit={limit}: expected at least 1 series of each metric",
            "metricsOtelCardinalityLimit",
        )
    return limit


def _seconds(key: str, milliseconds: int) -> float:
    if milliseconds < 1:
        raise ConfigError(f"{key}={milliseconds}: expected at least 1, in milliseconds", key)
    return milliseconds / 1000
