"""A queue that is deleted and made again at a master is the new one at its replica, too."""

from __future__ import annotations

import random

import pytest
import trio
from store_fixtures import put, running_store, simulated_world, small_config
from test_store_replication import TOPIC, copy, queue_bodies

from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH
from understudy.store.message_store import MessageStore


def remake(master: MessageStore) -> None:
    master.delete_topic(TOPIC)
    for number in range(2):
        put(master, TOPIC, b"new %d" % number)


@pytest.mark.parametrize("held", [False, True], ids=["shown at once", "held back until flushed"])
async def test_old_messages_of_a_deleted_queue_do_not_stand_behind_the_new_ones(
    autojump_clock: object, held: bool
) -> None:
    chance = random.Random(4)
    slave_world = simulated_world(2)
    flush = SYNC_FLUSH if held else ASYNC_FLUSH
    async with running_store(simulated_world(1)) as master:
        async with running_store(slave_world, small_config(flush_disk_type=flush)) as slave:
            # given a replica with the five messages of a queue
            for number in range(5):
                put(master, TOPIC, b"old %d" % number)
            copy(master, slave, chance)
            # when the queue is deleted at the master and gets two new messages, and the replica hears only of these
            remake(master)
            copy(master, slave, chance)
            assert queue_bodies(slave)[TOPIC, 0] == ([] if held else [b"new 0", b"new 1"])
            await trio.sleep(1)
            # then it has those two, and so it has after a restart
            assert queue_bodies(master) == {(TOPIC, 0): [b"new 0", b"new 1"]}
            assert queue_bodies(slave) == queue_bodies(master)
            # and what follows stands behind them
            put(master, TOPIC, b"new 2")
            copy(master, slave, chance)
            await trio.sleep(1)
            assert queue_bodies(slave) == queue_bodies(master)
        async with running_store(slave_world) as slave:
            assert queue_bodies(slave) == queue_bodies(master)
