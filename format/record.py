"""The commit log record: encode, decode, host addresses, message ids; pure.

All integers are big-endian. Two versions differ in the width of the topic length: one byte (V1) or two (V2). Layout
(CommitLog.java, MessageDecoder.java; byte positions for an IPv4 producer)::

    0 size 4 | 4 magic 4 | 8 body checksum 4 | 12 queue id 4 | 16 flag 4 | 20 queue offset 8 | 28 physical offset 8
    36 system flags 4 | 40 born time 8 | 48 born host 8 or 20 | store time 8 | store host 8 or 20 | reconsume times 4
    prepared transaction offset 8 | body length 4, body | topic length 1 or 2, topic | properties length 2, properties
"""

from __future__ import annotations

import ipaddress
import struct
import zlib

import attrs

from understudy.format.properties import parse_properties
from understudy.format.record_layout import FIELD_NAMES, IPV4_BYTES, IPV6_BYTES, layout, place_of, places_of

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194
#: Room kept at the end of a file for the blank marker: remaining bytes 4, magic 4.
BLANK_BYTES = 8
BLANK = struct.Struct(">iI")

FLAG_COMPRESSED = 0x1
FLAG_TRANSACTION_MASK = 0xC
FLAG_TRANSACTION_NONE = 0
#: Rolled back messages have this bit, too: neither they nor half messages have a queue entry.
FLAG_TRANSACTION_PREPARED = 0x4
FLAG_TRANSACTION_COMMIT = 0x8
FLAG_TRANSACTION_ROLLBACK = 0xC
FLAG_BORN_HOST_V6 = 0x10
FLAG_STORE_HOST_V6 = 0x20
FLAG_HOSTS_V6 = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6
WITHOUT_HOSTS_V6 = ~FLAG_HOSTS_V6
FLAG_NEED_UNWRAP = 0x40
FLAG_INNER_BATCH = 0x80
FLAG_COMPRESSION_MASK = 0x700
FLAG_COMPRESSION_LZ4 = 0x100
FLAG_COMPRESSION_ZSTD = 0x200
FLAG_COMPRESSION_ZLIB = 0x300

MAX_PROPERTIES_BYTES = 32_767
CRC_MASK = 0x7FFFFFFF
"""Checksums are stored without the sign."""

#: Everything before the body, by the lengths of born host and store host.
FIXED: dict[tuple[int, int], struct.Struct] = {
    (born, store): layout(*FIELD_NAMES, born=born, store=store)
    for born in (IPV4_BYTES, IPV6_BYTES)
    for store in (IPV4_BYTES, IPV6_BYTES)
}
#: The part that does not depend on host lengths: size, magic, checksum, queue id, flag, queue offset, physical offset,
#: system flags, born time.
HEAD = layout(*FIELD_NAMES[: FIELD_NAMES.index("born_host")])
SYSTEM_FLAGS_AT = place_of("sys_flag")
PHYSICAL_OFFSET_AT = place_of("physical_offset")
#: Store time, body length and the end of the fixed part, by (system flags >> 4) & 3.
STORE_TIME_AT = places_of("store_ms")
BODY_LENGTH_AT = places_of("body_length")
#: A record with IPv4 hosts and neither body, topic nor properties.
SMALLEST_RECORD_BYTES = FIXED[8, 8].size + 1 + 2
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
#: Magic, system flags and body length of a record with IPv4 hosts; its body follows.
_PLAIN = layout("magic", "sys_flag", "body_length")
_ANY_V6 = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6


class RecordError(ValueError):
    """Bytes that are not a whole, undamaged record; the message says why."""


def encode_host(address: str, port: int) -> bytes:
    """Return address and port as a record holds them: 8 bytes for IPv4, 20 for IPv6."""
    return ipaddress.ip_address(address).packed + _INT.pack(port)


