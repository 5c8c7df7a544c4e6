"""What travels between members: typed messages in MessagePack, decoded strictly, of bounded size.

A frame is a 4-byte big-endian length and one message. The first frame of a connection is :class:`Hello`; the answer is
:class:`Welcome` or :class:`Refusal`, or :class:`Challenge` first, which is answered by :class:`Proof`; afterwards the
dialling side sends the rest and the accepting side only listens.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 8 << 20
MAX_HELLO_BYTES = 1 << 10
MAX_ENTRIES = 1 << 16

Index: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Text: TypeAlias = Annotated[str, Meta(max_length=256)]
Digest: TypeAlias = Annotated[bytes, Meta(max_length=32)]
Entry: TypeAlias = tuple[bytes, Index, Index]
"""Command, index, term."""


class Hello(Struct, tag="hello", array_like=True, frozen=True):
    """First frame of a connection.

    Args:
        cluster: the quorum's name.
        source: the member that dials.
        target: the member it believes to reach.
        incarnation: which life of *source*'s disk this is.
        last_index: end of *source*'s durable log.
        features: newest feature version *source* can apply.
        protocol: of this module.
        members: who belongs to the quorum, as *source* is configured; empty when it does not say.
        term: newest term *source* knows of; 0 when it does not say.
        nonce: of *source*, for a :class:`Challenge`; empty when it knows no secret.
    """

    cluster: Text
    source: Text
    target: Text
    incarnation: Text
    last_index: Index
    features: Index
    protocol: Index = PROTOCOL_VERSION
    members: Text = ""
    term: Index = 0
    nonce: Digest = b""


class Challenge(Struct, tag="challenge", array_like=True, frozen=True):
    """The accepting side knows the secret, as its *proof* shows, and asks whether the dialler does."""

    nonce: Digest
    proof: Digest


class Proof(Struct, tag="proof", array_like=True, frozen=True):
    """The dialler knows the secret, too."""

    proof: Digest


class Welcome(Struct, tag="welcome", array_like=True, frozen=True):
    """The accepting side knows the dialler.

    Attributes:
        incarnation: of its disk.
        features: the newest ones that its program has, as a number.
        blank_disk: no leader was ever elected as far as its disk knows.
    """

    incarnation: Text
    features: Index
    blank_disk: bool


class Refusal(Struct, tag="refusal", array_like=True, frozen=True):
    """The accepting side will not talk.

    Attributes:
        reason: why, in words.
        fatal: the dialler's disk lost what it had promised to keep.
    """

    reason: Annotated[str, Meta(max_length=800)]
    fatal: bool


class Append(Struct, tag="append", array_like=True, frozen=True):
    """Entries after *previous_index*, or none (heartbeat).

    Args:
        sequence: grows with every round of this leader; acknowledgements repeat it.
        leader_end: the leader's last index now.
        confirmed: a majority without the receiver followed this leader a moment ago.
    """

    term: Index
    commit: Index
    previous_index: Index
    previous_term: Index
    entries: Annotated[list[Entry], Meta(max_length=MAX_ENTRIES)]
    sequence: Index
    leader_end: Index
    confirmed: bool


class SnapshotChunk(Struct, tag="chunk", array_like=True, frozen=True):
    """A part of a snapshot file. *offset_bytes* and *total_bytes* of the file; the file carries its own checksum."""

    term: Index
    commit: Index
    snapshot_index: Index
    snapshot_term: Index
    offset_bytes: Index
    total_bytes: Index
    data: bytes
    sequence: Index


class SnapshotPending(Struct, tag="wait", array_like=True, frozen=True):
    """The receiver needs a snapshot that is still being written; counts as a heartbeat."""

    term: Index
    commit: Index
    sequence: Index


class Acknowledgement(Struct, tag="ack", array_like=True, frozen=True):
    """What a follower holds durably.

    Args:
        term: the follower's.
        next_index: one past the last entry known to match; with *reset* where the leader shall go on from.
        sequence: newest round of this leader that the follower has seen.
        voter: whether the follower may vote; others count for nothing until they have caught up.
    """

    term: Index
    next_index: Index
    reset: bool
    success: bool
    sequence: Index
    voter: bool


class VoteRequest(Struct, tag="vote?", array_like=True, frozen=True):
    """Asks for a vote.

    Attributes:
        term: that is stood for.
        last_index, last_term: of the last entry of who asks.
        forced: the leader itself handed leadership over.
    """

    term: Index
    last_index: Index
    last_term: Index
    forced: bool


class Vote(Struct, tag="vote", array_like=True, frozen=True):
    """A granted vote."""

    term: Index


class VoteRefusal(Struct, tag="novote", array_like=True, frozen=True):
    """A refused vote with its reason and the voter's own position."""

    term: Index
    voter_term: Index
    reason: Text
    last_index: Index
    last_term: Index


