"""The plan: what is to be changed, why, at what cost, and a digest of everything it was derived from.

A plan is two files. The one that is named on command lines is JSON for people: it describes the inputs and seals itself
and the other one. That one, beside it under the same name, has a row of Parquet for each proposed change; it is written
and read by row groups, so that a plan may be larger than the memory of who works with it.

A plan that was edited, cut or joined is refused; so is one whose inputs are no longer what they were.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from understudy.spark_tools.durable import replace_file, sha256
from understudy.spark_tools.facts import log_file_of
from understudy.spark_tools.kernels.commitlog import LOOK_BACK_BYTES
from understudy.spark_tools.kernels.search import find_record
from understudy.spark_tools.kernels.window import Window
from understudy.spark_tools.layout import Layout, LogFile
from understudy.spark_tools.storage import map_range, new_file, open_file, read_file

FORMAT = "understudy-offset-plan"
VERSION = 2
ROW_GROUP_ROWS = 16_384
ROWS_AT_ONCE = 1024
INPUT_TABLES = (
    "consumerOffset.json",
    "consumerOffset.json.bak",
    "lmqConsumerOffset.json",
    "lmqConsumerOffset.json.bak",
    "topics.json",
    "subscriptionGroup.json",
)
CHANGES = pa.schema(
    [
        ("topic", pa.string()),
        ("group", pa.string()),
        ("queue_id", pa.int32()),
        ("class", pa.string()),
        ("proposed", pa.int64()),
        ("current", pa.list_(pa.int64())),
        ("reason", pa.string()),
        ("repeated", pa.int64()),
        ("skipped", pa.int64()),
        ("saved", pa.int64()),
    ]
)
"""Columns of the changes; `current` has what each store holds, in their order, null without an entry."""


class PlanError(ValueError):
    """A plan cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Change:
    """One proposed offset: what each store holds now (None: no entry) and what it should hold.

    `number` is the row of the plan, from 1.
    """

    number: int
    topic: str
    group: str
    queue_id: int
    kind: str
    proposed: int
    current: dict[str, int | None]
    reason: str
    repeated: int
    skipped: int
    saved: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as opened and checked; `digest` is its seal, `changes_path` the file with its changes."""

    header: dict[str, Any]
    changes_path: str
    digest: str

    @property
    def stores(self) -> dict[str, dict[str, Any]]:
        """Descriptions of the stores by name."""
        return {store["name"]: store for store in self.header["stores"]}

    @property
    def count(self) -> int:
        """Number of changes."""
        rows: int = self.header["changes"]["rows"]
        return rows

    def changes(self) -> Iterator[Change]:
        """The changes in order, read as they are taken: a part of one row group is held.

        Raises:
            PlanError: when the file is not what was sealed.
        """
        names = [store["name"] for store in self.header["stores"]]
        number = 0
        with _opened(self.changes_path) as file:
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
                columns = [column.to_pylist() for column in batch.columns]
                for topic, group, queue_id, kind, proposed, current, *rest in zip(*columns, strict=True):
                    number += 1
                    held = dict(zip(names, current, strict=True))
                    yield Change(number, topic, group, queue_id, kind, proposed, held, *rest)

    def kinds(self) -> Counter[str]:
        """Number of changes by class."""
        found: Counter[str] = Counter()
        with _opened(self.changes_path) as file:
            for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS, columns=["class"], use_threads=False):
                found.update({item["values"]: item["counts"] for item in batch.column(0).value_counts().to_pylist()})
        return found


def describe_store(layout: Layout, log_begin: int, log_end: int | None, table: str | None) -> dict[str, Any]:
    """Identity of a store's inputs: digests of its tables, range of its log, and records that prove which log it is.

    Args:
        layout: of the store.
        log_begin: first byte of its log.
        log_end: byte behind its log; ``None`` if that is not known.
        table: its offset table, a path below the store; ``None`` if it has none.
    """
    tables = {}
    for name in INPUT_TABLES:
        entry = layout.tables.get(name)
        if entry is not None:
            data = read_file(entry.path)
            tables[name] = {"bytes": len(data), "sha256": sha256(data)}
    return {
        "name": layout.store.name,
        "path": layout.store.path,
        "offset_table": table,
        "tables": tables,
        "log": {"begin": log_begin, "end": log_end},
        "anchors": anchors(layout.commit_log, log_end),
    }


def anchors(files: list[LogFile], log_end: int | None) -> list[dict[str, Any]]:
    """Digests of a few records with their physical offsets: first of the log, of its middle and of its last file."""
    found: dict[int, dict[str, Any]] = {}
    used = [file for file in files if log_end is None or file.start_offset < log_end]
    for number in sorted({0, len(used) // 2, len(used) - 1}) if used else ():
        record = record_at(used, used[number].start_offset)
        if record is not None:
            offset = used[number].start_offset
            found[offset] = {"physical_offset": offset, "bytes": len(record), "sha256": sha256(record)}
    return list(found.values())


def record_at(files: list[LogFile], physical_offset: int) -> bytes | None:
    """The record that starts at a physical offset, None when no valid one does."""
    file = log_file_of(files, physical_offset)
    if file is None:
        return None
    position = physical_offset - file.start_offset
    data, base = map_range(file.path, position, LOOK_BACK_BYTES)
    window = Window(file.path, file.start_offset, file.size_bytes, base, data, reaches_end=False)
    if find_record(window, position - base, position - base + 1) < 0:
        return None
    size = int.from_bytes(data[position - base : position - base + 4], "big")
    return bytes(data[position - base : position - base + size])


def input_digest(stores: list[dict[str, Any]]) -> str:
    """Digest of everything a plan was derived from, wherever the stores lie."""
    essence = [{key: value for key, value in store.items() if key != "path"} for store in stores]
    return sha256(json.dumps(essence, sort_keys=True).encode())


def write_plan(
    path: str,
    replica_set: str,
    stores: list[dict[str, Any]],
    changes: Iterable[pa.RecordBatch],
    created_ms: int,
    key: bytes | None = None,
) -> tuple[int, str]:
    """Writes a plan and returns the number of its changes and its seal; the JSON comes last and makes it one.

    Args:
        path: of the JSON, which ends in `.json`.
        changes: batches of the columns of `CHANGES`, taken as they are written.
        key: secret for an HMAC on top of the digest, so that only its holders can make plans that verify.
    """
    beside = changes_path(path)
    rows = 0
    with new_file(beside) as file, parquet.ParquetWriter(file, CHANGES, compression="zstd") as writer:
        for group in _row_groups(changes):
            rows += group.num_rows
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "replica_set": replica_set,
        "created_ms": created_ms,
        "input_digest": input_digest(stores),
        "stores": stores,
        "changes": {"file": os.path.basename(beside), "rows": rows, "sha256": _file_digest(beside)},
    }
    digest = _seal(header)
    header["sha256"] = digest
    if key is not None:
        header["hmac_sha256"] = _signature(digest, key)
    replace_file(path, json.dumps(header, indent=1, ensure_ascii=False).encode() + b"\n")
    return rows, digest


def changes_path(path: str) -> str:
    """Where the changes of a plan lie: beside its JSON."""
    return f"{path.removesuffix('.json')}.parquet"


def remove_plan(path: str) -> None:
    """Removes a plan that is there, its JSON first."""
    for stale in (path, changes_path(path)):
        if os.path.exists(stale):
            os.unlink(stale)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in tables of one size, so that a file does not depend on how its rows were found."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= ROW_GROUP_ROWS:
            whole = pa.Table.from_batches(waiting, CHANGES)
            yield whole.slice(0, ROW_GROUP_ROWS)
            waiting = whole.slice(ROW_GROUP_ROWS).to_batches()
            rows -= ROW_GROUP_ROWS
    if rows:
        yield pa.Table.from_batches(waiting, CHANGES)


def _file_digest(path: str) -> str:
    with open_file(path) as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _seal(header: dict[str, Any]) -> str:
    essence = {key: value for key, value in header.items() if key not in ("sha256", "hmac_sha256")}
    return sha256(json.dumps(essence, sort_keys=True).encode())


def _signature(digest: str, key: bytes) -> str:
    return hmac.new(key, bytes.fromhex(digest), "sha256").hexdigest()


@contextmanager
def _opened(path: str) -> Iterator[parquet.ParquetFile]:
    try:
        with open_file(path) as source, parquet.ParquetFile(source) as file:
            yield file
    except pa.ArrowInvalid as error:
        raise PlanError(f"{path}: changed while it was read ({error}); make the plan again") from None


def load_plan(path: str, key: bytes | None = None) -> Plan:
    """Opens a plan and checks it; its changes are read once for their digest, and not kept.

    Raises:
        PlanError: when it is no plan, was changed after it was written, or lacks the HMAC that `key` asks for.
    """
    try:
        text = read_file(path)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None
    try:
        header = json.loads(text)
    except ValueError:
        raise PlanError(f"{path}: not a plan, or cut off; make it again with reconcile") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise PlanError(f"{path}: not a plan of this tool")
    if header.get("version") != VERSION:
        raise PlanError(f"{path}: plan version {header.get('version')}, this tool reads {VERSION}")
    digest = _seal(header)
    if header.get("sha256") != digest:
        raise PlanError(f"{path}: changed or cut off after it was made (the seal does not match); make it again")
    if key is not None and not hmac.compare_digest(_signature(digest, key), str(header.get("hmac_sha256", ""))):
        raise PlanError(f"{path}: not signed with the given key")
    if header.get("input_digest") != input_digest(header["stores"]):
        raise PlanError(f"{path}: the input digest does not belong to the inputs it lists")
    beside = f"{path.rpartition('/')[0] or '.'}/{header['changes']['file']}"
    try:
        found = _file_digest(beside)
    except OSError as error:
        raise PlanError(f"{beside}: {error.strerror or error}; it belongs beside {path}") from None
    if found != header["changes"]["sha256"]:
        raise PlanError(f"{beside}: changed or cut off after it was made (its digest does not match); make it again")
    return Plan(header, beside, digest)
