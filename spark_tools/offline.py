"""Applies a plan to the offset tables of stopped brokers, and takes it back byte for byte.

Before a table is touched its bytes are copied beside the journal and the journal says what will be written. Whatever
moment a crash picks, the next run finds each table either as it was or as it should be, and goes on from there. A table
that is neither was changed by somebody else: it is left alone and named.

Every replica of the plan gets the same new table version, one above the highest, also when only one of them had wrong
offsets: otherwise the next comparison of versions could bring the old values back. The `.bak` beside a table gets the
same contents for the same reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from understudy.format.data_version import DataVersion
from understudy.format.light_queues import LIGHT_OFFSET_FILE, LIGHT_OFFSET_TABLE, QUEUE_ID, is_light
from understudy.spark_tools.durable import Journal, remove_file, replace_file, sha256
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.plan import Plan, PlanError, anchors
from understudy.spark_tools.storage import local_path
from understudy.spark_tools.store_lock import store_lock

DONE = "done"
PENDING = "pending"
CHANGED = "changed by somebody else"


@dataclass(frozen=True, slots=True)
class Target:
    """One file to be replaced: its bytes before (None: it did not exist) and after."""

    store: str
    path: str
    before: bytes | None
    after: bytes

    @property
    def before_digest(self) -> str:
        """Digest of the old bytes, empty for a file that did not exist."""
        return sha256(self.before) if self.before is not None else ""


class Result(NamedTuple):
    """What became of one file: DONE, or CHANGED when it was left alone."""

    store: str
    path: str
    status: str


def store_path(plan: Plan, name: str, moved: dict[str, str]) -> str:
    """Where a store of the plan lies now.

    Raises:
        PlanError: when it is not on this machine.
    """
    path = moved.get(name, plan.stores[name]["path"])
    local = local_path(path)
    if local is None:
        raise PlanError(f"store {name} is at {path}: offsets can only be written to local files or to live brokers")
    return local


def current_bytes(path: str) -> bytes | None:
    """Bytes of a file, None when there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def changed_inputs(plan: Plan, moved: dict[str, str]) -> list[str]:
    """What differs between the plan's inputs and the stores as they are now, one line each."""
    found = []
    for name, store in plan.stores.items():
        path = store_path(plan, name, moved)
        layout = read_layout(Store(name, path))
        if not layout.tables and not layout.commit_log:
            found.append(f"{name}: {path} holds no store")
            continue
        known = {(item["physical_offset"], item["sha256"]) for item in store["anchors"]}
        here = {(item["physical_offset"], item["sha256"]) for item in anchors(layout.commit_log, store["log"]["end"])}
        if known and not known & here:
            found.append(f"{name}: {path} holds another log than the plan was made for")
        for table, facts in store["tables"].items():
            data = current_bytes(os.path.join(path, "config", table))
            if data is None:
                found.append(f"{name}: {table} is gone")
            elif sha256(data) != facts["sha256"]:
                found.append(f"{name}: {table} changed since the plan was made")
    return found


def table_of(store: dict[str, Any]) -> tuple[str, str]:
    """Name of a store's offset table, and of the file a broker loads it from: its `.bak` where the table is torn."""
    loaded: str = store["offset_table"] or "consumerOffset.json"
    return loaded.removesuffix(".bak"), loaded


def check_readable(plan: Plan, moved: dict[str, str]) -> None:
    """Makes sure that every offset table of the plan can be changed.

    Raises:
        PlanError: when neither the table nor its copy can be read.
    """
    for name, store in plan.stores.items():
        table, loaded = table_of(store)
        path = os.path.join(store_path(plan, name, moved), "config", loaded)
        data = current_bytes(path)
        try:
            if data is not None and not isinstance(tables.loads(data), dict):
                raise tables.TableError("no JSON object", 0)
        except tables.TableError as error:
            raise PlanError(
                f"{path} at byte {error.offset_bytes}: {error}; a broker cannot load it nor a copy of it: put back "
                f"{table}, and make a new plan"
            ) from None


def new_version(tables_loaded: Iterable[bytes], now_ms: int) -> DataVersion:
    """The version all tables get: one above the highest of them."""
    versions = (DataVersion.from_json(tables.loads(data).get("dataVersion")) for data in tables_loaded)
    newest = max(versions, default=DataVersion())
    return newest.next(now_ms, newest.state_version)


def patched(data: bytes, file: str, plan: Plan, version: DataVersion) -> bytes:
    """A table with the plan's offsets and the new version; everything else stays as it was.

    Args:
        data: the table as it is.
        file: its name: in that of a broker with light queues their groups have a table of their own.
        plan: what is to be changed.
        version: of the table from now on.
    """
    table: dict[str, Any] = tables.loads(data)
    table["dataVersion"] = version.to_json()
    apart = file == LIGHT_OFFSET_FILE or LIGHT_OFFSET_TABLE in table
    if apart and not table.get(LIGHT_OFFSET_TABLE):
        table[LIGHT_OFFSET_TABLE] = {}
    offsets = table.setdefault("offsetTable", {})
    for change in plan.changes():
        key = f"{change.topic}@{change.group}"
        if apart and is_light(change.group) and change.queue_id == QUEUE_ID:
            table[LIGHT_OFFSET_TABLE][key] = change.proposed
        else:
            offsets.setdefault(key, {})[str(change.queue_id)] = change.proposed
    return tables.dumps(table).encode()


def targets(plan: Plan, original: Callable[[str, str], bytes | None], now_ms: int) -> Iterator[Target]:
    """Files to replace, those of one store at a time, made of nothing but the arguments.

    Args:
        original: bytes of a table before the first change, by store and file name.
    """
    loaded = {name: table_of(store)[1] for name, store in plan.stores.items()}
    version = new_version((original(name, file) or b"{}" for name, file in loaded.items()), now_ms)
    for name, store in plan.stores.items():
        table, _ = table_of(store)
        after = patched(original(name, loaded[name]) or b"{}", table, plan, version)
        for file in (f"{table}.bak", table):
            yield Target(name, file, original(name, file), after)


