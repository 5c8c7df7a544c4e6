"""The jobs on a local Spark: planted faults of each class are all found, and nothing else is."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark_golden import unpack
from spark_plans import CREATED_MS, plan_rows
from spark_runs import NEW, OLD, START_MS, filled, named, report, rows, run

from understudy.spark_tools import exits, rules, sources
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.main import main
from understudy.spark_tools.synthetic import SyntheticStore


def test_every_planted_offset_fault_is_found_and_no_other(spark: Any, tmp_path: Path) -> None:
    """Given two replicas with one fault of each class among sound keys; then the plan repairs exactly those."""
    sound = {f"Orders@good{n}": {q: 10 * q for q in range(4)} for n in range(20)}
    left: dict[str, dict[int, int]] = {key: dict(value) for key, value in sound.items()}
    right: dict[str, dict[int, int]] = {key: dict(value) for key, value in sound.items()}
    left["Orders@back"], right["Orders@back"] = {0: 40}, {0: 70}
    left["Orders@missing"] = {1: 33}
    left["Orders@ahead"], right["Orders@ahead"] = {2: 500}, {2: 500}
    left["Orders@wiped"], right["Orders@wiped"] = {3: 20}, {3: 20}
    left["Orders@reset"], right["Orders@reset"] = {0: 5}, {0: 90}
    left["Orders@nobody"], right["Orders@nobody"] = {0: 5}, {0: 5}
    left["Gone@good0"], right["Gone@good0"] = {0: 5}, {0: 5}
    left["Empty@good0"], right["Empty@good0"] = {0: 8}, {0: 8}
    before = {**left, "Orders@wiped": {3: 80}, "Orders@reset": {0: 88}}
    groups = [*(f"good{n}" for n in range(20)), "back", "missing", "ahead", "wiped", "reset"]
    for name, offsets, version, previous in (("a", left, NEW, before), ("b", right, OLD, None)):
        filled(tmp_path / name).save(
            offsets,
            version=version,
            previous_offsets=previous,
            previous_version=OLD,
            topics=["Orders", "Empty"],
            groups=groups,
        )
    out = tmp_path / "out"

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out)

    assert code == exits.DIFFER, said
    found = {(row[0], row[1], row[2]): (row[3], row[6]) for row in rows(out, "Offsets that differ")}
    assert found == {
        ("Orders", "back", 0): (rules.LOST, 70),
        ("Orders", "missing", 1): (rules.BEHIND, 33),
        ("Orders", "ahead", 2): (rules.AHEAD, 100),
        ("Orders", "wiped", 3): (rules.LOST, 80),
        ("Orders", "reset", 0): (rules.RESET, 5),
        ("Orders", "nobody", 0): (rules.ORPHAN_GROUP, None),
        ("Gone", "good0", 0): (rules.ORPHAN_TOPIC, None),
        ("Empty", "good0", 0): (rules.NO_QUEUE, None),
    }
    assert {(line.group, line.proposed) for line in plan_rows(out / "plan.json")} == {
        ("back", 70),
        ("missing", 33),
        ("ahead", 100),
        ("wiped", 80),
        ("reset", 5),
    }
    kept = {path: path.read_bytes() for name in "ab" for path in (tmp_path / name / "config").iterdir()}
    assert main(["plan", "apply", str(out / "plan.json")], CREATED_MS, said.append) == exits.AGREE
    again, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out / "2")
    assert {row[1] for row in rows(out / "2", "Offsets that differ")} == {"nobody", "good0"}, said
    assert plan_rows(out / "2" / "plan.json") == []
    assert again == exits.DIFFER
    assert main(["plan", "undo", str(out / "plan.json")], CREATED_MS, said.append) == exits.AGREE
    after = {path: path.read_bytes() for name in "ab" for path in (tmp_path / name / "config").iterdir()}
    assert after == kept


def test_equal_places_of_different_bytes_do_not_agree(spark: Any, tmp_path: Path) -> None:
    """Given logs that differ in one body only, a message of the same size at the same place."""
    offsets = {"Orders@below": {2: 50}, "Orders@above": {2: 51}, "Orders@elsewhere": {1: 100}}
    for name in "ab":
        filled(tmp_path / name).save(offsets, version=OLD)
    unit = (tmp_path / "b" / "consumequeue" / "Orders" / "2" / f"{0:020d}").read_bytes()[50 * 20 : 51 * 20]
    physical, size = int.from_bytes(unit[:8], "big"), int.from_bytes(unit[8:12], "big")
    log = tmp_path / "b" / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    body = raw.index(b"bbbb", physical)
    assert body < physical + size
    raw[body : body + 4] = b"cccc"
    log.write_bytes(raw)

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", tmp_path / "out")

    assert code == exits.DIFFER, said
    assert [row[1:4] for row in rows(tmp_path / "out", "Offsets that differ")] == [["above", 2, rules.DIVERGED]]
    assert plan_rows(tmp_path / "out" / "plan.json") == []
    assert f"{size} bytes, from physical offset {physical} on" in report(tmp_path / "out")["facts"]["logs"]
    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--log", "tail", "--out", tmp_path / "tail")
    assert said[0].endswith("0 changes proposed; the bytes of the logs were not compared")


def test_captured_replicas_agree(spark: Any, tmp_path: Path) -> None:
    stores = [f"{name}={unpack(name, tmp_path)}" for name in ("basic", "slave")]
    arguments = [argument for text in stores for argument in ("--store", text)]

    code, said = run("reconcile", *arguments, "--verify", "--out", tmp_path / "out")

    assert code == exits.AGREE, said
    assert said[0] == "Agree: 6 queues of groups on 2 stores, 0 differ, 0 changes proposed"
    code, said = run("verify-replicas", *arguments, "--out", tmp_path / "verified")
    assert code == exits.AGREE, said


def test_the_version_step_fault_on_captured_stores(spark: Any, tmp_path: Path) -> None:
    """The returning master took over the acting slave's older table: its own commits are proposed again."""
    roots = {name: unpack(name, tmp_path) for name in ("basic", "slave")}
    table = roots["basic"] / "config" / "consumerOffset.json"
    content = tables.loads(table.read_bytes())
    content["offsetTable"]["OrderTopic@g_order"]["0"] = 3
    for path in (table, table.with_name("consumerOffset.json.bak")):
        path.write_text(tables.dumps(content))
    arguments = [argument for name, root in roots.items() for argument in ("--store", f"{name}={root}")]

    code, said = run("reconcile", *arguments, "--out", tmp_path / "out")

    assert code == exits.DIFFER, said
    (line,) = plan_rows(tmp_path / "out" / "plan.json")
    assert (line.topic, line.group, line.queue_id) == ("OrderTopic", "g_order", 0)
    assert (line.kind, line.proposed, line.saved) == (rules.LOST, 17, 14)


