"""Where the first hole of a log lies: decided, kept over starts, forgotten when all is back."""

from __future__ import annotations

import random

import pytest
import trio
from store_fixtures import (
    HOST,
    LOG_FILE_BYTES,
    bodies_of,
    disk_of,
    lose_end,
    put,
    running_store,
    simulated_world,
    small_config,
)

from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

NOTE = "/store/recovery.hole"


async def damaged(world: World, count: int = 6) -> tuple[list[int], list[bytes]]:
    """Write *count* messages, damage the second on the disk; return where each begins and all bytes of the log."""
    async with running_store(world) as store:
        starts = [put(store, "Orders", b"%d" % number * 300).physical_offset for number in range(count)]
        content = bytes(store.slice(0, store.max_physical_offset))
    disk = disk_of(world)
    path = "/store/commitlog/00000000000000000000"
    disk.damage(path, lambda data: data[: starts[1] + 100] + bytes(150) + data[starts[1] + 250 :])
    disk.remove("/store/recovery.mark")
    return starts, [content]


async def test_a_hole_is_remembered_until_the_log_is_cut_there(autojump_clock: object) -> None:
    world = simulated_world()
    starts, (content,) = await damaged(world)
    # when the store starts, and starts again after a power loss and a clean end
    for _ in range(2):
        async with running_store(world) as store:
            assert starts[1] == store.hole
            assert len(content) == store.max_physical_offset
            assert starts[-1] == store.intact_from()
        disk_of(world).lose_power()
    # when the log loses its end behind it, and then at it
    lose_end(world, starts[3])
    async with running_store(world) as store:
        assert (starts[1], starts[3]) == (store.hole, store.max_physical_offset)
        assert starts[2] == store.intact_from()
    lose_end(world, starts[1])
    async with running_store(world) as store:
        assert (None, starts[1]) == (store.hole, store.max_physical_offset)
        assert not disk_of(world).exists(NOTE)
        store.append_raw(starts[1], content[starts[1] :])
        assert content == bytes(store.slice(0, len(content)))
    async with running_store(world) as store:
        assert store.hole is None