def decode_host(host: bytes | memoryview) -> tuple[str, int]:
    """Return (address, port) of a host field."""
    raw = bytes(host)
    return str(ipaddress.ip_address(raw[:-4])), _INT.unpack(raw[-4:])[0]


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id that names a record by the broker's address and the physical offset (32 or 56 hex digits)."""
    return store_host.hex().upper() + f"{physical_offset:016X}"


def decode_offset_message_id(message_id: str) -> tuple[str, int, int]:
    """Return (address, port, physical offset) of an offset message id. Raises ``ValueError`` when it is none."""
    if len(message_id) not in (32, 56):
        raise ValueError(f"message id {message_id!r} has {len(message_id)} digits; an offset message id has 32 or 56")
    raw = bytes.fromhex(message_id)
    address, port = decode_host(raw[:-8])
    return address, port, _LONG.unpack(raw[-8:])[0]


def topic_field(topic: str) -> tuple[int, bytes]:
    """Return (magic, length field and topic) for a topic: V2 when it has more than 127 characters.

    Raises:
        RecordError: when the topic has no length that fits.
    """
    raw = topic.encode()
    if len(topic) > 127:
        if len(raw) > 32_767:
            raise RecordError(f"topic of {len(raw)} bytes does not fit in a record")
        return MAGIC_V2, len(raw).to_bytes(2, "big") + raw
    if len(raw) > 127:
        raise RecordError(f"topic {topic!r} has {len(raw)} bytes in UTF-8, a record holds 127")
    return MAGIC_V1, bytes([len(raw)]) + raw


