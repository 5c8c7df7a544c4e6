"""Two stores whose offsets differ, and the comparison of the plan made where they lie with that of local copies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from understudy.spark_tools import exits
from understudy.spark_tools.plan import Plan, load_plan
from understudy.spark_tools.synthetic import SyntheticStore

START_MS = 1_700_000_000_000
RETRIES = "%RETRY%dead"  # what looks like a percent-encoded byte is none
DIFFERENCES = 4


def write_stores(root: Path) -> None:
    """Stores `a` and `b` with the same log and other offsets."""
    for name, offset in (("a", 40), ("b", 70)):
        store = SyntheticStore(str(root / name), log_file_bytes=1 << 16, queue_file_units=20)
        for number in range(400):
            store.append("Orders", number % 4, b"b" * 60, store_timestamp=START_MS + number, uniq_key=f"{number:032X}")
        for number in range(400, 430):
            store.append(RETRIES, 0, b"b" * 60, store_timestamp=START_MS + number, uniq_key=f"{number:032X}")
        offsets = {"Orders@g1": {0: offset, 1: 10}, "Orders@g2": {2: 500}, f"{RETRIES}@dead": {0: offset // 5}}
        store.save(offsets, topics=["Orders", RETRIES], groups=["g1", "g2", "dead"])


def reconcile(root: str, out: Path, *more: str) -> Plan:
    """The plan that `understudy-spark reconcile` makes of both stores, in a process of its own."""
    # Spark's workers get their environment from the JVM, and that one's is as old as it is
    stores = ["--store", f"a={root}/a", "--store", f"b={root}/b", "--master", "local[2]", "--quiet"]
    command = [sys.executable, "-m", "understudy.spark_tools.main", "reconcile", *stores, "--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == exits.DIFFER, done.stdout + done.stderr
    assert done.stderr == ""
    return load_plan(str(out / "plan.json"))


def assert_same_plan(root: Path, elsewhere: str, evidence: str, folder: Path) -> None:
    """Both stores give the plan that their copies below the URI `elsewhere` give, paths and their digests apart."""
    mine = reconcile(str(root), folder / "here")
    theirs = reconcile(elsewhere, folder / "there", "--evidence", evidence)
    named = {(change.topic, change.group) for change in mine.changes()}
    assert named == {("Orders", "g1"), ("Orders", "g2"), (RETRIES, "dead")}
    assert list(mine.changes()) == list(theirs.changes())
    for left, right in zip(mine.header.pop("stores"), theirs.header.pop("stores"), strict=True):
        assert right.pop("path") == f"{elsewhere}/{left['name']}"
        assert left.pop("path") == str(root / left["name"])
        assert left == right
    for header in (mine.header, theirs.header):
        for key in ("input_digest", "created_ms", "sha256"):  # of the paths as well
            header.pop(key)
    assert mine.header == theirs.header
