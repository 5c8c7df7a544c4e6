"""Offsets of consumer groups as a table that travels (43).

A source of ours answers with what changed since the last question, a Java one with everything. What clients committed
here while the source was there is told to it with the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from understudy.broker.merge import Limit, StampedOffset, Table, merge, stamped, table_of
from understudy.broker.offset_keys import is_of
from understudy.broker.offsets import OffsetTable
from understudy.broker.replicated.held_offsets import HeldOffsets
from understudy.broker.replicated.rules import OffsetsAnswer, Queues, of_present, offsets_to_take, read_offsets
from understudy.broker.replicated.table import (
    KNOWN_OFFSETS,
    PARTLY,
    Answer,
    Copying,
    FilePlan,
    Merged,
    Notice,
    ProgressTable,
    Source,
    Taken,
)
from understudy.broker.told_offsets import SEEN_OFFSET, UNKNOWN, ToldOffsets
from understudy.format.data_version import DataVersion
from understudy.remoting.codes import RequestCode
from understudy.runtime.log import get_logger

log = get_logger("broker.slave_sync")


class ReplicatedOffsets(ProgressTable):
    """Committed offsets and resets.

    Args:
        offsets: the table.
        file: how it is saved.
        now_ms: wall clock in milliseconds.
        log_end: returns where the own log ends.
    """

    name = "offsets"
    kind = "consumerOffsets"
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    late = True

    def __init__(
        self, offsets: OffsetTable, file: FilePlan, now_ms: Callable[[], int], log_end: Callable[[], int]
    ) -> None:
        self.table = offsets
        self.file = file
        self._now_ms = now_ms
        self._log_end = log_end
        self._told = ToldOffsets()
        self._copying: _Offsets | None = None

    def snapshot(self) -> dict[str, Any]:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        return self.table.to_json(later=True)

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.on_change.append(changed)

    def follow(self, following: bool) -> None:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self.table.following = following
        if not following:
            self._told.clear()  # a source that comes back takes over everything
            self._copying = None

    def copying(self, source: Source) -> Copying:
        """See :class:`~understudy.broker.replicated.table.KeptTable`."""
        self._told.begin_anew()
        self._copying = _Offsets(self.table, source, self._told, self._log_end)
        return self._copying

    def note_commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember that a client committed here though another replica is followed: it is told with the next look.

        Args:
            group: that consumes.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset of the next message.
        """
        if self.table.following:
            key = f"{topic}@{group}"
            at_source = UNKNOWN if self._copying is None else self._copying.at_source(key, queue_id)
            self._told.note(key, queue_id, offset, at_source)

    # --- giving back -------------------------------------------------------------------------------------------

    def asking(self) -> dict[str, str]:
        """See :class:`ProgressTable`."""
        return {KNOWN_OFFSETS: ""}

    def stamped_offsets(self) -> Table:
        """See :class:`ProgressTable`."""
        return stamped(self.table.committed, self.table.stamps)

    def queue_of(self, key: str, queue_id: int) -> tuple[str, int]:
        """See :class:`ProgressTable`."""
        return key.partition("@")[0], queue_id

    def merge(self, answer: Answer, limit: Limit) -> Merged:
        """See :class:`ProgressTable`.

        Topics and groups that were deleted here since the other side heard of it are left out, and so are our groups
        that were deleted there.
        """
        theirs, own = read_offsets(answer.body), self.stamped_offsets()
        if KNOWN_OFFSETS in answer.ext:  # a replica of the reference never says what it heard of
            theirs = of_present(self.table, theirs)
            stamps = self.table.removed_groups.stamps
            gone = {name for name, stamp in theirs.removed_groups.items() if stamps.get(name, 0) < stamp}
            own = {key: queues for key, queues in own.items() if not is_of(key, (), gone)}
            theirs = theirs.within_log(self._log_end())
        rows = merge(own, stamped(theirs.table, theirs.stamps), limit)
        return Merged(rows, theirs.version, theirs)

    def cut(self, offsets: Mapping[tuple[str, int], StampedOffset]) -> None:
        """See :class:`ProgressTable`."""
        cut: dict[str, dict[int, int]] = {}
        for (key, queue_id), wanted in offsets.items():
            cut.setdefault(key, {})[queue_id] = wanted.offset
        self.table.cut(cut)

    def put(self, merged: Merged) -> None:
        """See :class:`ProgressTable`."""
        theirs = merged.answer
        assert isinstance(theirs, OffsetsAnswer)
        self.table.learn_removed({}, theirs.removed_groups)
        self.table.learn_resets(theirs.stamps, theirs.pending)
        found = table_of([row for row in merged.rows if row.changed])
        self.table.log_ends.learn(theirs.log_ends, found)
        self.table.take(
            {key: {queue: each.offset for queue, each in queues.items()} for key, queues in found.items()},
            {
                key: {queue: each.reset_stamp for queue, each in queues.items() if each.reset_stamp}
                for key, queues in found.items()
            },
            merged.version,
        )
        if found:
            # A step of the version, so that whoever compares versions only (the reference) sees who is newer.
            self.table.version = self.table.version.next(self._now_ms(), self.table.state_version())


