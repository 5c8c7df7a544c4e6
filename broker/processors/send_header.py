"""The header of a send, in its two spellings, and the checks of its numbers.

Source: SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java.
"""

from __future__ import annotations

from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError

LONG_NAMES = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}
"""Long field names of codes 10 and 324, with the letters of 310, 320 and 325."""

REQUIRED = {letter: name for name, letter in LONG_NAMES.items() if letter in "abcdefgh"}
_NUMBERS = {"d": 32, "e": 32, "f": 32, "g": 64, "h": 32, "j": 32, "l": 32}

SMALL = {str(number): number for number in range(-1, 128)}
"""What nearly every number of a header but the time is; a look-up is cheaper than to parse and to check."""


def to_letters(ext: dict[str, str] | None) -> dict[str, str]:
    """Return a header with long names under the one-letter names."""
    return {LONG_NAMES.get(name, name): value for name, value in (ext or {}).items()}


def check_numbers(ext: dict[str, str]) -> None:
    """Check every number of a header that a record or an answer will hold.

    Raises:
        CommandError: one is no number or does not fit; the remark names it.
    """
    for letter, bits in _NUMBERS.items():
        text = ext.get(letter)
        if text is None:
            continue
        name = next(name for name, other in LONG_NAMES.items() if other == letter)
        try:
            value = int(text)
        except ValueError:
            raise _error(f"field {name} is {text[:64]!r}, not a number") from None
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise _error(f"field {name} is {text[:64]}, outside the range of {bits}-bit integers")


def numbers(ext: dict[str, str]) -> tuple[str, int, int, int, int, int]:
    """Return the topic and the numbers of a send header, all within their ranges.

    Returns:
        Topic, queue id, system flag, born time in milliseconds, flag, how often the message was retried.

    Raises:
        CommandError: a field is missing, no number or out of range; the remark names it.
    """
    try:
        found = (ext["b"], int(ext["e"]), int(ext["f"]), int(ext["g"]), int(ext["h"]), int(ext.get("j") or 0))
    except (KeyError, TypeError, ValueError):
        raise explain(ext) from None
    _, queue_id, sys_flag, born_ms, flag, times = found
    ints = (queue_id, sys_flag, flag, times)
    if not all(-(1 << 31) <= number < 1 << 31 for number in ints) or not -(1 << 63) <= born_ms < 1 << 63:
        raise explain(ext)
    return found


def explain(ext: dict[str, str] | None) -> CommandError:
    """Return the refusal of a send header that could not be read, naming the first field that is wrong."""
    if ext is not None:
        try:
            check_numbers(ext)
        except CommandError as error:
            return error
    for letter, name in REQUIRED.items():
        if ext is None or ext.get(letter) is None:
            return _error(f"the request header has no field {name}")
    return _error("the request header cannot be read")


def _error(remark: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, remark)
