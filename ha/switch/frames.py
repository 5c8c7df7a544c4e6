"""The replication wire of controller mode without I/O: a handshake with epochs, then frames of one epoch each.

All integers are big-endian and signed; the first field of every frame is a state, 1 for the handshake and 2 for the
transfer.

* slave, handshake, 16 bytes: state, two flags of 16 bits (copy the last file only; learner), broker id.
* slave, report, 12 bytes: state, end of its log.
* master, handshake, 20 bytes and a list of 12 bytes each: state, bytes of the list, end of its log, last epoch; then
  epoch and start of each entry.
* master, transfer, 36 bytes and a body: state, bytes of the body, where it belongs, its epoch, where that began,
  confirm offset. Without a body it is a heartbeat, at -1 while the master does not know where to begin.

Source: AutoSwitchHAConnection.java, AutoSwitchHAClient.java, HAConnectionState.java.
"""

from __future__ import annotations

import struct

import attrs

from understudy.ha.switch.epochs import ENTRIES_MAX, EpochEntry, EpochError, Epochs
from understudy.ha.wire import LARGEST_BODY_BYTES, WireError

_HANDSHAKE, _TRANSFER = 1, 2
_STATE = struct.Struct(">i")
_STATE_AND_SIZE = struct.Struct(">ii")
_SLAVE_HANDSHAKE = struct.Struct(">ihhq")
_REPORT = struct.Struct(">iq")
_MASTER_HANDSHAKE = struct.Struct(">iiqi")
_ENTRY = struct.Struct(">iq")
_HEADER = struct.Struct(">iiqiqq")


@attrs.frozen
class SlaveHandshake:
    """The first frame of a slave.

    Attributes:
        broker_id: its persistent id.
        last_file_only: an empty log is to begin with the master's last file (``syncFromLastFile``).
        learner: it copies, but is never counted (``asyncLearner``).
    """

    broker_id: int
    last_file_only: bool = False
    learner: bool = False

    def to_bytes(self) -> bytes:
        """Return the frame."""
        return _SLAVE_HANDSHAKE.pack(_HANDSHAKE, self.last_file_only, self.learner, self.broker_id)


@attrs.frozen
class Report:
    """A slave's log ends at *offset* (bytes)."""

    offset: int

    def to_bytes(self) -> bytes:
        """Return the frame."""
        return _REPORT.pack(_TRANSFER, self.offset)


@attrs.frozen
class MasterHandshake:
    """The master's answer: where its log ends (bytes), and who wrote it."""

    end: int
    epochs: Epochs

    def to_bytes(self) -> bytes:
        """Return the frame. Of more than a thousand epochs a Java slave can take the newest only."""
        entries = self.epochs.entries[-ENTRIES_MAX:]
        body = b"".join(_ENTRY.pack(entry.epoch, entry.start) for entry in entries)
        return _MASTER_HANDSHAKE.pack(_HANDSHAKE, len(body), self.end, self.epochs.last_epoch) + body


@attrs.frozen
class EpochTransfer:
    """Bytes of the log that were written under one epoch.

    Attributes:
        offset: where *body* belongs (bytes); -1 in the heartbeat of a master that does not know where to begin.
        epoch: under which it was written.
        epoch_start: where that epoch begins.
        confirm_offset: up to where all in-sync replicas have the log, as far as the master shows it.
        body: empty in a heartbeat.
    """

    offset: int
    epoch: int
    epoch_start: int
    confirm_offset: int
    body: bytes | memoryview = b""


def header(offset: int, body_bytes: int, entry: EpochEntry, confirm_offset: int) -> bytes:
    """Return the head of a master's frame: *body_bytes* bytes of *entry* follow, which belong at *offset*.

    Args:
        offset: byte of the log where the body belongs.
        body_bytes: length of the body.
        entry: the epoch of the body, and where it begins.
        confirm_offset: byte before which the sync-state set has everything.
    """
    return _HEADER.pack(_TRANSFER, body_bytes, offset, entry.epoch, entry.start, confirm_offset)