class OfflineApply:
    """One plan, its journal and the stores it is for."""

    def __init__(self, plan: Plan, journal_directory: str, moved: dict[str, str] | None = None) -> None:
        self.plan = plan
        self.moved = moved or {}
        self.directory = journal_directory
        self.journal = Journal(os.path.join(journal_directory, "journal.jsonl"))
        begun = [entry for entry in self.journal.of("begin")]
        if begun and (begun[-1]["plan"] != plan.digest or begun[-1]["mode"] != "offline"):
            self.journal.close()
            raise PlanError(f"{journal_directory} is the journal of another plan or of a live broker")

    def close(self) -> None:
        """Releases the journal."""
        self.journal.close()

    def _state(self) -> str:
        """Last step recorded: "", "begin", "end", "undo" or "undone"."""
        steps = [entry["event"] for entry in self.journal.entries]
        return next((step for step in reversed(steps) if step in ("begin", "end", "undo", "undone")), "")

    def _path(self, name: str, file: str) -> str:
        return os.path.join(store_path(self.plan, name, self.moved), "config", file)

    def _backup(self, name: str, file: str) -> str:
        return os.path.join(self.directory, f"{name.replace('/', '__')}.{file}.before")

    def _copied(self) -> dict[tuple[str, str], str]:
        """Digest of each table before the first change, by store and file; empty for one that did not exist."""
        return {(entry["store"], entry["file"]): entry["sha256"] for entry in self.journal.of("copied")}

    def _original(self, name: str, file: str) -> bytes | None:
        """Bytes of a table before the first change, out of the copy that was made of it.

        Raises:
            PlanError: when the copy is not what it was.
        """
        digest = self._copied()[name, file]
        if not digest:
            return None
        data = current_bytes(self._backup(name, file))
        if data is None or sha256(data) != digest:
            raise PlanError(f"{self._backup(name, file)}: the saved copy is missing or damaged")
        return data

    @contextmanager
    def _stores_held(self) -> Iterator[None]:
        """Holds the locks of all stores, so that no broker starts on one of them before both files are written."""
        with ExitStack() as held:
            for path in sorted({store_path(self.plan, name, self.moved) for name in self.plan.stores}):
                held.enter_context(store_lock(path))
            yield

    def _begin(self, now_ms: int) -> None:
        """Checks that the plan may be applied, and saves copies of the tables.

        Raises:
            PlanError: when inputs changed, or the plan was applied and undone already.
        """
        state = self._state()
        if state in ("undo", "undone"):
            raise PlanError("this plan was undone: make a new one with reconcile")
        if state:
            return
        changed = changed_inputs(self.plan, self.moved)
        if changed:
            raise PlanError("the plan was made for other data: " + "; ".join(changed) + "; make a new one")
        check_readable(self.plan, self.moved)
        for name, store in self.plan.stores.items():
            table, _ = table_of(store)
            for file in (table, f"{table}.bak"):
                data = current_bytes(self._path(name, file))
                if data is not None:
                    replace_file(self._backup(name, file), data)
                digest = sha256(data) if data is not None else ""
                self.journal.write({"event": "copied", "store": name, "file": file, "sha256": digest})
        self.journal.write({"event": "begin", "plan": self.plan.digest, "now_ms": now_ms, "mode": "offline"})

    def _targets(self) -> Iterator[Target]:
        return targets(self.plan, self._original, list(self.journal.of("begin"))[-1]["now_ms"])

    def apply(self, now_ms: int) -> list[Result]:
        """Writes the tables; returns each with DONE or CHANGED. Running it again, or after a kill, is harmless.

        Raises:
            PlanError: when inputs changed, a broker runs, or the plan was applied and undone already.
        """
        with self._stores_held():
            self._begin(now_ms)
            results = [Result(target.store, target.path, self._write(target)) for target in self._targets()]
            if all(result.status == DONE for result in results) and self._state() == "begin":
                self.journal.write({"event": "end", "plan": self.plan.digest})
            return results

    def _write(self, target: Target) -> str:
        path = self._path(target.store, target.path)
        status = self._status(target, path)
        if status != PENDING:
            return status
        digests = {"before": target.before_digest, "after": sha256(target.after)}
        self.journal.write({"event": "write", "store": target.store, "file": target.path, **digests})
        replace_file(path, target.after)
        return DONE

    @staticmethod
    def _status(target: Target, path: str) -> str:
        data = current_bytes(path)
        if data == target.after:
            return DONE
        return PENDING if data == target.before else CHANGED

    def undo(self) -> list[Result]:
        """Puts the saved bytes back; returns each table with DONE or CHANGED (then it is left alone).

        Raises:
            PlanError: when nothing was applied, or a broker runs.
        """
        state = self._state()
        if not state:
            raise PlanError("nothing to undo: the journal has no apply of this plan")
        with self._stores_held():
            if state not in ("undo", "undone"):
                self.journal.write({"event": "undo", "plan": self.plan.digest})
            results = [Result(target.store, target.path, self._take_back(target)) for target in self._targets()]
            if all(result.status == DONE for result in results) and self._state() == "undo":
                self.journal.write({"event": "undone", "plan": self.plan.digest})
            return results

    def _take_back(self, target: Target) -> str:
        path = self._path(target.store, target.path)
        data = current_bytes(path)
        if data == target.before:
            return DONE
        if data != target.after:
            return CHANGED
        if target.before is None:
            remove_file(path)
        else:
            replace_file(path, target.before)
        return DONE
