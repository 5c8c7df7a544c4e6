"""A plan for stopped brokers: refused when anything changed, atomic, resumable after any kill, undone to the byte."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from spark_plans import CREATED_MS, TABLE, Run, batch_of, changes, table_bytes, write_stores, write_test_plan

from understudy.runtime.disk import RealLock
from understudy.runtime.syncing import Syncing
from understudy.spark_tools import durable, exits, offline
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.offline import OfflineApply
from understudy.spark_tools.plan import load_plan, write_plan


@pytest.fixture
def run() -> Run:
    return Run()


def offsets(root: Path, table: str = TABLE) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = tables.loads((root / "config" / table).read_bytes())["offsetTable"]
    return found


def test_apply_sets_the_offsets_and_one_version_on_every_replica(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")

    assert run("plan", "verify", plan) == exits.AGREE
    assert run("plan", "apply", plan) == exits.AGREE

    assert offsets(stores["a"]) == {"T1@g1": {"0": 15, "1": 20}, "T1@g2": {"0": 1}}
    assert offsets(stores["b"]) == {"T1@g1": {"0": 15, "1": 20}, "%RETRY%g1@g1": {"0": 3}, "T1@g2": {"0": 1}}
    versions = [tables.loads((root / "config" / TABLE).read_bytes())["dataVersion"] for root in stores.values()]
    assert versions == [{"counter": 4, "stateVersion": 0, "timestamp": CREATED_MS}] * 2
    for root in stores.values():
        assert (root / "config" / TABLE).read_bytes() == (root / "config" / f"{TABLE}.bak").read_bytes()


def test_apply_and_undo_are_idempotent_and_undo_is_exact(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    before = table_bytes(stores)

    assert run("plan", "apply", plan) == exits.AGREE
    applied = table_bytes(stores)
    assert run("plan", "apply", plan) == exits.AGREE
    assert table_bytes(stores) == applied
    assert run("plan", "undo", plan) == exits.AGREE
    assert table_bytes(stores) == before
    assert run("plan", "undo", plan) == exits.AGREE
    assert table_bytes(stores) == before
    assert run("plan", "apply", plan) == exits.REFUSED
    assert "undone" in run.said[0]


def test_a_dry_run_writes_nothing(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert run("plan", "apply", "--dry-run", plan) == exits.AGREE

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert any("a 5, b 15 -> 15" in line for line in run.said)


def test_a_plan_for_older_data_is_refused(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    table = stores["b"] / "config" / TABLE
    table.write_bytes(table.read_bytes().replace(b"0:15", b"0:16"))
    before = table_bytes(stores)

    assert run("plan", "verify", plan) == exits.REFUSED
    assert run.said[0] == f"b: {TABLE} changed since the plan was made"
    assert run("plan", "apply", plan) == exits.REFUSED
    assert table_bytes(stores) == before


def test_a_plan_for_another_cluster_is_refused(tmp_path: Path, run: Run) -> None:
    plan = write_test_plan(write_stores(tmp_path / "one"), tmp_path / "plan.json")
    other = write_stores(tmp_path / "two", seed=1)
    before = table_bytes(other)

    code = run("plan", "apply", plan, "--store", f"a={other['a']}", "--store", f"b={other['b']}")

    assert code == exits.REFUSED
    assert "holds another log" in run.said[0]
    assert table_bytes(other) == before


def test_stores_that_moved_are_found_by_their_new_path(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    for name in ("a", "b"):
        os.rename(tmp_path / name, tmp_path / f"moved-{name}")

    assert run("plan", "apply", plan) == exits.REFUSED
    moved = [argument for name in ("a", "b") for argument in ("--store", f"{name}={tmp_path / f'moved-{name}'}")]
    assert run("plan", "apply", plan, *moved) == exits.AGREE
    assert offsets(tmp_path / "moved-a")["T1@g1"]["0"] == 15


def test_a_store_with_a_running_broker_is_refused(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    (stores["a"] / "lock").write_bytes(b"lock")
    hold = "import fcntl,sys; f=open(sys.argv[1],'r+b'); fcntl.lockf(f,fcntl.LOCK_EX,1,0); print('held',flush=True)"
    hold += "; input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, stores["a"] / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "held\n"
        before = table_bytes(stores)

        assert run("plan", "apply", plan) == exits.REFUSED

        assert "a broker is running" in run.said[0]
        assert table_bytes(stores) == before
        broker.communicate("\n", timeout=20)
    assert run("plan", "apply", plan) == exits.AGREE


def test_no_broker_starts_between_the_check_and_the_last_write(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process tries the lock in the middle of apply and of undo, as Java brokers do, and as ours do."""
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    starts = (
        "import fcntl,sys\nfor lock in (lambda f: fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,1),"
        " lambda f: fcntl.flock(f,fcntl.LOCK_EX|fcntl.LOCK_NB)):\n"
        "  try: lock(open(sys.argv[1],'r+b')); print('started')\n  except OSError: print('refused')"
    )
    seen: list[str] = []
    real = offline.replace_file

    def try_to_start(path: str, data: bytes) -> None:
        if path.endswith(TABLE):
            for root in stores.values():
                command = [sys.executable, "-c", starts, root / "lock"]
                seen.extend(subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split())
        real(path, data)

    monkeypatch.setattr(offline, "replace_file", try_to_start)

    assert run("plan", "apply", plan) == exits.AGREE
    assert run("plan", "undo", plan) == exits.AGREE

    assert seen == ["refused"] * len(seen)
    assert len(seen) == 2 * 2 * 2 * 2  # writes of each table by apply and undo, stores, kinds of locks
    for root in stores.values():
        RealLock(str(root / "lock")).release()


