"""Stored records and batches as bytes (MessageDecoder.java), and the compression of bodies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from understudy.format.names import RETRY_PREFIX
from understudy.mqclient.errors import InvalidMessageError, RecordDamagedError
from understudy.mqclient.message import (
    RETRY_TOPIC,
    Message,
    ReceivedMessage,
    address_text,
    decode_properties,
    encode_properties,
)

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB

COMPRESSED = 0x1
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
_COMPRESSION_MASK = 0x700
LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300

_FIXED = struct.Struct(">IIIiiqqiq")  # total, magic, crc, queue id, flag, queue offset, log offset, sysFlag, born time
_BATCH_FIXED = struct.Struct(">iiiii")  # total, magic, crc, flag, body length
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_AFTER_HOSTS = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body length
_SHORT = struct.Struct(">h")
_SMALLEST_RECORD_BYTES = 91


def decode_records(data: bytes | memoryview, broker_name: str = "") -> list[ReceivedMessage]:
    """Return the messages in a pull, query or view body, in order, with inflated bodies.

    Args:
        data: concatenated records.
        broker_name: entered into each message.

    Raises:
        RecordDamagedError: a length, magic, checksum or compressed body is wrong; nothing of the body is returned.
    """
    view = memoryview(data)
    messages: list[ReceivedMessage] = []
    at, end = 0, len(view)
    while at < end:
        if end - at < _SMALLEST_RECORD_BYTES:
            raise RecordDamagedError(f"{end - at} bytes after the last record are no record")
        total = int.from_bytes(view[at : at + 4], "big")
        if not _SMALLEST_RECORD_BYTES <= total <= end - at:
            raise RecordDamagedError(f"record length {total} does not fit the {end - at} bytes that are left")
        try:
            messages.append(_decode_record(view[at : at + total], broker_name))
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise RecordDamagedError(f"record of {total} bytes cannot be read: {error}") from None
        at += total
    return messages


def _decode_record(record: memoryview, broker_name: str) -> ReceivedMessage:
    total, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms = _FIXED.unpack_from(record)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordDamagedError(f"record at log offset {log_offset} has the unknown magic {magic:08x}")
    at = _FIXED.size
    born_host, at = _host(record, at, sys_flag & BORN_HOST_IPV6)
    (store_ms,) = _LONG.unpack_from(record, at)
    store_host, at = _host(record, at + 8, sys_flag & STORE_HOST_IPV6)
    reconsume_times, prepared, body_bytes = _AFTER_HOSTS.unpack_from(record, at)
    at += _AFTER_HOSTS.size
    body = record[at : at + body_bytes]
    if body_bytes < 0 or len(body) != body_bytes:
        raise RecordDamagedError(f"body of the record at log offset {log_offset} does not fit: {body_bytes} bytes")
    if zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise RecordDamagedError(f"body of the record at log offset {log_offset} does not match its checksum")
    at += body_bytes
    if magic == MAGIC_V1:
        topic_bytes = record[at]
        at += 1
    else:
        (topic_bytes,) = _SHORT.unpack_from(record, at)
        at += 2
    topic = str(record[at : at + topic_bytes], "utf-8")
    at += topic_bytes
    (properties_bytes,) = _SHORT.unpack_from(record, at)
    properties = decode_properties(str(record[at + 2 : at + 2 + properties_bytes], "utf-8"))
    content = bytes(body)
    if sys_flag & COMPRESSED:
        content = decompress(content, sys_flag)
    shown = topic
    if topic.startswith(RETRY_PREFIX):
        shown = properties.get(RETRY_TOPIC, topic)
    return ReceivedMessage(
        shown, content, properties, flag, broker_name, queue_id, queue_offset, log_offset, sys_flag, born_ms,
        born_host, store_ms, store_host, reconsume_times, prepared, crc, total, topic,
    )  # fmt: skip


def _host(record: memoryview, at: int, is_ipv6: int) -> tuple[str, int]:
    after = at + (16 if is_ipv6 else 4)
    (port,) = _INT.unpack_from(record, after)
    return f"{address_text(record[at:after])}:{port}", after + 4


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return the body of a batch send (MessageDecoder.java, encodeMessages). Bodies of a batch are never compressed."""
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode()
        check_properties_size(properties)
        total = _BATCH_FIXED.size + len(message.body) + 2 + len(properties)
        parts.append(_BATCH_FIXED.pack(total, 0, 0, message.flag, len(message.body)))
        parts.append(message.body)
        parts.append(_SHORT.pack(len(properties)))
        parts.append(properties)
    return b"".join(parts)


def check_properties_size(properties: bytes) -> None:
    """Raise :class:`InvalidMessageError` when encoded *properties* are above the record's 16-bit length."""
    if len(properties) > 32767:
        raise InvalidMessageError(f"the properties take {len(properties)} bytes, 32767 are allowed")


def compress(body: bytes, kind: int, level: int) -> bytes:
    """Return *body* compressed.

    Args:
        body: what to compress.
        kind: :data:`ZLIB`, :data:`LZ4` or :data:`ZSTD`.
        level: zlib level; the other two take it as their own.

    Raises:
        InvalidMessageError: the library for *kind* is not installed (extra ``compress``).
    """
    if kind == ZLIB:
        return zlib.compress(body, level)
    module = _optional("lz4.frame" if kind == LZ4 else "zstandard")
    if kind == LZ4:
        return bytes(module.compress(body, compression_level=level))
    return bytes(module.ZstdCompressor(level=level).compress(body))


def decompress(body: bytes, sys_flag: int) -> bytes:
    """Return the inflated *body* of a record with *sys_flag*.

    Raises:
        RecordDamagedError: the bytes are not what the flag says.
        InvalidMessageError: the library for its kind is not installed (extra ``compress``).
    """
    kind = sys_flag & _COMPRESSION_MASK
    inflate: Callable[[bytes], bytes]
    if kind in (0, ZLIB):
        inflate = zlib.decompress
    elif kind == LZ4:
        inflate = _optional("lz4.frame").decompress
    elif kind == ZSTD:
        inflate = _inflate_zstd
    else:
        raise RecordDamagedError(f"unknown compression bits {kind:#x}")
    try:
        return bytes(inflate(body))
    except RecordDamagedError:
        raise
    except (zlib.error, RuntimeError, ValueError, EOFError) as error:
        raise RecordDamagedError(f"compressed body cannot be inflated: {error}") from None


def _inflate_zstd(body: bytes) -> bytes:
    module = _optional("zstandard")
    try:
        return bytes(module.ZstdDecompressor().decompressobj().decompress(body))
    except module.ZstdError as error:
        raise RecordDamagedError(f"compressed body cannot be inflated: {error}") from None


def _optional(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InvalidMessageError(f"{name} is not installed: pip install 'understudy[compress]'") from None
