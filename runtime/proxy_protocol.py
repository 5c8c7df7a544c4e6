"""The PROXY protocol preamble (versions 1 and 2) that a load balancer may put before the first frame."""

from __future__ import annotations

import ipaddress
import struct

import attrs

from understudy.runtime.network import ByteStream

DETECTION_BYTES = 12  # how many bytes must be there before anything is decoded
_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_LIMIT = 107
_V2_LIMIT = 16 + 4096


class PreambleError(Exception):
    """Bytes that begin like a preamble and are none."""


@attrs.frozen
class Preamble:
    """What stood before the first frame: its length in bytes (0: nothing) and the client's address, if given."""

    length: int
    source: tuple[str, int] | None


_ABSENT = Preamble(0, None)


def parse(data: bytes) -> Preamble | None:
    """Look for a preamble at the start of *data* (at least :data:`DETECTION_BYTES`).

    Returns:
        The preamble, or ``None`` when it is not complete yet.

    Raises:
        PreambleError: it begins like a preamble but is malformed or too long.
    """
    if data.startswith(b"PROXY "):
        return _version_1(data)
    if data.startswith(_V2):
        return _version_2(data)
    return _ABSENT


async def first_bytes(stream: ByteStream, receive_bytes: int) -> tuple[bytes, tuple[str, int] | None]:
    """Wait for the first 12 bytes of *stream*, as the reference does, and take a preamble off.

    Args:
        stream: a connection of which nothing was read.
        receive_bytes: most bytes to take in one go.

    Returns:
        The bytes that follow, empty when the peer has closed its side, and the address that the preamble named.

    Raises:
        PreambleError: see :func:`parse`.
    """
    data = b""
    while True:
        preamble = parse(data) if len(data) >= DETECTION_BYTES else None
        if preamble is not None:
            break
        more = await stream.receive_some(receive_bytes)
        if not more:
            return b"", None
        data += more
    return data[preamble.length :] or await stream.receive_some(receive_bytes), preamble.source


def _version_1(data: bytes) -> Preamble | None:
    end = data.find(b"\r\n", 0, _V1_LIMIT)
    if end < 0:
        if len(data) >= _V1_LIMIT:
            raise PreambleError("PROXY line without an end")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if len(words) >= 2 and words[1] == "UNKNOWN":
        return Preamble(end + 2, None)
    try:
        _, family, source, _, port, _ = words
        if family not in ("TCP4", "TCP6"):
            raise ValueError(family)
        return Preamble(end + 2, (str(ipaddress.ip_address(source)), int(port)))
    except ValueError:
        raise PreambleError(f"malformed PROXY line {data[:end]!r}") from None


def _version_2(data: bytes) -> Preamble | None:
    if len(data) < 16:
        return None
    command, family, length = struct.unpack_from(">BBH", data, 12)
    if command >> 4 != 2:
        raise PreambleError(f"PROXY version {command >> 4} is unknown")
    if 16 + length > _V2_LIMIT:
        raise PreambleError(f"PROXY header of {length} bytes is too long")
    if len(data) < 16 + length:
        return None
    source = None
    if command & 0xF == 1:
        if family >> 4 == 1 and length >= 12:
            source = (str(ipaddress.IPv4Address(data[16:20])), struct.unpack_from(">H", data, 24)[0])
        elif family >> 4 == 2 and length >= 36:
            source = (str(ipaddress.IPv6Address(data[16:32])), struct.unpack_from(">H", data, 48)[0])
    return Preamble(16 + length, source)
