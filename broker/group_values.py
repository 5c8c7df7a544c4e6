"""The parts of a group's row that are objects themselves: retry policy and subscriptions.

Pure. Source: GroupRetryPolicy.java, ExponentialRetryPolicy.java, CustomizedRetryPolicy.java,
SimpleSubscriptionData.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.format.json_values import list_of, name_of, shown
from understudy.format.numbers import whole_number

_LIST_LIMIT = 1000
_POLICIES = ("CUSTOMIZED", "EXPONENTIAL")


def retry_policy_of(value: object, what: str) -> dict[str, Any]:
    """Return a retry policy with the fields that have a meaning. Raises ``ValueError``."""
    fields = _object(value, what)
    kind = name_of(fields.get("type") or "CUSTOMIZED", f"{what}: type").upper()
    if kind not in _POLICIES:
        raise ValueError(f"{what}: type is {shown(kind)}, it must be one of {', '.join(_POLICIES)}")
    result: dict[str, Any] = {}
    customized, exponential = fields.get("customizedRetryPolicy"), fields.get("exponentialRetryPolicy")
    if customized is not None:
        waits = _list(_object(customized, f"{what}: customizedRetryPolicy").get("next") or [], f"{what}: next")
        result["customizedRetryPolicy"] = {"next": [whole_number(wait, f"{what}: next", 0) for wait in waits]}
    if exponential is not None:
        numbers = _object(exponential, f"{what}: exponentialRetryPolicy")
        result["exponentialRetryPolicy"] = {
            name: whole_number(numbers[name], f"{what}: {name}", 0)
            for name in ("initial", "max", "multiplier")
            if numbers.get(name) is not None
        }
    result["type"] = kind
    return result


def subscriptions_of(value: object, what: str) -> list[dict[str, Any]]:
    """Return the subscriptions that a group was given, with the fields that have a meaning. Raises ``ValueError``."""
    result = []
    for item in _list(value, what):
        fields = _object(item, what)
        row: dict[str, Any] = {
            name: name_of(fields[name], f"{what}: {name}")
            for name in ("expression", "expressionType", "topic")
            if fields.get(name) is not None
        }
        if fields.get("version") is not None:
            row["version"] = whole_number(fields["version"], f"{what}: version")
        result.append(row)
    return result


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be an object, not {shown(value)}")
    return value


def _list(value: object, what: str) -> list[Any]:
    found = list_of(value, what)
    if len(found) > _LIST_LIMIT:
        raise ValueError(f"{what} has {len(found)} entries, the limit is {_LIST_LIMIT}")
    return found
