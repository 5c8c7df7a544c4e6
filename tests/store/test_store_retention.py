"""Old files go by age, by hour and by space; what a reader holds stays readable."""

from __future__ import annotations

import errno

import attrs
import pytest
import trio
from store_fixtures import (
    LOG_FILE_BYTES,
    bodies_of,
    counting_world,
    disk_of,
    put,
    running_store,
    simulated_world,
    small_config,
)

from understudy.runtime.pace import run_steps
from understudy.runtime.world import World
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.consume_queues import ConsumeQueues
from understudy.store.message_store import MessageStore
from understudy.store.retention import Verdict, judge
from understudy.store.status import GetStatus, PutRejected, PutStatus

TOPIC = "Orders"
FOUR_FILES = 16
QUEUES = 150


def fill(store: MessageStore, topic: str = TOPIC) -> None:
    """Write four files of messages of 4 KB."""
    for number in range(FOUR_FILES):
        put(store, topic, bytes([number]) * 4_000, UNIQ_KEY=f"{topic}-key-{number:012}")


def log_files(world: World) -> list[int]:
    return [int(name) // LOG_FILE_BYTES for name in world.disk.listdir("/store/commitlog")]


@pytest.mark.parametrize(
    ("used", "hour", "manual", "expected"),
    [
        (0.50, 12, False, Verdict(False, False, False)),
        (0.50, 4, False, Verdict(True, False, False)),
        (0.50, 12, True, Verdict(True, False, False)),
        (0.76, 12, False, Verdict(True, False, False)),
        (0.86, 12, False, Verdict(True, True, False)),
        (0.91, 12, False, Verdict(True, True, True)),
    ],
)
def test_verdicts_follow_the_limits_of_the_reference(used: float, hour: int, manual: bool, expected: Verdict) -> None:
    assert judge(small_config(), used, hour, manual) == expected


def test_files_are_not_forced_out_when_that_is_switched_off() -> None:
    verdict = judge(small_config(clean_file_forcibly_enable=False), 0.95, 12, False)
    assert verdict == Verdict(True, False, True)


async def test_expired_files_go_with_their_queue_and_index_entries(autojump_clock: object) -> None:
    # given three full files and a fourth
    world = simulated_world()
    config = small_config(delete_when="", max_hash_slot_num=5, max_index_num=5, clean_resource_interval_ms=60_000)
    async with running_store(world, config) as store:
        fill(store)
        files = log_files(world)
        await trio.sleep(71 * 3600)
        put(store, TOPIC, b"young")
        # when an operator asks for the clean-up before anything is old enough
        store.delete_expired_files()
        await trio.sleep(130)
        # then nothing goes; and when the oldest are, all but the last go
        assert log_files(world) == files
        disk = disk_of(world)
        await trio.sleep(2 * 3_600)
        disk.set_modified_ms(f"/store/commitlog/{files[2] * LOG_FILE_BYTES:020}", world.clock.wall_ms())
        store.delete_expired_files()
        await trio.sleep(130)
        assert log_files(world) == files[2:]
        # and reads go on with the first message that is left
        first = store.min_queue_offset(TOPIC, 0)
        assert store.min_physical_offset == files[2] * LOG_FILE_BYTES
        assert first > 0
        early = store.get(TOPIC, 0, 0, 32, 1 << 20)
        assert (early.status, early.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, first)
        assert bodies_of(store.get(TOPIC, 0, first, 1, 1 << 20)) == [bytes([first]) * 4_000]
        assert store.query(TOPIC, f"{TOPIC}-key-{0:012}", 5, 0, 1 << 60).records == []
        assert len(store.query(TOPIC, f"{TOPIC}-key-{first:012}", 5, 0, 1 << 60).records) == 1
    # and after a restart it is the same
    async with running_store(world, config) as store:
        assert store.min_queue_offset(TOPIC, 0) == first
        assert store.max_queue_offset(TOPIC, 0) == FOUR_FILES + 1


async def test_settings_change_while_the_store_is_open(autojump_clock: object) -> None:
    # given files that are younger than the reserved time
    world = simulated_world()
    config = small_config(delete_when="", clean_resource_interval_ms=60_000)
    async with running_store(world, config) as store:
        fill(store)
        files = log_files(world)
        await trio.sleep(3_600 * 2)
        put(store, TOPIC, b"young")
        store.delete_expired_files()
        await trio.sleep(130)
        assert log_files(world) == files
        # when an operator shortens the time, then the old ones go
        store.change_settings(attrs.evolve(config, file_reserved_time_hours=1))
        store.delete_expired_files()
        await trio.sleep(130)
        assert log_files(world) == files[-1:]
        # and the other limits count at once, too; what belongs to the files stays
        store.change_settings(
            attrs.evolve(config, max_message_size=10, max_transfer_count_in_memory=1, folder="/other")
        )
        with pytest.raises(PutRejected) as refused:
            put(store, TOPIC, bytes(11))
        assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
        last = store.max_queue_offset(TOPIC, 0)
        put(store, TOPIC, b"a")
        put(store, TOPIC, b"b")
        assert bodies_of(store.get(TOPIC, 0, last, 32, 1 << 20)) == [b"a"]
    async with running_store(world, config) as store:
        assert bodies_of(store.get(TOPIC, 0, last, 32, 1 << 20)) == [b"a", b"b"]


async def test_a_reader_keeps_what_it_holds_of_a_deleted_file(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        fill(store)
        held = store.get(TOPIC, 0, 0, 1, 1 << 20)
        disk_of(world).used_bytes = int(disk_of(world).total_bytes * 0.87)
        await trio.sleep(100)
        assert store.min_physical_offset > 0
        assert bodies_of(held) == [bytes(4_000)]


async def test_a_full_disk_refuses_writes_and_accepts_them_again(autojump_clock: object) -> None:
    world = simulated_world()
    disk = disk_of(world)
    async with running_store(world, small_config(clean_file_forcibly_enable=False)) as store:
        put(store, TOPIC, b"a")
        disk.used_bytes = int(disk.total_bytes * 0.93)
        await trio.sleep(100)
        with pytest.raises(PutRejected, match="diskSpaceWarningLevelRatio") as refused:
            put(store, TOPIC, b"b")
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert bodies_of(store.get(TOPIC, 0, 0, 32, 1 << 20)) == [b"a"]
        disk.used_bytes = 0
        await trio.sleep(20)
        assert put(store, TOPIC, b"b").queue_offset == 1


async def test_a_disk_that_fills_up_between_two_looks_refuses_writes_within_a_second(autojump_clock: object) -> None:
    world = simulated_world()
    disk = disk_of(world)
    async with running_store(world, small_config(clean_file_forcibly_enable=False)) as store:
        await trio.sleep(1)  # the first look is a minute away
        disk.used_bytes = int(disk.total_bytes * 0.93)
        put(store, TOPIC, b"a")
        await trio.sleep(1)
        assert not store.writable
        with pytest.raises(PutRejected, match="diskSpaceWarningLevelRatio"):
            put(store, TOPIC, b"b")


async def test_topics_are_deleted_and_unused_ones_cleaned(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for topic in ("Keep", "Drop", "Unused", "SCHEDULE_TOPIC_XXXX"):
            put(store, topic, b"a", queue_id=1)
        store.delete_topic("Drop")
        assert sorted(store.queues()) == [("Keep", 1), ("SCHEDULE_TOPIC_XXXX", 1), ("Unused", 1)]
        assert run_steps(store.clean_unused({"Keep"})) == ["Unused"]
        assert put(store, "Drop", b"again", queue_id=1).queue_offset == 0
    async with running_store(world) as store:
        assert sorted(store.queues()) == [("Drop", 1), ("Keep", 1), ("SCHEDULE_TOPIC_XXXX", 1)]
        assert bodies_of(store.get("Drop", 1, 0, 32, 1 << 20)) == [b"again"]


async def test_queues_follow_a_deleted_log_file_in_short_steps(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, disk = counting_world()
    async with running_store(world, small_config(max_hash_slot_num=5, max_index_num=5)) as store:
        # given many queues, some of them with a file whose messages are all in the oldest files of the log
        for number in range(25):
            put(store, TOPIC, bytes(2_000), number % 2, UNIQ_KEY=f"{TOPIC}-{number:012}")
        for queue_id in range(QUEUES):
            put(store, TOPIC, b"a", queue_id, UNIQ_KEY=f"{TOPIC}-{queue_id:012}")
            put(store, TOPIC, bytes(1_000), 0, UNIQ_KEY=f"{TOPIC}-{queue_id:012}")
        await trio.sleep(1)
        looked: list[int] = [0]
        look = ConsumeQueues.delete_before

        def counted(self: ConsumeQueues, queue: ConsumeQueue, log_min: int) -> None:
            looked[-1] += 1
            look(self, queue, log_min)

        monkeypatch.setattr(ConsumeQueues, "delete_before", counted)
        steps = store._retention.follow_steps()
        while next(steps, "the end") is None:
            looked.append(0)
        assert sum(looked) == QUEUES
        assert max(looked) == 1
        # when log files go, then they, and what is large of the index, are removed in threads
        disk.on_loop.clear()
        disk.in_threads.clear()
        looked[:] = [0]
        assert await store._retention.delete_files(1 << 60, True) > 5
        assert sum(looked) == QUEUES
        assert sum(calls["remove"] for calls in disk.in_threads) > 10
        assert 0 < disk.on_loop["remove"] < 10  # queue files
        # and what is left can be read
        first = store.min_queue_offset(TOPIC, 0)
        assert first > 20
        assert bodies_of(store.get(TOPIC, 0, first, 1, 1 << 20)) == [bytes(1_000)]


async def test_a_log_file_that_cannot_be_removed_stays_in_the_log(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        fill(store)
        assert await store.flush()
        files, refused = log_files(world), list[str]()

        def refuse(path: str) -> None:
            refused.append(path)
            raise OSError(errno.EIO, "Input/output error", path)

        with monkeypatch.context() as patch:
            patch.setattr(disk_of(world), "remove", refuse)
            assert await store._retention.delete_files(1 << 60, True) == 0
        assert refused == [f"/store/commitlog/{0:020}"]
        assert bodies_of(store.get(TOPIC, 0, 0, 1, 1 << 20)) == [bytes(4_000)]
        assert await store._retention.delete_files(1 << 60, True) == len(files) - 1
        assert log_files(world) == files[-1:]


async def test_a_queue_that_goes_while_others_follow_the_log_is_passed_over(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        for queue_id in range(QUEUES):
            put(store, TOPIC, b"a", queue_id)
        steps = store._retention.follow_steps()
        next(steps)
        store.delete_topic(TOPIC)
        put(store, TOPIC, b"new", QUEUES - 1)
        run_steps(steps)
        assert bodies_of(store.get(TOPIC, QUEUES - 1, 0, 1, 1 << 20)) == [b"new"]
