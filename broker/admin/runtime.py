"""What the broker is doing: runtime info (28) and statistics items (315).

Source: AdminBrokerProcessor.java, StoreStatsService.java, MixAll.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.answers import json_answer
from understudy.broker.broker_config import BrokerConfig
from understudy.broker.counters import Rate
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.replication import Replication
from understudy.broker.session import RoleSession
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.timer.timer import Timer
from understudy.format.names import SCHEDULE_TOPIC
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.server import RemotingServer
from understudy.runtime.clock import Clock
from understudy.runtime.disk import DiskUsage
from understudy.runtime.world import World
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

VERSION_NAME = "V5_4_0"
_NO_POOL_LIMIT = 2**31 - 1
_SPANS = ("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s")
_LONG_SPANS = ("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~")
_POOLS = {
    "send": "send_thread_pool_queue_capacity",
    "pull": "pull_thread_pool_queue_capacity",
    "litePull": "lite_pull_thread_pool_queue_capacity",
    "query": "query_thread_pool_queue_capacity",
    "ack": "ack_thread_pool_queue_capacity",
}


@attrs.frozen
class RuntimeParts:
    """What of a broker is needed to tell how it does.

    Attributes:
        clock: wall time.
        config: read at each request.
        stats: counts.
        server: what waits for its turn.
        session: returns the role in force and its rules.
        replication: knows for how many copies a send waits.
    """

    clock: Clock
    config: BrokerConfig
    stats: BrokerStatistics
    server: RemotingServer
    session: Callable[[], RoleSession]
    replication: Replication


@attrs.frozen
class StoredParts:
    """What of a broker is needed to tell what it has stored.

    Attributes:
        world: clock and disk.
        keys: read at each request.
        store: the messages.
        timer: messages that wait in the timer.
        progress: how far each delay level has come.
    """

    world: World
    keys: MessageStoreConfig
    store: MessageStore
    timer: Timer
    progress: ScheduleProgress


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer questions about the state of *broker* on *server*."""
    handlers = RuntimeAdmin(
        RuntimeParts(
            clock=broker.world.clock,
            config=broker.options.broker,
            stats=broker.stats,
            server=server,
            session=lambda: broker.session,
            replication=broker.replication,
        ),
        StoredFigures(
            StoredParts(
                world=broker.world,
                keys=broker.options.store,
                store=broker.store,
                timer=broker.timer,
                progress=broker.schedule_progress,
            )
        ),
    )
    server.register(RequestCode.GET_BROKER_RUNTIME_INFO, handlers.info)
    server.register(RequestCode.VIEW_BROKER_STATS_DATA, handlers.statistics)


class RuntimeAdmin:
    """Handlers over one broker's counters."""

    def __init__(self, parts: RuntimeParts, stored: StoredFigures) -> None:
        self._parts = parts
        self._stored = stored

    def info(self, connection: Connection, command: Command) -> Command:
        """Return every figure as text (28)."""
        table = self._figures() | self._stored.texts()
        return json_answer(command, {"table": dict(sorted(table.items()))})

    def statistics(self, connection: Connection, command: Command) -> Command:
        """Return minute, hour and day of one statistics item (315)."""
        name, key = optional(command, "statsName"), optional(command, "statsKey")
        windows = None if name is None or key is None else self._parts.stats.windows(name, key)
        if windows is None:
            remark = f"The stats <{_null(name)}> <{_null(key)}> not exist"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        minute, hour, day = windows
        body = {"statsDay": _rate(day), "statsHour": _rate(hour), "statsMinute": _rate(minute)}
        return json_answer(command, body)

    def _figures(self) -> dict[str, str]:
        stats, config, rules = self._parts.stats, self._parts.config, self._parts.session().rules
        buckets = stats.put_time_buckets()
        spans = zip(_SPANS + _LONG_SPANS, buckets, strict=True)
        table = {
            "bootTimestamp": str(stats.started_ms),
            "runtime": uptime_text(self._parts.clock.wall_ms() - stats.started_ms),
            "brokerActive": str(rules.active).lower(),
            "brokerActiveReason": rules.reason,
            "brokerVersionDesc": VERSION_NAME,
            "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
            "putMessageDistributeTime": "".join(f"[{span}]:{count} " for span, count in spans),
            "putMessageEntireTimeMax": str(stats.put_slowest_ms),
            "getMessageEntireTimeMax": str(stats.get_slowest_ms),
            "putMessageFailedTimes": str(stats.put_failed),
            "putMessageTimesTotal": str(stats.put_total),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": java_double(stats.put_bytes / max(stats.put_total, 1)),
            "putLatency99": f"{percentile_ms(buckets, 0.99):.2f}",
            "putLatency999": f"{percentile_ms(buckets, 0.999):.2f}",
            "dispatchMaxBuffer": "0",
            "dispatchBehindBytes": "0",
            "pageCacheLockTimeMills": "0",
            "remainTransientStoreBufferNumbs": str(_NO_POOL_LIMIT),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
        }
        if rules.summary:
            table["preOnline"] = rules.summary
        if copies := self._copies():
            table["copiesNeeded"] = copies
        table |= {name: str(value) for name, value in stats.today().items()}
        for name, rates in stats.rates().items():
            absent = "0.0" if name == "getTotalTps" else ""
            table[name] = " ".join(absent if rate is None else java_double(rate) for rate in rates)
        for pool, capacity in _POOLS.items():
            lane = self._parts.server.lanes.get(pool)
            table[f"{pool}ThreadPoolQueueSize"] = str(0 if lane is None else lane.waiting)
            table[f"{pool}ThreadPoolQueueCapacity"] = str(getattr(config, capacity))
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return table

    def _copies(self) -> str:
        """Return for how many copies a send waits now; ``refused``: too few replicas are there.

        Empty where none is waited for, and where a controller leads: its SyncStateSet says it.
        """
        parts = self._parts
        if not parts.session().role.waits_for_copies or parts.config.enable_controller_mode:
            return ""
        copies = parts.replication.copies_needed()
        return "refused" if copies is None else str(copies)