@pytest.mark.parametrize("words", [["apply"], ["apply", "--dry-run"]])
def test_the_lock_of_our_broker_is_seen_in_one_line(tmp_path: Path, run: Run, words: list[str]) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    before = table_bytes(stores)
    lock = RealLock(str(stores["b"] / "lock"))
    try:
        assert run("plan", *words, plan) == exits.REFUSED
        assert run.said[-1] == (
            f"refused: a broker is running on {stores['b']}: stop it, or apply to the live broker with --broker"
        )
        assert table_bytes(stores) == before
    finally:
        lock.release()


@pytest.mark.parametrize(
    "edit", ["proposed", "cut", "header", "sealed header", "count", "garbage", "empty", "other changes", "no changes"]
)
def test_a_plan_that_was_tampered_with_is_refused(tmp_path: Path, run: Run, edit: str) -> None:
    plan = write_test_plan(write_stores(tmp_path), tmp_path / "plan.json")
    rows, text = tmp_path / "plan.parquet", plan.read_text()
    whole = rows.read_bytes()
    match edit:
        case "proposed":
            other = write_test_plan(write_stores(tmp_path / "2"), tmp_path / "other.json", [*changes()[:1]])
            rows.write_bytes(other.with_suffix(".parquet").read_bytes())
        case "cut":
            rows.write_bytes(whole[:-9])
        case "other changes":
            rows.write_bytes(whole.replace(b"g1", b"g3"))
        case "no changes":
            rows.unlink()
        case "header":
            plan.write_text(text.replace("default", "other"))
        case "sealed header":
            plan.write_text(text.replace('"bytes"', '"sha256"'))
        case "count":
            plan.write_text(text.replace('"rows": 2', '"rows": 1'))
        case "garbage":
            plan.write_text("hello\n")
        case "empty":
            plan.write_text("")

    for step in ("show", "verify", "apply", "undo"):
        assert run("plan", step, plan) == exits.REFUSED
        assert len(run.said) == 1


def test_a_signed_plan_needs_its_key(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    loaded = load_plan(str(write_test_plan(stores, tmp_path / "plain.json")))
    signed = tmp_path / "signed.json"
    write_plan(str(signed), "default", loaded.header["stores"], [batch_of(changes())], CREATED_MS, b"secret")
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "wrong").write_text("guess\n")

    assert run("plan", "show", signed, "--key-file", tmp_path / "right") == exits.AGREE
    assert run("plan", "show", signed, "--key-file", tmp_path / "wrong") == exits.REFUSED
    assert run("plan", "show", tmp_path / "plain.json", "--key-file", tmp_path / "right") == exits.REFUSED


