"""A log whose hidden messages may all be seen at once: they are shown in portions, and others have their turns."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing
from store_fixtures import put, running_store, simulated_world, small_config

from understudy.runtime.background import open_background
from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH
from understudy.store.core import SHOWN_AT_ONCE, StoreCore
from understudy.store.message_store import MessageStore
from understudy.testkit.processor_time import least_seconds

MANY = 10 * SHOWN_AT_ONCE + 7
TURN_SECONDS = 0.02


def core_of(store: MessageStore) -> StoreCore:
    return store._core


async def hide(store: MessageStore, count: int = MANY) -> list[tuple[int, int]]:
    """Store messages in two queues and hide them, as a start does; return queue and offset after each, in log order."""
    found = []
    for number in range(count):
        done = put(store, "Orders", b"%d" % number, number % 2)
        found.append((number % 2, done.queue_offset + 1))
    await store.flush()
    assert store.hide_after(0) == count
    return found


def told_of(store: MessageStore) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    store.arrived.append(lambda topic, queue_id, offset, *rest: told.append((queue_id, offset)))
    return told


@pytest.mark.parametrize("flush", [SYNC_FLUSH, ASYNC_FLUSH])
async def test_others_have_their_turns_and_nobody_sees_a_later_message_first(
    flush: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(simulated_world(), small_config(flush_disk_type=flush)) as store:
        written, turns = await hide(store), [0]
        told = told_of(store)
        assert told == []

        async def watch() -> None:
            while True:
                turns.append(len(told))
                # what is visible of each queue is what was told, in the order of the log
                assert told == written[: len(told)]
                for queue_id in (0, 1):
                    seen = max((offset for queue, offset in told if queue == queue_id), default=0)
                    assert store.max_queue_offset("Orders", queue_id) == seen
                await trio.lowlevel.checkpoint()

        # when all of it may be seen, and messages come while it is shown
        async with open_background() as nursery:
            nursery.start_soon(watch)
            store.set_confirmed(None)
            while len(told) <= SHOWN_AT_ONCE:
                await trio.lowlevel.checkpoint()
            assert len(told) < MANY
            for number in range(3):
                written.append((0, put(store, "Orders", b"late %d" % number).queue_offset + 1))
            while len(told) < MANY:
                await trio.lowlevel.checkpoint()
        await store.flush()
        assert told == written
        # then there was a portion in each turn, or two, with that of a flush; a watch may miss every other turn
        steps = [after - before for before, after in pairwise(turns)]
        assert max(steps) <= 4 * SHOWN_AT_ONCE
        assert sum(step > 0 for step in steps) >= MANY // (4 * SHOWN_AT_ONCE)
        # and afterwards there is no detour any more
        await store.flush()
        before = len(told)
        put(store, "Orders", b"last")
        await store.flush()
        assert len(told) == before + 1
        assert core_of(store).show_at_once is (flush == ASYNC_FLUSH)


async def test_a_log_that_is_cut_between_two_portions_shows_nothing_of_what_is_gone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running_store(simulated_world(), small_config()) as store:
        written = await hide(store)
        told = told_of(store)
        ends = [each[0] for each in core_of(store).held]
        middle = 2 * SHOWN_AT_ONCE
        # when a portion has been shown, another master is followed that has less, and then leads again
        store.set_confirmed(None)
        assert told == written[:SHOWN_AT_ONCE]
        store.set_confirmed(ends[SHOWN_AT_ONCE - 1])
        await trio.sleep(1)
        assert told == written[:SHOWN_AT_ONCE]
        assert store.hidden(store.max_physical_offset) == (
            MANY - SHOWN_AT_ONCE,
            store.max_physical_offset - ends[SHOWN_AT_ONCE - 1],
        )
        await store.truncate(ends[middle - 1])
        store.set_confirmed(None)
        await trio.sleep(1)
        # then the rest of what is left is shown, and what comes after it
        assert told == written[:middle]
        assert store.hidden(store.max_physical_offset) == (0, 0)
        done = put(store, "Orders", b"new")
        await store.flush()
        assert told == [*written[:middle], (0, done.queue_offset + 1)]


async def test_a_store_that_is_stopped_between_two_portions_shows_all_at_its_next_start(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = simulated_world()
    async with running_store(world, small_config()) as store:
        await hide(store)
        store.set_confirmed(None)
        assert store.max_queue_offset("Orders", 0) < MANY // 2
    async with running_store(world, small_config()) as store:
        assert store.max_queue_offset("Orders", 0) + store.max_queue_offset("Orders", 1) == MANY


async def test_a_portion_takes_no_longer_than_a_turn_may(autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(simulated_world(), small_config()) as store:
        await hide(store, 10 * SHOWN_AT_ONCE)
        told = told_of(store)
        core = core_of(store)
        core.confirmed = store.max_physical_offset
        assert least_seconds(core.show_held, TURN_SECONDS) < TURN_SECONDS
        assert len(told) % SHOWN_AT_ONCE == 0


@pytest.mark.parametrize("flush", [SYNC_FLUSH, ASYNC_FLUSH])
async def test_what_comes_later_is_shown_as_fast_as_it_comes(
    flush: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(simulated_world(), small_config(flush_disk_type=flush)) as store:
        store.set_confirmed(0)
        for turn in range(20):
            for number in range(4 * SHOWN_AT_ONCE):
                put(store, "Orders", b"%d" % number, number % 2)
            await store.flush()
            store.set_confirmed(store.max_physical_offset)
            assert not core_of(store).held, turn
