"""Keeps a slave's tables like its master's: topics, groups, offsets, delay progress, and what its timer would need.

Offsets and delay progress are asked for several times a second, so that a slave that must act knows nearly everything
that was consumed and delivered; the other tables at once when the master becomes known and then every few seconds.
A master of ours answers a question about offsets with what changed since the last one, a Java master with all of them.

Source: SlaveSynchronize.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.offsets import OffsetTable
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.replica_tables import (
    OffsetsAnswer,
    ReplicaTableError,
    offsets_to_take,
    read_forbidden,
    read_levels,
    read_object,
    read_offsets,
    takeover,
)
from understudy.broker.replication import Replication
from understudy.broker.told_offsets import UNKNOWN, ToldOffsets
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import dumps
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.world import World

log = get_logger("broker.slave_sync")

PROGRESS_PERIOD_MS = 500
TABLES_PERIOD_MS = 3_000
QUESTION_TIMEOUT_MS = 3_000
PAGE_ROWS = 2_000
KNOWN_OFFSETS = "knownOffsets"
"""Header field of ours: in the question what the asker has, in the answer what the master has."""
PARTLY = "partly"
"""Header field of ours: the answer holds only what changed since what the asker has."""
TABLES = "tables"
"""Header field of ours in the same answer: changes when topics or groups have changed."""
LOAD_SHARE = 0.1
"""Largest part of the time that reading a Java master's whole table may take."""


class SyncError(Exception):
    """A round that could not be finished; what was taken before stays."""


