"""A disk that others fill: sends are refused, reads and what is stored stay, and sends go on when there is space."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_fixtures import (
    HOST,
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
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.index_file import IndexFile
from understudy.store.message_store import MessageStore
from understudy.store.status import PutRejected, PutStatus

TOPIC = "Orders"
FILE_SYSTEM_BYTES = 64 << 20


def fill(store: MessageStore, queue: int, body: bytes, most: int) -> tuple[int, PutRejected | None]:
    """Store messages until one is refused; return how many were taken and the refusal."""
    for number in range(most):
        try:
            put(store, TOPIC, body, queue, UNIQ_KEY=f"k{number}")
        except PutRejected as refused:
            return number, refused
    return most, None


@pytest.mark.parametrize("batch", [False, True])
async def test_a_full_disk_refuses_what_it_has_no_space_for(batch: bool, autojump_clock: object) -> None:
    world = simulated_world()
    disk = disk_of(world)
    async with running_store(world, small_config(mapped_file_size_commit_log=1 << 16)) as store:
        put(store, TOPIC, b"a", UNIQ_KEY="first")
        # given a disk that others filled, and a store that has used the space it took
        disk.used_bytes = disk.total_bytes
        log_end = store.max_physical_offset
        with pytest.raises(PutRejected) as refused:
            if batch:
                store.append_batch(TOPIC, 0, encode_batch([(0, b"b", b"")] * 30), 1, PRODUCER)
            else:
                put(store, "New", b"b")
        # then the message is refused with the reason and nothing is written
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "the disk of /store is full; free some space" in str(refused.value)
        assert store.max_physical_offset == log_end
        assert bodies_of(store.get(TOPIC, 0, 0, 32, 1 << 20)) == [b"a"]
        # when there is space again
        disk.used_bytes = None
        store.append_batch(TOPIC, 0, encode_batch([(0, b"b", b"UNIQ_KEY\x01second\x02")] * 30), 1, PRODUCER)
        # then messages are taken and found
        assert store.max_queue_offset(TOPIC, 0) == 31
        assert len(store.query(TOPIC, "second", 64, 0, 1 << 60).records) == 30


async def test_a_message_is_stored_although_the_index_cannot_be_mapped(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(simulated_world()) as store:
        put(store, TOPIC, b"a", UNIQ_KEY="first")
        store.enter_keys()
        # given a process that may map no more files, and an index whose file made room for others
        with monkeypatch.context() as changed:
            changed.setattr(IndexFile, "mapped_view", refuse_to_map)
            for file in store._core.index.files:
                file.view = None
            put(store, TOPIC, b"b", UNIQ_KEY="second")
            put(store, TOPIC, b"c", UNIQ_KEY="third")
            store.enter_keys()
        # when it may again
        put(store, TOPIC, b"d", UNIQ_KEY="fourth")
        # then all messages are there, and those are found by key that could be entered
        assert bodies_of(store.get(TOPIC, 0, 0, 32, 1 << 20)) == [b"a", b"b", b"c", b"d"]
        found = [len(store.query(TOPIC, key, 9, 0, 1 << 60).records) for key in ("first", "second", "third", "fourth")]
        assert found == [1, 0, 0, 1]


def refuse_to_map(file: IndexFile) -> memoryview:
    raise OSError(errno.EMFILE, "Too many open files", file.path)


async def test_replication_to_a_full_disk_goes_on_where_it_stopped(autojump_clock: object) -> None:
    master_world, slave_world = simulated_world(1), simulated_world(2)
    async with running_store(master_world) as master, running_store(slave_world) as slave:
        for number in range(30):
            put(master, TOPIC, b"%d" % number, UNIQ_KEY=f"k{number}")
        end = master.max_physical_offset
        # given a slave whose disk is full
        disk_of(slave_world).used_bytes = disk_of(slave_world).total_bytes
        with pytest.raises(OSError, match="No space left"):
            slave.append_raw(0, bytes(master.slice(0, end)))
        # when there is space again and the master sends from where the slave's log ends
        disk_of(slave_world).used_bytes = None
        at = slave.max_physical_offset
        slave.append_raw(at, bytes(master.slice(at, end)))
        put(master, TOPIC, b"last")
        slave.append_raw(end, bytes(master.slice(end, 1 << 20)))
        # then every message is there once
        expected = [record.queue_offset for record in records_of(master.get(TOPIC, 0, 0, 64, 1 << 20))]
        assert expected == [record.queue_offset for record in records_of(slave.get(TOPIC, 0, 0, 64, 1 << 20))]
        assert len(slave.query(TOPIC, "k7", 9, 0, 1 << 60).records) == 1


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={FILE_SYSTEM_BYTES}", "understudy-test", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"cannot run mount: {error}")
    if done.returncode:
        pytest.skip(f"may not mount a small file system here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


PROGRAM = """
import sys, trio
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_store_full_disk
trio.run(test_store_full_disk.fill_and_free, Path(sys.argv[1]))
"""


async def fill_and_free(place: Path) -> None:
    """Fill the disk beside a store and with it, and free it again; the process would not survive a missing page."""
    config = StoreConfig(folder=str(place / "store"), disk_space_warning_level_ratio=101)
    store = await MessageStore.open(real_world(), config, HOST)
    body = bytes(range(256)) * 64
    taken, refused = fill(store, 0, body, 100)
    assert (taken, refused) == (100, None)
    others = place / "others"
    with open(others, "wb", buffering=0) as file:  # noqa: ASYNC230  # nothing else runs in this process
        try:
            while file.write(bytes(1 << 16)) == 1 << 16:
                continue
        except OSError:
            pass  # full
    more, refused = fill(store, 0, body, 10_000)
    assert refused is not None and refused.status is PutStatus.SERVICE_NOT_AVAILABLE, refused
    taken += more
    for queue in range(1, 40):  # files of queues have no space either
        _, refused = fill(store, queue, b"x", 10_000)
        assert refused is not None
    assert bodies_of(store.get(TOPIC, 0, taken - 1, 1, 1 << 20)) == [body]
    others.unlink()
    again, refused = fill(store, 0, body, 200)
    assert (again, refused) == (200, None)
    assert bodies_of(store.get(TOPIC, 0, taken + 199, 1, 1 << 20)) == [body]
    await store.close()
    store = await MessageStore.open(real_world(), config, HOST)
    assert store.max_queue_offset(TOPIC, 0) == taken + 200
    await store.close()
    print("survived", flush=True)


def test_a_disk_filled_by_others_does_not_end_the_process(small_file_system: Path) -> None:
    # a process of its own: what is tested would end it with a signal
    command = [sys.executable, "-c", PROGRAM, str(small_file_system), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip().splitlines()[-1:]) == (0, ["survived"]), done.stderr
