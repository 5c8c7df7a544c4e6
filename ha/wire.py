"""The plain replication wire without I/O (DefaultHAConnection.java, DefaultHAClient.java).

Two kinds of frames, all integers big-endian and signed:

* slave to master, 8 bytes: how far the slave's log reaches.
* master to slave, 12 bytes and a body: where the body belongs, its length, the bytes of the log. Without a body it is
  a heartbeat that says where the next body will belong.

Brokers in controller mode begin with a handshake instead (AutoSwitchHAClient.java, AutoSwitchHAConnection.java): 16
bytes from the slave (state 1, two flags of 16 bits, broker id), 20 bytes and a list of 12 bytes each from the master
(state 1, bytes of the list, end of the log, epoch). Both are recognized, so that they are never taken for offsets.
"""

from __future__ import annotations

import struct

import attrs

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")
_SLAVE_HANDSHAKE = struct.Struct(">qq")  # state and flags as the one number a report would be, broker id
_HANDSHAKES = frozenset((1 << 32) + flags for flags in (0, 1, 1 << 16, (1 << 16) + 1))
_EPOCH_BYTES = 12
_EPOCHS_MAX = 1000

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
    """Cuts what a slave sends into reports; of several that arrived together every one is checked.

    The first eight bytes of a controller-mode handshake are also the report of a log that ends right after 4 GiB. The
    eight bytes after them tell: a broker id is smaller, a later report is not.
    """

    __slots__ = ("_doubtful", "_first", "_kept")

    def __init__(self) -> None:
        self._kept = b""
        self._first = True
        self._doubtful = -1

    @property
    def undecided(self) -> bool:
        """Whether what came may still become a handshake; :meth:`settle` when nothing follows within a moment."""
        return self._first and len(self._kept) >= REPORT_BYTES

    def feed(self, data: bytes) -> int | None:
        """Take the next bytes and return the largest report among those completed by them, or ``None``.

        Raises:
            WireError: any of them is below zero, or they are a handshake of controller mode.
        """
        data = self._kept + data
        if self._first and len(data) >= REPORT_BYTES:
            (first,) = _REPORT.unpack_from(data)
            if first in _HANDSHAKES:
                if len(data) < _SLAVE_HANDSHAKE.size:
                    self._kept = data
                    return None
                _refuse_handshake(*_SLAVE_HANDSHAKE.unpack_from(data))
            self._first = False
        return self._reports(data)

    def settle(self) -> int | None:
        """Take what is undecided for a report, and return it."""
        self._first = False
        (self._doubtful,) = _REPORT.unpack_from(self._kept)
        data, self._kept = self._kept, b""
        return self._reports(data[:REPORT_BYTES], data[REPORT_BYTES:])

    def _reports(self, data: bytes, rest: bytes = b"") -> int | None:
        whole = len(data) - len(data) % REPORT_BYTES
        self._kept = data[whole:] + rest
        largest = None
        for (offset,) in _REPORT.iter_unpack(memoryview(data)[:whole]):
            if offset < 0:
                raise WireError(f"the slave reports {offset}, an offset below zero")
            if self._doubtful >= 0 and offset != self._doubtful:
                _refuse_handshake(self._doubtful, offset)
                self._doubtful = -1
            if largest is None or offset > largest:
                largest = int(offset)
        return largest


def _refuse_handshake(first: int, second: int) -> None:
    if second < first:
        raise WireError(
            f"it sends the handshake of a slave in controller mode (broker id {second}), and this port serves plain "
            "replication: set enableControllerMode alike on every broker of the group"
        )


def refuse_master_handshake(transfer: Transfer) -> None:
    """Refuse the first frame of a master when it is a handshake of controller mode.

    Raises:
        WireError: it announces a list of epochs where a heartbeat would say an offset.
    """
    state, size = divmod(transfer.offset, 1 << 32)
    if state == 1 and not transfer.body and size and size % _EPOCH_BYTES == 0 and size <= _EPOCH_BYTES * _EPOCHS_MAX:
        raise WireError(
            "the master sends a handshake of controller mode, and this slave takes part in plain replication: set "
            "enableControllerMode alike on every broker of the group"
        )


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
