"""Columns of commit-log records as Arrow arrays, only those that were asked for."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from understudy.format.java_hash import java_hash
from understudy.format.names import SCHEDULE_TOPIC
from understudy.format.record import CRC_MASK, FLAG_BORN_HOST_V6, FLAG_STORE_HOST_V6, MAGIC_V2
from understudy.spark_tools.kernels.properties import property_column
from understudy.spark_tools.kernels.window import Chunk, Int64, Window, gather

DEFAULT_DELAY_LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

SCHEMA = pa.schema(
    [
        ("store", pa.string()),
        ("path", pa.string()),
        ("file_position", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size", pa.int32()),
        ("version", pa.int32()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", pa.int64()),
        ("born_host", pa.string()),
        ("store_timestamp", pa.int64()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("body_crc", pa.int32()),
        ("body_length", pa.int32()),
        ("uniq_key", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("tags_code", pa.int64()),
        ("inner_base", pa.int64()),
        ("inner_number", pa.int32()),
        ("crc_ok", pa.bool_()),
        ("properties", pa.binary()),
        ("body", pa.binary()),
    ]
)


def slices(window: Window, at: Int64, length: Int64) -> pa.LargeBinaryArray:
    """Byte strings of the window at the given ascending, non-overlapping places.

    The window itself becomes the data of an array whose odd elements are the gaps; taking the even ones copies only
    what was asked for.
    """
    count = len(at)
    offsets = np.empty(2 * count + 1, dtype=np.int64)
    offsets[0:-1:2] = at
    offsets[1::2] = at + length
    offsets[-1] = offsets[-2] if count else 0
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(window.array)]
    )
    return whole.take(pa.array(np.arange(0, 2 * count, 2)))


def _text(values: pa.Array) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        # a damaged name must not stop the walk: replace what is not UTF-8, record by record
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string()
        )


def topics(window: Window, chunk: Chunk) -> pa.StringArray:
    """Topic of each record."""
    return _text(slices(window, chunk.topic_at, chunk.topic_length))


def raw_properties(window: Window, chunk: Chunk) -> pa.LargeBinaryArray:
    """Property string of each record as stored."""
    return slices(window, chunk.properties_at, chunk.properties_length)


def store_timestamps(window: Window, chunk: Chunk) -> Int64:
    """Store time of each record in milliseconds."""
    at = chunk.store_timestamp_at
    stored = chunk.header["store_timestamp"] if chunk.plain else gather(window.array, at, ">i8")
    times: Int64 = stored.astype(np.int64)
    return times


def _hosts(window: Window, at: Int64, six: npt.NDArray[np.bool_]) -> pa.StringArray:
    result = np.empty(len(at), dtype=object)
    for wide, width in ((False, 8), (True, 20)):
        rows = np.flatnonzero(six == wide)
        if not len(rows):
            continue
        raw = gather(window.array, at[rows], f"V{width}")
        keys = raw.view(">u8").reshape(-1) if width == 8 else raw
        if width == 8:
            distinct, inverse = np.unique(keys, return_inverse=True)
            names = [_host(int(value).to_bytes(8, "big")) for value in distinct]
        else:
            texts = pa.array([bytes(value) for value in keys]).dictionary_encode()
            names = [_host(value) for value in texts.dictionary.to_pylist()]
            inverse = texts.indices.to_numpy()
        result[rows] = np.array(names, dtype=object)[inverse]
    return pa.array(result, pa.string())


def _host(raw: bytes) -> str:
    address = ipaddress.ip_address(raw[:-4])
    port = int.from_bytes(raw[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def java_hashes(texts: pa.Array) -> Int64:
    """Java string hash of each text, 0 for missing or empty ones."""
    encoded = texts.dictionary_encode()
    table = np.array([java_hash(value) for value in encoded.dictionary.to_pylist()] + [0], dtype=np.int64)
    hashes: Int64 = table[encoded.indices.fill_null(len(table) - 1).to_numpy()]
    return hashes


def tags_codes(
    window: Window, chunk: Chunk, topic: pa.Array, properties: pa.LargeBinaryArray, tags: pa.Array | None = None
) -> Int64:
    """The tagsCode a consume queue holds for each record (deliver time for records of the schedule topic).

    Args:
        window: bytes of the log.
        chunk: of records in it.
        topic: of each record.
        properties: of each record, raw.
        tags: of each record, where they have been read before.
    """
    codes = java_hashes(tags if tags is not None else _text(property_column(properties, "TAGS")))
    delayed = np.flatnonzero(pc.equal(topic, SCHEDULE_TOPIC).to_numpy(zero_copy_only=False))
    if len(delayed):
        times = store_timestamps(window, chunk)
        levels = property_column(properties.take(pa.array(delayed)), "DELAY").to_pylist()
        for row, level in zip(delayed, levels, strict=True):
            number = int(level) if level and level.isdigit() else 0
            if number > 0:
                delay_s = DEFAULT_DELAY_LEVELS_S[min(number, len(DEFAULT_DELAY_LEVELS_S)) - 1]
                codes[row] = times[row] + delay_s * 1000
    return codes


def crc_matches(window: Window, chunk: Chunk) -> npt.NDArray[np.bool_]:
    """Whether the stored body of each record has the stored CRC; true for records without a body."""
    view = memoryview(window.data)
    wanted = chunk.header["body_crc"].tolist()
    starts, lengths = chunk.body_at.tolist(), chunk.body_length.tolist()
    crc32 = zlib.crc32
    matches: npt.NDArray[np.bool_] = np.fromiter(
        (
            length == 0 or crc32(view[start : start + length]) & CRC_MASK == crc
            for start, length, crc in zip(starts, lengths, wanted, strict=True)
        ),
        dtype=bool,
        count=len(starts),
    )
    return matches


def _integers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    texts = [None if v is None or not v.isdigit() else int(v) for v in values.to_pylist()]
    return pa.array(texts, kind)


def batch(window: Window, chunk: Chunk, store: str, columns: Sequence[str]) -> pa.RecordBatch:
    """One record batch with the named columns of `SCHEMA`, in the order given.

    Args:
        window: bytes of the log.
        chunk: of records in it.
        store: name of the store.
        columns: names in the order that is wanted.

    Raises:
        KeyError: for a column that `SCHEMA` does not have.
    """
    count = len(chunk.positions)
    header = chunk.header
    shared: dict[str, pa.Array] = {}

    def once(name: str, make: Callable[[], pa.Array]) -> pa.Array:
        if name not in shared:
            shared[name] = make()
        return shared[name]

    def properties() -> pa.LargeBinaryArray:
        return once("properties", lambda: raw_properties(window, chunk))

    def tags() -> pa.Array:
        return once("tags", lambda: _text(property_column(properties(), "TAGS")))

    def topic() -> pa.Array:
        return once("topic", lambda: topics(window, chunk))

    def constant(text: str) -> pa.Array:
        return pa.repeat(pa.scalar(text, pa.string()), count)

    def from_header(name: str) -> Callable[[], npt.NDArray[np.generic]]:
        return lambda: header[name]

    def after_store_time(name: str, skip: int, kind: str) -> npt.NDArray[np.generic]:
        if chunk.plain:
            return header[name]
        six = header["sys_flag"].astype(np.int64) & FLAG_STORE_HOST_V6
        return gather(window.array, chunk.store_timestamp_at + np.where(six, skip + 12, skip), kind)

    def six(bit: int) -> npt.NDArray[np.bool_]:
        flagged: npt.NDArray[np.bool_] = (header["sys_flag"].astype(np.int64) & bit) != 0
        return flagged

    makers: dict[str, Callable[[], pa.Array | npt.NDArray[np.generic]]] = {
        "store": lambda: constant(store),
        "path": lambda: constant(window.path),
        "file_position": lambda: chunk.positions + window.base,
        "physical_offset": from_header("physical_offset"),
        "size": from_header("size"),
        "version": lambda: np.where(header["magic"] == MAGIC_V2, 2, 1),
        "topic": topic,
        "queue_id": from_header("queue_id"),
        "queue_offset": from_header("queue_offset"),
        "flag": from_header("flag"),
        "sys_flag": from_header("sys_flag"),
        "born_timestamp": from_header("born_timestamp"),
        "born_host": lambda: _hosts(window, chunk.positions + 48, six(FLAG_BORN_HOST_V6)),
        "store_timestamp": lambda: store_timestamps(window, chunk),
        "store_host": lambda: _hosts(window, chunk.store_timestamp_at + 8, six(FLAG_STORE_HOST_V6)),
        "reconsume_times": lambda: after_store_time("reconsume_times", 16, ">i4"),
        "prepared_transaction_offset": lambda: after_store_time("prepared_transaction_offset", 20, ">i8"),
        "body_crc": from_header("body_crc"),
        "body_length": lambda: chunk.body_length,
        "uniq_key": lambda: _text(property_column(properties(), "UNIQ_KEY")),
        "tags": tags,
        "keys": lambda: _text(property_column(properties(), "KEYS")),
        "tags_code": lambda: tags_codes(window, chunk, topic(), properties(), tags()),
        "inner_base": lambda: _integers(property_column(properties(), "INNER_BASE"), pa.int64()),
        "inner_number": lambda: _integers(property_column(properties(), "INNER_NUM"), pa.int32()),
        "crc_ok": lambda: pa.array(crc_matches(window, chunk)),
        "properties": lambda: properties().cast(pa.binary()),
        "body": lambda: slices(window, chunk.body_at, chunk.body_length).cast(pa.binary()),
    }
    arrays = []
    for name in columns:
        kind = SCHEMA.field(name).type
        made = makers[name]()
        if isinstance(made, np.ndarray):
            made = pa.array(made.astype(kind.to_pandas_dtype()), kind)
        arrays.append(made)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in columns]))
