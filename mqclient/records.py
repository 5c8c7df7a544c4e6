"""Stored records and batches as bytes (MessageDecoder.java), and the compression of bodies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from zlib import crc32

from understudy.format import batch
from understudy.format.names import RETRY_PREFIX
from understudy.format.record import (
    CRC_MASK,
    FIXED,
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_COMPRESSION_LZ4,
    FLAG_COMPRESSION_MASK,
    FLAG_COMPRESSION_ZLIB,
    FLAG_COMPRESSION_ZSTD,
    FLAG_INNER_BATCH,
    FLAG_NEED_UNWRAP,
    FLAG_STORE_HOST_V6,
    HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    SMALLEST_RECORD_BYTES,
)
from understudy.mqclient.errors import InvalidMessageError, RecordDamagedError
from understudy.mqclient.message import RETRY_TOPIC, Message, ReceivedMessage, encode_properties

LZ4, ZSTD, ZLIB = FLAG_COMPRESSION_LZ4, FLAG_COMPRESSION_ZSTD, FLAG_COMPRESSION_ZLIB

_INT = struct.Struct(">i")
_FIXED = (FIXED[8, 8], FIXED[20, 8], FIXED[8, 20], FIXED[20, 20])
"""Everything before the body, by the two flags of long hosts."""
_LONG_HOSTS = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6
_new = ReceivedMessage.__new__

INFLATED_LIMIT_BYTES = 16 * 1024 * 1024
"""Largest body once inflated: that of the largest frame that is not compressed."""
_ZSTD_WINDOW_BYTES = INFLATED_LIMIT_BYTES


def decode_records(
    data: bytes | memoryview,
    broker_name: str = "",
    *,
    keep_damaged: bool = False,
    inflate: bool = True,
    unpack: bool = False,
) -> list[ReceivedMessage]:
    """Return the messages in a pull, query or view body, in order, with inflated bodies.

    Args:
        data: concatenated records.
        broker_name: entered into each message.
        keep_damaged: a record whose content is wrong becomes a message with its raw body and ``damage``, so that its
            neighbours are not lost with it.
        inflate: without it bodies stay as they were sent.
        unpack: a batch that is stored as one record becomes the messages in it.

    Raises:
        RecordDamagedError: a length is wrong, or without *keep_damaged* a magic, checksum or compressed body; nothing
            is returned.
    """
    records = data if isinstance(data, bytes) else bytes(data)
    messages: list[ReceivedMessage] = []
    at, error = _read(records, 0, broker_name, messages, inflate=inflate, unpack=unpack)
    while error is not None:
        end = _end_of_record(records, at)
        if not isinstance(error, (RecordDamagedError, InvalidMessageError)):
            error = RecordDamagedError(f"record of {end - at} bytes cannot be read: {error}")
        if not keep_damaged:
            raise error from None
        messages.append(_damaged(records[at:end], broker_name, str(error)))
        at, error = _read(records, end, broker_name, messages, inflate=inflate, unpack=unpack)
    return messages


def _end_of_record(records: bytes, at: int) -> int:
    """Return where the record at *at* ends. Raises :class:`RecordDamagedError` when its length is wrong."""
    left = len(records) - at
    if left < SMALLEST_RECORD_BYTES:
        raise RecordDamagedError(f"{left} bytes after the last record are no record")
    (total,) = _INT.unpack_from(records, at)
    if not SMALLEST_RECORD_BYTES <= total <= left:
        raise RecordDamagedError(f"record length {total} does not fit the {left} bytes that are left")
    return at + int(total)


def _damaged(record: bytes, broker_name: str, why: str) -> ReceivedMessage:
    """Return what can be known of a record that cannot be read: where it is, and its raw body or all its bytes."""
    plain: list[ReceivedMessage] = []
    if _read(record, 0, broker_name, plain, check=False, inflate=False)[1] is None:
        plain[0].damage = why
        return plain[0]
    total, _, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms = HEAD.unpack_from(record)
    return ReceivedMessage(
        "", record, {}, flag, broker_name, queue_id, queue_offset, log_offset, sys_flag, born_ms, "", 0, "", 0, 0,
        crc, total, "", why,
    )  # fmt: skip


def _read(
    records: bytes,
    at: int,
    broker_name: str,
    messages: list[ReceivedMessage],
    *,
    check: bool = True,
    inflate: bool = True,
    unpack: bool = False,
) -> tuple[int, Exception | None]:
    """Read into *messages* the records from *at* on, until the end or up to one that cannot be read.

    Every message that is consumed comes through here: one unpacking for all that is fixed, no call for each record, and
    what a listener may never ask for is only known to be readable.

    Returns:
        Where it ended, and why it ended there.
    """
    add, size, topic_bytes, topic = messages.append, len(records), b"", ""
    try:
        while at < size:
            form = _FIXED[0]
            fixed = form.unpack_from(records, at)
            sys_flag = fixed[7]
            if sys_flag & _LONG_HOSTS:
                form = _FIXED[sys_flag >> 4 & 3]
                fixed = form.unpack_from(records, at)
            magic, end = fixed[1], at + fixed[0]
            if magic != MAGIC_V1 and magic != MAGIC_V2:
                raise RecordDamagedError(f"record at log offset {fixed[6]} has the unknown magic {magic:08x}")
            body_at = at + form.size
            body_end = body_at + fixed[14]
            if not body_at <= body_end < end <= size:
                raise RecordDamagedError(f"body of the record at log offset {fixed[6]} does not fit: {fixed[14]} bytes")
            body = records[body_at:body_end]
            if check and crc32(body) & CRC_MASK != fixed[2]:
                raise RecordDamagedError(f"body of the record at log offset {fixed[6]} does not match its checksum")
            if magic == MAGIC_V1:
                topic_at = body_end + 1
                topic_end = topic_at + records[body_end]
            else:
                topic_at = body_end + 2
                topic_end = topic_at + int.from_bytes(records[body_end:topic_at], "big")
            if topic_bytes != records[topic_at:topic_end]:
                topic_bytes = records[topic_at:topic_end]
                topic = str(topic_bytes, "utf-8")
            properties_at = topic_end + 2
            properties_end = properties_at + (records[topic_end] << 8 | records[topic_end + 1])
            if properties_end > properties_at + MAX_PROPERTIES_BYTES:  # negative
                properties_end = properties_at
            if properties_end > end:
                raise RecordDamagedError(f"topic and properties of the record at log offset {fixed[6]} do not fit")
            message = _new(ReceivedMessage)
            message.body = decompress(body, sys_flag) if sys_flag & FLAG_COMPRESSED and inflate else body
            message.broker_name = broker_name
            message.queue_offset = fixed[5]
            message.topic = message.stored_topic = topic
            message.damage = ""
            message._fixed = fixed
            message._properties_text = str(records[properties_at:properties_end], "utf-8")
            if topic.startswith(RETRY_PREFIX):
                message.topic = message.properties.get(RETRY_TOPIC, topic)
            if sys_flag & FLAG_INNER_BATCH and unpack:
                messages += _unpacked(message)
            else:
                add(message)
            at = end
    except (struct.error, UnicodeDecodeError, IndexError, RecordDamagedError, InvalidMessageError) as error:
        return at, error
    return at, None


def _unpacked(stored: ReceivedMessage) -> list[ReceivedMessage]:
    """Return the messages of a batch that is *stored* as one record: what is not in the batch is the record's.

    Raises:
        RecordDamagedError: the batch is broken.
    """
    if not stored.sys_flag & FLAG_NEED_UNWRAP:
        return [stored]
    body, fixed, found = stored.body, stored._fixed, list[ReceivedMessage]()
    try:
        for flag, body_at, length, end in batch.iter_batch(body):
            message = _new(ReceivedMessage)
            message.body = body[body_at : body_at + length]
            message.broker_name, message.damage = stored.broker_name, ""
            message.topic = message.stored_topic = stored.stored_topic
            message.queue_offset = stored.queue_offset + len(found)
            message._fixed = (*fixed[:4], flag, message.queue_offset, *fixed[6:])
            message._properties_text = str(body[body_at + length + 2 : end], "utf-8")
            found.append(message)
    except batch.BatchError as error:
        raise RecordDamagedError(f"the batch at log offset {stored.commit_log_offset} is broken: {error}") from None
    return found


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