class PreVoteRequest(Struct, tag="pre?", array_like=True, frozen=True):
    """Asks whether a vote would be granted in *term*; promises nothing and changes nothing."""

    term: Index
    last_index: Index
    last_term: Index


class PreVoteAnswer(Struct, tag="pre", array_like=True, frozen=True):
    """The answer to :class:`PreVoteRequest`."""

    term: Index
    voter_term: Index
    granted: bool
    reason: Text


class TermNotice(Struct, tag="term", array_like=True, frozen=True):
    """Tells a leader of an older term that its time is over."""

    term: Index


class Handover(Struct, tag="handover", array_like=True, frozen=True):
    """The leader asks the receiver to stand for election at once."""

    term: Index


PeerMessage: TypeAlias = (
    Append
    | SnapshotChunk
    | SnapshotPending
    | Acknowledgement
    | VoteRequest
    | Vote
    | VoteRefusal
    | PreVoteRequest
    | PreVoteAnswer
    | TermNotice
    | Handover
)

_encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_peer_decoder: msgspec.msgpack.Decoder[PeerMessage] = msgspec.msgpack.Decoder(PeerMessage, strict=True)
_hello_decoder = msgspec.msgpack.Decoder(Hello, strict=True)
_answer_decoder: msgspec.msgpack.Decoder[Welcome | Refusal | Challenge] = msgspec.msgpack.Decoder(
    Welcome | Refusal | Challenge, strict=True
)
_proof_decoder = msgspec.msgpack.Decoder(Proof, strict=True)
_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """A peer sent something that is no frame of this protocol."""


def encode_frame(message: PeerMessage | Hello | Welcome | Refusal | Challenge | Proof) -> bytes:
    """Return *message* as a length-prefixed frame."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def encode_body(hello: Hello) -> bytes:
    """Return the body of the frame that says *hello*."""
    return _encode(hello)


def decode_peer_message(body: bytes) -> PeerMessage:
    """Decode one frame body. Raises :class:`FrameError`."""
    try:
        return _peer_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"undecodable message: {error}") from None


def decode_hello(body: bytes) -> Hello:
    """Decode a first frame's body. Raises :class:`FrameError`."""
    try:
        return _hello_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"first message is no greeting: {error}") from None


def decode_proof(body: bytes) -> Proof:
    """Decode the answer to a challenge. Raises :class:`FrameError`."""
    try:
        return _proof_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"answer to the challenge is undecodable: {error}") from None


def decode_answer(body: bytes) -> Welcome | Refusal | Challenge:
    """Decode the answer to a greeting. Raises :class:`FrameError`."""
    try:
        return _answer_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"answer to the greeting is undecodable: {error}") from None


class FrameReader:
    """Cuts a byte stream into frame bodies.

    Args:
        limit_bytes: longest body accepted; may be raised once the peer is known.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes | bytearray) -> None:
        """Add received bytes."""
        self._buffer += data

    def next_body(self) -> bytes | None:
        """Return the next complete body, or ``None`` for "need more". Raises :class:`FrameError` on a bad length."""
        buffer, start = self._buffer, self._start
        if len(buffer) - start < 4:
            self._compact()
            return None
        (length,) = _LENGTH.unpack_from(buffer, start)
        if length == 0 or length > self.limit_bytes:
            raise FrameError(f"frame of {length} bytes; allowed are 1 to {self.limit_bytes}")
        if len(buffer) - start - 4 < length:
            self._compact()
            return None
        self._start = start + 4 + length
        return bytes(buffer[start + 4 : self._start])

    def _compact(self) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
