"""Numbers as Java reads them out of strings, and how it compares them.

Source: ComparisonExpression.java; Integer.parseInt, Long.parseLong, Double.parseDouble and Double.compareTo of the JDK.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from understudy.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

_WHOLE = re.compile(r"[+-]?\d+")
_FRACTION = re.compile(
    r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_BLANKS = "".join(map(chr, range(33)))
"""What Java trims."""
_REMEMBERED = 256
"""Texts of which it is remembered what they are: a long condition asks again and again of one property."""
_LONGEST = 4096
"""Digits that are looked at; Python refuses to read more, and no number of 64 bits has them."""


class EvaluationError(ValueError):
    """A value that cannot be compared: the message does not match, whatever else the condition says of it."""


@lru_cache(_REMEMBERED)
def to_int(text: str) -> int:
    """Return what ``Integer.parseInt`` makes of *text*. Raises :class:`EvaluationError`."""
    return _to_whole(text, INT_MIN, INT_MAX)


@lru_cache(_REMEMBERED)
def to_long(text: str) -> int:
    """Return what ``Long.parseLong`` makes of *text*. Raises :class:`EvaluationError`."""
    return _to_whole(text, LONG_MIN, LONG_MAX)


def _to_whole(text: str, low: int, high: int) -> int:
    # Java looks at UTF-16 units: digits outside of the basic plane are none
    if len(text) <= _LONGEST and _WHOLE.fullmatch(text) and max(text) <= "\uffff":
        value = int(text)
        if low <= value <= high:
            return value
    raise EvaluationError(f"{text[:40]!r} is no whole number in range")


@lru_cache(_REMEMBERED)
def to_double(text: str) -> float:
    """Return what ``Double.parseDouble`` makes of *text*. Raises :class:`EvaluationError`."""
    match = _FRACTION.fullmatch(text.strip(_BLANKS)) if len(text) <= _LONGEST else None
    if match is None:
        raise EvaluationError(f"{text[:40]!r} is no number")
    sign, nan, infinity, decimal, hexadecimal = match.groups()
    if nan:
        return math.nan
    if infinity:
        value = math.inf
    elif decimal:
        value = float(decimal)
    else:
        try:
            value = float.fromhex(hexadecimal)
        except OverflowError:
            value = math.inf
    return -value if sign == "-" else value


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1 in Java's order: -0.0 before 0.0, NaN equal to itself and last."""
    if left < right:
        return -1
    if left > right:
        return 1
    keys = [(value != value, math.copysign(1.0, value) if value == 0 else 0.0) for value in (left, right)]
    return (keys[0] > keys[1]) - (keys[0] < keys[1])