@attrs.frozen(slots=True)
class Record:
    """One decoded record, for the cold paths (query, admin, tools); the hot path never makes one."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties_text: str
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = b"\0" * 8
    store_ms: int = 0
    store_host: bytes = b"\0" * 8
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    size_bytes: int = 0
    body_crc: int = 0
    magic: int = MAGIC_V1

    @property
    def properties(self) -> dict[str, str]:
        """The properties, parsed anew at each use."""
        return parse_properties(self.properties_text)

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return offset_message_id(self.store_host, self.physical_offset)

    def encoded_with(self, properties: bytes) -> bytes:
        """Return the bytes of this record with other *properties*; its checksum is made anew."""
        return encode_record(
            self.topic,
            self.queue_id,
            self.queue_offset,
            self.physical_offset,
            self.body,
            properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_ms=self.born_ms,
            born_host=self.born_host,
            store_ms=self.store_ms,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
        )


def encode_record(
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    *,
    flag: int = 0,
    sys_flag: int = 0,
    born_ms: int = 0,
    born_host: bytes = b"\0" * 8,
    store_ms: int = 0,
    store_host: bytes = b"\0" * 8,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return the bytes of a record; the IPv6 bits of *sys_flag* are set from the lengths of the hosts.

    Args:
        topic, queue_id, queue_offset: the queue that the message is in, and which of its messages it is.
        physical_offset: where the record stands in the log (bytes).
        body: the payload as it is stored, compressed or not.
        properties: names and values in the form of :mod:`understudy.format.properties`.
        flag: the producer's own flag.
        sys_flag: bits such as compression and the state of a transaction.
        born_ms, store_ms: wall times.
        born_host, store_host: address and port, 8 bytes for IPv4 and 20 for IPv6.
        reconsume_times: how often it was sent back.
        prepared_transaction_offset: physical offset of the half message of a committed one.
    """
    magic, topic_bytes = topic_field(topic)
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise RecordError(f"properties of {len(properties)} bytes, a record holds {MAX_PROPERTIES_BYTES}")
    sys_flag |= FLAG_BORN_HOST_V6 * (len(born_host) == 20) | FLAG_STORE_HOST_V6 * (len(store_host) == 20)
    fixed = FIXED[len(born_host), len(store_host)]
    size = fixed.size + len(body) + len(topic_bytes) + 2 + len(properties)
    head = fixed.pack(
        size,
        magic,
        zlib.crc32(body) & CRC_MASK,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    return b"".join([head, body, topic_bytes, len(properties).to_bytes(2, "big"), properties])


def decode_record(data: bytes | memoryview, at: int = 0, *, check_crc: bool = True) -> Record:
    """Decode the record that starts at byte *at* of *data*.

    Raises:
        RecordError: for anything but a whole record whose lengths add up (and, with *check_crc*, whose body has its
            checksum).
    """
    left = len(data) - at
    if left < HEAD.size:
        raise RecordError(f"{left} bytes left, too few for a record")
    size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = HEAD.unpack_from(data, at)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise RecordError(f"magic {magic:#010x} is not that of a record")
    born_bytes = 20 if sys_flag & FLAG_BORN_HOST_V6 else 8
    store_bytes = 20 if sys_flag & FLAG_STORE_HOST_V6 else 8
    fixed = FIXED[born_bytes, store_bytes]
    topic_width = 1 if magic == MAGIC_V1 else 2
    if not fixed.size + topic_width + 2 <= size <= left:
        raise RecordError(f"size {size} with {left} bytes left")
    *_, born_host, store_ms, store_host, reconsume_times, prepared, body_length = fixed.unpack_from(data, at)
    body_at = at + fixed.size
    end = at + size
    topic_at = body_at + body_length + topic_width
    if body_length < 0 or topic_at + 2 > end:
        raise RecordError(f"body length {body_length} in a record of {size} bytes")
    topic_length = int.from_bytes(data[topic_at - topic_width : topic_at], "big")
    properties_at = topic_at + topic_length + 2
    if topic_length > (127 if topic_width == 1 else 32_767) or properties_at > end:
        raise RecordError(f"topic length {topic_length} in a record of {size} bytes")
    (properties_length,) = _SHORT.unpack_from(data, properties_at - 2)
    if properties_length < 0 or properties_at + properties_length != end:
        raise RecordError(f"properties length {properties_length} does not add up to size {size}")
    body = bytes(data[body_at : body_at + body_length])
    if check_crc and body and zlib.crc32(body) & CRC_MASK != crc:
        raise RecordError(f"checksum of the body is {zlib.crc32(body) & CRC_MASK:#010x}, the record says {crc:#010x}")
    try:
        topic = bytes(data[topic_at : topic_at + topic_length]).decode()
    except UnicodeDecodeError:
        raise RecordError("topic is not UTF-8") from None
    return Record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        body=body,
        properties_text=bytes(data[properties_at:end]).decode("utf-8", "replace"),
        flag=flag,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        store_ms=store_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        size_bytes=size,
        body_crc=crc,
        magic=magic,
    )


def properties_of(record: bytes | memoryview) -> bytes:
    """Return the properties string of a record that is known to be whole, without decoding anything else."""
    magic, flags, body_length = _PLAIN.unpack_from(record)
    if magic == MAGIC_V1 and not flags & _ANY_V6:
        at = _PLAIN.size + body_length
        return bytes(record[at + 3 + record[at] :])
    flags = _INT.unpack_from(record, SYSTEM_FLAGS_AT)[0]
    body_length_at = BODY_LENGTH_AT[flags >> 4 & 3]
    at = body_length_at + 4 + _INT.unpack_from(record, body_length_at)[0]
    if _INT.unpack_from(record, 4)[0] & 0xFFFFFFFF == MAGIC_V1:
        at += 1 + record[at]
    else:
        at += 2 + _SHORT.unpack_from(record, at)[0]
    return bytes(record[at + 2 :])


def decode_records(data: bytes | memoryview, *, check_crc: bool = True) -> list[Record]:
    """Decode records that follow each other without a gap, as in the body of a pull response."""
    records = []
    at = 0
    while at < len(data):
        record = decode_record(data, at, check_crc=check_crc)
        records.append(record)
        at += record.size_bytes
    return records
