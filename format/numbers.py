"""Whole numbers of Java's types, as peers write them into JSON and headers."""

from __future__ import annotations

from understudy.format.json_values import shown

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_DIGITS = 20


def whole_number(value: object, what: str, low: int = LONG_MIN, high: int = LONG_MAX) -> int:
    """Return *value* as a whole number between *low* and *high*.

    Args:
        value: a number, or its decimal text, which the reference's reader takes as well.
        what: its name, for the message.
        low, high: bounds, both allowed.

    Raises:
        ValueError: it is no whole number (a truth value is none), or outside the bounds; the message says so.
    """
    number: int | None = None
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _DIGITS:
            number = int(text)
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    if number is None or not low <= number <= high:
        raise ValueError(f"{what} is {shown(value)}, it must be a whole number from {low} to {high}")
    return number