class StoredFigures:
    """Figures of what one broker has stored: timer, delay levels, log and disk."""

    def __init__(self, parts: StoredParts) -> None:
        self._parts = parts

    def texts(self) -> dict[str, str]:
        """Return every figure as text."""
        return self._timer() | self._parts.store.runtime_info() | self._delay_levels() | self._places()

    def _timer(self) -> dict[str, str]:
        """Return the five figures of the timer; a slave's are those of what it would do if it acted."""
        timer = self._parts.timer
        read_ms = timer.check().read_ms
        behind_ms = max(self._parts.world.clock.wall_ms() - read_ms, 0) if read_ms else 0
        return {
            "timerReadBehind": str(behind_ms // 1000),
            "timerOffsetBehind": str(timer.behind),
            "timerCongestNum": str(timer.waiting),
            "timerEnqueueTps": java_double(timer.entered.per_second()),
            "timerDequeueTps": java_double(timer.delivered.per_second()),
        }

    def _places(self) -> dict[str, str]:
        """Return figures of the log and of the disk it lies on."""
        store, config = self._parts.store, self._parts.keys
        behind = max(store.max_physical_offset - store.flushed_offset, 0)
        table = {
            "commitLogMaxOffset": str(store.max_physical_offset),
            "commitLogMinOffset": str(store.min_physical_offset),
            "earliestMessageTimeStamp": str(store.earliest_store_time()),
            "remainHowManyDataToFlush": byte_text(behind),
        }
        disk = self._parts.world.disk
        usage = disk.usage(config.store_path_root_dir)
        unused = usage.total - usage.used  # as Java counts: also what the system keeps for its administrator
        table["commitLogDirCapacity"] = f"Total : {byte_text(usage.total)}, Free : {byte_text(unused)}."
        table["consumeQueueDiskRatio"] = disk_ratio(usage)
        folders = [path for path in (config.store_path_commit_log or "").split(",") if path]
        ratios = {path: disk_ratio(disk.usage(path)) for path in folders or [f"{config.store_path_root_dir}/commitlog"]}
        table |= {f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()}
        table["commitLogDiskRatio"] = min(ratios.values())
        return table

    def _delay_levels(self) -> dict[str, str]:
        store = self._parts.store
        delivered = self._parts.progress.to_json()["offsetTable"]
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{store.max_queue_offset(SCHEDULE_TOPIC, int(level) - 1)}"
            for level, offset in delivered.items()
        }


def java_double(value: float) -> str:
    """Return *value* as Java prints a double: with a fraction, small and large ones with an exponent."""
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        mantissa, _, exponent = f"{value!r}".partition("e")
        if not exponent:
            digits = f"{value:.16e}"
            for precision in range(17):
                digits = f"{value:.{precision}e}"
                if float(digits) == value:
                    break
            mantissa, _, exponent = digits.partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
    return repr(float(value))


def byte_text(count: int) -> str:
    """Return *count* bytes for people, in units of 1024 (MixAll.java)."""
    if count < 1024:
        return f"{count} B"
    size, unit = count / 1024, 0
    while size >= 1024 and unit < 5:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {'KMGTPE'[unit]}iB"


def disk_ratio(usage: DiskUsage) -> str:
    """Return the used part of a disk, 0 to 1, in whole percents rounded up (UtilAll.java)."""
    entire = usage.used + usage.free
    return java_double(-(-usage.used * 100 // entire) / 100) if entire > 0 else "-1.0"


def uptime_text(elapsed_ms: int) -> str:
    """Return a time span the way the reference words it."""
    seconds = max(elapsed_ms, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def percentile_ms(buckets: tuple[int, ...], share: float) -> float:
    """Return the time below which *share* of the appends stayed, linear inside a span."""
    bounds = (0, 1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000, 20_000)
    wanted, passed = sum(buckets) * share, 0
    for index, count in enumerate(buckets):
        if count and passed + count >= wanted:
            low, high = bounds[index], bounds[index + 1]
            return low + (high - low) * (wanted - passed) / count
        passed += count
    return 0.0


def _rate(rate: Rate) -> dict[str, float]:
    return {"avgpt": float(rate.per_request), "sum": rate.total, "tps": float(rate.per_second)}


def _null(text: str | None) -> str:
    return "null" if text is None else text
