"""One request or response: what a frame means."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

import msgspec

RESPONSE_BIT = 1
ONEWAY_BIT = 2
CURRENT_VERSION = 493  # 5.4.0, the version whose behaviour is reproduced
JSON_HEADER = 0
BINARY_HEADER = 1

# LanguageCode.java: the byte of the binary header is the position.
LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)


if TYPE_CHECKING:
    _NotDecoded = object
else:
    _NotDecoded = None


class Command(msgspec.Struct, gc=False):
    """A request or a response, free of how its header is written.

    Attributes:
        code: request code, or response code when :attr:`is_response`.
        language: the sender's language name; ``None`` when it sent an unknown one.
        version: ordinal of the sender's version.
        opaque: correlation number, chosen by the sender of a request and copied into its response. ``None`` only as
            decoded from a header without one.
        flag: bit 0 response, bit 1 one-way.
        remark: free text, error text in responses.
        ext: header fields. Values are strings; ``None`` where a peer sent null. ``None`` as a whole when absent.
        body: payload, ``b""`` when there is none.
        serialize: how the header arrived: :data:`JSON_HEADER` or :data:`BINARY_HEADER`.
        read_ahead: what a thread has read from the body, for :func:`understudy.remoting.bodies.body_of`.
    """

    code: int = 0
    language: str | None = "JAVA"
    version: int = 0
    opaque: int | None = None
    flag: int = 0
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(default=None, name="extFields")
    # No header sets these: as JSON only the values that they have anyway are valid, whatever name a peer sends.
    body: Annotated[bytes, msgspec.Meta(max_length=0)] = msgspec.field(default=b"", name=":body")
    serialize: Annotated[int, msgspec.Meta(ge=0, le=0)] = msgspec.field(default=JSON_HEADER, name=":serialize")
    read_ahead: _NotDecoded = msgspec.field(default=None, name=":read")

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_BIT != 0


_opaque = itertools.count()


def next_opaque() -> int:
    """Return the next correlation number of this process (31 bits, wrapping)."""
    return next(_opaque) & 0x7FFFFFFF


def request(code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, oneway: bool = False) -> Command:
    """Make a request of this process with a fresh correlation number.

    Args:
        code: a :class:`~understudy.remoting.codes.RequestCode`.
        ext: header fields, already strings.
        body: payload.
        oneway: tell the receiver not to answer.
    """
    return Command(
        int(code), "JAVA", CURRENT_VERSION, next_opaque(), ONEWAY_BIT if oneway else 0, None, ext, body, JSON_HEADER
    )


def response(
    to: Command,
    code: int = 0,
    remark: str | None = None,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
) -> Command:
    """Make the response to request *to*.

    Args:
        to: the request; version, language and opaque follow it.
        code: a response code.
        remark: a sentence for people.
        ext: header fields.
        body: its content.
    """
    return Command(int(code), "JAVA", CURRENT_VERSION, to.opaque, RESPONSE_BIT, remark, ext, body, JSON_HEADER)


def held_bytes(command: Command) -> int:
    """Return how many characters *command* keeps beside a few numbers: a measure of its memory."""
    size = len(command.body) + len(command.remark or "")
    ext = command.ext
    return size if ext is None else size + sum(map(len, ext)) + sum(len(value) for value in ext.values() if value)