class SlaveFrameReader:
    """Cuts what a slave sends into frames."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, data: bytes) -> list[SlaveHandshake | Report]:
        """Take the next bytes and return the frames completed by them, in order.

        Raises:
            WireError: bytes that no slave of controller mode sends.
        """
        data, at = self._kept + data, 0
        found: list[SlaveHandshake | Report] = []
        while len(data) - at >= _STATE.size:
            (state,) = _STATE.unpack_from(data, at)
            frame = {_HANDSHAKE: _SLAVE_HANDSHAKE, _TRANSFER: _REPORT}.get(state)
            if frame is None:
                raise WireError(
                    f"the slave's frame begins with state {state}; 1 or 2 is expected in controller mode: set "
                    "enableControllerMode alike on every broker of the group"
                )
            if len(data) - at < frame.size:
                break
            fields = frame.unpack_from(data, at)
            at += frame.size
            if state == _TRANSFER:
                if fields[1] < 0:
                    raise WireError(f"the slave reports {fields[1]}, an offset below zero")
                found.append(Report(fields[1]))
                continue
            _, last_file_only, learner, broker_id = fields
            if broker_id < 0 or {last_file_only, learner} - {0, 1}:
                raise WireError(f"a handshake of broker id {broker_id} with flags {last_file_only} and {learner}")
            found.append(SlaveHandshake(broker_id, bool(last_file_only), bool(learner)))
        self._kept = data[at:]
        return found


class MasterFrameReader:
    """Cuts what a master sends into frames."""

    __slots__ = ("_kept", "_needed")

    def __init__(self) -> None:
        self._kept = bytearray()
        self._needed = _STATE.size

    def feed(self, data: bytes) -> list[MasterHandshake | EpochTransfer]:
        """Take the next bytes and return the frames completed by them, in order; bodies are views.

        Raises:
            WireError: bytes that no master of controller mode sends.
        """
        if self._kept:
            self._kept += data
            if len(self._kept) < self._needed:
                return []
            data = bytes(self._kept)
        found: list[MasterHandshake | EpochTransfer] = []
        view, at = memoryview(data), 0
        while True:
            size = _size_of(data, at)
            if size is None or len(data) - at < size:
                break
            found.append(_frame(view[at : at + size]))
            at += size
        self._needed = _MASTER_HANDSHAKE.size if size is None else size
        self._kept = bytearray(view[at:])
        return found


def _size_of(data: bytes, at: int) -> int | None:
    """Return how long the frame at byte *at* is; ``None`` while its head is not there."""
    if len(data) - at < _STATE_AND_SIZE.size:
        return None
    state: int
    body: int
    state, body = _STATE_AND_SIZE.unpack_from(data, at)
    if state == _HANDSHAKE:
        if not 0 <= body <= _ENTRY.size * ENTRIES_MAX or body % _ENTRY.size:
            raise WireError(f"the master announces a list of epochs of {body} bytes")
        return _MASTER_HANDSHAKE.size + body
    if state == _TRANSFER:
        if not 0 <= body <= LARGEST_BODY_BYTES:
            raise WireError(f"the master announces {body} bytes; at most {LARGEST_BODY_BYTES} are plausible")
        return _HEADER.size + body
    raise WireError(
        f"the master's frame begins with state {state}; 1 or 2 is expected in controller mode: set "
        "enableControllerMode alike on every broker of the group"
    )


def _frame(view: memoryview) -> MasterHandshake | EpochTransfer:
    if _STATE.unpack_from(view)[0] == _HANDSHAKE:
        _, _, end, last_epoch = _MASTER_HANDSHAKE.unpack_from(view)
        try:
            epochs = Epochs.of(_ENTRY.iter_unpack(view[_MASTER_HANDSHAKE.size :]))
        except EpochError as error:
            raise WireError(f"the master's list of epochs: {error}") from None
        if end < 0 or last_epoch != epochs.last_epoch:
            raise WireError(f"the master's handshake ends at {end} with epoch {last_epoch}, its list with another")
        return MasterHandshake(end, epochs)
    _, _, offset, epoch, epoch_start, confirm = _HEADER.unpack_from(view)
    body = view[_HEADER.size :]
    if offset < -1 or (body and offset < 0) or epoch < -1 or epoch_start < -1:
        raise WireError(f"the master sends offset {offset}, epoch {epoch} from {epoch_start}")
    return EpochTransfer(offset, epoch, epoch_start, confirm, body)


def joined(transfers: list[EpochTransfer]) -> list[EpochTransfer]:
    """Return *transfers* with those of one epoch put together that continue each other, to be written at once."""
    found: list[EpochTransfer] = []
    parts: list[bytes | memoryview] = []
    for transfer in transfers:
        last = found[-1] if found else None
        continues = (
            last is not None
            and transfer.body
            and parts
            and (last.epoch, last.epoch_start) == (transfer.epoch, transfer.epoch_start)
            and last.offset + sum(len(part) for part in parts) == transfer.offset
        )
        if continues:
            assert last is not None
            parts.append(transfer.body)
            found[-1] = attrs.evolve(last, confirm_offset=transfer.confirm_offset)
            continue
        _settle(found, parts)
        found.append(transfer)
        parts = [transfer.body] if transfer.body else []
    _settle(found, parts)
    return found


def _settle(found: list[EpochTransfer], parts: list[bytes | memoryview]) -> None:
    """Give the last frame of *found* the *parts* that belong to it."""
    if len(parts) > 1:
        found[-1] = attrs.evolve(found[-1], body=b"".join(parts))
