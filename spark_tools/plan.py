"""The plan file: what is to be changed, why, at what cost, and a digest of everything it was derived from.

JSON lines. The first describes the inputs, each further one proposes one change, the last seals the lines before it.
A plan that was edited, cut or joined is refused; so is one whose inputs are no longer what they were.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from understudy.spark_tools.durable import sha256
from understudy.spark_tools.facts import log_file_of
from understudy.spark_tools.kernels.commitlog import LOOK_BACK_BYTES
from understudy.spark_tools.kernels.search import find_record
from understudy.spark_tools.kernels.window import Window
from understudy.spark_tools.layout import Layout, LogFile
from understudy.spark_tools.storage import map_range, read_file

FORMAT = "understudy-offset-plan"
VERSION = 1
INPUT_TABLES = (
    "consumerOffset.json",
    "consumerOffset.json.bak",
    "lmqConsumerOffset.json",
    "lmqConsumerOffset.json.bak",
    "topics.json",
    "subscriptionGroup.json",
)


class PlanError(ValueError):
    """A plan cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Change:
    """One proposed offset: what each store holds now (None: no entry) and what it should hold."""

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

    def as_json(self) -> dict[str, Any]:
        """The change as a line of the plan."""
        return {
            "number": self.number,
            "topic": self.topic,
            "group": self.group,
            "queue_id": self.queue_id,
            "class": self.kind,
            "proposed": self.proposed,
            "current": self.current,
            "reason": self.reason,
            "cost": {"repeated": self.repeated, "skipped": self.skipped, "saved": self.saved},
        }

    @classmethod
    def of(cls, line: dict[str, Any]) -> Change:
        """The change a line of a plan describes."""
        cost = line["cost"]
        return cls(
            line["number"],
            line["topic"],
            line["group"],
            line["queue_id"],
            line["class"],
            line["proposed"],
            line["current"],
            line["reason"],
            cost["repeated"],
            cost["skipped"],
            cost["saved"],
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as loaded and checked; `digest` is its seal."""

    header: dict[str, Any]
    changes: tuple[Change, ...]
    digest: str

    @property
    def stores(self) -> dict[str, dict[str, Any]]:
        """Descriptions of the stores by name."""
        return {store["name"]: store for store in self.header["stores"]}


def describe_store(layout: Layout, log_begin: int, log_end: int | None, table: str | None) -> dict[str, Any]:
    """Identity of a store's inputs: digests of its tables, range of its log, and records that prove which log it is."""
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


def _lines(header: dict[str, Any], changes: Iterable[Change]) -> Iterator[bytes]:
    yield json.dumps(header, ensure_ascii=False).encode() + b"\n"
    for change in changes:
        yield json.dumps(change.as_json(), ensure_ascii=False).encode() + b"\n"


def write_plan(
    path: str,
    replica_set: str,
    stores: list[dict[str, Any]],
    changes: Iterable[Change],
    created_ms: int,
    key: bytes | None = None,
) -> tuple[int, str]:
    """Writes a plan and returns the number of its changes and its seal.

    Args:
        key: secret for an HMAC on top of the digest, so that only its holders can make plans that verify.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "replica_set": replica_set,
        "created_ms": created_ms,
        "input_digest": input_digest(stores),
        "stores": stores,
    }
    digest = hashlib.sha256()
    count = -1  # the header is no change
    with open(path, "wb") as file:
        for line in _lines(header, changes):
            count += 1
            digest.update(line)
            file.write(line)
        seal = {"changes": count, "sha256": digest.hexdigest()}
        if key is not None:
            seal["hmac_sha256"] = hmac.new(key, digest.digest(), "sha256").hexdigest()
        file.write(json.dumps(seal).encode() + b"\n")
    return count, digest.hexdigest()


def load_plan(path: str, key: bytes | None = None) -> Plan:
    """Reads and checks a plan.

    Raises:
        PlanError: when it is no plan, was changed after it was written, or lacks the HMAC that `key` asks for.
    """
    try:
        lines = read_file(path).splitlines(keepends=True)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None
    try:
        header = json.loads(lines[0])
        seal = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise PlanError(f"{path}: not a plan, or cut off; make it again with reconcile") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT or not isinstance(seal, dict):
        raise PlanError(f"{path}: not a plan of this tool")
    if header.get("version") != VERSION:
        raise PlanError(f"{path}: plan version {header.get('version')}, this tool reads {VERSION}")
    digest = hashlib.sha256(b"".join(lines[:-1]))
    if seal.get("sha256") != digest.hexdigest() or seal.get("changes") != len(lines) - 2:
        raise PlanError(f"{path}: changed or cut off after it was made (the seal does not match); make it again")
    if key is not None:
        expected = hmac.new(key, digest.digest(), "sha256").hexdigest()
        if not hmac.compare_digest(expected, str(seal.get("hmac_sha256", ""))):
            raise PlanError(f"{path}: not signed with the given key")
    if header.get("input_digest") != input_digest(header["stores"]):
        raise PlanError(f"{path}: the input digest does not belong to the inputs it lists")
    changes = tuple(Change.of(json.loads(line)) for line in lines[1:-1])
    return Plan(header, changes, digest.hexdigest())
