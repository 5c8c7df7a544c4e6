"""Speed of the Spark tools: kernels on one core, data sources on local[2], the command a user types, memory, skew.

Usage: ./understudy bench spark [--quick] [--only NAME] [--keys N]. Prints one JSON line per measurement with figure,
aim and whether it was met, and ends with 1 if one was not. Inputs are generated below a temporary folder and removed
again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.processes import cold_run, own_orphans, peak_memory, processor_seconds, timed
from understudy.spark_tools import session, windows
from understudy.spark_tools.kernels import consumequeue, records
from understudy.spark_tools.kernels.tables import dumps
from understudy.spark_tools.kernels.window import Chunk
from understudy.spark_tools.layout import LogFile
from understudy.spark_tools.storage import map_range
from understudy.spark_tools.synthetic import SyntheticStore, write_bulk_log

BODY_BYTES = 900  # about 1 KB with header, topic and properties
READS = 3
HEAD_COLUMNS = ["physical_offset", "queue_id", "queue_offset", "store_timestamp", "size"]


MISSED: list[str] = []
"""Names of measurements that have missed their aims."""


def say(name: str, **facts: Any) -> None:
    """Prints one measurement, and remembers one that misses its aim."""
    print(json.dumps({"name": name, **facts}), flush=True)
    if facts.get("met") is False:
        MISSED.append(name)


def best_of(times: int, work: Callable[[], int]) -> tuple[float, int]:
    """Shortest CPU time of several runs, and what the work returned: other load on the machine does not count."""
    best, result = float("inf"), 0
    for _ in range(times):
        begin = time.process_time()
        result = work()
        best = min(best, time.process_time() - begin)
    return best, result


def log_file(directory: Path) -> LogFile:
    """The only file of a generated log, its pages read once."""
    path = directory / f"{0:020d}"
    status = path.stat()
    return LogFile(str(path), 0, status.st_size, status.st_mtime_ns)


def bench_walk(folder: Path, count: int) -> None:
    """Commit-log walk of records of 1 KB, of one size and of many sizes, without and with columns."""
    for uniform in (True, False):
        directory = folder / f"walk-{uniform}"
        size = write_bulk_log(
            str(directory),
            records=count,
            body_bytes=BODY_BYTES,
            file_bytes=1 << 30,
            topics=["TopicA", "TopicB"],
            queues=8,
            uniform=uniform,
        )
        file = log_file(directory)
        for columns in ((), tuple(HEAD_COLUMNS), (*HEAD_COLUMNS, "topic"), ("uniq_key",)):

            def walk(file: LogFile = file, columns: tuple[str, ...] = columns) -> int:
                found = 0
                for start, stop in windows.splits(file):
                    for window, item in windows.read_records(file, start, stop):
                        if isinstance(item, Chunk):
                            found += len(item.positions)
                            if columns:
                                records.batch(window, item, "a", columns)
                return found

            seconds, found = best_of(3, walk)
            assert found == count
            rate, volume = count / seconds, size / seconds / 1e9
            say(
                "commit-log walk",
                sizes="one" if uniform else "many",
                columns=len(columns),
                messages_per_s=round(rate),
                gb_per_s=round(volume, 2),
                aim="3 M messages/s or 1.5 GB/s (no columns)",
                met=None if columns else bool(rate >= 3e6 or volume >= 1.5),
            )


def bench_queue(folder: Path, count: int) -> None:
    """Units of a consume queue: validated, and turned into sums of their columns."""
    path = folder / f"{0:020d}"
    array = np.zeros(count, dtype=consumequeue.UNIT)
    array["physical_offset"] = np.arange(count, dtype=np.int64) * 1000
    array["size"] = 1000
    array["tags_code"] = 7
    path.write_bytes(array.tobytes())

    def scan() -> int:
        total = 0
        data, _ = map_range(str(path), 0, path.stat().st_size)
        units = consumequeue.units(data)
        for at in range(0, len(units), 1 << 20):
            piece = units[at : at + (1 << 20)]
            total += consumequeue.valid_count(piece)
        return total

    seconds, found = best_of(3, scan)
    assert found == count
    say(
        "consume queue",
        entries_per_s=round(count / seconds),
        aim="50 M entries/s",
        met=bool(count / seconds >= 50e6),
    )


def bench_sources(spark: Any, folder: Path, queue_entries: int, messages: int) -> None:
    """The data sources through Spark, columns consumed by an aggregate."""
    store = folder / "source"
    queue = store / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    per_file = 5_000_000
    for at in range(0, queue_entries, per_file):
        array = np.zeros(per_file, dtype=consumequeue.UNIT)
        array["physical_offset"] = np.arange(at, at + per_file, dtype=np.int64) * 1000
        array["size"] = 1000
        (queue / f"{at * 20:020d}").write_bytes(array.tobytes())
    write_bulk_log(
        str(store / "commitlog"),
        records=messages,
        body_bytes=BODY_BYTES,
        file_bytes=1 << 30,
        topics=["T", "U"],
        queues=8,
        uniform=False,
    )
    for name, aim, count, columns in (
        ("rocketmq_consumequeue", 8e6, queue_entries, "queue_offset,physical_offset,size"),
        ("rocketmq_commitlog", 2e6, messages, "queue_id,queue_offset,physical_offset,store_timestamp,size"),
    ):
        took = {}
        spent = {}
        for copies in (1, 3):
            begin = processor_seconds()
            took[copies] = read_time(spark, name, store, columns, copies, count)
            spent[copies] = (processor_seconds() - begin) / READS
        rate = 2 * count / max(took[3] - took[1], 1e-9)
        per_core = 2 * count / max(spent[3] - spent[1], 1e-9)
        say(
            name,
            rows=count,
            seconds=round(took[1], 2),
            seconds_of_three_times=round(took[3], 2),
            rows_per_s_of_the_difference=round(rate),
            rows_per_processor_s=round(per_core),
            aim=aim,
            met=rate >= aim,
        )


def read_time(spark: Any, name: str, store: Path, columns: str, copies: int, count: int) -> float:
    """Shortest wall time of an aggregate over a store read under several names; two sizes tell speed from start-up."""
    path = ";".join(f"{letter}={store}" for letter in "abc"[:copies])
    frame = spark.read.format(name).option("path", path).option("columns", columns).load()
    best = float("inf")
    for _ in range(READS):
        with timed() as took:
            row = frame.selectExpr("count(*) c", "sum(size) s", "max(physical_offset) p").collect()[0]
        assert row.c == count * copies
        best = min(best, took[0])
    return best


def offsets_text(groups: int, queues: int, shift: int, every: int = 50) -> bytes:
    """An offset table with every group on one of a hundred topics; one group of `every` is further by `shift`."""
    table = {
        f"Topic{group % 100}@group{group}": {queue: 5 + (shift if group % every == 0 else 0) for queue in range(queues)}
        for group in range(groups)
    }
    version = {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    return dumps({"dataVersion": version, "offsetTable": table}).encode()


def write_replicas(folder: Path, groups: int, queues: int, names: str = "abc", every: int = 50) -> list[str]:
    """Replicas of a log with a hundred topics; one group of `every` differs on the last."""
    for name in names:
        store = SyntheticStore(str(folder / name), log_file_bytes=1 << 20, queue_file_units=20)
        for number in range(100 * queues * 10):
            store.append(
                f"Topic{number % 100}", number // 100 % queues, b"", store_timestamp=1_700_000_000_000 + number
            )
        store.save({}, groups=[f"group{group}" for group in range(groups)], queues_per_topic=queues)
        text = offsets_text(groups, queues, 3 if name == names[-1] else 0, every)
        (folder / name / "config" / "consumerOffset.json").write_bytes(text)
    return [word for name in names for word in ("--store", f"{name}={folder / name}")]


def bench_reconcile(folder: Path, groups: int, queues: int) -> None:
    """The command as a user types it, at 1x, 2x and 4x of a quarter of the groups, so that 4x is the full size."""
    own_orphans()
    previous = (0.0, 0.0)
    for factor in (1, 2, 4):
        place = folder / f"reconcile-{factor}"
        count = groups * factor // 4
        options = write_replicas(place, count, queues)
        command = [sys.executable, "-m", "understudy.spark_tools.main", "reconcile", *options]
        code, took, spent = cold_run([*command, "--out", str(place / "out"), "--quiet"])
        assert code == 1, code
        facts: dict[str, Any] = {"groups": count, "queues": queues, "replicas": 3, "seconds": round(took, 1)}
        facts["processor_s"] = round(spent, 1)
        if factor > 1:
            facts["times_the_half"] = round(took / previous[0], 2)
            facts["processor_times_the_half"] = round(spent / previous[1], 2)
            facts["at_most_twice"] = took <= 2 * previous[0]
        if factor == 4:
            facts |= {"aim": "60 s", "met": took < 60}
        previous = (took, spent)
        say("reconcile, from start to exit", **facts)
        shutil.rmtree(place)


def bench_plan(folder: Path, groups: int, queues: int) -> None:
    """A plan in which every key differs, made with a driver of 1 GB, and shown."""
    import pyspark

    options = write_replicas(folder / "plan", groups, queues, "ab", 1)
    job = folder / "job.py"
    job.write_text("import sys\nfrom understudy.spark_tools.main import main\nsys.exit(main())\n")
    home = Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g", str(job)]
    out = folder / "plan" / "out"
    code, took, peaks = peak_memory([*submit, "reconcile", *options, "--out", str(out)], environment)
    assert code == 1, code
    rows = json.loads((out / "plan.json").read_text())["changes"]["rows"]
    assert rows == groups * queues, rows
    facts: dict[str, Any] = {f"{kind}_mb": peak for kind, peak in peaks.items()}
    met = peaks["driver"] < 512  # beside the JVM, whose heap is bounded
    say("reconcile, all keys differ, driver of 1 GB", rows=rows, seconds=round(took, 1), **facts, aim="512 MB", met=met)
    show = [sys.executable, str(job), "plan", "show", str(out / "plan.json")]
    code, took, peaks = peak_memory(show, environment)
    assert code == 0, code
    facts = {f"{kind}_mb": peak for kind, peak in peaks.items()}
    met = facts["driver_mb"] < 256
    say("plan show", changes=groups * queues, seconds=round(took, 1), **facts, aim="256 MB", met=met)
    shutil.rmtree(folder / "plan")


def bench_skew(folder: Path, messages: int) -> None:
    """Largest share of the input any task gets when one topic holds nine tenths of it."""
    from understudy.spark_tools.sources import CommitLogSource

    store = folder / "skew"
    write_bulk_log(
        str(store / "commitlog"),
        records=messages,
        body_bytes=BODY_BYTES,
        file_bytes=1 << 30,
        topics=["Huge", *(f"Small{number}" for number in range(9))],
        queues=4,
        uniform=False,
        skew=0.9,
    )
    source = CommitLogSource({"path": f"a={store}", "splitBytes": str(16 << 20)})
    parts: Sequence[Any] = source.reader(source.schema()).partitions()
    sizes = [sum(piece.stop - piece.start for piece in part.slices) for part in parts]
    say("skew", tasks=len(sizes), largest_share=round(max(sizes) / sum(sizes), 3), met=max(sizes) / sum(sizes) < 0.2)


def bench_memory(folder: Path, messages: int) -> None:
    """Peak memory of one process that reads all columns but bodies of a large file, split after split."""
    directory = folder / "memory"
    write_bulk_log(
        str(directory),
        records=messages,
        body_bytes=BODY_BYTES,
        file_bytes=2 << 30,
        topics=["T"],
        queues=4,
        uniform=False,
    )
    process = os.fork()
    if process == 0:
        file = log_file(directory)
        columns = [name for name in records.SCHEMA.names if name not in ("body", "crc_ok")]
        for start, stop in windows.splits(file):
            for window, item in windows.read_records(file, start, stop):
                if isinstance(item, Chunk):
                    records.batch(window, item, "a", columns)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say("memory per task", file_mb=file.size_bytes >> 20, peak_mb=round(peak), aim="512 MB", met=peak < 512)
        os._exit(0 if peak < 512 else 1)
    if os.waitpid(process, 0)[1]:
        MISSED.append("memory per task")


def main(argv: list[str] | None = None) -> int:
    """Runs the measurements and returns 0, or 1 when a figure misses its aim, as its line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--only", help="walk, queue, skew, memory, reconcile, plan or sources")
    parser.add_argument("--keys", type=int, help="keys that differ, of plan; 10,000,000 if not given, or a tenth of it")
    options = parser.parse_args(argv)
    MISSED.clear()
    scale = 10 if options.quick else 1
    folder = Path(tempfile.mkdtemp(prefix="understudy-spark-bench-"))

    def wanted(name: str) -> bool:
        return options.only in (None, name)

    try:
        if wanted("walk"):
            bench_walk(folder, 800_000 // scale)
        if wanted("queue"):
            bench_queue(folder, 20_000_000 // scale)
        if wanted("skew"):
            bench_skew(folder, 200_000 // scale)
        if wanted("memory"):
            bench_memory(folder, 1_500_000 // scale)
        if wanted("reconcile"):
            bench_reconcile(folder, 10_000 // scale, 64)
        if wanted("plan"):
            bench_plan(folder, (options.keys or 10_000_000 // scale) // 64, 64)
        if wanted("sources"):
            spark = session.start("local[2]")
            bench_sources(spark, folder, 50_000_000 // scale, 900_000 // scale)
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if MISSED:
        print(f"missed: {', '.join(MISSED)}", file=sys.stderr)
    return 1 if MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
