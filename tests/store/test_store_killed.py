"""A process that writes is killed again and again: every acknowledged message is there, none twice, none damaged."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from golden_stores import read_queue
from store_under_load import body_of, config_for, properties_of

from understudy.format.record import decode_record
from understudy.runtime.world import real_world
from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH
from understudy.store.message_store import MessageStore

LIVES = 4


def live_and_be_killed(folder: Path, flush: str, lines: int) -> dict[tuple[str, int, int], int]:
    """Run the writer until it acknowledged so many messages, kill it, and return all it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("store_under_load.py")), str(folder), flush],
        stdout=subprocess.PIPE,
        text=True,
    )
    acknowledged: dict[tuple[str, int, int], int] = {}
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                break
            topic, queue_id, offset, number = line.split()
            acknowledged[topic, int(queue_id), int(offset)] = int(number)
            if len(acknowledged) == lines:
                process.kill()
    return acknowledged


@pytest.mark.slow
@pytest.mark.covers("R101")
@pytest.mark.parametrize("flush", [SYNC_FLUSH, ASYNC_FLUSH])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(flush: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    known: dict[tuple[str, int, int], int] = {}
    for _ in range(LIVES):
        # Given a process that writes under load and is killed at some moment
        new = live_and_be_killed(tmp_path / "store", flush, chance.randint(300, 3_000))
        assert known.keys().isdisjoint(new.keys())
        known |= new
        # When the store is opened again
        served = trio.run(read_everything, tmp_path / "store")
        # Then what was acknowledged is there, in its place, once
        assert {place: body_of(number) for place, number in known.items()} == {
            place: served[place][0] for place in known
        }
        # and what else is there was sent like this
        for body, properties in served.values():
            number = int(body.split(b"|")[0])
            assert (body, properties) == (body_of(number), properties_of(number).decode())


async def read_everything(folder: Path) -> dict[tuple[str, int, int], tuple[bytes, str]]:
    store = await MessageStore.open(real_world(), config_for(str(folder), ASYNC_FLUSH), ("127.0.0.1", 10911))
    served: dict[tuple[str, int, int], tuple[bytes, str]] = {}
    for topic, queue_id in store.queues():
        records = [decode_record(raw) for raw in read_queue(store, topic, queue_id)]
        assert [record.queue_offset for record in records] == list(range(store.max_queue_offset(topic, queue_id)))
        for record in records:
            served[topic, queue_id, record.queue_offset] = (record.body, record.properties_text)
        for record in records[-5:]:
            found = store.query(topic, record.properties["UNIQ_KEY"], 10, 0, 1 << 62).records
            assert [decode_record(each).queue_offset for each in found] == [record.queue_offset]
    await store.close()
    return served
