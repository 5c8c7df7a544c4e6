"""The replicated state around the machine: sessions that make retries harmless, and the active feature version.

Everything here is a function of the log. A command carries the proposer's wall clock; nothing reads a clock here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import msgspec

from understudy.controller.raft.errors import CommandRefusedError, FatalError

COMMAND, ACTIVATE = 0, 1
OK, REFUSED = 0, 1


class Machine(Protocol):
    """What is replicated. Must be deterministic: equal commands in equal order give equal states and results."""

    def apply(self, index: int, now_ms: int, features: int, payload: bytes) -> bytes:
        """Apply one command.

        Args:
            index: position in the log.
            now_ms: wall clock of the member that proposed it; never goes back from command to command.
            features: feature version every member can apply.
            payload: the command.

        Raises:
            CommandRefusedError: the command is refused on every member; the state must be unchanged then.
        """
        ...

    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...


class Envelope(msgspec.Struct, array_like=True, gc=False):
    """A log entry: the command with everything its application may depend on."""

    kind: int
    features: int
    client: str
    sequence: int
    now_ms: int
    payload: bytes


class _SessionRow(msgspec.Struct, array_like=True, gc=False):
    sequence: int
    status: int
    result: bytes


class _Saved(msgspec.Struct, array_like=True):
    features: int
    now_ms: int
    rows: dict[str, _SessionRow]
    machine: bytes


_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)
_saved_decoder = msgspec.msgpack.Decoder(_Saved)


def encode_envelope(fields: tuple[int, int, str, int, int, bytes]) -> bytes:
    """Return the log entry of the :class:`Envelope` with *fields*."""
    return _encoder.encode(fields)


class ReplicatedState:
    """Sessions, feature version and the machine.

    Args:
        machine: what is replicated.
        supported_features: newest feature version this program can apply.
        max_sessions: the least recently used session goes when there are more. There is no expiry by time: the clock
            in the commands may jump, and a session forgotten too early would apply a repeated command twice.
    """

    def __init__(
        self,
        machine: Machine,
        supported_features: int = 1,
        max_sessions: int = 16_384,
    ) -> None:
        self.machine = machine
        self.supported_features = supported_features
        self.features = 1
        self.now_ms = 0
        self.repeated_count = 0
        self._max_sessions = max_sessions
        self._rows: OrderedDict[str, _SessionRow] = OrderedDict()

    def apply(self, index: int, raw: bytes) -> tuple[int, bytes]:
        """Apply one log entry. Raises :class:`FatalError` for an entry this program cannot apply faithfully."""
        try:
            envelope = _envelope_decoder.decode(raw)
        except msgspec.DecodeError as error:
            raise FatalError(f"log entry {index} is undecodable ({error}); it was written by a newer version") from None
        if envelope.features > self.supported_features or envelope.kind not in (COMMAND, ACTIVATE):
            raise FatalError(
                f"log entry {index} needs feature version {envelope.features} (kind {envelope.kind}); this program "
                f"supports {self.supported_features}: upgrade it, then start it again"
            )
        if envelope.now_ms > self.now_ms:
            self.now_ms = envelope.now_ms
        rows, client, sequence = self._rows, envelope.client, envelope.sequence
        row = rows.get(client)
        if row is not None and sequence <= row.sequence:
            self.repeated_count += 1
            if sequence == row.sequence:
                return row.status, row.result
            return REFUSED, b"a newer command of this client was applied"
        status, result = self._run(index, envelope)
        if row is None:
            rows[client] = _SessionRow(sequence, status, result)
            if len(rows) > self._max_sessions:
                rows.popitem(last=False)
        else:
            row.sequence, row.status, row.result = sequence, status, result
            rows.move_to_end(client)
        return status, result

    def _run(self, index: int, envelope: Envelope) -> tuple[int, bytes]:
        if envelope.kind == ACTIVATE:
            self.features = max(self.features, envelope.features)
            return OK, str(self.features).encode()
        try:
            return OK, self.machine.apply(index, self.now_ms, self.features, envelope.payload)
        except CommandRefusedError as refusal:
            return REFUSED, str(refusal).encode()
        except FatalError:
            raise
        except Exception as error:
            # every member fails alike, so this is a replicated answer and never a member that stops alone
            return REFUSED, f"the command failed: {type(error).__name__}".encode()

    def snapshot(self) -> bytes:
        return _encoder.encode(_Saved(self.features, self.now_ms, self._rows, self.machine.snapshot()))

    def restore(self, data: bytes) -> None:
        try:
            saved = _saved_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"the state in it is undecodable: {error}") from None
        if saved.features > self.supported_features:
            raise FatalError(
                f"the snapshot needs feature version {saved.features}, this program supports "
                f"{self.supported_features}: upgrade it, then start it again"
            )
        self.features, self.now_ms, self._rows = saved.features, saved.now_ms, OrderedDict(saved.rows)
        self.machine.restore(saved.machine)
