"""A start without a recovery mark after a loss of power: what may not have been durable is checked, however much."""

from __future__ import annotations

import trio
from store_fixtures import HOST, LOG_FILE_BYTES, bodies_of, disk_of, put, running_store, simulated_world, small_config

from understudy.runtime.world import World
from understudy.store.message_store import MessageStore
from understudy.store.recovery import FILES_WALKED

TOPIC = "Orders"
MARK, CHECKPOINT = "/store/recovery.mark", "/store/checkpoint"
#: Every message has this many bytes in its body, so that so many fit into one file.
BODY_BYTES, IN_A_FILE = 3_000, 5


class Writer:
    """Writes numbered messages and knows where they are."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.starts: list[int] = []

    def fill(self, files: int) -> int:
        """Write so many files full; return the number of the first message."""
        first = len(self.starts)
        for number in range(first, first + files * IN_A_FILE):
            body = number.to_bytes(4, "big") * (BODY_BYTES // 4)
            self.starts.append(put(self.store, TOPIC, body, number % 2).physical_offset)
        return first


async def lost_power(world: World, files: list[tuple[int, float]]) -> tuple[list[int], list[int]]:
    """Write files and wait some seconds, again and again, until the power is lost.

    Returns:
        Where each message begins, and the number of the first one of each turn.
    """
    firsts = []
    store = await MessageStore.open(world, small_config(), HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        writer = Writer(store)
        for count, seconds in files:
            firsts.append(writer.fill(count))
            await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    disk_of(world).lose_power()
    return writer.starts, firsts


def take_bytes(world: World, physical: int) -> None:
    """Take some bytes out of the body of the message at *physical*, as a page that was never written."""
    begin = physical - physical % LOG_FILE_BYTES
    at = physical - begin + 500
    disk_of(world).damage(f"/store/commitlog/{begin:020d}", lambda data: data[:at] + bytes(1_000) + data[at + 1_000 :])


def numbers(store: MessageStore, first: int = 0) -> list[int]:
    """Return the numbers that readers get from *first* on; each message must be whole."""
    found = []
    for topic, queue_id in store.queues():
        offset = max(first // 2, store.min_queue_offset(topic, queue_id))
        while (read := store.get(topic, queue_id, offset, 32, 1 << 20)).count:
            for body in bodies_of(read):
                assert body == body[:4] * (BODY_BYTES // 4)
                found.append(int.from_bytes(body[:4], "big"))
            offset = read.next_begin_offset
    return sorted(found)


async def test_nothing_is_served_damaged_when_nothing_was_known_to_be_durable(autojump_clock: object) -> None:
    # given more files in the first seconds of a store than a start looks at otherwise
    world = simulated_world()
    starts, _ = await lost_power(world, [(FILES_WALKED + 6, 2)])
    disk = disk_of(world)
    assert len(disk.listdir("/store/commitlog")) > FILES_WALKED + 5
    assert not disk.exists(CHECKPOINT)
    # when one of the first messages has lost bytes
    take_bytes(world, starts[3])
    async with running_store(world) as store:
        # then it is found, and all others are there
        assert starts[3] == store.hole
        assert [number for number in range(len(starts)) if number != 3] == numbers(store)


async def test_the_checkpoint_says_what_is_trusted(autojump_clock: object) -> None:
    # given files that a checkpoint calls durable, others that were written just before it, and many after it
    world = simulated_world()
    starts, (_, doubtful, after) = await lost_power(world, [(4, 20), (4, 70), (FILES_WALKED + 4, 2)])
    disk_of(world).remove(MARK)
    take_bytes(world, starts[2])
    take_bytes(world, starts[doubtful + IN_A_FILE])
    take_bytes(world, starts[after + 2])
    async with running_store(world) as store:
        # then nothing older is looked at: those bytes were durable
        assert starts[doubtful + IN_A_FILE] == store.hole
        # (and a reader finds out that they have rotted since)
        assert bodies_of(store.get(TOPIC, 0, 1, 1, 1 << 20))[0][:4] == (4).to_bytes(4, "big")
        assert store.read(starts[2]) is None
        # and the rest is served without what is damaged
        assert store.read(starts[doubtful + IN_A_FILE]) is None
        missing = {doubtful + IN_A_FILE, after + 2}
        assert [number for number in range(doubtful, len(starts)) if number not in missing] == numbers(store, doubtful)


async def test_a_durable_mark_that_does_not_fit_the_queues_says_what_is_trusted(autojump_clock: object) -> None:
    # given a durable mark, many files after it, and a queue that is gone
    world = simulated_world()
    starts, (_, after) = await lost_power(world, [(4, 70), (FILES_WALKED + 6, 2)])
    disk_of(world).remove_tree(f"/store/consumequeue/{TOPIC}/1")
    disk_of(world).remove(CHECKPOINT)
    take_bytes(world, starts[after + 2])
    async with running_store(world) as store:
        # then what came after it is checked, and the queue is made again from there on
        assert starts[after + 2] == store.hole
        served = set(numbers(store))
        assert set(range(after + 1, len(starts))) - {after + 2} <= served
        assert set(range(0, len(starts), 2)) - {after + 2} <= served
        assert after + 2 not in served
