"""Appending and reading: places, limits, filters, statuses, times, keys."""

from __future__ import annotations

import pytest
import trio
from store_fixtures import (
    LOG_FILE_BYTES,
    PRODUCER,
    bodies_of,
    disk_of,
    put,
    records_of,
    running_store,
    simulated_world,
    small_config,
)

from understudy.format.batch import encode_batch
from understudy.format.java_hash import java_hash
from understudy.format.properties import find_property
from understudy.format.record import decode_record, encode_host
from understudy.store.config import SYNC_FLUSH
from understudy.store.status import Appended, GetStatus, PutRejected, PutStatus

TOPIC = "Orders"


async def test_a_message_is_readable_at_once_with_all_its_fields(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        # given a message from a producer with an IPv6 address
        host = encode_host("2001:db8::7", 1234)
        properties = b"TAGS\x01red\x02KEYS\x01a b\x02"
        appended = store.append(
            TOPIC, 3, b"body", properties, 77, host, flag=5, sys_flag=0x1, reconsume_times=2, now_ms=99
        )
        # when its queue is read
        (record,) = records_of(store.get(TOPIC, 3, 0, 32, 1 << 20))
        # then everything is as it was given
        assert appended == Appended(0, record.size_bytes, 0)
        assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == (TOPIC, 3, 0, 0)
        assert (record.body, record.properties_text.encode()) == (b"body", properties)
        assert (record.flag, record.sys_flag, record.reconsume_times) == (5, 0x11, 2)
        assert (record.born_ms, record.born_host, record.store_ms) == (77, host, 99)
        assert record.store_host == encode_host("127.0.0.1", 10911)


async def test_reads_outside_a_queue_have_the_status_and_offset_of_the_reference(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        unknown = store.get("Nothing", 0, 5, 32, 1 << 20)
        assert (unknown.status, unknown.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        assert list(store.queues()) == []
        put(store, TOPIC, b"a")
        put(store, TOPIC, b"b")
        for offset, status, next_offset in [
            (-1, GetStatus.OFFSET_TOO_SMALL, 0),
            (2, GetStatus.OFFSET_OVERFLOW_ONE, 2),
            (9, GetStatus.OFFSET_OVERFLOW_BADLY, 2),
            (1, GetStatus.FOUND, 2),
        ]:
            found = store.get(TOPIC, 0, offset, 32, 1 << 20)
            assert (found.status, found.next_begin_offset, found.min_offset, found.max_offset) == (
                status,
                next_offset,
                0,
                2,
            )
        # a plain slave does not correct its consumers
        store.set_correct_offsets(False)
        assert store.get(TOPIC, 0, 9, 32, 1 << 20).next_begin_offset == 9


async def test_reads_stop_at_count_bytes_and_file_but_give_at_least_one(autojump_clock: object) -> None:
    config = small_config(max_transfer_bytes_in_memory=1_000, max_transfer_count_in_memory=6)
    async with running_store(simulated_world(), config) as store:
        for number in range(50):
            put(store, TOPIC, b"%02d" % number)
        size = records_of(store.get(TOPIC, 0, 0, 1, 1 << 20))[0].size_bytes
        assert store.get(TOPIC, 0, 0, 3, 1 << 20).count == 3
        assert store.get(TOPIC, 0, 0, 32, 1 << 20).count == 6
        assert store.get(TOPIC, 0, 0, 32, size * 4 + 1).count == 4
        assert store.get(TOPIC, 0, 0, 32, 1).count == 1
        # one file of the queue holds 20 units; a read does not go on in the next one
        assert store.get(TOPIC, 0, 18, 32, 1 << 20).count == 2
        put(store, "Large", bytes(5_000))
        assert store.get("Large", 0, 0, 32, 1 << 20).size_bytes > 5_000


async def test_neighbours_are_one_slice(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        for number in range(4):
            put(store, TOPIC, b"same %d" % number)
        found = store.get(TOPIC, 0, 0, 32, 1 << 20)
        assert [len(part) for part in found.parts] == [found.size_bytes]
        put(store, "Other", b"between")
        put(store, TOPIC, b"after")
        found = store.get(TOPIC, 0, 0, 32, 1 << 20)
        assert bodies_of(found) == [b"same 0", b"same 1", b"same 2", b"same 3", b"after"]
        assert sum(map(len, found.parts)) == found.size_bytes


async def test_filters_see_tags_codes_and_properties(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        for number in range(12):
            put(store, TOPIC, b"%d" % number, TAGS="even" if number % 2 == 0 else "odd", n=str(number))
        even = java_hash("even")
        found = store.get(TOPIC, 0, 0, 32, 1 << 20, lambda code: code == even)
        assert bodies_of(found) == [b"0", b"2", b"4", b"6", b"8", b"10"]
        assert found.next_begin_offset == 12
        limited = store.get(TOPIC, 0, 0, 2, 1 << 20, lambda code: code == even)
        assert (bodies_of(limited), limited.next_begin_offset) == ([b"0", b"2"], 4)
        by_properties = store.get(
            TOPIC, 0, 0, 32, 1 << 20, None, lambda raw: int(find_property(raw, b"n\x01") or 0) > 9
        )
        assert bodies_of(by_properties) == [b"10", b"11"]
        nothing = store.get(TOPIC, 0, 3, 32, 1 << 20, lambda code: False)
        assert (nothing.status, nothing.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 12)


async def test_files_roll_with_a_blank_marker_and_records_never_span_two(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        places = [put(store, TOPIC, bytes([number]) * 3_000) for number in range(12)]
        for place in places:
            assert place.physical_offset // LOG_FILE_BYTES == (place.physical_offset + place.size_bytes - 1) // (
                LOG_FILE_BYTES
            )
        first = world.disk.read("/store/commitlog/" + "0" * 20)
        end = places[4].physical_offset + places[4].size_bytes
        assert first[end : end + 8].hex() == (LOG_FILE_BYTES - end).to_bytes(4, "big").hex() + "cbd43194"
        everything = [body for offset in range(12) for body in bodies_of(store.get(TOPIC, 0, offset, 1, 1 << 20))]
        assert everything == [bytes([number]) * 3_000 for number in range(12)]


async def test_a_batch_is_stored_as_single_messages_all_or_none(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        seen: list[tuple[str, int, int, int]] = []
        store.arrived.append(
            lambda topic, queue, offset, code, ms, properties: seen.append((topic, queue, offset, code))
        )
        put(store, TOPIC, b"before")
        items = [
            (number, b"b%d" % number, b"TAGS\x01t%d\x02UNIQ_KEY\x01key-number-%d\x02" % (number, number))
            for number in range(40)
        ]
        batch = store.append_batch(TOPIC, 0, encode_batch(items), 5, PRODUCER)
        assert batch.first_queue_offset == 1
        records = [record for offset in (0, 20, 40) for record in records_of(store.get(TOPIC, 0, offset, 32, 1 << 20))]
        assert [(record.flag, record.body, record.properties_text.encode()) for record in records[1:]] == items
        assert [record.physical_offset for record in records[1:]] == batch.physical_offsets
        assert batch.end_offset == store.max_physical_offset
        assert seen == [(TOPIC, 0, 1, 0)] + [(TOPIC, 0, number + 2, java_hash(f"t{number}")) for number in range(40)]
        for number in (0, 39):
            (found,) = store.query(TOPIC, f"key-number-{number}", 10, 0, 1 << 60).records
            assert decode_record(found).body == b"b%d" % number
        before = store.max_physical_offset
        for bad in (b"", b"short", encode_batch(items)[:-1]):
            with pytest.raises(PutRejected) as refused:
                store.append_batch(TOPIC, 0, bad, 5, PRODUCER)
            assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == before


@pytest.mark.parametrize(
    ("topic", "body", "properties", "status", "reason"),
    [
        ("x" * 128, b"", b"", PutStatus.MESSAGE_ILLEGAL, "the longest allowed has 127"),
        ("%RETRY%" + "x" * 250, b"", b"", PutStatus.MESSAGE_ILLEGAL, "the longest allowed has 255"),
        ("../up", b"", b"", PutStatus.MESSAGE_ILLEGAL, "cannot name a queue"),
        ("..", b"", b"", PutStatus.MESSAGE_ILLEGAL, "cannot name a queue"),
        ("T", bytes((4 << 20) + 1), b"", PutStatus.MESSAGE_ILLEGAL, "maxMessageSize"),
        ("T", bytes(20_000), b"", PutStatus.MESSAGE_ILLEGAL, "mappedFileSizeCommitLog"),
        ("T", b"", bytes(32_768), PutStatus.PROPERTIES_SIZE_EXCEEDED, "the longest allowed have 32767"),
    ],
)
async def test_what_cannot_be_stored_is_refused_with_the_reason(
    topic: str, body: bytes, properties: bytes, status: PutStatus, reason: str, autojump_clock: object
) -> None:
    async with running_store(simulated_world()) as store:
        with pytest.raises(PutRejected, match=reason) as refused:
            store.append(topic, 0, body, properties, 1, PRODUCER)
        assert refused.value.status is status
        assert store.max_physical_offset == 0


async def test_a_fenced_or_closed_store_refuses_and_says_so(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        put(store, TOPIC, b"a")
        store.set_writable(False)
        assert not store.writable
        with pytest.raises(PutRejected) as refused:
            put(store, TOPIC, b"b")
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        store.set_writable(True)
        assert put(store, TOPIC, b"b").queue_offset == 1
    with pytest.raises(PutRejected, match="closed"):
        put(store, TOPIC, b"c")


async def test_offsets_by_time_have_both_boundaries(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        for stored_ms in (100, 100, 200, 300, 300):
            store.append(TOPIC, 0, b"", b"", 1, PRODUCER, now_ms=stored_ms)
        lower = {ms: store.offset_by_time(TOPIC, 0, ms) for ms in (50, 100, 150, 200, 300, 301)}
        assert lower == {50: 0, 100: 0, 150: 2, 200: 2, 300: 3, 301: 5}
        upper = {ms: store.offset_by_time(TOPIC, 0, ms, "upper") for ms in (50, 100, 150, 200, 300, 301)}
        assert upper == {50: 0, 100: 1, 150: 1, 200: 2, 300: 4, 301: 4}
        assert store.store_time_of(TOPIC, 0, 2) == 200
        assert store.store_time_of(TOPIC, 0, 5) == -1
        assert (store.earliest_store_time(), store.earliest_store_time(TOPIC, 0)) == (100, 100)
        assert store.earliest_store_time("Nothing", 0) == -1


async def test_keys_tags_and_unique_keys_find_messages_and_nothing_else(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        for number in range(200):
            put(
                store,
                TOPIC,
                b"%d" % number,
                UNIQ_KEY=f"7F00000100001111{number:016X}",
                KEYS=f"order-{number} all",
                TAGS=f"tag-{number % 10}",
            )

        def find(key: str, kind: str | None = None, most: int = 64) -> list[int]:
            return [int(decode_record(raw).body) for raw in store.query(TOPIC, key, most, 0, 1 << 60, kind).records]

        assert find("order-123") == [123]
        assert find(f"7F00000100001111{7:016X}") == [7]
        assert find("tag-3", "T") == list(range(3, 200, 10))
        assert find("tag-3") == []
        assert find("all", most=5) == [195, 196, 197, 198, 199]
        assert find("order-1234") == []
        result = store.query(TOPIC, "order-1", 5, 0, 1 << 60)
        assert result.index_last_update_physical_offset < store.max_physical_offset
        assert store.query("Nothing", "x", 5, 0, 1 << 60).records == []


async def test_one_sync_serves_every_waiting_sender(autojump_clock: object) -> None:
    # given synchronous flush on a disk whose syncs take a while
    world = simulated_world()
    async with running_store(world, small_config(flush_disk_type=SYNC_FLUSH)) as store:
        disk = disk_of(world)
        disk.sync_seconds = 0.05
        put(store, TOPIC, b"first")
        await trio.sleep(1)
        before = disk.syncs
        answers: list[bool] = []

        async def send(number: int) -> None:
            end = put(store, TOPIC, b"%d" % number)
            # then a message is readable only when it is durable
            assert store.max_queue_offset(TOPIC, 0) == 1
            answers.append(await store.wait_flushed(end.physical_offset + end.size_bytes, 5_000))

        # when many senders wait at the same time
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(send, number)
        # then a few syncs serve them all
        assert answers == [True] * 50
        assert disk.syncs - before <= 3
        assert store.max_queue_offset(TOPIC, 0) == 51


async def test_it_is_known_for_how_long_the_disk_has_been_asked(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, small_config(flush_disk_type=SYNC_FLUSH)) as store:
        disk = disk_of(world)
        disk.sync_seconds = 3.0
        put(store, TOPIC, b"first")
        await trio.sleep(2)
        assert 1.9 < store.syncing_seconds() <= 2.0
        # one sync after the other is none that hangs
        for _ in range(10):
            put(store, TOPIC, b"next")
            await trio.sleep(1)
            assert store.syncing_seconds() <= 3.0
        disk.sync_seconds = 0.0
        await trio.sleep(30)
        assert store.syncing_seconds() == 0.0


async def test_waiting_for_a_disk_that_fails_times_out_and_stops_writes_for_good(
    autojump_clock: object,
) -> None:
    world = simulated_world()
    async with running_store(world, small_config(flush_disk_type=SYNC_FLUSH)) as store:
        disk_of(world).sync_error = OSError(5, "Input/output error")
        end = put(store, TOPIC, b"a")
        started = trio.current_time()
        assert not await store.wait_flushed(end.physical_offset + end.size_bytes, 5_000)
        assert trio.current_time() - started == pytest.approx(5.0)
        assert store.get(TOPIC, 0, 0, 32, 1 << 20).status is GetStatus.NO_MESSAGE_IN_QUEUE
        with pytest.raises(PutRejected, match="failed to flush") as refused:
            put(store, TOPIC, b"b")
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        # a system may forget what it could not write, and say nothing of it at the next sync
        disk_of(world).sync_error = None
        assert not await store.flush()
        await trio.sleep(60)
        assert store.flushed_offset == 0
        assert store.get(TOPIC, 0, 0, 32, 1 << 20).status is GetStatus.NO_MESSAGE_IN_QUEUE


async def test_an_idle_store_sleeps(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, TOPIC, b"a")
        await trio.sleep(60)
        # given everything is durable
        assert store.flushed_offset == store.max_physical_offset
        before = disk_of(world).syncs
        # when nothing happens for hours then nothing is written
        await trio.sleep(7_200)
        assert disk_of(world).syncs == before


async def test_a_disk_that_takes_no_new_file_refuses_messages_and_loses_none(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, TOPIC, b"a")
        disk = disk_of(world)

        def refuse(path: str, size: int, *, create: bool = True) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(disk, "map", refuse)
            # when a message needs a new file of its queue, or of the log
            for topic, body in (("New", b"x"), (TOPIC, bytes(16_200))):
                before = store.max_physical_offset
                with pytest.raises(PutRejected, match="No space left") as refused:
                    put(store, topic, body)
                # then it is refused and nothing is written
                assert refused.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
                assert store.max_queue_offset(topic, 0) == (1 if topic == TOPIC else 0)
                assert topic == TOPIC or store.max_physical_offset == before
        # and when there is space again the next one is taken
        assert put(store, "New", b"x").queue_offset == 0
        assert put(store, TOPIC, bytes(16_200)).queue_offset == 1
        assert bodies_of(store.get(TOPIC, 0, 0, 32, 1 << 20)) == [b"a", bytes(16_200)]
