"""Stored records and batches as bytes (MessageDecoder.java), and the compression of bodies."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from understudy.format import batch
from understudy.format.names import RETRY_PREFIX
from understudy.format.properties import parse_properties
from understudy.format.record import (
    CRC_MASK,
    FIXED,
    FLAG_COMPRESSED,
    FLAG_COMPRESSION_LZ4,
    FLAG_COMPRESSION_MASK,
    FLAG_COMPRESSION_ZLIB,
    FLAG_COMPRESSION_ZSTD,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    SMALLEST_RECORD_BYTES,
    SYSTEM_FLAGS_AT,
)
from understudy.mqclient.errors import InvalidMessageError, RecordDamagedError
from understudy.mqclient.message import RETRY_TOPIC, Message, ReceivedMessage, address_text, encode_properties

LZ4, ZSTD, ZLIB = FLAG_COMPRESSION_LZ4, FLAG_COMPRESSION_ZSTD, FLAG_COMPRESSION_ZLIB

_INT = struct.Struct(">i")
_FIXED = (FIXED[8, 8], FIXED[20, 8], FIXED[8, 20], FIXED[20, 20])
"""Everything before the body, by the two flags of long hosts."""
_HOST_FLAGS_AT = SYSTEM_FLAGS_AT + 3  # the lowest byte

INFLATED_LIMIT_BYTES = 16 * 1024 * 1024
"""Largest body once inflated: that of the largest frame that is not compressed."""
_ZSTD_WINDOW_BYTES = INFLATED_LIMIT_BYTES


def decode_records(
    data: bytes | memoryview, broker_name: str = "", *, keep_damaged: bool = False, inflate: bool = True
) -> list[ReceivedMessage]:
    """Return the messages in a pull, query or view body, in order, with inflated bodies.

    Args:
        data: concatenated records.
        broker_name: entered into each message.
        keep_damaged: a record whose content is wrong becomes a message with its raw body and ``damage``, so that its
            neighbours are not lost with it.
        inflate: without it bodies stay as they were sent.

    Raises:
        RecordDamagedError: a length is wrong, or without *keep_damaged* a magic, checksum or compressed body; nothing
            is returned.
    """
    # Every message that is consumed comes through here: one unpacking for all that is fixed, no view of a part.
    records = data if isinstance(data, bytes) else bytes(data)
    messages: list[ReceivedMessage] = []
    at, size = 0, len(records)
    while at < size:
        if size - at < SMALLEST_RECORD_BYTES:
            raise RecordDamagedError(f"{size - at} bytes after the last record are no record")
        (total,) = _INT.unpack_from(records, at)
        if not SMALLEST_RECORD_BYTES <= total <= size - at:
            raise RecordDamagedError(f"record length {total} does not fit the {size - at} bytes that are left")
        end = at + total
        try:
            messages.append(_decode_record(records, at, end, broker_name, inflate=inflate))
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            if not keep_damaged:
                raise RecordDamagedError(f"record of {total} bytes cannot be read: {error}") from None
            messages.append(_damaged(records[at:end], broker_name, str(error)))
        except (RecordDamagedError, InvalidMessageError) as error:
            if not keep_damaged:
                raise
            messages.append(_damaged(records[at:end], broker_name, str(error)))
        at = end
    return messages


def _damaged(record: bytes, broker_name: str, why: str) -> ReceivedMessage:
    """Return what can be known of a record that cannot be read: where it is, and its raw body or all its bytes."""
    total, _, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms = HEAD.unpack_from(record)
    topic, properties, body, stored = "", {}, record, ("", 0, "", 0, 0)
    with contextlib.suppress(struct.error, UnicodeDecodeError, IndexError, RecordDamagedError):
        plain = _decode_record(record, 0, total, broker_name, check=False, inflate=False)
        topic, properties, body = plain.stored_topic, plain.properties, plain.body
        stored = (
            plain.born_host, plain.store_timestamp_ms, plain.store_host, plain.reconsume_times,
            plain.prepared_transaction_offset,
        )  # fmt: skip
    shown = properties.get(RETRY_TOPIC, topic) if topic.startswith(RETRY_PREFIX) else topic
    return ReceivedMessage(
        shown, body, properties, flag, broker_name, queue_id, queue_offset, log_offset, sys_flag, born_ms,
        *stored, crc, total, topic, why,
    )  # fmt: skip


def _decode_record(
    records: bytes, at: int, end: int, broker_name: str, *, check: bool = True, inflate: bool = True
) -> ReceivedMessage:
    fixed = _FIXED[records[at + _HOST_FLAGS_AT] >> 4 & 3]
    (
        total, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host, store_ms, store_host,
        reconsume_times, prepared, body_bytes,
    ) = fixed.unpack_from(records, at)  # fmt: skip
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordDamagedError(f"record at log offset {log_offset} has the unknown magic {magic:08x}")
    body_at = at + fixed.size
    at = body_at + body_bytes
    if not body_at <= at < end:
        raise RecordDamagedError(f"body of the record at log offset {log_offset} does not fit: {body_bytes} bytes")
    body = records[body_at:at]
    if check and zlib.crc32(body) & CRC_MASK != crc:
        raise RecordDamagedError(f"body of the record at log offset {log_offset} does not match its checksum")
    if magic == MAGIC_V1:
        topic_at = at + 1
        properties_at = topic_at + records[at] + 2
    else:
        topic_at = at + 2
        properties_at = topic_at + int.from_bytes(records[at:topic_at], "big") + 2
    topic = _topic(records[topic_at : properties_at - 2])
    properties_bytes = records[properties_at - 2] << 8 | records[properties_at - 1]
    at = properties_at + properties_bytes if properties_bytes <= MAX_PROPERTIES_BYTES else properties_at  # negative
    if at > end:
        raise RecordDamagedError(f"topic and properties of the record at log offset {log_offset} do not fit")
    properties = parse_properties(str(records[properties_at:at], "utf-8"))
    if sys_flag & FLAG_COMPRESSED and inflate:
        body = decompress(body, sys_flag)
    shown = topic
    if topic.startswith(RETRY_PREFIX):
        shown = properties.get(RETRY_TOPIC, topic)
    return ReceivedMessage(
        shown, body, properties, flag, broker_name, queue_id, queue_offset, log_offset, sys_flag, born_ms,
        _host(born_host), store_ms, _host(store_host), reconsume_times, prepared, crc, total, topic,
    )  # fmt: skip


# Kept, for the messages of an answer come from few topics and hosts.


@lru_cache(maxsize=1024)
def _topic(name: bytes) -> str:
    return str(name, "utf-8")


@lru_cache(maxsize=1024)
def _host(packed: bytes) -> str:
    (port,) = _INT.unpack_from(packed, len(packed) - 4)
    return f"{address_text(packed[:-4])}:{port}"


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return the body of a batch send (MessageDecoder.java, encodeMessages). Bodies of a batch are never compressed."""
    return batch.encode_batch(_batch_items(messages))