def test_damaged_stores_are_named_and_the_rest_is_done(spark: Any, tmp_path: Path) -> None:
    offsets = {"Orders@g": {0: 10}}
    for name in "ab":
        filled(tmp_path / name).save(offsets, version=OLD)
    log = tmp_path / "b" / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    second = int.from_bytes(raw[:4], "big")
    raw[second + 4] ^= 0xFF
    log.write_bytes(raw)
    (tmp_path / "b" / "config" / "topics.json").write_text('{"topicConfigTable":{"Orders":{}},]oops')
    queue = tmp_path / "b" / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    queue.write_bytes(queue.read_bytes()[:200] + b"\xff" * 20 + queue.read_bytes()[220:])
    kept = {path: path.read_bytes() for name in "ab" for path in (tmp_path / name).rglob("*") if path.is_file()}
    out = tmp_path / "out"

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", out)

    assert code == exits.DAMAGED
    faults = {(row[2], Path(row[3]).name, row[4]) for row in rows(out, "Faults of the inputs") if row[1] == "damage"}
    assert faults == {
        ("damaged", log.name, second),
        ("bad-json", "topics.json", 34),
        ("invalid-unit", queue.name, 200),
    }
    assert any(f"{log} at byte {second}" in line for line in said)
    after = {path: path.read_bytes() for name in "ab" for path in (tmp_path / name).rglob("*") if path.is_file()}
    assert after == kept


