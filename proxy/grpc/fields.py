"""Header fields in bytes and back (HPACK, RFC 7541), as a server of calls needs them. Pure.

The laws:

* What a client sends is read whole: its table, its Huffman codes, its changes of the table's size. A field of the table
  is text already: a client's later requests name nearly all of their fields by number.
* Fields that no request may have are refused (RFC 9113, 8.2 and 8.3): names in upper case, those of one connection,
  line ends in a value, pseudo-fields that are unknown, come twice or come late. A length of the content is not
  compared with it: messages carry their own.
* What is sent never enters a table, so that the blocks of all answers are the same bytes and can be made once. The
  client's table is therefore made empty at the first block; nothing that it says of its size matters after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from understudy.proxy.grpc.frames import ErrorCode

TABLE_BYTES = 4096
"""Size of the table that a client may fill: the protocol's own, nothing else is ever said of it."""
FIELD_BYTES = 32
"""What a field counts beside its name and value, in the table and in a list of fields."""
EMPTY_TABLE = b"\x20"
"""Before the first block: the table of the other side has room for nothing."""

_INDEXED, _ADDED, _RESIZED = 0x80, 0x40, 0x20
_HUFFMAN = 0x80
_LONGEST_INTEGER = 28
"""Bits behind the first byte of a number."""

_STATIC = (
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
)  # fmt: skip
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
_Field = tuple[str, str, int, int]
"""Name, value, what the field counts, and the bytes of its name: not those of the text where that had wrong ones."""
_FIRST: tuple[_Field, ...] = (
    ("", "", 0, 0),  # there is no field 0
    *((name, value, len(name) + len(value) + FIELD_BYTES, len(name)) for name, value in _STATIC),
)
_OWN = len(_FIRST)
"""Number of the field that the client added last."""


class FieldsError(ValueError):
    """Bytes that are no header fields; the message says why, and the code says it to the client."""

    code = ErrorCode.COMPRESSION_ERROR


class TooManyFieldsError(FieldsError):
    """More header fields than are allowed."""

    code = ErrorCode.ENHANCE_YOUR_CALM


class WrongFieldsError(FieldsError):
    """Fields that can be read, and that no request may have; the message says which."""

    code = ErrorCode.PROTOCOL_ERROR


class FieldsReader:
    """Reads the header fields of one connection.

    Args:
        most_bytes: of one list of fields, each with :data:`FIELD_BYTES` more.
    """

    __slots__ = ("_most", "_room", "_table", "_used")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._table: deque[_Field] = deque()
        self._room = TABLE_BYTES
        self._used = 0

    def read(self, block: bytes) -> dict[str, str]:
        """Return the fields of one block by name; of several with one name the last.

        Raises:
            FieldsError: it is damaged; nothing that follows on the connection can be read.
            TooManyFieldsError: the list is longer than is allowed.
            WrongFieldsError: no request may have one of them.
        """
        try:
            return self._read(block)
        except IndexError:
            raise FieldsError("header fields end in the middle, or name one that is not there") from None

    def _read(self, block: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        table, at, end, left, resized, regular = self._table, 0, len(block), self._most, 0, False
        while at < end:
            first = block[at]
            at += 1
            if first & _INDEXED:
                number = first & 0x7F
                if number == 0x7F:
                    number, at = _integer(block, at, number)
                name, value, size, _ = _FIRST[number] if number < _OWN else table[number - _OWN]
                if not number:
                    raise FieldsError("there is no header field 0")
            elif first & (_ADDED | _RESIZED) == _RESIZED:
                resized += 1
                if found or resized > 2:
                    raise FieldsError("the table of header fields changes its size at the wrong place")
                at = self._resize(block, at, first & 0x1F)
                continue
            else:
                adds = first & _ADDED
                most = 0x3F if adds else 0x0F
                number = first & most
                if number == most:
                    number, at = _integer(block, at, number)
                if number:
                    name, _, _, name_size = _FIRST[number] if number < _OWN else table[number - _OWN]
                else:
                    data, at = _text(block, at)
                    name, name_size = data.decode("utf-8", "replace"), len(data)
                    if not data or data != data.lower():
                        raise WrongFieldsError(f"{name[:64]!r} is no name of a header field")
                data, at = _text(block, at)
                value, size = data.decode("utf-8", "replace"), name_size + len(data) + FIELD_BYTES
                if b"\n" in data or b"\r" in data or b"\0" in data:
                    raise WrongFieldsError(f"a line end in header field {name[:64]}")
                if adds:
                    self._used += size
                    table.appendleft((name, value, size, name_size))
                    while self._used > self._room:
                        self._used -= table.pop()[2]
            left -= size
            if left < 0:
                raise TooManyFieldsError(f"header fields of more than {self._most} bytes")
            if name[0] == ":":
                if regular or name in found or name not in _PSEUDO:
                    raise WrongFieldsError(f"{name[:64]} is unknown, comes twice or too late")
            elif name in _OF_CONNECTIONS:
                raise WrongFieldsError(f"{name} is for one connection of HTTP/1.1")
            else:
                regular = True
            found[name] = value
        return found

    def _resize(self, block: bytes, at: int, size: int) -> int:
        if size == 0x1F:
            size, at = _integer(block, at, size)
        if size > TABLE_BYTES:
            raise FieldsError(f"the table of header fields is to have {size} bytes, {TABLE_BYTES} are allowed")
        self._room = size
        while self._used > size:
            self._used -= self._table.pop()[2]
        return at


def _integer(block: bytes, at: int, value: int) -> tuple[int, int]:
    """Return the rest of a number that begins with *value*, and where it ends."""
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _LONGEST_INTEGER:
            raise FieldsError("a number in header fields has no end")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a name or a value, and where it ends."""
    first = block[at]
    at += 1
    size = first & 0x7F
    if size == 0x7F:
        size, at = _integer(block, at, size)
    end = at + size
    if end > len(block):
        raise FieldsError("a text in header fields goes on behind its end")
    return _unpacked(block[at:end]) if first & _HUFFMAN else block[at:end], end


def _unpacked(data: bytes) -> bytes:
    """Return what a Huffman code stands for."""
    from hpack.exceptions import HPACKDecodingError  # not every client has such texts, and the table takes its time
    from hpack.huffman_table import decode_huffman

    try:
        return decode_huffman(data)
    except HPACKDecodingError as error:
        raise FieldsError(f"a Huffman code in header fields is none: {error}") from None


def block_of(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the block of *fields*, which is the same bytes on every connection."""
    block = b""
    for name, value in fields:
        block += b"\x88" if (name, value) == (b":status", b"200") else b"\x00" + _sized(name) + _sized(value)
    return block


def _sized(text: bytes) -> bytes:
    """Return *text* with its length before it, not packed."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    rest, sized = size - 0x7F, b"\x7f"
    while rest >= 0x80:
        sized += bytes((rest & 0x7F | 0x80,))
        rest >>= 7
    return sized + bytes((rest,)) + text
