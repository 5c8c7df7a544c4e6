"""Delete old commit log files, by age or for want of space, and refuse writes when the disk is nearly full.

Deciding is pure; :class:`Retention` looks at the disk and deletes. Rules and limits are those of CleanCommitLogService
(DefaultMessageStore.java).
"""

from __future__ import annotations

import time
from collections.abc import Generator

import attrs

from understudy.runtime.log import get_logger
from understudy.runtime.os_failure import os_failure, os_reason
from understudy.runtime.pace import run_beside
from understudy.store.batch_queue import BatchQueue
from understudy.store.config import StoreConfig
from understudy.store.consume_queue import ConsumeQueue
from understudy.store.core import StoreCore

log = get_logger("store.retention")

FIRST_LOOK_MS = 60_000
#: How many looks a manual request deletes files in.
MANUAL_ROUNDS = 20
_HOUR_MS = 3_600_000


@attrs.frozen
class Verdict:
    """What to do about the files now.

    Args:
        delete_expired: delete files older than the reserved time.
        delete_any: delete files whatever their age.
        refuse_writes: the disk is above its hard limit.
    """

    delete_expired: bool
    delete_any: bool
    refuse_writes: bool


def _clamped(ratio: int, lowest: int, highest: int) -> float:
    return min(max(ratio, lowest), highest) / 100


def judge(config: StoreConfig, used_ratio: float, local_hour: int, manual: bool) -> Verdict:
    """Return what to do.

    Args:
        config: limits.
        used_ratio: used part of the disk, 0 to 1; the smallest of all folders.
        local_hour: hour of the day, 0 to 23.
        manual: an operator asked for it.
    """
    hours = {int(part) for part in config.delete_when.split(";") if part.strip().isdigit()}
    refuse = used_ratio > _clamped(config.disk_space_warning_level_ratio, 35, 90)
    at_once = refuse or used_ratio > _clamped(config.disk_space_clean_forcibly_ratio, 30, 85)
    full = used_ratio > _clamped(config.disk_max_used_space_ratio, 10, 95)
    return Verdict(
        delete_expired=at_once or full or manual or local_hour in hours,
        delete_any=at_once and config.clean_file_forcibly_enable,
        refuse_writes=refuse,
    )


class Retention:
    """Looks after the space of one store."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core
        self._manual_rounds = 0
        self._refusal = (
            f"the disk of {core.config.folder} is above {core.config.disk_space_warning_level_ratio} percent "
            "(diskSpaceWarningLevelRatio); free some space"
        )
        self._unknown = f"the disk of {core.config.folder} does not say how full it is; see whether it is there"

    def request(self) -> None:
        """Delete expired files in the next looks, whatever the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    async def run(self) -> None:
        """Look now and then until cancelled."""
        core = self._core
        self.guard()
        await core.clock.sleep(FIRST_LOOK_MS / 1000)
        while True:
            await self.look()
            await core.clock.sleep(core.config.clean_resource_interval_ms / 1000)

    def used_ratio(self) -> float:
        """Return the used part of the disk; the smallest of all folders of the log."""
        core = self._core
        folders = core.config.commit_log_folders or (core.config.folder,)
        usages = [core.disk.usage(folder) for folder in folders]
        return min(usage.used / usage.total if usage.total else 0.0 for usage in usages)

    async def look(self) -> int:
        """Judge, refuse or accept writes, delete what may go; return the number of log files deleted."""
        core = self._core
        now = core.clock.wall_ms()
        core.segments.look_for_lost()
        verdict = self._verdict(now)
        self._manual_rounds = max(0, self._manual_rounds - 1)
        if verdict is None:
            return 0
        self._refuse_or_accept(verdict)
        return await self.delete_files(now, verdict.delete_any) if verdict.delete_expired else 0

    def guard(self) -> None:
        """Refuse or accept writes by the space there is now, without deleting anything."""
        verdict = self._verdict(self._core.clock.wall_ms())
        if verdict is not None:
            self._refuse_or_accept(verdict)

    def _verdict(self, now_ms: int) -> Verdict | None:
        """Return what to do; ``None`` when the disk does not even say how full it is, and messages are refused."""
        core = self._core
        try:
            used = self.used_ratio()
        except OSError as error:
            if self._unknown not in core.refusals:
                log.error("no messages are accepted", why=os_failure(error))
                core.refusals.add(self._unknown)
            return None
        core.refusals.discard(self._unknown)
        hour = time.localtime(now_ms / 1000).tm_hour
        return judge(core.config, used, hour, self._manual_rounds > 0)

    def _refuse_or_accept(self, verdict: Verdict) -> None:
        core = self._core
        if verdict.refuse_writes == (self._refusal in core.refusals):
            return
        if verdict.refuse_writes:
            log.error("disk nearly full, no messages are accepted", folder=core.config.folder)
            core.refusals.add(self._refusal)
        else:
            log.info("disk has space again", folder=core.config.folder)
            core.refusals.discard(self._refusal)

    async def delete_files(self, now_ms: int, any_age: bool) -> int:
        """Delete leading log files, never the last, that may go; return how many.

        A file is out of the log before it is removed, in a thread. A process that ends in between leaves it to the next
        one, as the oldest file of its log.
        """
        core = self._core
        reserved_ms = core.config.file_reserved_time_hours * _HOUR_MS
        deleted = 0
        while deleted < core.config.delete_file_batch_max and len(core.segments.items) > 1:
            oldest = core.segments.items[0]
            # What may not be shown to readers yet, or is not durable, is not old.
            if oldest.end > min(core.dispatched, core.show_limit()) or oldest.end > core.flushed:
                break
            needed = core.compacted.needed_from()
            if needed is not None and oldest.end > needed:
                break  # its messages are to be copied into compaction logs first
            try:
                if not any_age and now_ms < core.disk.modified_ms(oldest.path) + reserved_ms:
                    break
            except FileNotFoundError:
                core.segments.lose(oldest)
                continue
            try:
                await core.disk.in_thread(core.segments.take_first())
            except OSError as error:
                core.segments.put_back(oldest)
                log.error("a commit log file cannot be deleted", path=oldest.path, why=os_reason(error))
                break
            deleted += 1
            log.info("deleted commit log file", path=oldest.path)
        if deleted:
            await self._follow_log()
        return deleted

    async def _follow_log(self) -> None:
        """Delete queue and index files that only point before the log, with turns for others."""
        core = self._core
        await run_beside(core.clock, self.follow_steps())
        try:
            for remove in core.index.take_before(core.segments.min_offset):
                await core.disk.in_thread(remove)
        except OSError as error:
            log.error("a file of the index cannot be deleted", folder=core.config.folder, why=os_reason(error))
        core.deletions.fit(core.segments.min_offset, max(core.log.end, core.deletions.until))

    def follow_steps(self) -> Generator[None, None, None]:
        """Delete queue files that only point before the log, a queue in each step, whose files may have to be mapped.

        The log may lose more files between two of them, and queues may go: each step sees what is there then.
        """
        core = self._core
        queues: list[ConsumeQueue | BatchQueue] = [*core.consume_queues, *core.batch_queues.by_key.values()]
        for queue in queues:
            if isinstance(queue, ConsumeQueue):
                core.consume_queues.delete_before(queue, core.segments.min_offset)
            else:
                queue.delete_before(core.segments.min_offset)
            yield