async def test_a_note_that_is_left_over_means_nothing(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        put(store, "Orders", b"a")
        put(store, "Orders", b"b")
    for text in (b"900000\n", b"\xff\n", b""):
        file = disk_of(world).open(NOTE)
        file.truncate(0)
        file.write_at(0, text)
        file.close()
        async with running_store(world) as store:
            assert store.hole is None


@pytest.mark.parametrize("seed", range(3))
async def test_a_hole_at_the_tail_is_a_shorter_log(seed: int, autojump_clock: object) -> None:
    world = simulated_world(seed)
    async with running_store(world) as store:
        for number in range(5):
            last = put(store, "Orders", b"%d" % number * 300).physical_offset
    lose_end(world, last + 100)
    async with running_store(world) as store:
        assert (None, last) == (store.hole, store.max_physical_offset)


# --- repaired in place -------------------------------------------------------------------------------------------


class Broken:
    """A store of small files with damage in several of them, and the log as it was."""

    def __init__(self, world: World, source: random.Random) -> None:
        self.world = world
        self.disk = disk_of(world)
        self.source = source
        self.starts: list[int] = []
        self.content = b""

    async def fill(self, count: int = 60) -> None:
        async with running_store(self.world) as store:
            for number in range(count):
                queue_id, body = self.source.randrange(3), self.source.randbytes(self.source.randint(1, 2500))
                self.starts.append(put(store, "Orders", body, queue_id, KEYS=f"k{number}").physical_offset)
            self.content = content(store)

    def damage(self, count: int) -> None:
        """Take bytes, some of them over the border of two messages."""
        for start in self.source.sample([each for each in self.starts[1:] if each + 6000 < len(self.content)], count):
            begin = start - start % LOG_FILE_BYTES
            at, length = start - begin + self.source.randint(0, 60), self.source.randint(40, 3000)

            def lost(data: bytes, at: int = at, length: int = length) -> bytes:
                return (data[:at] + bytes(length) + data[at + length :])[: len(data)]

            self.disk.damage(f"/store/commitlog/{begin:020d}", lost)
        if self.disk.exists("/store/recovery.mark"):
            self.disk.remove("/store/recovery.mark")


def content(store: MessageStore) -> bytes:
    found = b""
    while part := store.slice(len(found), store.max_physical_offset - len(found)):
        found += part
    return found


def readable(store: MessageStore) -> set[bytes]:
    """Return the bodies that readers get; each is read at its own place."""
    found: set[bytes] = set()
    for topic, queue_id in store.queues():
        offset = store.min_queue_offset(topic, queue_id)
        while (read := store.get(topic, queue_id, offset, 32, 1 << 20)).count:
            found |= set(bodies_of(read))
            offset = read.next_begin_offset
    return found


def everything(store: MessageStore, count: int) -> list[object]:
    """Return what readers and searchers of the whole log see."""
    ends = {each: (store.min_queue_offset(*each), store.max_queue_offset(*each)) for each in store.queues()}
    by_key = [
        [bytes(record) for record in store.query("Orders", f"k{number}", 8, 0, 1 << 60).records]
        for number in range(count)
    ]
    return [ends, by_key, readable(store)]


@pytest.mark.parametrize("seed", range(12))
async def test_a_repair_that_is_stopped_at_any_moment_leaves_no_less_than_there_was(
    seed: int, autojump_clock: object
) -> None:
    source = random.Random(seed)
    broken = Broken(simulated_world(seed), source)
    await broken.fill()
    async with running_store(broken.world) as store:
        whole = everything(store, 60)
    # given a log with holes in several files
    broken.damage(source.randint(1, 5))
    async with running_store(broken.world) as store:
        hole, before = store.hole, readable(store)
        length = store.max_physical_offset
    if hole is None or length < len(broken.content):
        return  # the damage was in the unused end of a file, or the log ends at it
    # when repairs are stopped somewhere, by a kill or a power loss
    for _ in range(6):
        store = await MessageStore.open(broken.world, small_config(), HOST)
        assert (hole, len(broken.content)) == (store.hole, store.max_physical_offset)
        repair, position = store.repair(hole), hole
        stop = source.randint(hole, len(broken.content))
        while position < stop:
            part = broken.content[position : min(position + source.randint(1, 5000), len(broken.content))]
            await repair.write(position, part)
            position += len(part)
            # then whatever can be read stays
            assert before <= readable(store)
        if position == len(broken.content):
            with trio.CancelScope() as scope:
                if source.random() < 0.7:
                    scope.cancel()
                await repair.finish(len(broken.content))
        if source.random() < 0.3:
            broken.disk.kill_process()
        else:
            broken.disk.lose_power()
        async with running_store(broken.world) as store:
            assert len(broken.content) == store.max_physical_offset
            assert before <= readable(store)
            before = readable(store)
            if store.hole is None:
                break
    # and the next repair makes it whole
    async with running_store(broken.world) as store:
        if store.hole is not None:
            repair, position = store.repair(hole), hole
            while position < len(broken.content):
                part = broken.content[position : position + 3000]
                assert repair.differs_at(position, part) is None
                await repair.write(position, part)
                position += len(part)
            await repair.finish(len(broken.content))
        assert (None, broken.content) == (store.hole, content(store))
        assert whole == everything(store, 60)
    broken.disk.lose_power()
    async with running_store(broken.world) as store:
        assert (None, broken.content) == (store.hole, content(store))
        assert whole == everything(store, 60)


async def test_only_void_bytes_are_written_over(autojump_clock: object) -> None:
    world = simulated_world()
    starts, (content_before,) = await damaged(world)
    async with running_store(world) as store:
        ours, hole = content(store), starts[1]
        # when a master has other bytes outside of the hole, nothing is written
        for at in (starts[2], starts[3] + 200, len(ours) - 1):
            theirs = bytearray(content_before)
            theirs[at] ^= 1
            assert at == store.repair(hole).differs_at(hole, bytes(theirs[hole:]))
            with pytest.raises(ValueError, match=f"other bytes at {at}"):
                await store.repair(hole).write(hole, bytes(theirs[hole:]))
            assert ours == content(store)
        # an incomplete record at the end is no hole
        store.append_raw(len(ours), content_before[:50])
        assert store.repair(hole).differs_at(hole, content_before[hole:] + content_before[:50]) is None
        found = store.repair(hole).differs_at(hole, content_before[hole:] + content_before[:49] + b"?")
        assert len(ours) + 49 == found


async def test_void_bytes_of_another_log_fill_no_hole(autojump_clock: object) -> None:
    world = simulated_world()
    starts, _ = await damaged(world)
    async with running_store(world) as store:
        void, repair = content(store), store.repair(starts[1])
        await repair.write(starts[1], void[starts[1] :])
        await repair.finish(len(void))
        assert (starts[1], void) == (store.hole, content(store))


def lose_at(broken: Broken, *starts: int) -> None:
    """Take bytes out of the messages that begin there."""
    for start in starts:
        begin = start - start % LOG_FILE_BYTES
        at = start - begin + 50
        broken.disk.damage(
            f"/store/commitlog/{begin:020d}", lambda data, at=at: (data[:at] + bytes(60) + data[at + 60 :])[: len(data)]
        )
    broken.disk.remove("/store/recovery.mark")


async def test_the_next_hole_is_known_when_retention_has_deleted_the_file_of_the_first(autojump_clock: object) -> None:
    broken = Broken(simulated_world(3), random.Random(3))
    await broken.fill()
    first = next(start for start in broken.starts if 2000 < start < LOG_FILE_BYTES - 5000)
    second = next(start for start in broken.starts if LOG_FILE_BYTES * 2 + 2000 < start)
    lose_at(broken, first, second)
    async with running_store(broken.world) as store:
        assert store.hole == first
        store._core.segments.delete_first()
        assert store.hole == second
    for _ in range(2):
        async with running_store(broken.world) as store:
            assert store.hole == second


async def test_damage_that_a_reader_finds_during_a_repair_of_what_follows_stays_noted(autojump_clock: object) -> None:
    broken = Broken(simulated_world(3), random.Random(3))
    await broken.fill()
    early, late = broken.starts[5], broken.starts[30]
    lose_at(broken, late)
    async with running_store(broken.world) as store:
        repair = store.repair(late)
        await repair.write(late, broken.content[late:])
        store._integrity.note(early)
        await trio.sleep(1)
        await repair.finish(len(broken.content))
        await trio.sleep(5)
        assert store.hole == early
    async with running_store(broken.world) as store:
        assert store.hole == early


@pytest.mark.parametrize("accident", ["", "kill", "power"])
async def test_what_a_master_sent_in_place_of_lost_messages_is_known_after_every_start(
    autojump_clock: object, accident: str
) -> None:
    # given a master's log with a void record, copied
    master, slave = simulated_world(1), simulated_world(2)
    starts, (whole,) = await damaged(master)
    async with running_store(master) as store:
        copied = content(store)
    store = await MessageStore.open(slave, small_config(), HOST)
    store.append_raw(0, copied[: starts[4]])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert (starts[1], None) == (store.stand_in, store.hole)
    if not accident:
        await store.close()
    elif accident == "kill":
        disk_of(slave).kill_process()
    else:
        disk_of(slave).lose_power()
    # when the store starts, a second time from a mark behind it
    for _ in range(2):
        async with running_store(slave) as store:
            assert (starts[1], None) == (store.stand_in, store.hole)
            if store.max_physical_offset < len(copied):
                store.append_raw(store.max_physical_offset, copied[store.max_physical_offset :])
            await trio.sleep(20)
    # then it is known until the bytes are there
    async with running_store(slave) as store:
        repair = store.repair(starts[1])
        await repair.write(starts[1], whole[starts[1] :])
        await repair.finish(len(whole))
        assert (None, None, whole) == (store.stand_in, store.hole, content(store))
    async with running_store(slave) as store:
        assert store.stand_in is None
    assert not disk_of(slave).exists(NOTE)