def test_divergence_and_derived_files(spark: Any, tmp_path: Path) -> None:
    for name in "ab":
        filled(tmp_path / name).save({}, epochs=[(1, 0), (2 if name == "a" else 3, 20_000)])
    log = tmp_path / "b" / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    at = 0
    while at < 30_000:
        at += int.from_bytes(raw[at : at + 4], "big")
    raw[at + 63] ^= 1  # the store time
    log.write_bytes(raw)
    queue = tmp_path / "a" / "consumequeue" / "Orders" / "2" / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    units[5 * 20 + 19] ^= 1
    queue.write_bytes(units)
    out = tmp_path / "out"

    code, said = run("verify-replicas", *named(tmp_path, "a", "b"), "--out", out)

    assert code == exits.DIFFER, said
    (divergence,) = rows(out, "Divergences")
    assert divergence[:6] == ["a", "b", at, at + 63, 2, 3]
    (finding,) = rows(out, "Queues and indexes")
    assert (finding[0], finding[1], finding[3], finding[4], finding[7]) == ("a", "wrong-tags-code", 2, 5, 100)
    repairs = [json.loads(line) for line in (out / "repair.jsonl").read_text().splitlines()]
    assert [(step["store"], step["action"]) for step in repairs] == [("a", "truncate"), ("a", "rebuild-queue")]
    assert f"cut its log at {at}" in repairs[0]["what"]


def test_backlog_and_its_age(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "a").save({"Orders@slow": {0: 10, 1: 100}, "Orders@done": {0: 100, 1: 100}})
    out = tmp_path / "out"

    code, said = run("lag", "--store", f"a={tmp_path / 'a'}", "--now", START_MS + 400_000, "--out", out)

    assert code == exits.AGREE, said
    assert rows(out, "Backlog by queue") == [["a", "Orders", "slow", 0, 10, 100, 90, START_MS + 40_000, 360_000]]
    assert "<polyline" in (out / "report.html").read_text()


def test_messages_stored_twice_and_acknowledged_ones_that_are_missing(spark: Any, tmp_path: Path) -> None:
    for name in ("one/a", "one/b", "two/a"):
        store = filled(tmp_path / name, messages=50, prefix=1 if name.startswith("one") else 2)
        if name.startswith("two"):  # one message escaped to the other broker and is in its log as well
            store.append("Orders", 0, b"again", store_timestamp=START_MS + 99_000, uniq_key=f"{1:016X}{7:016X}")
            store.append("%RETRY%g", 0, b"retry", store_timestamp=START_MS + 99_500, uniq_key=f"{1:016X}{8:016X}")
        store.save({})
    stores = [x for name in ("one/a", "one/b", "two/a") for x in ("--store", f"{name}={tmp_path / name}")]

    code, said = run("duplicates", *stores, "--out", tmp_path / "out")

    assert code == exits.DIFFER, said
    (row,) = rows(tmp_path / "out", "Messages stored more than once")
    assert row[:3] == ["Orders", f"{1:016X}{7:016X}", 2]
    assert row[3].startswith("one@")
    assert "two@" in row[3]

    sent = tmp_path / "sent.jsonl"
    keys = [f"{1:016X}{3:016X}", f"{9:016X}{9:016X}"]
    sent.write_text("".join(json.dumps({"topic": "Orders", "uniq_key": key}) + "\n" for key in keys))
    code, said = run("gaps", *stores, "--acknowledged", sent, "--out", tmp_path / "gaps")
    assert code == exits.DIFFER, said
    assert rows(tmp_path / "gaps", "Acknowledged but missing") == [["Orders", keys[1]]]
    assert rows(tmp_path / "gaps", "Holes in queues") == []


def test_a_hole_in_the_queue_offsets_of_the_log(spark: Any, tmp_path: Path) -> None:
    store = filled(tmp_path / "a", messages=40)
    store.save({})
    log = tmp_path / "a" / "commitlog" / f"{0:020d}"
    raw = bytearray(log.read_bytes())
    at = sizes = 0
    while sizes < 10:
        at += int.from_bytes(raw[at : at + 4], "big")
        sizes += 1
    raw[at + 20 : at + 28] = (77).to_bytes(8, "big")  # the queue offset of the eleventh record, which was 2 of queue 2
    log.write_bytes(raw)

    code, said = run("gaps", "--store", f"a={tmp_path / 'a'}", "--out", tmp_path / "out")

    assert code == exits.DIFFER, said
    assert [row[1:5] for row in rows(tmp_path / "out", "Holes in queues")] == [
        ["Orders", 2, 2, 3],
        ["Orders", 2, 10, 77],
    ]


