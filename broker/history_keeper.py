"""Keeps the history of one broker's log, durably, and cuts progress that was made in what the log does not have.

The order of writes: progress that was cut is durable before the history is. A crash in between leaves offsets under an
older history than theirs; then less of them counts elsewhere, never more.

A master whose log may have lost its end is *open* until its slaves were asked for it: it stores nothing of its own, and
the new life of its log begins only where it goes on. It stays so, durably, when it dies meanwhile.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from understudy.broker.log_history import LogHistory, Parting
from understudy.broker.merge import Limit, StampedOffset, unlimited
from understudy.broker.persistence import Persistence
from understudy.broker.replicated.rows import ReplicatedTables
from understudy.broker.replicated.table import ProgressTable
from understudy.runtime.log import get_logger
from understudy.store.message_store import MessageStore

log = get_logger("broker.history")

NAME, FILE_NAME = "log history", "logHistory.json"


class HistoryKeeper:
    """The history of one log.

    Args:
        store: the log.
        tables: whose progress speaks of it.
        persistence: saves them, and this.
        source: ids of lives are drawn from it.

    Attributes:
        value: the history as it is now.
        open: the end of this master's log may be missing, and slaves are still to be asked for it.
    """

    def __init__(
        self, store: MessageStore, tables: ReplicatedTables, persistence: Persistence, source: random.Random
    ) -> None:
        self._store = store
        self._tables = tables
        self._persistence = persistence
        self._source = source
        self.value = LogHistory()
        self.open = False
        self._missed: dict[str, dict[tuple[str, int], StampedOffset]] = {}  # what the beginning of this life cut
        self._all_missed = self._missed

    def snapshot(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"lives": self.value.to_json()} | ({"open": True} if self.open else {})

    def load(self, content: Mapping[str, Any]) -> None:
        """Take the content of the file. Raises ``ValueError``."""
        self.value = LogHistory.from_json(content.get("lives", []))
        self.open = content.get("open") is True

    async def begin(self, *, promoted: bool = False, asks: bool = False) -> None:
        """Begin a new life when this master may go on with other messages than its group has.

        Progress beyond the ends of its queues is cut then: it was made in messages that are not here.

        Args:
            promoted: it was a slave until now, and its former master may have had more.
            asks: it will ask its slaves for what it has lost, and :meth:`go_on` then.

        Raises:
            OSError: it could not be made durable; the master must not serve.
        """
        lossy = self.open or not self._store.kept_all
        if self.value.lives and not lossy and not promoted:
            return
        if lossy or promoted:
            self._missed = await self._cut("the log of this master ends before it", self._end_of)
            self._all_missed = self._missed
        if lossy:
            offsets, end = self._tables.offsets.table, self._store.max_physical_offset
            offsets.doubts.begin(offsets.committed, self._store.written_queue_offset)
            offsets.doubts.doubt_others(lambda topic, queue_id: self._store.queue_offset_at(topic, queue_id, end))
        if asks and lossy and not promoted:
            self.open = True
            await self._persistence.save(NAME)
        else:
            await self.go_on()

    async def go_on(self) -> None:
        """Begin the new life where the log ends now: from here on this master stores messages of its own.

        Raises:
            OSError: it could not be made durable; the master must not serve.
        """
        before = self.value, self.open
        self._store.forget_lost_end()
        value = self.value.begun(f"{self._source.getrandbits(64):016x}", self._store.max_physical_offset)
        self.value, self.open = value, False
        try:
            await self._persistence.save(NAME)
        except BaseException:
            self.value, self.open = before  # what is not durable has not begun
            raise

    async def continued_by(self, theirs: LogHistory) -> None:
        """Learn that the log goes on as that of a slave with the history *theirs* does, from which bytes were taken.

        Raises:
            OSError: it could not be made durable.
        """
        parting = self.value.parting(theirs)
        if not self.value.lives or (parting is not None and parting.other_goes_on and not parting.own_goes_on):
            self.value = theirs
            await self._persistence.save(NAME)
        await self.believe_what_came_back()

    async def believe_what_came_back(self) -> None:
        """Count progress again that was cut or doubted for messages which are in this log after all.

        To be called when holes were filled, or the end of the log came back: at the beginning of this life a queue may
        have ended before. What was stored since then does not count: it stands where other messages have stood.

        Raises:
            OSError: what counts again could not be saved.
        """
        began = not self.open and self.value.lives
        start = self.value.lives[-1].start if began else self._store.max_physical_offset
        self._tables.offsets.table.doubts.learn_ends(
            lambda topic, queue_id: self._store.queue_offset_at(topic, queue_id, start)
        )
        missed = self._missed
        if not self.open:  # otherwise more may come
            self._missed = {}
        counted = []
        for table in self._tables.progress:
            limit, now = self.limit(table, start), table.stamped_offsets() if table.name in missed else {}
            again = {}
            for (key, queue_id), was in missed.get(table.name, {}).items():
                most, own = limit(key, queue_id), now.get(key, {}).get(queue_id)
                offset = was.offset if most is None else min(was.offset, most)
                if own is not None and own.reset_stamp == was.reset_stamp and own.offset < offset:
                    again[key, queue_id] = StampedOffset(was.reset_stamp, offset)
            if again:
                table.cut(again)
                self._persistence.changed(table.name)  # also when the write of another one fails
                counted.append(table.name)
        for name in counted:
            await self._persistence.save(name)

    def before_cut(self, table: str, key: str, queue_id: int = 0) -> int:
        """Return the progress that the beginning of this life has cut; 0: none.

        Args:
            table: its name.
            key, queue_id: what the table has it for.
        """
        was = self._all_missed.get(table, {}).get((key, queue_id))
        return 0 if was is None else was.offset

    async def cut_by(self, theirs: LogHistory, why: str) -> bool:
        """Cut this slave's progress where its own history parts from that of the replica that it follows.

        Returns:
            Whether there was anything to cut.
        """
        parting = self.value.parting(theirs)
        if parting is None or parting.at == math.inf:
            return False
        return bool(await self._cut(why, lambda table: self.limit(table, parting.at)))

    def goes_beyond(self, parting: Parting | None) -> bool:
        """Return whether this log holds something behind the place where another one parts from it."""
        return parting is not None and parting.at < self._store.max_physical_offset

    async def adopt(self, theirs: LogHistory) -> None:
        """Take over the history of the master whose log this one was seen to continue; progress is durable first."""
        for table in self._tables.progress:
            await self._persistence.save(table.name)
        self.value, self.open = theirs, False
        await self._persistence.save(NAME)

    def limit(self, table: ProgressTable, physical_offset: float) -> Limit:
        """Return up to where offsets count that were made in a log which is ours up to *physical_offset* (bytes)."""
        if physical_offset == math.inf:
            return unlimited
        end = int(physical_offset)
        return lambda key, queue_id: self._store.queue_offset_at(*table.queue_of(key, queue_id), end)

    def _end_of(self, table: ProgressTable) -> Limit:
        return lambda key, queue_id: self._store.written_queue_offset(*table.queue_of(key, queue_id))

    async def _cut(
        self, why: str, limit_of: Callable[[ProgressTable], Limit]
    ) -> dict[str, dict[tuple[str, int], StampedOffset]]:
        """Return what was cut, by table, key and queue."""
        all_cut: dict[str, dict[tuple[str, int], StampedOffset]] = {}
        for table in self._tables.progress:
            if not table.in_queues:
                continue
            limit, cut = limit_of(table), {}
            for key, queues in table.stamped_offsets().items():
                for queue_id, own in queues.items():
                    most = limit(key, queue_id)
                    if most is not None and own.offset > most:
                        cut[key, queue_id] = StampedOffset(own.reset_stamp, most)
                        all_cut.setdefault(table.name, {})[key, queue_id] = own
                        log.warning(
                            "offset cut: it lies beyond what this log has",
                            table=table.name,
                            key=key,
                            queue=queue_id,
                            was=own.offset,
                            now=most,
                            why=why,
                        )
            if cut:
                table.cut(cut)
                await self._persistence.save(table.name)
        return all_cut
