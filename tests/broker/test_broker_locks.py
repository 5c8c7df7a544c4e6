"""Locks of queues: one holder each, for a time, within the memory that all hosts share."""

from __future__ import annotations

import tracemalloc

import pytest

from understudy.broker.locks import LOCK_LIFETIME_MS, QueueLocks
from understudy.runtime.budget import Budget
from understudy.runtime.pace import run_steps

QUEUES = tuple(("T", "broker-a", number) for number in range(3))


@pytest.mark.covers("SL-04")
def test_one_client_holds_a_queue() -> None:
    locks = QueueLocks()
    assert locks.lock("cg", "c1", QUEUES[:2], 0) == list(QUEUES[:2])
    assert locks.lock("cg", "c2", QUEUES, 10) == list(QUEUES[2:])
    assert locks.lock("cg", "c1", QUEUES, 20) == list(QUEUES[:2])
    assert locks.lock("other group", "c2", QUEUES, 20) == list(QUEUES)


@pytest.mark.covers("SL-04")
def test_expires_without_refresh() -> None:
    locks = QueueLocks()
    locks.lock("cg", "c1", QUEUES, 0)
    assert locks.lock("cg", "c2", QUEUES, LOCK_LIFETIME_MS) == []
    assert locks.any_held("cg", LOCK_LIFETIME_MS)
    assert not locks.any_held("cg", LOCK_LIFETIME_MS + 1)
    assert locks.lock("cg", "c2", QUEUES, LOCK_LIFETIME_MS + 1) == list(QUEUES)


@pytest.mark.covers("SL-04")
def test_unlock_by_another_client_is_ignored() -> None:
    locks = QueueLocks()
    locks.lock("cg", "c1", QUEUES, 0)
    locks.unlock("cg", "c2", QUEUES)
    assert locks.owner("cg", QUEUES[0], 1) == "c1"
    locks.unlock("cg", "c1", QUEUES)
    assert locks.owner("cg", QUEUES[0], 1) is None


def test_forgotten_groups_take_no_memory() -> None:
    locks = QueueLocks()
    locks.lock("cg", "c1", QUEUES, 0)
    run_steps(locks.expiring(LOCK_LIFETIME_MS + 1))
    assert locks._groups == {}


def test_locks_of_one_host_take_no_more_memory_than_is_free_for_all_others() -> None:
    kept = Budget(1 << 20)
    locks = QueueLocks(kept=kept)
    # given a host that locks a queue in each of very many groups
    for number in range(10_000):
        locks.lock(f"group {number}", "c", [("T", "b", 0)], 0, host="greedy")
    held = kept.used
    assert held <= 1 << 19
    assert (held, True, False) == (kept.held_by("greedy"), locks.is_full("greedy"), locks.is_full("modest"))
    assert kept.refused > 5_000
    # then it gets no more, but keeps what it has; others get theirs
    assert locks.lock("other", "c", QUEUES, 1, host="greedy") == []
    assert [("T", "b", 0)] == locks.lock("group 0", "c", [("T", "b", 0)], 1, host="greedy")
    assert held == kept.used
    assert list(QUEUES) == locks.lock("other", "c", QUEUES, 1, host="modest")
    # and what is given back, taken over or forgotten counts no more
    locks.unlock("group 1", "c", [("T", "b", 0)])
    assert kept.held_by("greedy") < held
    late = LOCK_LIFETIME_MS + 1
    assert [("T", "b", 0)] == locks.lock("group 2", "d", [("T", "b", 0)], late, host="modest")
    run_steps(locks.expiring(late + 1))
    assert (0, True) == (kept.held_by("greedy"), kept.held_by("modest") == kept.used > 0)
    run_steps(locks.expiring(2 * late + 1))
    assert kept.used == 0


def test_what_a_lock_takes_is_no_more_than_is_counted_for_it() -> None:
    kept = Budget(1 << 30)
    locks = QueueLocks(kept=kept)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(5_000):
        texts = [f"{name} of {number}" for name in ("group", "client", "topic", "broker")]
        locks.lock(texts[0], texts[1], [(texts[2], texts[3], 1_000 + number)], 5_000 + number, host="h")
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before <= 1.6 * kept.used