def test_a_store_with_queues_in_rocksdb_is_named_and_ends_with_the_code_for_damage(spark: Any, tmp_path: Path) -> None:
    for name in "ab":
        filled(tmp_path / name, 20).save({"Orders@g": {0: 1}})
    folder = tmp_path / "b" / "consumequeue"
    (folder / "CURRENT").write_text("MANIFEST-000005\n")
    (folder / "MANIFEST-000005").write_bytes(b"\1" * 60)
    (folder / "000009.sst").write_bytes(b"\3" * 300)

    code, said = run("reconcile", *named(tmp_path, "a", "b"), "--out", tmp_path / "out")

    assert code == exits.DAMAGED
    assert any(str(folder) in line and "not-read" in line for line in said)
    assert str(folder) in (tmp_path / "out" / "report.html").read_text()


def test_sources_prune_columns_push_filters_and_split_files(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "a").save({"Orders@g": {0: 1}})
    reader = spark.read.format("rocketmq_commitlog").option("path", f"a={tmp_path / 'a'}").option("splitBytes", 8_192)

    pruned = reader.option("columns", "queue_id,queue_offset").load().where("queue_id = 2 and queue_offset < 10")
    by_schema = reader.schema("topic string, tags string").load().where("tags = 'Tag1'")

    assert pruned.columns == ["queue_id", "queue_offset"]
    assert sorted(row.queue_offset for row in pruned.collect()) == list(range(10))
    assert by_schema.count() == 133
    assert reader.load().rdd.getNumPartitions() > 5
    queue = spark.read.format("rocketmq_consumequeue").option("path", f"a={tmp_path / 'a'}").load()
    assert queue.where("queue_id = 1").count() == 100
    spark.read.format("rocketmq_offsets").option("path", str(tmp_path / "a")).load().createOrReplaceTempView("offsets")
    assert spark.sql("select consumer_group, committed_offset from offsets").collect() == [("g", 1)]
    index = spark.read.format("rocketmq_index").option("path", str(tmp_path / "a")).load()
    assert index.where("physical_offset = 0").count() == 3


def test_skewed_input_is_dealt_out_evenly(tmp_path: Path) -> None:
    store = SyntheticStore(str(tmp_path / "a"), log_file_bytes=1 << 18)
    for number in range(2_000):
        topic = "Small" if number % 10 == 0 else "Huge"
        store.append(topic, 0, b"x" * 300, store_timestamp=START_MS + number)
    store.save({})
    options = {"path": f"a={tmp_path / 'a'}", "splitBytes": str(1 << 16)}
    source = sources.CommitLogSource(options)
    parts: Sequence[Any] = source.reader(source.schema()).partitions()

    sizes = [sum(piece.stop - piece.start for piece in part.slices) for part in parts]

    assert len(parts) >= 10
    assert max(sizes) <= 1 << 16


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(chromium() is None, reason="no Chromium: apt install chromium")
def test_a_browser_renders_and_sorts_the_report_offline(spark: Any, tmp_path: Path) -> None:
    for name, offset in (("a", 10), ("b", 60)):
        filled(tmp_path / name).save({f"Orders@g<{n}>": {0: offset + n} for n in range(3)}, version=OLD)
    out = tmp_path / "out"
    run("reconcile", *named(tmp_path, "a", "b"), "--out", out)
    page = (out / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    ready = "document.documentElement.dataset.ready = 'yes';"
    twice = "const h = document.querySelectorAll('th')[1]; h.click(); h.click();"
    clicked = page.replace(ready, ready + twice)
    (tmp_path / "page.html").write_text(clicked)
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync"
    command = [str(chromium()), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}"]
    shot = tmp_path / "page.png"

    dump = [*command, "--dump-dom", (tmp_path / "page.html").as_uri()]
    dumped = subprocess.run(dump, capture_output=True, text=True, timeout=120, check=True).stdout
    subprocess.run(
        [*command, "--window-size=1200,1400", f"--screenshot={shot}", (out / "report.html").as_uri()],
        capture_output=True,
        timeout=120,
        check=True,
    )

    assert 'data-ready="yes"' in dumped
    order = [dumped.index(f'<td data-v="g&lt;{n}&gt;"') for n in (2, 1, 0)]
    assert order == sorted(order)
    assert dumped.count("<svg") >= 2
    assert "Differ: 3 queues of groups" in dumped
    assert shot.stat().st_size > 10_000