class SlaveSync:
    """Copies the tables of one slave's master.

    Args:
        world: clock.
        replication: knows the master.
        client: asks it.
        own_address: never asked.
        topics, groups, offsets, progress, queue_mappings: the tables that are kept like the master's.

    Attributes:
        synced: every table was copied at least once, in this life of the broker or a former one: without that, a slave
            cannot act.
        synced_ms: wall time of the last complete copy in milliseconds, 0 before.
        request_modes: the master's consumption modes, as they were answered.
        timer_checkpoint, timer_metrics: the master's, as they were answered; ``None`` before.
        on_synced: called when :attr:`synced` becomes true.
        on_topic_gone: called with each topic that was deleted at the master.
    """

    def __init__(
        self,
        world: World,
        replication: Replication,
        client: RemotingClient,
        own_address: str,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        progress: ScheduleProgress,
        queue_mappings: QueueMappings,
    ) -> None:
        self._clock = world.clock
        self._replication = replication
        self._client = client
        self._own_address = own_address
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._progress = progress
        self._queue_mappings = queue_mappings
        self._master: str | None = None
        self._changed = trio.Event()
        self._seen: dict[int, DataVersion] = {}
        self._totals: dict[int, int] = {}
        self._seen_offsets: OffsetsAnswer | None = None
        self._told = ToldOffsets()
        self._known_offsets = self._known_tables = ""
        self._tables_due = self._looking_since = 0.0
        self._pause = PROGRESS_PERIOD_MS / 1000
        self._failing = ""
        self.synced = False
        self.synced_ms = 0
        self.request_modes: dict[str, Any] = {}
        self.timer_checkpoint: bytes | None = None
        self.timer_metrics: bytes | None = None
        self.on_synced: list[Callable[[], None]] = []
        self.on_topic_gone: list[Callable[[str], None]] = []
        replication.master_changed.append(self._note_change)

    def _note_change(self) -> None:
        if self._replication.master_address is None:
            self._told.clear()  # when it comes back it takes over everything
        self._changed.set()

    async def run(self) -> None:
        """Copy until cancelled; asleep while no master is known."""
        self._begin(None)  # a later run is the first look again: this slave may have acted since
        try:
            while True:
                self._changed = trio.Event()
                master = self._replication.master_address
                if master == self._own_address:
                    master = None
                if master != self._master:
                    self._begin(master)
                if master is None:
                    await self._changed.wait()
                    continue
                try:
                    await self.round(master)
                    self._note(master, "")
                except (RemotingError, SyncError, ValueError) as error:
                    self._note(master, str(error))
                    self._forget()  # it may come back with another history
                with self._clock.move_on_after(self._pause):
                    await self._changed.wait()
        finally:
            self._follow(False)

    async def round(self, master: str) -> None:
        """Copy what is due from *master* once.

        Raises:
            RemotingError, SyncError, ValueError: it did not answer, refused, or answered nonsense.
        """
        now = self._clock.monotonic()
        await self._copy_offsets(master)
        await self._tell_offsets(master)
        await self._copy_levels(master)
        if now >= self._tables_due:
            await self._copy_topics(master)
            await self._copy_groups(master)
            await self._copy_others(master)
            self._tables_due = now + TABLES_PERIOD_MS / 1000
            self.synced_ms = self._clock.wall_ms()
            if not self.synced:
                self.synced = True
                log.info("tables copied", master=master)
                for callback in self.on_synced:
                    callback()

    def _begin(self, master: str | None) -> None:
        """Start anew with another master, or stop following."""
        self._master = master
        self._forget()
        self._failing = ""
        self._follow(master is not None)

    def _forget(self) -> None:
        """Let the next look at the master be the first one."""
        self._seen.clear()
        self._totals.clear()
        self._seen_offsets, self._known_offsets = None, ""
        self._tables_due = 0.0
        self._looking_since = self._clock.monotonic()

    def _follow(self, following: bool) -> None:
        self._topics.following = self._groups.following = self._offsets.following = following

    def _note(self, master: str, why: str) -> None:
        if why != self._failing:
            if why:
                log.warning("tables not copied, trying again", master=master, why=why)
            else:
                log.info("tables are copied again", master=master)
            self._failing = why

    async def _ask(self, master: str, code: RequestCode, ext: dict[str, str] | None = None) -> Command:
        answer = await self._client.invoke(master, request(code, ext), QUESTION_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise SyncError(f"{code.name}: code {answer.code}, {answer.remark}")
        if self._replication.master_address != master:
            raise SyncError("the master changed meanwhile")
        return answer

    # --- topics and groups -------------------------------------------------------------------------------------

    async def _copy_topics(self, master: str) -> None:
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        found = await self._pages(master, code, "topicSeq", "maxTopicNum", "totalTopicNum", "topicConfigTable")
        if found is None:
            return
        rows, answer, version = found
        self._take_queue_mappings(master, answer)
        plan = takeover(self._topics.version, self._seen.get(code), version)
        topics = [TopicConfig.from_json(row, name) for name, row in rows.items()]
        self._tell_older(plan.adopt, "topics", master, self._topics.version, version)
        delete = plan.delete and self._replication.continued_since(self._looking_since)
        gone = self._topics.take(topics, version if plan.adopt else None, delete=delete, overwrite=plan.overwrite)
        for topic in gone:
            for callback in self.on_topic_gone:
                callback(topic)
        if delete == plan.delete:
            self._seen[code] = version

    def _take_queue_mappings(self, master: str, answer: Mapping[str, Any]) -> None:
        """Keep what the answer about topics says of static ones."""
        table = answer.get("topicQueueMappingDetailMap")
        version = DataVersion.from_json(answer.get("mappingDataVersion"))
        if not isinstance(table, Mapping):
            return  # a master of before static topics
        if not all(isinstance(row, Mapping) for row in table.values()):
            raise ReplicaTableError("topicQueueMappingDetailMap holds something that is no mapping")
        taken = self._queue_mappings.take(table, version)
        self._tell_older(taken, "queue mappings", master, self._queue_mappings.version, version)

    async def _copy_groups(self, master: str) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        found = await self._pages(master, code, "groupSeq", "maxGroupNum", "totalGroupNum", "subscriptionGroupTable")
        if found is None:
            return
        rows, answer, version = found
        plan = takeover(self._groups.version, self._seen.get(code), version)
        groups = [GroupConfig.from_json(row, name) for name, row in rows.items()]
        forbidden = read_forbidden(answer.get("forbiddenTable"))
        self._tell_older(plan.adopt, "groups", master, self._groups.version, version)
        delete = plan.delete and self._replication.continued_since(self._looking_since)
        self._groups.take(groups, forbidden, version if plan.adopt else None, delete=delete, overwrite=plan.overwrite)
        if delete == plan.delete:
            self._seen[code] = version

    def _tell_older(self, adopt: bool, what: str, master: str, own: DataVersion, theirs: DataVersion) -> None:
        if not adopt:
            log.warning(
                f"the master's {what} are older than ours, nothing is deleted", master=master, own=own, its=theirs
            )

    async def _pages(
        self, master: str, code: RequestCode, seq: str, limit: str, total: str, table: str
    ) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any], DataVersion] | None:
        """Return every row, the first page's body and the version; ``None`` when nothing changed since the last look.

        The first question names the version and the number of rows of the last look: a master that pages answers no
        row when nothing changed.
        """
        seen = self._seen.get(code)
        rows: dict[str, Mapping[str, Any]] = {}
        first: Mapping[str, Any] = {}
        version: DataVersion | None = None
        begin, known = (0, "") if seen is None else (self._totals.get(code, 0), dumps(seen.to_json()).decode())
        while True:
            answer = await self._ask(master, code, {seq: str(begin), "dataVersion": known, limit: str(PAGE_ROWS)})
            body = read_object(answer.body)
            page = body.get(table) or {}
            if not isinstance(page, Mapping) or not all(isinstance(row, Mapping) for row in page.values()):
                raise ReplicaTableError(f"{table} holds something that is no row")
            current = DataVersion.from_json(body.get("dataVersion"))
            if version is None and current == seen:
                return None
            if version is None and begin:  # it changed: from the first row, whatever this master did of its own
                begin, known, seen = 0, "", None
                continue
            if current != version:  # the first page, or the table changed between two pages
                rows, first, version = {}, body, current
            rows.update((str(name), row) for name, row in page.items())
            count = int((answer.ext or {}).get(total) or len(rows))
            if len(rows) >= count or not page:
                self._totals[code] = count
                return rows, first, current
            begin, known = len(rows), dumps(current.to_json()).decode()

    # --- progress ----------------------------------------------------------------------------------------------

    async def _copy_offsets(self, master: str) -> None:
        ext = {KNOWN_OFFSETS: self._known_offsets}
        answer = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET, ext)
        tables = (answer.ext or {}).get(TABLES, "")
        if tables != self._known_tables:
            self._known_tables = tables
            self._tables_due = 0.0
        known = (answer.ext or {}).get(KNOWN_OFFSETS, "")
        if not answer.body and known and known == self._known_offsets:
            return
        began = self._clock.monotonic()
        theirs = read_offsets(answer.body)
        partly = (answer.ext or {}).get(PARTLY) == "true"
        if known and not partly and self._known_offsets:
            self._forget()  # another life of the master, which may have lost what it answered last
        gone = self._offsets.learn_removed(theirs.removed)
        if gone:
            log.info("topics were deleted at the master, their offsets are gone", topics=",".join(sorted(gone)))
            if self._seen_offsets is not None:
                self._seen_offsets = self._seen_offsets.without(gone)
        wanted = offsets_to_take(self._offsets, self._seen_offsets, theirs)
        self._offsets.take(wanted, theirs.stamps, theirs.version)
        if self._seen_offsets is not None and partly:
            theirs = OffsetsAnswer({**self._seen_offsets.table, **theirs.table}, {}, theirs.version)
        self._seen_offsets, self._known_offsets = theirs, known
        self._pause = max(PROGRESS_PERIOD_MS / 1000, (self._clock.monotonic() - began) / LOAD_SHARE)

    def note_commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember that a client committed here though the master is there: it is told with the next look at it."""
        if self._replication.master_address not in (None, self._own_address):
            key = f"{topic}@{group}"
            self._told.note(key, queue_id, offset, self._at_master(key, queue_id))

    def _at_master(self, key: str, queue_id: int) -> int:
        seen = self._seen_offsets
        return UNKNOWN if seen is None else seen.table.get(key, {}).get(queue_id, -1)

    async def _tell_offsets(self, master: str) -> None:
        for key, queue_id, offset in self._told.due(self._at_master):
            topic, _, group = key.partition("@")
            ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
            try:
                await self._ask(master, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
            except SyncError as error:
                log.warning("the master does not take a client's commit", master=master, place=key, why=error)
                self._told.forget(key, queue_id)
            else:
                self._told.told(key, queue_id, offset)

    async def _copy_levels(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)
        levels, version = read_levels(answer.body)
        self._progress.take(levels, version)

    async def _copy_others(self, master: str) -> None:
        modes = read_object((await self._ask(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body)
        table = modes.get("messageRequestModeMap")
        self.request_modes = dict(table) if isinstance(table, Mapping) else {}
        # A master without a timer refuses these two; its slave then has nothing to keep.
        for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
            try:
                answer = await self._ask(master, code)
            except SyncError as error:
                log.debug("no timer", master=master, why=error)
                continue
            if code == RequestCode.GET_TIMER_CHECK_POINT:
                self.timer_checkpoint = answer.body or None
            else:
                self.timer_metrics = answer.body or None
