"""The kernels read what the Java broker wrote exactly as the Java classes do."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from spark_golden import NAMES, manifest, unpack  # noqa: E402

from understudy.format.java_hash import index_key_hash  # noqa: E402
from understudy.spark_tools import layout  # noqa: E402
from understudy.spark_tools.crosscheck import log_against_index, log_against_queues, queue_against_log  # noqa: E402
from understudy.spark_tools.facts import LogRange, QueueRange, queue_ranges, range_facts  # noqa: E402
from understudy.spark_tools.faults import log_part_faults, part_faults, small_file_parts  # noqa: E402
from understudy.spark_tools.kernels import consumequeue, index, progress, records, tables  # noqa: E402
from understudy.spark_tools.kernels.commitlog import walk  # noqa: E402
from understudy.spark_tools.kernels.damage import DAMAGE  # noqa: E402
from understudy.spark_tools.kernels.window import Chunk, Window  # noqa: E402
from understudy.spark_tools.layout import Store, read_layout  # noqa: E402


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


def opened(name: str, stores: Path) -> Store:
    return Store(name, str(unpack(name, stores)))


def host(text: str) -> tuple[object, str]:
    address, port = text.rsplit(":", 1)
    return ipaddress.ip_address(address.strip("[]").split("%")[0]), port


def as_expected(message: dict[str, Any]) -> tuple[Any, ...]:
    return (
        message["physicalOffset"],
        message["size"],
        int(message["magic"][1]),
        message["topic"],
        message["queueId"],
        message["queueOffset"],
        message["flag"],
        message["sysFlag"],
        message["bornTimestamp"],
        message["storeTimestamp"],
        message["reconsumeTimes"],
        message["preparedTransactionOffset"],
        message["bodyCRC"],
        message["bodyLength"],
        message.get("uniqKey"),
        message.get("tags"),
        message.get("keys"),
        host(message["bornHost"]),
        host(message["storeHost"]),
    )


def as_read(row: dict[str, Any]) -> tuple[Any, ...]:
    names = (
        "physical_offset size version topic queue_id queue_offset flag sys_flag born_timestamp store_timestamp"
        " reconsume_times prepared_transaction_offset body_crc body_length uniq_key tags keys"
    )
    return (*(row[name] for name in names.split()), host(row["born_host"]), host(row["store_host"]))


@pytest.mark.parametrize("name", NAMES)
def test_records_are_those_of_the_reference_decoder(name: str, stores: Path) -> None:
    found = read_layout(opened(name, stores))
    rows: list[dict[str, Any]] = []
    for file in found.commit_log:
        data = Path(file.path).read_bytes()
        window = Window(file.path, file.start_offset, len(data), 0, data)
        for item in walk(window, 0, len(data)):
            if isinstance(item, Chunk):
                rows += records.batch(window, item, name, records.SCHEMA.names).to_pylist()

    assert [as_read(row) for row in rows] == [as_expected(message) for message in manifest(name)["messages"]]
    assert all(row["crc_ok"] for row in rows)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split_bytes", [700, 4096, 50_000])
def test_splits_find_the_same_records_as_a_walk_of_the_whole_file(name: str, split_bytes: int, stores: Path) -> None:
    for file in read_layout(opened(name, stores)).commit_log:
        data = Path(file.path).read_bytes()
        window = Window(file.path, file.start_offset, len(data), 0, data)

        def starts(begin: int, end: int, window: Window = window) -> list[int]:
            return [int(at) for item in walk(window, begin, end) if isinstance(item, Chunk) for at in item.positions]

        pieces = [starts(at, min(at + split_bytes, len(data))) for at in range(0, len(data), split_bytes)]

        assert [at for piece in pieces for at in piece] == starts(0, len(data))


@pytest.mark.parametrize("name", NAMES)
def test_queue_units_and_ranges_are_those_of_the_reference_store(name: str, stores: Path) -> None:
    store = opened(name, stores)
    found = read_layout(store)
    expected = manifest(name)
    log = {store.name: LogRange(found.log_min_offset, expected["commitLogMaxOffset"])}
    for queue in expected["queues"]:
        batched = queue["kind"] == "batchconsumequeue"
        parts = [part for part in queue_ranges([store], queue["topic"], batched) if part.queue_id == queue["queueId"]]
        dtype = consumequeue.BATCH_UNIT if batched else consumequeue.UNIT
        raw = b""
        for item in layout.queues(store, queue["topic"], batched, []):
            for file in item.files if item.queue_id == queue["queueId"] else ():
                array = consumequeue.units(Path(file.path).read_bytes(), dtype)
                raw += array[: consumequeue.valid_count(array)].tobytes()

        assert raw.hex() == queue["unitsHex"]
        if raw:
            fact = range_facts([store], log, parts[0])[0]
            assert (fact.min_offset, fact.max_offset) == (queue["minOffset"], queue["maxOffset"])


@pytest.mark.parametrize("name", NAMES)
def test_index_files_open_without_being_told_their_geometry(name: str, stores: Path) -> None:
    expected = manifest(name)
    slots = int(expected["config"]["maxHashSlotNum"])
    entries: set[tuple[int, int]] = set()
    for entry in read_layout(opened(name, stores)).indexes:
        data = Path(entry.path).read_bytes()
        header = index.read_header(data)

        assert index.slot_count(data, header) == slots
        table = index.entries(data, slots, header)
        entries |= set(zip(table["key_hash"].tolist(), table["physical_offset"].tolist(), strict=True))
    for query in expected.get("index", []):
        prefix = "T#" if query["type"] == "T" else ""
        key_hash = index_key_hash(f"{query['topic']}#{prefix}{query['key']}")
        for offset in query["physicalOffsets"]:
            assert (key_hash, offset) in entries


@pytest.mark.parametrize("name", NAMES)
def test_tables_checkpoint_epochs_and_timer_files(name: str, stores: Path) -> None:
    root = Path(opened(name, stores).path)
    expected = manifest(name)
    for table, content in expected.get("configFiles", {}).items():
        assert tables.loads((root / "config" / table).read_bytes()) == content
    checkpoint, found = progress.read_checkpoint((root / "checkpoint").read_bytes(), "checkpoint")
    assert found == []
    assert checkpoint is not None
    assert [
        checkpoint.physic_timestamp,
        checkpoint.logics_timestamp,
        checkpoint.index_timestamp,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_offset,
    ] == expected["checkpoint"]
    if "epochFile" in expected:
        epochs, found = progress.read_epochs((root / "epochFileCheckpoint").read_bytes(), "epochs")
        assert found == []
        lines = expected["epochFile"].split("\n")[2:-1]
        assert [f"{item.epoch}-{item.start_offset}" for item in epochs] == lines
    if "timer" in expected:
        units = []
        for file in read_layout(Store(name, str(root))).timer_log:
            array, found = progress.read_timer_log(Path(file.path).read_bytes(), file.path, file.start_offset)
            assert found == []
            units += [file.start_offset + 52 * number for number in range(len(array))]
        assert units == [unit[0] for unit in expected["timer"]["units"]]
        check, found = progress.read_timer_check((root / "config" / "timercheck").read_bytes(), "timercheck")
        assert found == []
        assert check is not None
        assert check.last_timer_log_flush_position == expected["timer"]["timercheck"][1]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_the_java_broker_gives_no_false_alarm(name: str, stores: Path) -> None:
    store = opened(name, stores)
    found = read_layout(store)
    alarms = [item for part in ("layout", *small_file_parts(found)) for item in part_faults(store, part)]
    for number, file in enumerate(found.commit_log):
        following = found.commit_log[number + 1] if number + 1 < len(found.commit_log) else None
        alarms += log_part_faults(file, 0, file.size_bytes, following, verify=True)

    assert [str(item) for item in alarms if item.severity == DAMAGE] == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "unclean"])
def test_queues_and_indexes_of_the_java_broker_agree_with_its_log(name: str, stores: Path) -> None:
    store = opened(name, stores)
    found = read_layout(store)
    log = LogRange(found.log_min_offset, manifest(name)["commitLogMaxOffset"])
    findings = []
    for file in found.commit_log:
        findings += log_against_queues(store, file, 0, file.size_bytes)
        findings += log_against_index(found, file, 0, file.size_bytes)
    for topic, batched in layout.topics(store):
        for part in queue_ranges([store], topic, batched):
            findings += queue_against_log(store, found, log, part)

    assert findings == []


def test_an_unclean_stop_shows_as_units_missing_at_the_end_of_queues(stores: Path) -> None:
    store = opened("unclean", stores)
    found = read_layout(store)

    findings = [item for file in found.commit_log for item in log_against_queues(store, file, 0, file.size_bytes)]

    assert {item.kind for item in findings} <= {"missing-unit"}
    assert found.unclean


def test_a_replica_of_the_same_log_has_no_divergence(stores: Path) -> None:
    pair = [opened("basic", stores), opened("slave", stores)]
    logs = {store.name: LogRange(0, manifest("basic")["commitLogMaxOffset"]) for store in pair}
    for topic, batched in layout.topics(pair[0]):
        for part in queue_ranges(pair, topic, batched):
            facts = range_facts(pair, logs, QueueRange(part.topic, part.batched, part.queue_id, part.start, part.stop))

            assert [fact.diverged_at for fact in facts] == [-1, -1]
            assert facts[0].max_offset == facts[1].max_offset
