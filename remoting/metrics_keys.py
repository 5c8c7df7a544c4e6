"""Keys by which the reference's servers say where their metrics are served."""

from __future__ import annotations

from understudy.runtime.metrics import MetricsSettings, read_labels
from understudy.runtime.properties import ConfigError

_TYPES = {"0": "DISABLE", "1": "OTLP_GRPC", "2": "PROM", "3": "LOG"}


def read_metrics_settings(kind: str, host: str, port: int, labels: str) -> tuple[MetricsSettings | None, str]:
    """Read the reference's keys.

    Args:
        kind: ``metricsExporterType``: DISABLE, PROM, or one that is not there (OTLP_GRPC, LOG), by name or number.
        host: ``metricsPromExporterHost``; all addresses when empty.
        port: ``metricsPromExporterPort``.
        labels: ``metricsLabel``.

    Returns:
        The settings, or ``None`` when nothing is served; and a warning, or an empty string.

    Raises:
        ConfigError: a value that its key cannot have.
    """
    name = _TYPES.get(kind.strip(), kind.strip().upper())
    if name not in _TYPES.values():
        raise ConfigError(
            f"metricsExporterType={kind[:64]} is none of {', '.join(_TYPES.values())}", "metricsExporterType"
        )
    try:
        common = read_labels(labels)
    except ValueError as error:
        raise ConfigError(f"metricsLabel: {error}", "metricsLabel") from None
    if name == "PROM":
        return MetricsSettings(host.strip() or "0.0.0.0", port, common), ""
    if name == "DISABLE":
        return None, ""
    return None, f"metricsExporterType={name} is not there: use PROM and let a collector scrape it"
