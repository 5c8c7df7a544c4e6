"""Bodies of answers that may be larger than a frame: packed where the asker says that it can unpack them.

Who does not say so gets the plain body, which a frame must hold. The rows of one table are much alike: packed, they
take a tenth of their bytes or less.

Source: none, requests of our own have such answers.
"""

from __future__ import annotations

import zlib

from understudy.broker.replicated.rules import ReplicaTableError
from understudy.broker.replicated.table import Answer
from understudy.remoting.bodies import LARGE_BODY_BYTES

PACKED = "packed"
"""Header field: in the question how the body may be packed, in the answer how it is."""
ZLIB = "zlib"
PACKED_FROM_BYTES = 256 << 10
MOST_BYTES = 64 << 20
"""Of a body that is unpacked."""
_LEVEL = 1


def packed(body: bytes, asked: str | None) -> tuple[dict[str, str], bytes]:
    """Return header fields and body of an answer.

    Args:
        body: of the answer.
        asked: :data:`PACKED` of the question, ``None`` without.
    """
    if asked != ZLIB or len(body) < PACKED_FROM_BYTES:
        return {}, body
    return {PACKED: ZLIB}, zlib.compress(body, _LEVEL)


def is_large(answer: Answer) -> bool:
    """Return whether a thread is to read *answer*: what is packed may be large whatever it measures here."""
    return len(answer.body) >= LARGE_BODY_BYTES or PACKED in answer.ext


def body_of(answer: Answer) -> bytes:
    """Return the body of *answer* as it was before it was packed. Raises :class:`ReplicaTableError`."""
    how = answer.ext.get(PACKED)
    if how is None:
        return answer.body
    if how != ZLIB:
        raise ReplicaTableError(f"the body is packed in an unknown way, {how[:32]!r}")
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(answer.body, MOST_BYTES)
    except zlib.error as error:
        raise ReplicaTableError(f"the body cannot be unpacked: {error}") from None
    if not unpacking.eof:
        raise ReplicaTableError(f"the body ends too soon, or has more than {MOST_BYTES} bytes unpacked")
    return body
