"""The tables of one broker that travel, in the order in which a slave asks for them.

A new kind of progress is one more row of this list, as that of the timer is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import attrs

from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.groups import GroupTable
from understudy.broker.offset_content import FILE_NAME
from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.order import OrderTable
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.replicated.acting_pops import ReplicatedActingPops
from understudy.broker.replicated.groups import ReplicatedGroups
from understudy.broker.replicated.levels import ReplicatedLevels
from understudy.broker.replicated.offsets import ReplicatedOffsets
from understudy.broker.replicated.orders import ReplicatedOrders
from understudy.broker.replicated.request_modes import ReplicatedModes
from understudy.broker.replicated.table import FilePlan, GivenBackTable, KeptTable, ProgressTable, ReplicatedTable
from understudy.broker.replicated.timer import ReplicatedTimer, TimerMetrics
from understudy.broker.replicated.topics import ReplicatedMappings, ReplicatedTopics
from understudy.broker.request_modes import RequestModeTable
from understudy.broker.timer.timer import Timer
from understudy.broker.topics import TopicTable
from understudy.format.light_queues import LIGHT_OFFSET_FILE

if TYPE_CHECKING:
    from understudy.broker.replicated.users import ReplicatedUsers

PROGRESS_DELAY_MS = 500
"""Longest time from a commit to its write: within a second it survives a power loss, whatever the keys allow."""
METRICS_DELAY_MS = 10_000
"""The same for figures that nothing depends on."""


@attrs.frozen
class ReplicatedTables:
    """Every table that travels.

    Attributes (each a row of the list, which is what iterating gives):
        offsets, delay, timer, topics, groups, queue_mappings, request_modes, orders, acting_pops, timer_metrics: used
            by this broker.
        users: who may ask it; ``None`` in a broker that asks for no signatures.
    """

    offsets: ReplicatedOffsets
    delay: ReplicatedLevels
    timer: ReplicatedTimer
    topics: ReplicatedTopics
    queue_mappings: ReplicatedMappings
    groups: ReplicatedGroups
    request_modes: ReplicatedModes
    orders: ReplicatedOrders
    acting_pops: ReplicatedActingPops
    timer_metrics: TimerMetrics
    users: ReplicatedUsers | None = None

    def __iter__(self) -> Iterator[ReplicatedTable]:
        """Return each table, progress first."""
        tables = (getattr(self, field.name) for field in attrs.fields(type(self)))
        return (table for table in tables if table is not None)

    @property
    def kept(self) -> tuple[KeptTable, ...]:
        """The tables that are saved."""
        return tuple(table for table in self if isinstance(table, KeptTable))

    @property
    def progress(self) -> tuple[ProgressTable, ...]:
        """The tables of offsets, which are given back queue by queue."""
        return tuple(table for table in self if isinstance(table, ProgressTable))

    @property
    def given_back(self) -> tuple[GivenBackTable, ...]:
        """The tables that are given back and hold more than offsets."""
        return tuple(table for table in self if isinstance(table, GivenBackTable))


def replicated_tables(
    *,
    offsets: OffsetTable,
    progress: ScheduleProgress,
    timer: Timer,
    topics: TopicTable,
    groups: GroupTable,
    queue_mappings: QueueMappings,
    request_modes: RequestModeTable,
    orders: OrderTable,
    acting_pops: ReplicatedActingPops,
    now_ms: Callable[[], int],
    log_end: Callable[[], int],
    offsets_delay_ms: Callable[[], int],
    delay_delay_ms: Callable[[], int],
    copies_durable: Callable[[], Awaitable[None]] | None,
    popped_durable: Callable[[], Awaitable[None]] | None,
    users: ReplicatedUsers | None,
) -> ReplicatedTables:
    """Return the list over a broker's tables.

    Args:
        offsets, progress, timer, topics, groups, queue_mappings, request_modes, orders: the tables themselves.
        acting_pops: what was handed out for a master.
        now_ms: wall clock in milliseconds.
        log_end: returns where the own log ends.
        offsets_delay_ms, delay_delay_ms: configured longest time from a change to its write.
        copies_durable: waits for the copies of delayed and timer messages, which are durable before their progress.
        popped_durable: waits for the check points of what was popped, which are durable before the offsets behind them.
        users: the row of users, if there is one.
    """
    return ReplicatedTables(
        ReplicatedOffsets(
            offsets,
            FilePlan(
                LIGHT_OFFSET_FILE if offsets.light_queues else FILE_NAME,
                lambda: min(offsets_delay_ms(), PROGRESS_DELAY_MS),
                "no progress of consumers beside a log with messages, every group begins anew",
                barrier=popped_durable,
                other_name=FILE_NAME if offsets.light_queues else LIGHT_OFFSET_FILE,
            ),
            now_ms,
            log_end,
        ),
        ReplicatedLevels(
            progress,
            FilePlan(
                "delayOffset.json",
                lambda: min(delay_delay_ms(), PROGRESS_DELAY_MS),
                "no progress of delayed messages beside a log with messages, all that are still there are delivered "
                "again",
                barrier=copies_durable,
            ),
        ),
        ReplicatedTimer(timer, FilePlan("timerProgress.json", lambda: PROGRESS_DELAY_MS, barrier=copies_durable)),
        ReplicatedTopics(topics, mappings := ReplicatedMappings(queue_mappings)),
        mappings,
        ReplicatedGroups(groups),
        ReplicatedModes(request_modes),
        ReplicatedOrders(orders, FilePlan("consumerOrderInfo.json", lambda: PROGRESS_DELAY_MS)),
        acting_pops,
        TimerMetrics(timer, FilePlan("timermetrics", lambda: METRICS_DELAY_MS)),
        users,
    )