def _batch_items(messages: Iterable[Message]) -> Iterator[tuple[int, bytes, bytes]]:
    for message in messages:
        properties = encode_properties(message.properties).encode()
        check_properties_size(properties)
        yield message.flag, message.body, properties


def check_properties_size(properties: bytes) -> None:
    """Raise :class:`InvalidMessageError` when encoded *properties* are above the record's 16-bit length."""
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise InvalidMessageError(f"the properties take {len(properties)} bytes, {MAX_PROPERTIES_BYTES} are allowed")


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
        RecordDamagedError: the bytes are not what the flag says, or above :data:`INFLATED_LIMIT_BYTES` once inflated.
        InvalidMessageError: the library for its kind is not installed (extra ``compress``).
    """
    kind = sys_flag & FLAG_COMPRESSION_MASK
    inflate: Callable[[bytes, int], bytes]
    if kind in (0, ZLIB):
        inflate = _inflate_zlib
    elif kind == LZ4:
        inflate = _inflate_lz4
    elif kind == ZSTD:
        inflate = _inflate_zstd
    else:
        raise RecordDamagedError(f"unknown compression bits {kind:#x}")
    try:
        content = inflate(body, INFLATED_LIMIT_BYTES + 1)
    except RecordDamagedError:
        raise
    except (zlib.error, RuntimeError, ValueError, EOFError) as error:
        raise RecordDamagedError(f"compressed body cannot be inflated: {error}") from None
    if len(content) > INFLATED_LIMIT_BYTES:
        raise RecordDamagedError(
            f"compressed body of {len(body)} bytes is above {INFLATED_LIMIT_BYTES} bytes once inflated"
        )
    return content


def _inflate_zlib(body: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj()
    content = inflater.decompress(body, most)
    if not inflater.eof and len(content) < most:
        raise EOFError("it ends in the middle")
    return content


def _inflate_lz4(body: bytes, most: int) -> bytes:
    inflater = _optional("lz4.frame").LZ4FrameDecompressor()
    content = bytes(inflater.decompress(body, max_length=most))
    if not inflater.eof and len(content) < most:
        raise EOFError("it ends in the middle")
    return content


def _inflate_zstd(body: bytes, most: int) -> bytes:
    module = _optional("zstandard")
    try:
        with module.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).stream_reader(body) as reader:
            return bytes(reader.read(most))
    except module.ZstdError as error:
        raise RecordDamagedError(f"compressed body cannot be inflated: {error}") from None


def _optional(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InvalidMessageError(f"{name} is not installed: pip install 'understudy[compress]'") from None
