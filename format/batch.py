"""The client's batch encoding: several messages of one queue in one request body; pure.

Each item: total size 4, magic 4 (0), body checksum 4 (0), flag 4, body length 4, body, properties length 2, properties
(MessageDecoder.java).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator

_ITEM = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
ITEM_OVERHEAD_BYTES = 22
_STEP_MESSAGES = 500


class BatchError(ValueError):
    """The bytes are not a client batch; the message says at which offset and why."""


def iter_batch(body: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield (flag, position of the body, length of the body, end of the item) of each message of a batch.

    The properties length (2 bytes) and the properties lie between the end of the body and the end of the item.

    Raises:
        BatchError: possibly after some items were yielded.
    """
    at, end = 0, len(body)
    while at < end:
        if end - at < ITEM_OVERHEAD_BYTES:
            raise BatchError(f"batch item at byte {at}: {end - at} bytes left, at least {ITEM_OVERHEAD_BYTES} needed")
        total, _, _, flag, length = _ITEM.unpack_from(body, at)
        if length < 0 or total < ITEM_OVERHEAD_BYTES + length or at + total > end:
            raise BatchError(f"batch item at byte {at}: size {total} and body length {length} do not fit in {end - at}")
        (properties_length,) = _SHORT.unpack_from(body, at + 20 + length)
        if properties_length < 0 or ITEM_OVERHEAD_BYTES + length + properties_length != total:
            raise BatchError(f"batch item at byte {at}: properties length {properties_length} is not right")
        yield flag, at + 20, length, at + total
        at += total


def holds_more_than(body: bytes | memoryview, most: int) -> bool:
    """Tell whether a batch has more than *most* messages, as far as the sizes of its items say."""
    at, end = 0, len(body)
    for _ in range(most):
        size = int.from_bytes(body[at : at + 4], "big")
        if size < ITEM_OVERHEAD_BYTES:
            return False  # its end, or broken
        at += size
    return at < end


def count_messages(body: bytes | memoryview, most: int) -> int:
    """Return how many messages a batch has, as far as the sizes of its items say.

    Args:
        body: the batch.
        most: there is no need to count further than one above it.

    Returns:
        0 when its items do not end where it does.
    """
    at, end, count = 0, len(body), 0
    while at < end and count <= most:
        size = int.from_bytes(body[at : at + 4], "big")
        if size < ITEM_OVERHEAD_BYTES or at + size > end:
            return 0
        at += size
        count += 1
    return count


def check_batch(body: bytes | memoryview) -> Generator[None, None, int]:
    """Read a whole batch, in short steps, and return how many messages it has.

    Raises:
        BatchError: an item is wrong.
    """
    count = 0
    for _ in iter_batch(body):
        count += 1
        if count % _STEP_MESSAGES == 0:
            yield
    return count


def cut_batch(body: bytes | memoryview, most: int) -> Generator[None, None, list[int]]:
    """Read a whole batch, in short steps, and return where it can be cut.

    Args:
        body: the batch.
        most: messages of a piece.

    Returns:
        The ends of its pieces, the last one the end of *body*.

    Raises:
        BatchError: an item is wrong.
    """
    ends: list[int] = []
    end = 0
    for number, (_, _, _, end) in enumerate(iter_batch(body), 1):
        if number % most == 0:
            ends.append(end)
            yield
    if not ends or ends[-1] != end:
        ends.append(end)
    return ends


def encode_batch(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the batch encoding of (flag, body, properties) triples."""
    parts = []
    for flag, body, properties in messages:
        total = ITEM_OVERHEAD_BYTES + len(body) + len(properties)
        parts += [_ITEM.pack(total, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties]
    return b"".join(parts)
