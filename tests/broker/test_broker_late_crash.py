"""Messages that wait through crashes: what was acknowledged is delivered, whatever of the progress survived."""

from __future__ import annotations

import random
from functools import partial

import pytest
from broker_rig import properties
from crash_rig import MESSAGES, crashes_while_messages_wait

from understudy.format.record import Record
from understudy.testkit.sim.determinism import run_seed


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.covers("R101", "SC-04")
def test_every_acknowledged_delayed_message_arrives(seed: int) -> None:
    keys = {"messageDelayLevel": "1s 3s", "flushDelayOffsetInterval": "200"}
    play = partial(
        crashes_while_messages_wait,
        keys=keys,
        properties_of=lambda number: properties(UNIQ_KEY=f"u{number}", DELAY=str(1 + number % 2)),
        power_chance=1.0,
    )
    acknowledged, records = run_seed(play, seed)
    arrived = [int(record.body) for record in records]
    assert len(acknowledged) >= MESSAGES // 2
    assert acknowledged <= set(arrived)
    assert len(arrived) < 2 * MESSAGES  # repeated at most for what the progress had not noted yet


async def timer_messages(source: random.Random) -> tuple[set[int], list[Record]]:
    def properties_of(number: int) -> str:
        return properties(UNIQ_KEY=f"u{number}", TIMER_DELAY_MS=str(source.randrange(1, 6_000)))

    keys = {"mappedFileSizeTimerLog": "4096", "recallMessageEnable": "true"}
    return await crashes_while_messages_wait(source, keys, properties_of, 0.7)


@pytest.mark.parametrize("seed", range(6))
def test_every_acknowledged_timer_message_arrives_and_none_early(seed: int) -> None:
    acknowledged, arrived = run_seed(timer_messages, seed)
    assert len(acknowledged) >= MESSAGES // 2
    numbers = [int(record.body) for record in arrived]
    assert acknowledged <= set(numbers)
    # repeated at most what the progress had not noted yet, in the last half second before each crash
    assert len(numbers) - len(set(numbers)) <= 2 * 6
    assert all(record.store_ms >= int(record.properties["TIMER_OUT_MS"]) + 1_000 for record in arrived)
