"""Moments and lengths of time as people read them; files for programs keep milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def moment(time_ms: int | None) -> str:
    """Milliseconds since 1970 as date and time in UTC; what is not set is a dash, what is no time stays a number."""
    if not time_ms:
        return "–"
    try:
        found = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return f"{found:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d} UTC"


def span(length_ms: float | None) -> str:
    """A length of time in its two largest units."""
    if length_ms is None:
        return "–"
    left = round(abs(length_ms))
    words: list[str] = []
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if words:
            words += [f"{count} {name}"] if count else []
            break
        if count:
            words.append(f"{count} {name}")
    return ("-" if length_ms < 0 and words else "") + (" ".join(words) or "0 ms")
