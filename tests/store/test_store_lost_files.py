"""Log files removed by hand, and a disk without space for notes: no message is taken, the others are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from store_fixtures import HOST, LOG_FILE_BYTES, bodies_of, disk_of, put, running_store, simulated_world, small_config

from understudy.runtime.world import real_world
from understudy.store.config import SYNC_FLUSH, StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

TOPIC = "Orders"
BODY = bytes(3_000)
IN_A_FILE = 5


def readable(store: MessageStore) -> list[int]:
    """Return the queue offsets that a consumer gets from the beginning on."""
    found, offset = [], store.min_queue_offset(TOPIC, 0)
    while offset < store.max_queue_offset(TOPIC, 0):
        read = store.get(TOPIC, 0, offset, 32, 1 << 20)
        assert read.next_begin_offset > offset
        found += [int.from_bytes(body[:4], "big") for body in bodies_of(read)]
        offset = read.next_begin_offset
    return found


def fill(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        put(store, TOPIC, number.to_bytes(4, "big") + BODY)


def refusal(store: MessageStore) -> str:
    with pytest.raises(PutRejected) as refused:
        fill(store, 999, 1)
    assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    return str(refused.value)


# --- files removed by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [1, 32], ids=["few files mapped", "all files mapped"])
@pytest.mark.parametrize("removed", [0, 1, 3])
async def test_a_removed_log_file_costs_its_messages_only(removed: int, mapped: int, autojump_clock: object) -> None:
    world = simulated_world()
    config = small_config(mapped_log_files_max=mapped)
    async with running_store(world, config) as store:
        fill(store, 0, 4 * IN_A_FILE)
        assert readable(store) == list(range(20))
        # given a file that somebody removes
        disk_of(world).remove(f"/store/commitlog/{removed * LOG_FILE_BYTES:020d}")
        await trio.sleep(75)
        others = [number for number in range(20) if number // IN_A_FILE != removed]
        if removed == 0:
            # then the oldest one is one that has grown too old
            assert store.min_queue_offset(TOPIC, 0) == IN_A_FILE
            fill(store, 20, 1)
            assert readable(store) == [*others, 20]
            return
        # and any other one is a reason to take no more, and to go on reading
        assert f"{removed * LOG_FILE_BYTES:020d} is not there any more; put it back and start again" in refusal(store)
        assert set(others) <= set(readable(store))
    async with running_store(world, config) as store:
        fill(store, 0, 1)


async def test_nobody_is_told_that_a_message_is_durable_in_a_file_that_is_gone(tmp_path: Path) -> None:
    config = StoreConfig(str(tmp_path), mapped_file_size_commit_log=1 << 20, flush_disk_type=SYNC_FLUSH)
    store = await MessageStore.open(real_world(), config, HOST)
    fill(store, 0, 1)
    assert await store.flush()
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    fill(store, 1, 1)
    assert not await store.flush()
    assert store.flushed_offset < store.max_physical_offset
    assert "is not there any more" in refusal(store)
    assert readable(store) == [0]
    await store.close()


async def test_a_disk_that_is_not_there_refuses_and_comes_back(autojump_clock: object) -> None:
    world = simulated_world()
    disk = disk_of(world)
    usage, gone = disk.usage, OSError(5, "Input/output error", "/store")

    def no_usage(path: str) -> object:
        raise gone

    async with running_store(world) as store:
        fill(store, 0, 1)
        disk.usage = no_usage  # type: ignore[method-assign,assignment]
        await trio.sleep(75)
        assert "does not say how full it is" in refusal(store)
        assert readable(store) == [0]
        disk.usage = usage  # type: ignore[method-assign]
        await trio.sleep(15)
        fill(store, 1, 1)


# --- no space for notes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("note", ["checkpoint", "deleted.topics"])
async def test_a_full_disk_without_space_for_a_note_refuses_until_there_is_some(
    note: str, autojump_clock: object
) -> None:
    world = simulated_world()
    disk = disk_of(world)
    async with running_store(world) as store:
        fill(store, 0, 2)
        if note == "deleted.topics":
            await trio.sleep(11)
            store.delete_topic("Other")
        # given a disk that others fill before progress was ever noted
        disk.used_bytes = disk.total_bytes
        await trio.sleep(12)
        if note == "deleted.topics":
            with pytest.raises(OSError, match="No space left"):
                await store.save_deletions()
        # then no message is taken, and what is there is read
        assert "the disk of /store is full, so progress cannot be noted; free some space" in refusal(store)
        assert readable(store) == [0, 1]
        # when there is space again, messages are taken soon
        disk.used_bytes = None
        await trio.sleep(1.5)
        fill(store, 2, 1)
        assert disk.exists(f"/store/{note}")
    async with running_store(world) as store:
        assert readable(store) == [0, 1, 2]
