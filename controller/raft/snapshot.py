"""The replicated state at one index, in one checksummed file that replaces its predecessor atomically."""

from __future__ import annotations

import os.path
import struct
import zlib
from typing import Any, Protocol

import msgspec

from understudy.controller.raft.errors import DamagedFileError
from understudy.controller.raft.journal import rejoin_advice
from understudy.controller.raft.pinned import SerializerState
from understudy.controller.raft.records import Entry
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably

MAGIC = b"USSNAP01"
FORMAT_VERSION = 1
CHUNK_BYTES = 1 << 16
MAX_SNAPSHOT_BYTES = 1 << 30

_CHECKSUM = struct.Struct("<I")
_Document = tuple[int, Entry, Entry, bytes]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Document)


class Snapshotable(Protocol):
    """State that can be written out and read back."""

    def snapshot(self) -> bytes:
        """Return the whole state."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the state by *data*, as :meth:`snapshot` returned it."""
        ...


class SnapshotStore:
    """Takes the place of the core's serializer.

    :meth:`serialize` only encodes; the owner calls :meth:`write_pending` where blocking is allowed. The core hears of
    success, and cuts the log, only after the file is durable.

    Args:
        disk: where the file lives.
        path: the file.
        member: id of this member, for messages.
        state: what is written and restored.
    """

    def __init__(self, disk: Disk, path: str, member: str, state: Snapshotable) -> None:
        self._disk = disk
        self.path = path
        self._member = member
        self._state = state
        self._status: Any = SerializerState.NOT_SERIALIZING
        self._serialized_index: int | None = None
        self._pending: tuple[bytes, int, int] | None = None
        self._received: bytes | None = None
        self._current = b""
        self._sending: dict[Any, int] = {}
        self.index = 0
        self.term = 0

    # -- file ----------------------------------------------------------------------------------------------------

    def load(self) -> tuple[Entry, Entry] | None:
        """Read the file and restore the state.

        Returns: the entry the state ends with and the one before it, or ``None`` when there is no file.

        Raises :class:`DamagedFileError`.
        """
        if not self._disk.exists(self.path):
            return None
        data = self._disk.read(self.path)
        try:
            return self.adopt(data)
        except ValueError as error:
            advice = rejoin_advice(os.path.dirname(self.path), self._member)
            raise DamagedFileError(f"{self.path}: {error}; {advice}") from None

    def adopt(self, data: bytes) -> tuple[Entry, Entry]:
        """Restore the state from a file's bytes. Raises ``ValueError`` when they are damaged."""
        last, before, state = _parse(data)
        self._state.restore(state)
        self._current = data
        self.index, self.term = last[1], last[2]
        return last, before

    def install(self, data: bytes) -> None:
        """Verify a file received from the leader; :meth:`write_pending` stores it, instead of one of this member's.

        Raises:
            ValueError: when it is damaged.
        """
        _parse(data)
        self._pending = None
        self._status = SerializerState.NOT_SERIALIZING
        self._received = data

    @property
    def pending(self) -> bool:
        """Whether :meth:`write_pending` has work."""
        return self._pending is not None or self._received is not None

    def write_pending(self) -> None:
        """Write the encoded or received snapshot durably. Blocking."""
        if self._received is not None:
            self._write(self._received)
            self._received = None
        if self._pending is None:
            return
        data, index, term = self._pending
        self._write(data)
        self._pending = None
        self._current, self.index, self.term = data, index, term
        self._sending.clear()
        self._status = SerializerState.SUCCESS

    def _write(self, data: bytes) -> None:
        write_durably(self._disk, self.path, data, keep_previous=False)

    # -- the core's interface ------------------------------------------------------------------------------------

    def checkSerializing(self) -> tuple[Any, int | None]:
        status = self._status
        if status == SerializerState.SUCCESS:
            self._status = SerializerState.NOT_SERIALIZING
        return status, self._serialized_index

    def serialize(self, data: tuple[Any, Entry, Entry, Any], serialized_index: int) -> None:
        _, last, before, _ = data
        document: _Document = (FORMAT_VERSION, last, before, self._state.snapshot())
        body = _encoder.encode(document)
        self._pending = (MAGIC + _CHECKSUM.pack(zlib.crc32(body)) + body, last[1], last[2])
        self._serialized_index = serialized_index
        self._status = SerializerState.SERIALIZING

    def getTransmissionData(self, node: Any) -> tuple[bytes, bool, bool, int] | None:
        """Return the next chunk for *node*: bytes, whether it is the first, whether the last, its offset."""
        if not self._current:
            return None
        offset = self._sending.get(node, 0)
        data = self._current[offset : offset + CHUNK_BYTES]
        last = offset + len(data) >= len(self._current)
        if last:
            self._sending.pop(node, None)
        else:
            self._sending[node] = offset + len(data)
        return data, offset == 0, last, offset

    @property
    def current_bytes(self) -> int:
        """Length of the newest durable snapshot file."""
        return len(self._current)

    def setTransmissionData(self, data: object) -> bool:
        """The owner has assembled and installed the file before it tells the core; nothing is left to do."""
        return data is not None

    def cancelTransmisstion(self, node: Any) -> None:
        self._sending.pop(node, None)


class SnapshotAssembly:
    """Puts chunks of one snapshot file together again; a gap means starting over."""

    def __init__(self) -> None:
        self._key: tuple[int, int, int] | None = None
        self._buffer = bytearray()

    def add(self, index: int, term: int, total_bytes: int, offset_bytes: int, data: bytes) -> bytes | bool | None:
        """Add a chunk.

        Args:
            index, term: of the last entry in the snapshot.
            total_bytes: its size.
            offset_bytes: where the chunk belongs.
            data: the chunk.

        Returns:
            The complete file, ``None`` for "more is needed", ``False`` when a chunk is missing before this one.
        """
        key = (index, term, total_bytes)
        if offset_bytes == 0:
            self._key, self._buffer = key, bytearray()
        if self._key != key or offset_bytes != len(self._buffer) or total_bytes > MAX_SNAPSHOT_BYTES:
            self._key, self._buffer = None, bytearray()
            return False
        self._buffer += data
        if len(self._buffer) < total_bytes:
            return None
        whole = bytes(self._buffer)
        self._key, self._buffer = None, bytearray()
        return whole if len(whole) == total_bytes else False


def _parse(data: bytes) -> tuple[Entry, Entry, bytes]:
    start = len(MAGIC) + _CHECKSUM.size
    if data[: len(MAGIC)] != MAGIC or len(data) <= start:
        raise ValueError("this is no controller snapshot (first bytes are wrong)")
    if zlib.crc32(data[start:]) != _CHECKSUM.unpack_from(data, len(MAGIC))[0]:
        raise ValueError("the snapshot fails its checksum")
    try:
        version, last, before, state = _decoder.decode(data[start:])
    except msgspec.DecodeError as error:
        raise ValueError(f"the snapshot is undecodable: {error}") from None
    if version != FORMAT_VERSION:
        raise ValueError(f"the snapshot has format {version}, this program reads {FORMAT_VERSION}")
    return last, before, state