def test_undo_leaves_a_table_alone_that_somebody_changed_since(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    before = table_bytes(stores)
    run("plan", "apply", plan)
    table = stores["a"] / "config" / TABLE
    table.write_bytes(b'{"offsetTable":{}}')

    assert run("plan", "undo", plan) == exits.DIFFER

    assert table.read_bytes() == b'{"offsetTable":{}}'
    after = table_bytes(stores)
    assert after[f"b/{TABLE}"] == before[f"b/{TABLE}"]
    assert any("changed by somebody else" in line for line in run.said)


class Killed(BaseException):
    """The process died here."""


@pytest.mark.parametrize("action", ["apply", "undo"])
def test_a_kill_before_any_write_can_be_resumed_and_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Dies at the first, second, third ... sync until the action gets through, from the same state each time."""
    reference = write_stores(tmp_path / "reference")
    before = table_bytes(reference)
    real = durable.SYNCING
    for point in range(200):
        stores = write_stores(tmp_path / str(point))
        path = write_test_plan(stores, tmp_path / f"{point}.json")
        plan, journal = load_plan(str(path)), str(tmp_path / f"{point}.journal")
        if action == "undo":
            whole = OfflineApply(plan, journal)
            whole.apply(CREATED_MS)
            whole.close()
        left = [point]

        def dying(handle: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            real.sync_all(handle)

        monkeypatch.setattr(durable, "SYNCING", Syncing(dying, dying, real.mappings_first))
        interrupted = OfflineApply(plan, journal)
        try:
            interrupted.apply(CREATED_MS) if action == "apply" else interrupted.undo()
            died = False
        except Killed:
            died = True
        finally:
            interrupted.close()
            monkeypatch.setattr(durable, "SYNCING", real)
        for data in table_bytes(stores).values():
            assert data is None or isinstance(tables.loads(data), dict)

        resumed = OfflineApply(plan, journal)
        try:
            if action == "apply":
                assert {result.status for result in resumed.apply(CREATED_MS + 99)} == {offline.DONE}
                assert offsets(stores["a"])["T1@g1"]["0"] == 15
                assert offsets(stores["b"])["T1@g2"]["0"] == 1
            assert {result.status for result in resumed.undo()} == {offline.DONE}
        finally:
            resumed.close()
        assert table_bytes(stores) == before
        if not died:
            break
    else:
        pytest.fail("the action never got through")
    assert point > 4


@pytest.mark.slow
def test_a_process_killed_at_random_moments_can_be_resumed_and_undone(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    before = table_bytes(stores)
    command = [sys.executable, "-m", "understudy.spark_tools.main", "plan"]
    random_delay = random.Random(5)
    started = time.monotonic()
    subprocess.run([*command, "apply", "--dry-run", plan], check=True, capture_output=True, timeout=60)
    usual_s = time.monotonic() - started
    for step in ("apply", "apply", "undo"):
        process = subprocess.Popen([*command, step, plan], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=random_delay.uniform(0.6, 1.1) * usual_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=20)

    if run("plan", "undo", plan) == exits.REFUSED:  # killed before anything was begun
        assert "nothing to undo" in run.said[0]

    assert table_bytes(stores) == before


def test_two_applies_at_once_do_not_mix(tmp_path: Path, run: Run) -> None:
    stores = write_stores(tmp_path)
    plan = write_test_plan(stores, tmp_path / "plan.json")
    journal = tmp_path / "plan.journal"
    journal.mkdir()
    with open(journal / "journal.jsonl", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        assert run("plan", "apply", plan) == exits.REFUSED

    assert "another apply or undo" in run.said[0]
    assert run("plan", "apply", plan) == exits.AGREE


def test_the_journal_is_a_record_people_can_read(tmp_path: Path, run: Run) -> None:
    plan = write_test_plan(write_stores(tmp_path), tmp_path / "plan.json")
    run("plan", "apply", plan)
    run("plan", "undo", plan)

    lines = (tmp_path / "plan.journal" / "journal.jsonl").read_text().splitlines()

    events = [json.loads(line)["event"] for line in lines]
    assert events == ["copied"] * 4 + ["begin"] + ["write"] * 4 + ["end", "undo", "undone"]


def test_wrong_usage_is_told_from_refusal(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "show", tmp_path / "none.jsonl") == exits.REFUSED
    assert run("plan", "fly", "x") == exits.BAD_USAGE
    assert run("reconcile", "--store", "nopath", "--out", "x") == exits.BAD_USAGE
    assert "is not name=path" in capsys.readouterr().err
