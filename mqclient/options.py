"""Checks of options when they are made: a value that cannot work is refused at once, with what would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from understudy.mqclient.errors import InvalidMessageError, InvalidOptionError
from understudy.mqclient.queue import check_topic

Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def at_least(minimum: float) -> Check:
    """Return a validator that refuses numbers below *minimum*, and what is no number.

    Raises:
        InvalidOptionError: from the validator.
    """

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not value >= minimum:  # type: ignore[operator]  # a number by then; NaN is refused, too
            raise InvalidOptionError(f"{attribute.name}={value!r}: expected a number of at least {minimum:g}")

    return check


def one_of(*allowed: object) -> Check:
    """Return a validator that refuses everything but *allowed*.

    Raises:
        InvalidOptionError: from the validator.
    """

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in allowed:
            names = ", ".join(str(each) for each in allowed)
            raise InvalidOptionError(f"{attribute.name}={value!r}: expected one of {names}")

    return check


def topic_name(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what no topic can be called; a validator.

    Raises:
        InvalidOptionError: it is no legal name of a topic.
    """
    if not isinstance(value, str):
        raise InvalidOptionError(f"{attribute.name}={value!r}: expected the name of a topic")
    try:
        check_topic(value)
    except InvalidMessageError as error:
        raise InvalidOptionError(f"{attribute.name}={value!r}: {error}") from None
