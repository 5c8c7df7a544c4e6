"""Makes the rows of what waits in a broker: half messages, popped ones, the timer, delay levels. Reads only."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import attrs

from understudy.broker import delay
from understudy.broker.admin.stuck_entries import DeferredParts
from understudy.broker.clients import ProducerTable
from understudy.broker.config import BrokerOptions
from understudy.broker.stuck_work import Look, Waiting
from understudy.broker.timer.lateness import behind_ms, may_hold
from understudy.broker.transactions.checking import rules_of
from understudy.broker.transactions.half import Half
from understudy.broker.transactions.service import Transactions
from understudy.format import names
from understudy.remoting.connection import Connection


@attrs.frozen
class HalfParts:
    """What of a broker knows half messages and who decides about them.

    Attributes:
        options: read at each request.
        transactions: half messages.
        producers: the table.
    """

    options: BrokerOptions
    transactions: Transactions
    producers: ProducerTable[Connection]


def half_rows(parts: HalfParts, look: Look, halves: Sequence[Half]) -> Generator[None, None, list[Waiting]]:
    """Make the rows of *halves*, in steps of bounded work."""
    options, interval_ms = parts.options, parts.options.broker.transaction_check_interval
    rules = rules_of(options.broker, options.store)
    alive: dict[str, int] = {}  # a group is counted once, not with each of its half messages
    rows = []
    for half in halves:
        group = half.group or ""
        if group not in alive:
            alive[group] = sum(each.alive for each in parts.producers.in_turn(group))
        rows.append(look.half(half, rules, alive[group], interval_ms))
        yield
    return rows


def pop_rows_of(parts: DeferredParts, look: Look, group: str) -> Generator[None, None, list[Waiting]]:
    """Make the rows of what *group* popped and has not acknowledged, in steps: they count check points alone."""
    pops, behind, rows = parts.pops, may_hold(parts.timing.timer, look.now_ms), list[Waiting]()
    for queue in range(pops.log.queues):
        due = [each.point.revive_ms for each in pops.queues.open_points(queue) if each.point.group == group]
        if due:
            rows.append(attrs.evolve(look.pop(queue, len(due), min(due), behind), group=group))
        yield
    acting = pops.acting
    points = sum(row.point.group == group for row in acting.rows())
    acks = sum(key_group == group for _, key_group, *_ in acting.acks)
    if points or acks:
        rows.append(attrs.evolve(look.acting_pops(points, acks, acting.due_ms(group)), group=group))
    return rows


def pop_rows(parts: DeferredParts, look: Look) -> Sequence[Waiting]:
    """Make the rows of what was popped."""
    pops, timer = parts.pops, parts.timing.timer
    behind = may_hold(timer, look.now_ms)
    found = [(queue, *pops.queues.behind(queue)) for queue in range(pops.log.queues)]
    rows = [look.pop(queue, entries, due_ms, behind) for queue, entries, due_ms in found if entries]
    acting = pops.acting
    if not acting.empty:
        rows.append(look.acting_pops(len(acting.points), len(acting.acks), acting.due_ms()))
    return rows


def timer_rows(parts: DeferredParts, look: Look) -> Sequence[Waiting]:
    """Make the row of the timer, if anything waits in it."""
    timer = parts.timing.timer
    if not parts.keys.timer_wheel_enable or not timer.waiting + timer.behind:
        return ()
    return (look.timer(timer.waiting, timer.behind, behind_ms(timer, look.now_ms), timer.next_due_ms()),)


def level_rows(parts: DeferredParts, look: Look) -> Sequence[Waiting]:
    """Make the rows of delay levels."""
    store, levels, rows = parts.store, parts.levels, list[Waiting]()
    for level, level_ms in enumerate(levels.levels_ms, 1):
        queue, at = delay.queue_of_level(level), levels.position(level)
        at = max(at, store.min_queue_offset(names.SCHEDULE_TOPIC, queue))
        waiting = store.max_queue_offset(names.SCHEDULE_TOPIC, queue) - at
        if waiting > 0:
            due_ms = store.store_time_of(names.SCHEDULE_TOPIC, queue, at) + level_ms
            rows.append(look.level(level, waiting, due_ms))
    return rows
