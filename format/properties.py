"""The properties string of a message; pure.

``name 0x01 value 0x02`` repeated, in UTF-8. The last 0x02 may be missing (old clients); a pair with an empty name or
value does not exist; of two pairs with one name the last counts (MessageDecoder.java).
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_END = "\x01"
PAIR_END = "\x02"


def parse_properties(text: str | bytes | memoryview) -> dict[str, str]:
    """Return the pairs of a properties string; malformed parts are left out as the reference does."""
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", "replace")
    pairs: dict[str, str] = {}
    for chunk in text.split(PAIR_END):
        name, separator, value = chunk.partition(NAME_END)
        if separator and name and value:
            pairs[name] = value
    return pairs


def format_properties(pairs: Mapping[str, str | None]) -> str:
    """Return the properties string of *pairs*; a None value is left out."""
    return "".join(
        [f"{name}{NAME_END}{value}{PAIR_END}" for name, value in pairs.items() if value is not None],
    )


def find_property(properties: bytes, name: bytes, start: int = 0) -> bytes | None:
    """Return the value of one property without parsing the others; None if there is none.

    Args:
        properties: the properties string in UTF-8.
        name: the name, followed by 0x01.
        start: where the properties string begins in *properties*.
    """
    at = properties.find(name, start)
    value: bytes | None = None
    while at >= 0:
        first = at + len(name)
        if at == start or properties[at - 1] == 2:
            end = properties.find(b"\x02", first)
            # An empty value does not exist; of several the last counts.
            value = (properties[first:] if end < 0 else properties[first:end]) or value
        at = properties.find(name, first)
    return value
