"""Why work waits, and what to do: the sentences of each row."""

from __future__ import annotations

import pytest

from understudy.broker.stuck_work import LATE_MS, NOTHING_WRONG, Look
from understudy.broker.transactions.checking import CheckRules
from understudy.broker.transactions.half import Half
from understudy.format.record import decode_record, encode_record

NOW = 1_000_000
RULES = CheckRules(timeout_ms=6_000, most_checks=15, kept_ms=72 * 3_600_000)
ACTIVE, IDLE = Look(NOW, True, "master"), Look(NOW, False, "slave 1 has a smaller id")


def half(age_ms: int, checks: int = 0, group: str = "PGROUP\x01pg\x02") -> Half:
    properties = (
        f"{group}REAL_TOPIC\x01orders\x02REAL_QID\x010\x02UNIQ_KEY\x01u\x02TRANSACTION_CHECK_TIMES\x01{checks}\x02"
    )
    record = decode_record(
        encode_record(
            "RMQ_SYS_TRANS_HALF_TOPIC", 0, 7, 0, b"body", properties.encode(), born_ms=NOW - age_ms, store_ms=NOW
        )
    )
    found = Half.of(record)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("look", "waits", "producers", "why", "advice"),
    [
        (ACTIVE, half(5_000), 0, f"{NOTHING_WRONG}its producer may decide until it is 6 s old", ""),
        (ACTIVE, half(7_000), 0, "no producer of pg is connected", "start a producer of pg"),
        (ACTIVE, half(7_000, 3), 2, "(asked 3 of 15 times, 2 connected)", "look into the logs of pg for u"),
        (ACTIVE, half(7_000, 15), 2, "given up at the next look", "decide about it with --commit or --rollback"),
        (ACTIVE, half(7_000, group=""), 2, "it names no producer group", "given up"),
        (IDLE, half(7_000), 2, "does not look after it: slave 1 has a smaller id", "ask the broker"),
    ],
)
def test_half_messages(look: Look, waits: Half, producers: int, why: str, advice: str) -> None:
    row = look.half(waits, RULES, producers, 30_000)
    assert why in row.why
    assert advice in row.advice
    assert (row.topic, row.count, row.place) == ("orders", 1, "half queue 0, offset 7")
    assert row.stuck == (not row.why.startswith(NOTHING_WRONG))


@pytest.mark.parametrize(
    ("late_ms", "timer_behind", "why"),
    [
        (LATE_MS, False, NOTHING_WRONG),
        (LATE_MS + 1, False, "cannot be put into its retry topic"),
        (LATE_MS + 1, True, "the timer is behind"),
    ],
)
def test_pops(late_ms: int, timer_behind: bool, why: str) -> None:
    row = ACTIVE.pop(3, 9, NOW - late_ms, timer_behind)
    assert why in row.why
    assert (row.place, row.count, row.waits_ms) == ("revive queue 3", 9, late_ms)
    assert "does not look after it" in IDLE.pop(3, 9, NOW - late_ms, timer_behind).why


def test_what_a_slave_handed_out() -> None:
    assert not ACTIVE.acting_pops(0, 3, float("inf")).stuck
    assert not ACTIVE.acting_pops(2, 3, NOW + 60_000).stuck
    assert "finds no master" in ACTIVE.acting_pops(2, 3, NOW - 60_000).why
    row = IDLE.acting_pops(2, 3, NOW - 60_000)
    assert "does not act any more: slave 1 has a smaller id" in row.why
    assert (row.count, row.waits_ms) == (5, 60_000)


def test_timer_and_levels() -> None:
    row = ACTIVE.timer(5, 0, 0, NOW + 30_000)
    assert (row.stuck, row.waits_ms, row.count) == (False, -30_000, 5)
    assert "not taken where it goes" in ACTIVE.timer(5, 0, LATE_MS + 1, NOW - LATE_MS - 1).why
    assert "not in the wheel yet" in ACTIVE.timer(0, 4, 0, None).why
    assert IDLE.timer(5, 0, 0, NOW + 30_000).stuck
    assert not ACTIVE.level(3, 2, NOW + 1_000).stuck
    late = ACTIVE.level(3, 2, NOW - LATE_MS - 1)
    assert (late.stuck, late.place, late.count, late.waits_ms) == (True, "delay level 3", 2, LATE_MS + 1)
    assert IDLE.level(3, 2, NOW).stuck
