"""Opening: locks, files of other sizes, many queues, starts that walk little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio
from store_fixtures import HOST, PRODUCER, bodies_of, disk_of, put, running_store, simulated_world, small_config

from understudy.runtime.disk import DiskLockedError
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.dispatch import Dispatcher
from understudy.store.message_store import MessageStore

TOPIC = "Orders"


async def test_a_folder_is_held_by_one_store_and_the_other_is_told_which(tmp_path: Path) -> None:
    config = StoreConfig(str(tmp_path / "store"))
    store = await MessageStore.open(real_world(), config, HOST)
    with pytest.raises(DiskLockedError, match=str(tmp_path / "store")):
        await MessageStore.open(real_world(), config, HOST)
    assert (tmp_path / "store" / "lock").read_bytes() == b"lock"
    assert (tmp_path / "store" / "abort").read_text() == str(os.getpid())
    await store.close()
    await store.close()
    assert not (tmp_path / "store" / "abort").exists()
    again = await MessageStore.open(real_world(), config, HOST)
    await again.close()


async def test_the_marker_of_an_unclean_end_holds_the_process_id_of_the_world(autojump_clock: object) -> None:
    world = attrs.evolve(simulated_world(), process_id=4711)
    store = await MessageStore.open(world, small_config(), HOST)
    assert b"4711" == world.disk.read("/store/abort")
    await store.close()


HOLD_AS_JAVA_DOES = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print("held", flush=True)
input()
"""


TRY_AS_JAVA_DOES = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
except OSError:
    print("refused")
else:
    print("taken")
"""


async def test_a_java_broker_is_kept_out_also_after_this_process_looked_at_the_lock_file(tmp_path: Path) -> None:
    store = await MessageStore.open(real_world(), StoreConfig(str(tmp_path / "store")), HOST)
    lock = tmp_path / "store" / "lock"

    async def other_process() -> bytes:
        ran = await trio.run_process([sys.executable, "-c", TRY_AS_JAVA_DOES, str(lock)], capture_stdout=True)
        return ran.stdout.strip()

    assert b"refused" == await other_process()
    assert b"lock" == lock.read_bytes()  # opens and closes it
    with pytest.raises(DiskLockedError):
        await MessageStore.open(real_world(), StoreConfig(str(tmp_path / "store")), HOST)
    assert b"refused" == await other_process()
    await store.close()
    assert b"taken" == await other_process()


def test_a_folder_that_a_java_broker_holds_is_left_alone(tmp_path: Path) -> None:
    # given another process that locks the first byte of the lock file, as the reference does
    (tmp_path / "lock").write_bytes(b"lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_AS_JAVA_DOES, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        # when we open the folder then we are refused
        with pytest.raises(DiskLockedError, match="held by another process"):
            trio.run(MessageStore.open, real_world(), StoreConfig(str(tmp_path)), HOST)
        other.stdin.close()


async def test_an_empty_store_opens_and_makes_no_large_files(tmp_path: Path) -> None:
    store = await MessageStore.open(real_world(), StoreConfig(str(tmp_path / "store")), HOST)
    assert (store.min_physical_offset, store.max_physical_offset, list(store.queues())) == (-1, 0, [])
    await store.close()
    files = [os.path.join(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    assert sum(map(os.path.getsize, files)) < 50_000


async def test_file_sizes_may_change_between_starts(autojump_clock: object) -> None:
    # given a store with files of one size
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(30):
            put(store, TOPIC, bytes([number]) * 1_000, UNIQ_KEY=f"key-{number}")
    # when it is opened with larger, then with smaller ones
    for log_bytes, queue_bytes, slots in ((65_536, 4_000, 77), (8_192, 200, 20)):
        config = small_config(
            mapped_file_size_commit_log=log_bytes, mapped_file_size_consume_queue=queue_bytes, max_hash_slot_num=slots
        )
        async with running_store(world, config) as store:
            before = store.max_queue_offset(TOPIC, 0)
            for number in range(before, before + 30):
                assert put(store, TOPIC, bytes([number]) * 1_000, UNIQ_KEY=f"key-{number}").queue_offset == number
            # then every message is there and can be found
            found: list[bytes] = []
            while len(found) < before + 30:
                found += bodies_of(store.get(TOPIC, 0, len(found), 32, 1 << 20))
            assert found == [bytes([number]) * 1_000 for number in range(before + 30)]
            for number in (0, before, before + 29):
                assert len(store.query(TOPIC, f"key-{number}", 5, 0, 1 << 60).records) == 1


async def test_many_queues_need_few_open_files(tmp_path: Path) -> None:
    # given hundreds of queues and room for 32 mapped queue files
    config = StoreConfig(str(tmp_path / "store"), mapped_queue_files_max=32)
    store = await MessageStore.open(real_world(), config, HOST)
    open_files = len(os.listdir("/proc/self/fd"))
    for round_ in range(3):
        for queue_id in range(400):
            store.append(f"Topic{queue_id % 7}", queue_id, b"%d" % round_, b"", 1, PRODUCER)
    assert len(os.listdir("/proc/self/fd")) - open_files <= 40
    for queue_id in range(0, 400, 57):
        assert bodies_of(store.get(f"Topic{queue_id % 7}", queue_id, 0, 32, 1 << 20)) == [b"0", b"1", b"2"]
    await store.close()
    # when it is opened again then they are all there
    again = await MessageStore.open(real_world(), config, HOST)
    assert sum(again.max_queue_offset(*queue) for queue in again.queues()) == 1_200
    await again.close()


async def test_a_start_after_a_killed_process_walks_only_what_came_after_the_last_mark(autojump_clock: object) -> None:
    world = simulated_world()
    config = small_config()
    store = await MessageStore.open(world, config, HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        for number in range(200):
            put(store, TOPIC, b"%d" % number)
        await trio.sleep(1)
        for number in range(5):
            put(store, TOPIC, b"late %d" % number)
        nursery.cancel_scope.cancel()
    disk_of(world).kill_process()
    walked: list[int] = []
    original = Dispatcher.dispatch

    def counting(self: Dispatcher, seen: object, **how: object) -> None:
        walked.append(1)
        original(self, seen, **how)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "dispatch", counting)
        async with running_store(world, config) as reopened:
            assert reopened.max_queue_offset(TOPIC, 0) == 205
    assert len(walked) == 5


async def test_lost_queue_files_are_built_again_from_the_log(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        for number in range(100):
            put(store, f"T{number % 3}", b"%d" % number, UNIQ_KEY=f"key-{number}")
    for lost in ("/store/consumequeue/T1", "/store/consumequeue", "/store/index", "/store/recovery.mark"):
        disk_of(world).remove_tree(lost)
        async with running_store(world) as store:
            for topic in range(3):
                found: list[bytes] = []
                while len(found) < store.max_queue_offset(f"T{topic}", 0):
                    found += bodies_of(store.get(f"T{topic}", 0, len(found), 32, 1 << 20))
                assert found == [b"%d" % number for number in range(100) if number % 3 == topic]
            assert [
                len(store.query(f"T{number % 3}", f"key-{number}", 5, 0, 1 << 60).records) for number in range(100)
            ] == [1] * 100


def test_an_unwritable_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = (
        "import sys, trio\n"
        "from understudy.runtime.world import real_world\n"
        "from understudy.store.config import StoreConfig\n"
        "from understudy.store.message_store import MessageStore\n"
        "try:\n"
        "    trio.run(MessageStore.open, real_world(), StoreConfig(sys.argv[1]), ('127.0.0.1', 1))\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file" / "store")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert str(tmp_path / "file" / "store") in done.stdout
