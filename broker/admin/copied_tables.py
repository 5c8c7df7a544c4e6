"""The tables that slaves copy (43, 45, 60, 61, 402, 955, 956).

Source: AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin.answers import json_answer, long_json_answer
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.groups import GroupTable
from understudy.broker.history_keeper import HistoryKeeper
from understudy.broker.log_history import LOG_HISTORY
from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.acting import ActingPops
from understudy.broker.pop.order import OrderTable
from understudy.broker.replicated.orders import KNOWN
from understudy.broker.replicated.packed import PACKED, packed
from understudy.broker.replicated.table import KNOWN_OFFSETS, PARTLY, TABLES
from understudy.broker.replicated.timer import metrics_of, told
from understudy.broker.request_modes import RequestModeTable
from understudy.broker.timer.timer import Timer
from understudy.broker.topics import TopicTable
from understudy.format import json_dialect
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import optional
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace
from understudy.runtime.threads import Threads
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

ROWS_IN_PLACE = 1_000
"""Of a table that is made an answer without a thread."""


@attrs.frozen
class CopiedOffsetParts:
    """What of a broker is needed to hand out its offsets.

    Attributes:
        world: clock and threads.
        started_ms: wall time of the start.
        history: of the log in which the offsets are valid.
        offsets, topics, groups: the tables.
    """

    world: World
    started_ms: int
    history: HistoryKeeper
    offsets: OffsetTable
    topics: TopicTable
    groups: GroupTable


@attrs.frozen
class CopiedPopParts:
    """What of a broker is needed to hand out how groups pop, and what they have.

    Attributes:
        threads: where a large table is made an answer.
        started_ms: wall time of the start.
        history: of the log in which the offsets are valid.
        orders: what was popped in order.
        acting_pops: what was handed out for the master.
        request_modes: how groups consume topics.
    """

    threads: Threads
    started_ms: int
    history: HistoryKeeper
    orders: OrderTable
    acting_pops: ActingPops
    request_modes: RequestModeTable


def register(broker: Broker, server: RemotingServer) -> None:
    """Hand out tables of *broker* on *server*."""
    offsets = CopiedOffsets(
        CopiedOffsetParts(
            world=broker.world,
            started_ms=broker.started_ms,
            history=broker.history,
            offsets=broker.offsets,
            topics=broker.topics,
            groups=broker.groups,
        )
    )
    server.register_async(RequestCode.GET_ALL_CONSUMER_OFFSET, offsets.consumer_offsets)
    due = CopiedDelays(broker.history, broker.schedule_progress, broker.timer)
    server.register(RequestCode.GET_ALL_DELAY_OFFSET, due.delay_offsets)
    server.register(RequestCode.GET_TIMER_CHECK_POINT, due.timer_checkpoint)
    server.register(RequestCode.GET_TIMER_METRICS, due.timer_metrics)
    pops = CopiedPops(
        CopiedPopParts(
            threads=broker.world.threads,
            started_ms=broker.started_ms,
            history=broker.history,
            orders=broker.orders,
            acting_pops=broker.acting_pops,
            request_modes=broker.request_modes,
        )
    )
    server.register(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, pops.request_modes)
    server.register(RequestCode.GET_POP_ORDERS, pops.pop_orders)
    server.register_async(RequestCode.GET_ACTING_POPS, pops.acting_pops)


class CopiedOffsets:
    """Handler over one broker's offsets."""

    def __init__(self, parts: CopiedOffsetParts) -> None:
        self._parts = parts

    async def consumer_offsets(self, connection: Connection, command: Command) -> Command:
        """Return the offset table (43); to a slave of ours that says what it has, only what changed since."""
        offsets, asked = self._parts.offsets, optional(command, KNOWN_OFFSETS)
        if asked is not None:
            life, _, known = asked.partition("-")
            current = f"{self._parts.started_ms}-{offsets.revision}"
            ext = {KNOWN_OFFSETS: current, TABLES: self._tables(), LOG_HISTORY: self._parts.history.value.to_text()}
            if asked == current:
                return response(command, ext=ext)
            partly = life == str(self._parts.started_ms) and known.isdecimal()
            content = offsets.to_json(int(known) if partly else -1, later=True)
            ext[PARTLY] = str(partly).lower()
            async with Pace(self._parts.world) as pace:
                return await long_json_answer(command, content, pace, ext=ext, bare_keys=False)
        async with Pace(self._parts.world) as pace:
            topics = await pace.run(offsets.topics_by_group())
            # Offsets of broadcasting members belong to no group.
            topics = {group: each for group, each in topics.items() if "@" not in group}
            content = offsets.to_json(later=True)
            body = {"dataVersion": content.pop("dataVersion"), "groupTopicMap": topics, **content}
            return await long_json_answer(command, body, pace)

    def _tables(self) -> str:
        """Return a text that changes with topics and groups."""
        topics, groups = self._parts.topics.version, self._parts.groups.version
        return f"{topics.state_version}.{topics.counter}.{topics.timestamp}-{groups.counter}.{groups.timestamp}"