class _Offsets(Copying):
    """What one source said of offsets, and what it still has to be told."""

    def __init__(self, offsets: OffsetTable, source: Source, told: ToldOffsets, log_end: Callable[[], int]) -> None:
        self._log_end = log_end
        self._held = HeldOffsets()
        self._offsets = offsets
        self._source = source
        self._told = told
        self._former: OffsetsAnswer | None = None
        self._known = ""
        self._removed_groups: Mapping[str, int] = {}

    def at_source(self, key: str, queue_id: int) -> int:
        """Return the offset there as of the last look, -1 for none."""
        return UNKNOWN if self._former is None else self._former.table.get(key, {}).get(queue_id, -1)

    def question(self) -> dict[str, str]:
        return {KNOWN_OFFSETS: self._known}

    def read(self, answer: Answer) -> OffsetsAnswer:
        return read_offsets(answer.body)

    def take(self, answer: Answer) -> Taken:
        known = answer.ext.get(KNOWN_OFFSETS, "")
        if not answer.body and known and known == self._known:
            if self._held:
                self._take({}, {}, {}, self._offsets.version)
            return Taken.ALL
        theirs = answer.said or self.read(answer)
        partly = answer.ext.get(PARTLY) == "true"
        anew = bool(known and not partly and self._known)
        if anew:
            self._former = None  # another life of the source, which may have lost what it answered last
            self._held = HeldOffsets()
        topics, groups = self._offsets.learn_removed(theirs.removed_topics, theirs.removed_groups)
        if topics or groups:
            log.info(
                "deleted at the master, their offsets are gone",
                topics=",".join(sorted(topics)),
                groups=",".join(sorted(groups)),
            )
            self._held.forget(topics, groups)
            if self._former is not None:
                self._former = self._former.without(topics, groups)
        if known:
            theirs = self._of_present_groups(theirs, partly)
        self._offsets.learn_resets(theirs.stamps, theirs.pending)
        wanted = offsets_to_take(self._offsets, self._former if self._source.leads else None, theirs)
        self._take(wanted, theirs.stamps, theirs.log_ends, theirs.version)
        if self._former is not None and partly:
            theirs = OffsetsAnswer({**self._former.table, **theirs.table}, {}, theirs.version)
        self._former, self._known = theirs, known
        return Taken.ANEW if anew else Taken.ALL

    def _take(self, news: Queues, stamps: Queues, log_ends: Queues, version: DataVersion) -> None:
        """Take what counts of *news*, and of what has waited for the log."""
        ready, ends = self._held.sift(news, log_ends, self._log_end())
        wanted = self._without_told(ready, stamps)
        self._offsets.log_ends.learn(ends, wanted)
        self._offsets.take(wanted, stamps, version)

    def _without_told(self, wanted: Queues, stamps: Mapping[str, Mapping[int, int]]) -> Queues:
        """Leave out offsets behind what clients committed here, which the source is told next, but for resets."""

        def counts(key: str, queue_id: int, offset: int) -> bool:
            newest, own = stamps.get(key, {}).get(queue_id, 0), self._offsets.stamps.get(key, {}).get(queue_id, 0)
            return newest <= own and self._told.counts(key, queue_id, offset)

        return {
            key: {queue_id: offset for queue_id, offset in queues.items() if not counts(key, queue_id, offset)}
            for key, queues in wanted.items()
        }

    def _of_present_groups(self, theirs: OffsetsAnswer, partly: bool) -> OffsetsAnswer:
        """Leave out groups that were deleted here, while this slave acted, and that the source still has to hear of."""
        if theirs.removed_groups or not partly:  # which it leaves out of an answer when they are as before
            self._removed_groups = theirs.removed_groups
        return theirs.without((), self._offsets.removed_groups.newer_than(self._removed_groups))

    def notices(self) -> Sequence[Notice]:
        return [self._notice(*told) for told in self._told.due(self.at_source)]

    def _notice(self, key: str, queue_id: int, offset: int) -> Notice:
        topic, _, group = key.partition("@")
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
        ext[SEEN_OFFSET] = str(self.at_source(key, queue_id))

        def refused(why: str) -> None:
            log.warning("the master does not take a client's commit", master=self._source.address, queue=key, why=why)
            self._told.forget(key, queue_id)
            theirs = self.at_source(key, queue_id)
            if theirs >= 0 and self._offsets.committed.get(key, {}).get(queue_id) == offset:
                self._offsets.commit(group, topic, queue_id, theirs)

        return Notice(RequestCode.UPDATE_CONSUMER_OFFSET, ext, lambda: self._told.told(key, queue_id, offset), refused)
