"""We open what the Java broker wrote and see exactly what its own classes see."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden_stores import NAMES, damage, manifest, opened, read_queue, unpack

from understudy.format.java_hash import java_hash
from understudy.format.record import Record, decode_host, decode_record, decode_records

DAMAGE_CASES = [(name, case) for name in ("basic", "unclean") for case in sorted(manifest(name)["recovery"])]


def assert_is(record: Record, expected: dict[str, Any]) -> None:
    assert {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size_bytes,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_ms,
        "storeTimestamp": record.store_ms,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCRC": record.body_crc,
        "properties": record.properties,
        "offsetMsgId": record.message_id,
        "tagsHash": java_hash(record.properties.get("TAGS", "")),
        "bodyLength": len(record.body),
    } == {
        key: expected[key]
        for key in (
            "topic", "queueId", "queueOffset", "physicalOffset", "size", "flag", "sysFlag", "bornTimestamp",
            "storeTimestamp", "reconsumeTimes", "preparedTransactionOffset", "bodyCRC", "properties", "offsetMsgId",
            "tagsHash", "bodyLength",
        )
    }  # fmt: skip
    address, port = decode_host(record.store_host)
    assert expected["storeHost"].replace("[", "").replace("]", "").endswith(f"{address}:{port}")
    if "bodySha256" in expected:
        assert hashlib.sha256(record.body).hexdigest() == expected["bodySha256"]
    if "bodyHex" in expected:
        assert record.body.hex().upper() == expected["bodyHex"]
    if "bodyText" in expected:
        assert record.body.decode() == expected["bodyText"]


@pytest.mark.parametrize("name", NAMES)
async def test_every_record_queue_and_key_is_what_the_reference_sees(name: str, tmp_path: Path) -> None:
    # Given a directory the Java broker left behind
    content = manifest(name)
    root = unpack(name, tmp_path)

    # When we open it
    async with opened(name, root, content) as store:
        # Then the log begins and ends where it did
        assert (store.min_physical_offset, store.max_physical_offset) == (
            content["commitLogMinOffset"],
            content["commitLogMaxOffset"],
        )
        # and every record can be read by its physical offset
        for expected in content["messages"]:
            record = store.read(expected["physicalOffset"])
            assert record is not None
            assert_is(decode_record(record), expected)
        # and every queue has the reference's ends and gives every message from between them
        by_offset = {expected["physicalOffset"]: expected for expected in content["messages"]}
        expected_queues = {
            (queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"]) for queue in content["queues"]
        }
        if content.get("unclean"):
            recovered = content["recovery"]["asis"]["recovered"]["queues"]
            expected_queues = {
                (queue["topic"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"]) for queue in recovered
            }
        assert {
            key: (store.min_queue_offset(*key), store.max_queue_offset(*key)) for key in store.queues()
        } == expected_queues
        for topic, queue_id in store.queues():
            pulled = [decode_record(raw) for raw in read_queue(store, topic, queue_id)]
            for pulled_one in pulled:
                assert_is(pulled_one, by_offset[pulled_one.physical_offset])
            messages = sum(int(pulled_one.properties.get("INNER_NUM", 1)) for pulled_one in pulled)
            assert messages == expected_queues[topic, queue_id][1] - expected_queues[topic, queue_id][0]
        # and every key finds what it found there
        for answer in content.get("index", []):
            result = store.query(answer["topic"], answer["key"], 64, 0, 1 << 62, answer["type"])
            assert [decode_record(each).physical_offset for each in result.records] == answer["physicalOffsets"]


@pytest.mark.parametrize("name", [name for name in NAMES if not manifest(name).get("unclean")])
async def test_opening_and_closing_changes_no_message_file(name: str, tmp_path: Path) -> None:
    # Given a directory that was closed cleanly
    content = manifest(name)
    root = unpack(name, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    # When we open and close it
    async with opened(name, root, content) as store:
        assert store.max_physical_offset == content["commitLogMaxOffset"]

    # Then log, queues, index and checkpoint are byte for byte the same
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    changed = {str(path.relative_to(root)) for path in before if after.get(path) != before[path]}
    assert changed == set()
    assert {str(path.relative_to(root)) for path in after if path not in before} == {"recovery.mark"}


@pytest.mark.parametrize(("name", "case"), DAMAGE_CASES)
@pytest.mark.covers("R101")
async def test_damaged_directories_open_and_serve_every_whole_message(name: str, case: str, tmp_path: Path) -> None:
    # Given a directory with the damage of the case
    content = manifest(name)
    root = unpack(name, tmp_path)
    variant = content["recovery"][case]
    originals = {}
    log_files = {int(path.name): path for path in (root / "commitlog").iterdir()}
    for expected in content["messages"]:
        start = max(start for start in log_files if start <= expected["physicalOffset"])
        at = expected["physicalOffset"] - start
        originals[expected["physicalOffset"]] = log_files[start].read_bytes()[at : at + expected["size"]]
    damage(root, variant["damage"])
    whole = set()
    for physical, raw in originals.items():
        start = max(start for start in log_files if start <= physical)
        path = log_files[start]
        if path.exists() and path.read_bytes()[physical - start :][: len(raw)] == raw:
            whole.add(physical)

    # When we open it (whatever the reference did)
    for _ in range(2):
        async with opened(name, root, content) as store:
            # Then it starts, every message that is still whole is served once from its place in its queue, in order,
            served = set()
            for topic, queue_id in store.queues():
                records = [decode_record(raw) for raw in read_queue(store, topic, queue_id)]
                offsets = [record.queue_offset for record in records]
                assert offsets == sorted(set(offsets))
                for record in records:
                    assert (record.topic, record.queue_id) == (topic, queue_id)
                    raw = store.read(record.physical_offset)
                    # and nothing is served that was not stored like this
                    assert raw is not None
                    assert bytes(raw) == originals[record.physical_offset]
                served.update(record.physical_offset for record in records)
            assert served == whole
            # and queue offsets are those that the producers were told, so that no new message takes an old place
            recovered = {
                (queue["topic"], queue["queueId"]): queue["minOffset"]
                for queue in variant["recovered"].get("queues", [])
            }
            for key, minimum in recovered.items():
                assert store.min_queue_offset(*key) == minimum
            # and every key of a served message finds it, once
            for answer in content.get("index", []):
                result = store.query(answer["topic"], answer["key"], 64, 0, 1 << 62, answer["type"])
                found = [decode_record(record).physical_offset for record in result.records]
                assert found == [offset for offset in answer["physicalOffsets"] if offset in whole]


async def test_no_wanted_message_is_left_out_where_units_have_addresses_instead_of_tags_codes(tmp_path: Path) -> None:
    """Written with `enableConsumeQueueExt`; who asks for a tag compares it anyway, but must be given the message."""
    root = unpack("cqext", tmp_path)
    async with opened("cqext", root, manifest("cqext")) as store:
        for queue_id in range(2):
            every = store.get("OrderTopic", queue_id, 0, 64, 1 << 20)
            assert every.count == 30
            records = decode_records(b"".join(every.parts))
            tagged = {record.queue_offset for record in records if record.properties.get("TAGS") == "TagA"}
            found = store.get("OrderTopic", queue_id, 0, 64, 1 << 20, {java_hash("TagA")}.__contains__)
            given = {record.queue_offset for record in decode_records(b"".join(found.parts))}
            assert tagged and tagged <= given


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cqext" and not manifest(name).get("unclean")])
async def test_queues_and_index_built_from_the_log_are_those_the_reference_built(name: str, tmp_path: Path) -> None:
    # Given a directory that lost its queues and its index
    content = manifest(name)
    root = unpack(name, tmp_path)
    lost = {folder: root / folder for folder in ("consumequeue", "batchconsumequeue", "index")}
    before = {
        str(path.relative_to(root)): path.read_bytes()
        for folder in lost.values()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    batch_queues = [path for path in lost["batchconsumequeue"].glob("*/*") if path.is_dir()]
    for folder in lost.values():
        shutil.rmtree(folder, ignore_errors=True)
    for folder in batch_queues:
        folder.mkdir(parents=True)  # that a topic has batch queues stands in no record

    # When we open it
    async with opened(name, root, content) as store:
        assert store.max_physical_offset == content["commitLogMaxOffset"]

    # Then the new files are byte for byte the old ones; index files are named by the time of their making
    after = {
        str(path.relative_to(root)): path.read_bytes()
        for folder in lost.values()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    queues_before = {path: data for path, data in before.items() if not path.startswith("index/") and any(data)}
    assert {path: data for path, data in after.items() if not path.startswith("index/")} == queues_before
    index_before = [data for path, data in sorted(before.items()) if path.startswith("index/")]
    assert [data for path, data in sorted(after.items()) if path.startswith("index/")] == index_before


async def test_entries_written_by_appends_are_those_built_from_the_log(tmp_path: Path) -> None:
    # Given a store to which messages with all kinds of tags and keys were appended
    content = manifest("basic")
    root = unpack("basic", tmp_path)
    rewritten = tmp_path / "rewritten"
    async with opened("basic", root, content) as source, opened("basic", rewritten, content) as target:
        for expected in content["messages"]:
            raw = source.read(expected["physicalOffset"])
            assert raw is not None
            record = decode_record(raw)
            target.append(
                record.topic,
                record.queue_id,
                record.body,
                record.properties_text.encode(),
                record.born_ms,
                record.born_host,
                flag=record.flag,
                sys_flag=record.sys_flag,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
                now_ms=record.store_ms,
            )
    # Then queues and index are byte for byte those of the reference, which stored the same messages
    for folder in ("consumequeue", "index"):
        ours = [path.read_bytes() for path in sorted((rewritten / folder).rglob("*")) if path.is_file()]
        theirs = [path.read_bytes() for path in sorted((root / folder).rglob("*")) if path.is_file()]
        assert ours == [data for data in theirs if any(data)]