class CopiedDelays:
    """Handlers over the progress of one broker's delayed messages: delay levels and timer."""

    def __init__(self, history: HistoryKeeper, levels: ScheduleProgress, timer: Timer) -> None:
        self._history = history
        self._levels = levels
        self._timer = timer

    def delay_offsets(self, connection: Connection, command: Command) -> Command:
        """Return how far each delay level is delivered (45); to a replica of ours also in which log."""
        ext = None
        if optional(command, LOG_HISTORY) is not None:
            ext = {LOG_HISTORY: self._history.value.to_text()}
        return json_answer(command, self._levels.to_json(), ext=ext)

    def timer_checkpoint(self, connection: Connection, command: Command) -> Command:
        """Return how far the timer has come (60); to a replica of ours also in which log, and within the second."""
        check = self._timer.check()
        ext = told(self._timer, check)
        if optional(command, LOG_HISTORY) is not None:
            ext[LOG_HISTORY] = self._history.value.to_text()
        return response(command, body=check.encode(), ext=ext)

    def timer_metrics(self, connection: Connection, command: Command) -> Command:
        """Return how many messages of each topic wait in the timer (61)."""
        return json_answer(command, metrics_of(self._timer))


class CopiedPops:
    """Handlers over what one broker knows of pops."""

    def __init__(self, parts: CopiedPopParts) -> None:
        self._parts = parts

    def request_modes(self, connection: Connection, command: Command) -> Command:
        """Return the modes that differ from the default: none of a master, a slave's are its master's (402)."""
        return json_answer(command, self._parts.request_modes.to_json())

    def pop_orders(self, connection: Connection, command: Command) -> Command:
        """Return what was popped in order (955, ours); nothing when the asker has it."""
        orders = self._parts.orders
        return self._unless_known(command, f"{self._parts.started_ms}.{orders.revision}", orders.to_json)

    async def acting_pops(self, connection: Connection, command: Command) -> Command:
        """Return what a slave handed out that acts or has acted (956, ours); nothing when the asker has it."""
        acting, asked = self._parts.acting_pops, optional(command, PACKED)
        ext, known = self._state(command, f"{self._parts.started_ms}.{acting.revision}")
        if known:
            return response(command, ext=ext)
        content = acting.content()

        def made() -> tuple[dict[str, str], bytes]:
            return packed(json_dialect.dumps(content()), asked)

        how, body = made() if len(acting) < ROWS_IN_PLACE else await self._parts.threads.run(made)
        return response(command, ext=ext | how, body=body)

    def _unless_known(self, command: Command, known: str, content: Callable[[], Any]) -> Command:
        ext, is_known = self._state(command, known)
        return response(command, ext=ext, body=b"" if is_known else json_dialect.dumps(content()))

    def _state(self, command: Command, current: str) -> tuple[dict[str, str], bool]:
        """Return the header fields that tell the *current* state of a table, and whether the asker has it."""
        ext = {KNOWN: current}
        if optional(command, LOG_HISTORY) is not None:
            ext[LOG_HISTORY] = self._parts.history.value.to_text()
        return ext, optional(command, KNOWN) == current
