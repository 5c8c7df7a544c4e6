"""Where the fields of a commit log record lie: whatever reads or writes some of them is made of this one table.

Source: CommitLog.java, MessageDecoder.java.
"""

from __future__ import annotations

import struct

IPV4_BYTES = 8
"""A host of an IPv4 address: address 4, port 4."""
IPV6_BYTES = 20

#: The fields before the body in their order, as :mod:`struct` writes them; hosts take the place of theirs.
_FIELDS = {
    "size": "i",
    "magic": "I",
    "body_crc": "I",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_ms": "q",
    "born_host": "",
    "store_ms": "q",
    "store_host": "",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "body_length": "i",
}
FIELD_NAMES = tuple(_FIELDS)


def layout(*names: str, begin: str = "size", born: int = IPV4_BYTES, store: int = IPV4_BYTES) -> struct.Struct:
    """Return what packs and unpacks the fields *names*, with nothing for those between them.

    Make it once: it costs as much as any other :class:`struct.Struct` then.

    Args:
        names: fields in the order of the record.
        begin: the field that stands where it is used.
        born, store: lengths of the two hosts (bytes).

    Raises:
        ValueError: there is no such field, or not behind the one before it.
    """
    formats = _FIELDS | {"born_host": f"{born}s", "store_host": f"{store}s"}
    order = list(formats)
    parts, at = [">"], order.index(begin)
    for name in names:
        found = order.index(name, at)
        passed = sum(struct.calcsize(">" + formats[each]) for each in order[at:found])
        parts.append((f"{passed}x" if passed else "") + formats[name])
        at = found + 1
    return struct.Struct("".join(parts))


def place_of(name: str, *, born: int = IPV4_BYTES, store: int = IPV4_BYTES) -> int:
    """Return at which byte of a record the field *name* begins.

    Args:
        name: of the field.
        born, store: lengths of the two hosts (bytes).
    """
    return layout(name, born=born, store=store).size - layout(name, begin=name, born=born, store=store).size


def places_of(name: str) -> tuple[int, int, int, int]:
    """Return where a field begins, by (system flags >> 4) & 3, whose bits say whether born and store host are IPv6."""
    v6 = IPV6_BYTES
    return place_of(name), place_of(name, born=v6), place_of(name, store=v6), place_of(name, born=v6, store=v6)
