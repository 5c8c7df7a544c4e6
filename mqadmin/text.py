"""Words and times as the reference's tables show them."""

from __future__ import annotations

from datetime import datetime

from understudy.mqadmin.options import UsageError

PERMISSIONS = ((4, "R"), (2, "W"), (1, "X"))


def front(text: str, size: int) -> str:
    """Return at most the first *size* characters."""
    return text[:size]


def seconds_text(timestamp_ms: int) -> str:
    """Return local time to the second."""
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def millis_text(timestamp_ms: int) -> str:
    """Return local time to the millisecond."""
    return f"{seconds_text(timestamp_ms)},{timestamp_ms % 1000:03d}"


def parse_time(text: str, now_ms: int, key: str) -> int:
    """Return the wall time in milliseconds in ``now``, a number or ``yyyy-MM-dd#HH:mm:ss:SSS``.

    Raises:
        UsageError: *text* is none of them; *key* names the option.
    """
    if text == "now":
        return now_ms
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f")
    except ValueError:
        raise UsageError(
            f"option -{key} needs milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS, not {text!r}"
        ) from None
    return round(moment.timestamp() * 1000)


def permission_text(permission: int) -> str:
    """Return a permission as ``RW-``."""
    return "".join(letter if permission & bit else "-" for bit, letter in PERMISSIONS)


def map_text(values: dict[str, str]) -> str:
    """Return a map as ``{a=1, b=2}``."""
    return "{" + ", ".join(f"{name}={value}" for name, value in values.items()) + "}"
