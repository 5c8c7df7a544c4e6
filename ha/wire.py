"""The plain replication wire without I/O (DefaultHAConnection.java, DefaultHAClient.java).

Two kinds of frames, all integers big-endian and signed:

* slave to master, 8 bytes: how far the slave's log reaches.
* master to slave, 12 bytes and a body: where the body belongs, its length, the bytes of the log. Without a body it is
  a heartbeat that says where the next body will belong.
"""

from __future__ import annotations

import struct

import attrs

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")

REPORT_BYTES = _REPORT.size
HEADER_BYTES = _HEADER.size
LARGEST_BODY_BYTES = 32 * 1024 * 1024  # far above any haTransferBatchSize; a longer one is no peer of ours


class WireError(Exception):
    """Bytes that no peer of this protocol sends; the connection must end. The message says why."""


def report(max_offset: int) -> bytes:
    """Return a slave's frame: its log ends at *max_offset* (bytes)."""
    return _REPORT.pack(max_offset)


def header(offset: int, body_bytes: int) -> bytes:
    """Return the head of a master's frame: *body_bytes* bytes of log follow, which belong at *offset*."""
    return _HEADER.pack(offset, body_bytes)


@attrs.frozen
class Transfer:
    """A master's frame: *body* belongs at physical *offset*; an empty body is a heartbeat."""

    offset: int
    body: bytes | memoryview


class ReportReader:
    """Cuts what a slave sends into reports; of several that arrived together only the last one matters."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> int | None:
        """Take the next bytes and return the newest complete report, or ``None``.

        Raises:
            WireError: a report below zero.
        """
        data = self._kept + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._kept = data[whole:]
        if not whole:
            return None
        (offset,) = _REPORT.unpack_from(data, whole - REPORT_BYTES)
        if offset < 0:
            raise WireError(f"the slave reports {offset}, an offset below zero")
        return int(offset)


class TransferReader:
    """Cuts what a master sends into transfers."""

    __slots__ = ("_kept", "_needed")

    def __init__(self) -> None:
        self._kept = bytearray()
        self._needed = HEADER_BYTES  # bytes that must have arrived before another look can find a frame

    def feed(self, data: bytes) -> list[Transfer]:
        """Take the next bytes and return every frame completed by them, in order; their bodies are views.

        Raises:
            WireError: an offset or a length that no master sends.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return []
            data = bytes(self._kept)
        found: list[Transfer] = []
        view = memoryview(data)
        at, end = 0, len(data)
        self._needed = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            offset, length = _HEADER.unpack_from(data, at)
            if offset < 0:
                raise WireError(f"the master sends offset {offset}, below zero")
            if not 0 <= length <= LARGEST_BODY_BYTES:
                raise WireError(f"the master announces {length} bytes; at most {LARGEST_BODY_BYTES} are plausible")
            if end - at < HEADER_BYTES + length:
                self._needed = HEADER_BYTES + length
                break
            start = at + HEADER_BYTES
            found.append(Transfer(offset, view[start : start + length]))
            at = start + length
        self._kept = bytearray(view[at:])
        return found


def joined(transfers: list[Transfer]) -> list[Transfer]:
    """Return *transfers* with those put together that continue each other, so that they are written at once."""
    found: list[Transfer] = []
    parts: list[bytes | memoryview] = []
    begin = end = -1
    for transfer in transfers:
        if transfer.offset != end or not transfer.body:
            if parts:
                found.append(Transfer(begin, parts[0] if len(parts) == 1 else b"".join(parts)))
            begin, parts = transfer.offset, []
        if not transfer.body:
            found.append(transfer)
            end = -1
            continue
        parts.append(transfer.body)
        end = transfer.offset + len(transfer.body)
    if parts:
        found.append(Transfer(begin, parts[0] if len(parts) == 1 else b"".join(parts)))
    return found
