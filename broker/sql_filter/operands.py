"""Parts of a condition as functions of a message's properties, and how two of them become one.

What kind of value a part has is known when it is made: a property is a string or missing, a constant has its kind, all
else is a truth value. So every comparison is made for its kinds once, and a message costs no look at them.

Three-valued: True, False, or None for unknown. A value that cannot be compared ends the whole evaluation
(:class:`~understudy.broker.sql_filter.values.EvaluationError`).

Source: ComparisonExpression.java, LogicExpression.java, UnaryExpression.java, UnaryInExpression.java,
ConstantExpression.java, SelectorParser.jj.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from understudy.broker.sql_filter.values import EvaluationError, compare_doubles, to_double, to_int, to_long

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]

INT, LONG, DOUBLE, TEXT, PROPERTY, TRUTH, UNKNOWN = "int", "long", "double", "text", "property", "truth", "unknown"
"""Kinds of value; ``UNKNOWN`` is what no message has a value for, the negative of a string."""
_NUMBERS: dict[str, Callable[[str], Any]] = {INT: to_int, LONG: to_long, DOUBLE: to_double}
_STRINGS = frozenset({PROPERTY, TEXT})
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class OperandError(ValueError):
    """Parts that cannot be put together so; the message says why."""


@attrs.define(eq=False)
class Operand:
    """One part of a condition; never changed. Not frozen: thousands of them are made of one text.

    Attributes:
        kind: of its value.
        evaluate: its value for the properties of a message.
        shown: for messages about it.
        constant: written as it is, so that its value is known without a message.
        value: of a constant; the name of a property.
        depth: of the calls one evaluation makes.
    """

    kind: str
    evaluate: Evaluate
    shown: str
    constant: bool = False
    value: Any = None
    depth: int = 1


def constant(kind: str, value: Any, shown: str) -> Operand:
    """Return a constant of *kind*."""
    return Operand(kind, lambda properties: value, shown, True, value)


def named(name: str) -> Operand:
    """Return the property *name*."""
    return Operand(PROPERTY, lambda properties: properties.get(name), name, value=name)


def _made(evaluate: Evaluate, shown: str, *parts: Operand) -> Operand:
    deepest = 0
    for part in parts:
        if part.depth > deepest:
            deepest = part.depth
    return Operand(TRUTH, evaluate, shown, depth=1 + deepest)


def truth(part: Operand) -> Operand:
    """Return *part* as a truth value: a property that is there is not true.

    Raises:
        OperandError: it has none.
    """
    if part.kind == TRUTH:
        return part
    if part.kind != PROPERTY:
        raise OperandError(f"Expression will not result in a boolean value: {part.shown}")
    name = part.value
    return _made(lambda properties: False if name in properties else None, part.shown, part)


def negated(part: Operand) -> Operand:
    """Return ``-part``: of a number its negative, of all else unknown."""
    evaluate, shown = part.evaluate, f"(- {part.shown})"
    if part.kind in _NUMBERS:
        value = -part.value
        return Operand(part.kind, lambda properties: value, shown, False, value)

    def unknown(properties: Properties) -> None:
        evaluate(properties)  # for its errors

    return Operand(UNKNOWN, unknown, shown, depth=part.depth + 1)


def inverted(part: Operand) -> Operand:
    """Return ``NOT part``. Raises :class:`OperandError`."""
    inner = truth(part)
    evaluate = inner.evaluate

    def invert(properties: Properties) -> bool | None:
        value: bool | None = evaluate(properties)
        return None if value is None else not value

    return _made(invert, f"(NOT {part.shown})", inner)


def joined(parts: Sequence[Operand], word: str) -> Operand:
    """Return all *parts* with AND or OR between them; they are asked in order, as far as they decide it.

    Raises:
        OperandError: one of them has no truth value.
    """
    whole = [truth(part) for part in parts]
    decisive = word == "OR"
    functions = tuple(part.evaluate for part in whole)

    def join(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for evaluate in functions:
            value: bool | None = evaluate(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return _made(join, f"(... {word} ...)", *whole)


def is_missing(part: Operand) -> Operand:
    """Return ``part IS NULL``."""
    evaluate = part.evaluate
    return _made(lambda properties: evaluate(properties) is None, f"({part.shown} IS NULL)", part)


def equal(left: Operand, right: Operand) -> Operand:
    """Return ``left = right``.

    Raises:
        OperandError: one of them is NULL, or TRUE and FALSE stand left of another constant.
    """
    for part in (left, right):
        if part.constant and part.value is None:
            raise OperandError(f"'{part.shown}' cannot be compared.")
    if left.constant and right.constant and left.kind == TRUTH and right.kind != TRUTH:
        raise OperandError(f"'{left.shown}' cannot be compared with '{right.shown}'")
    shown = f"({left.shown} = {right.shown})"
    if left.kind == PROPERTY and right.constant and right.kind != TRUTH:
        return _made(_property_equals(left.value, right), shown, left, right)
    first, second, same = left.evaluate, right.evaluate, _sameness(left.kind, right.kind)

    def compare(properties: Properties) -> bool | None:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        return False if other is None else same(one, other)

    return _made(compare, shown, left, right)


def _property_equals(name: str, right: Operand) -> Evaluate:
    wanted = right.value
    read = _NUMBERS.get(right.kind)
    if read is None:

        def equals_text(properties: Properties) -> bool | None:
            held = properties.get(name)
            return None if held is None else held == wanted

        return equals_text
    number = read

    def equals_number(properties: Properties) -> bool | None:
        held = properties.get(name)
        return None if held is None else number(held) == wanted

    return equals_number


def _sameness(left: str, right: str) -> Callable[[Any, Any], bool]:
    """Return how two values that are there are compared."""
    if left in _STRINGS and right in _NUMBERS:
        read = _NUMBERS[right]
        return lambda one, other: bool(read(one) == other)
    if left in _NUMBERS and right in _STRINGS:
        read = _NUMBERS[left]
        return lambda one, other: bool(one == read(other))
    if left in _NUMBERS and right in _NUMBERS and DOUBLE in (left, right):
        return lambda one, other: float(one) == float(other)
    if left in _STRINGS and right == TRUTH:
        return lambda one, other: (one.lower() == "true") is other
    if left == TRUTH and right in _STRINGS:
        return _not_a_truth
    if TRUTH in (left, right) and left != right:
        return lambda one, other: False
    return lambda one, other: bool(one == other)


def _not_a_truth(one: bool, other: str) -> bool:
    raise EvaluationError(f"a truth value is not compared with the string {other[:40]!r}")


def ordered(sign: str, left: Operand, right: Operand) -> Operand:
    """Return ``left sign right``; *sign* is one of ``< <= > >=``.

    Raises:
        OperandError: a constant string, or what has a truth value.
    """
    for part in (left, right):
        if part.kind == TRUTH or (part.constant and part.kind == TEXT):
            raise OperandError(f"Value '{part.shown}' cannot be compared.")
    shown = f"({left.shown} {sign} {right.shown})"
    if left.kind == PROPERTY and right.kind in _NUMBERS:
        return _made(_property_ordered(sign, left.value, right), shown, left, right)
    if left.kind in _NUMBERS and right.kind == PROPERTY:
        return _made(_property_ordered(_MIRRORED[sign], right.value, left), shown, left, right)
    holds = _ORDER[sign]
    if left.kind in _NUMBERS and right.kind in _NUMBERS:
        widen = float if DOUBLE in (left.kind, right.kind) else int
        result = holds(widen(left.value), widen(right.value))
        return _made(lambda properties: result, shown, left, right)
    first, second = left.evaluate, right.evaluate

    def compare(properties: Properties) -> bool | None:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        return None if other is None else holds(compare_doubles(to_double(one), to_double(other)), 0)

    return _made(compare, shown, left, right)


def _property_ordered(sign: str, name: str, right: Operand) -> Evaluate:
    """Return the comparison of a property with a number; no constant is NaN, which is above all others."""
    holds, wanted, read = _ORDER[sign], right.value, _NUMBERS[right.kind]
    upward = sign in (">", ">=")

    def compare(properties: Properties) -> bool | None:
        held = properties.get(name)
        if held is None:
            return None
        value = read(held)
        return holds(value, wanted) or (upward and value != value)

    return compare


def between(part: Operand, low: Operand, high: Operand) -> Operand:
    """Return ``part BETWEEN low AND high``.

    Raises:
        OperandError: constants that are no numbers, or the wrong way round.
    """
    if low.constant and high.constant:
        if low.value is None or high.value is None:
            raise OperandError("Illegal values of between, values can not be null!")
        if low.kind in _NUMBERS and high.kind in _NUMBERS and high.value < low.value:
            raise OperandError(
                f"Illegal values of between, left value({low.shown}) must less than or equal to right"
                f" value({high.shown})"
            )
    return joined([ordered(">=", part, low), ordered("<=", part, high)], "AND")


def outside(part: Operand, low: Operand, high: Operand) -> Operand:
    """Return ``part NOT BETWEEN low AND high``. Raises :class:`OperandError`."""
    return joined([ordered("<", part, low), ordered(">", part, high)], "OR")


def among(part: Operand, texts: Sequence[str], wanted: bool) -> Operand:
    """Return ``part IN (texts)``, or NOT IN when not *wanted*.

    Raises:
        OperandError: it is no property.
    """
    if part.kind != PROPERTY:
        raise OperandError(f"Expected a property for In expression, got: {part.shown}")
    name, held = part.value, frozenset(texts)

    def look(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in held) is wanted

    return _made(look, f"({part.shown} IN ...)", part)


_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda held, text: text in held,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def searched(part: Operand, word: str, text: str, wanted: bool) -> Operand:
    """Return ``part CONTAINS text`` and its like, or the NOT of it when not *wanted*.

    What is missing or no string, and an empty *text*, is false either way.

    Args:
        part: in which is searched.
        word: of the condition: ``CONTAINS``, ``STARTSWITH`` or ``ENDSWITH``.
        text: that is searched for.
        wanted: whether it must be there; false for the NOT.
    """
    evaluate, found = part.evaluate, _SEARCHES[word]
    if not text or part.kind not in _STRINGS:
        return _made(lambda properties: bool(evaluate(properties) and False), f"({part.shown} {word} ...)", part)

    def search(properties: Properties) -> bool:
        value = evaluate(properties)
        return value is not None and found(value, text) is wanted

    return _made(search, f"({part.shown} {word} ...)", part)
