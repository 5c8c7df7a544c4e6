"""How far each consumer group has come in each queue.

Topics have no ``@`` in their names, so that the first one of a key ends the topic.

Source: ConsumerOffsetManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Set
from typing import Any

from understudy.broker.doubts import Doubts
from understudy.broker.log_ends import LogEnds
from understudy.broker.offset_content import (
    LOG_ENDS,
    PENDING_RESETS,
    REMOVED_GROUPS,
    REMOVED_TOPICS,
    RESET_STAMPS,
    offset_table,
    offset_tables,
    queue_table,
    quoted,
    removed_table,
)
from understudy.broker.offset_keys import of_any, of_topic
from understudy.broker.removals import Removals
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import Rows
from understudy.runtime.pace import run_steps

_KEYS_IN_A_STEP = 500
Queues = Mapping[str, Mapping[int, int]]


class OffsetTable:
    """Committed, reset and pulled offsets of one broker. Keys are ``topic@group``, then the queue id.

    Attributes:
        committed: what groups have confirmed; saved.
        stamps: when an administrator last reset a queue's offset (milliseconds, growing with each reset); only queues
            that were reset are in it; saved. An offset under a newer stamp is right even when it is smaller.
        removed_topics, removed_groups: when the offsets of whole topics and groups were last removed; saved. The
            offsets of a replica that does not know of it belong to a former topic or group of that name.
        log_ends: what of the log belongs to offsets that pops moved; saved.
        reset: offsets an administrator set that the next pull must learn; saved.
        pulled: where the next pull will begin; memory only.
        doubts: of consumers that may remember more than is there.
        version: grows once every ``version_step`` commits, and with each reset.
        revision: grows with every change, since the start.
        touched: the revision at which each key last changed; a removed key is not in it.
        following: the version belongs to the master whose table this is; own changes leave it as it is.
        light_queues: whether groups of light queues are written apart, as the reference reads them.
        on_change: called after every change of :attr:`committed`.
    """

    def __init__(self, now_ms: Callable[[], int], version_step: int = 500) -> None:
        self._now_ms = now_ms
        self.version_step = max(version_step, 1)
        self.committed: dict[str, dict[int, int]] = {}
        self.stamps: dict[str, dict[int, int]] = {}
        self.log_ends = LogEnds()
        self.removed_topics, self.removed_groups = Removals(), Removals()
        self.reset: dict[str, dict[int, int]] = {}
        self.pulled: dict[str, dict[int, int]] = {}
        self.doubts = Doubts(now_ms)
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[], None]] = []
        self.revision = 0
        self.touched: dict[str, int] = {}
        self.following = False
        self.light_queues = False
        self.state_version: Callable[[], int] = lambda: 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the committed offset; a smaller one than before is accepted, as the reference does.

        Args:
            group: that consumes.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset of the next message.
        """
        key = f"{topic}@{group}"
        queues = self.committed.get(key)
        if queues is None:
            queues = self.committed[key] = {}
        queues[queue_id] = offset
        self.revision += 1
        self.touched[key] = self.revision
        if self.revision % self.version_step == 0 and not self.following:
            self.version = self.version.next(self._now_ms(), self.state_version())
        for listener in self.on_change:
            listener()

    def commit_popped(self, group: str, topic: str, queue_id: int, offset: int, log_end: int) -> None:
        """Set the offset behind what was popped.

        Args:
            group, topic, queue_id, offset: as for :meth:`commit`.
            log_end: byte of the log behind what makes it come again; 0 where no log has it.
        """
        key = f"{topic}@{group}"
        if log_end:
            self.log_ends.note(key, queue_id, log_end)
        else:
            self.log_ends.forget(key, (queue_id,))
        self.commit(group, topic, queue_id, offset)

    def commit_unless_reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit unless an administrator's reset of this queue still waits for its pull; return whether it did.

        Args:
            group: that consumes.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset of the next message.
        """
        if self.reset and self.pending_reset(group, topic, queue_id) is not None:
            return False
        if self.doubts.active and self.doubts.refuses(f"{topic}@{group}", queue_id, offset):
            return False
        self.commit(group, topic, queue_id, offset)
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return what the group will go on with: the pending reset, else the committed offset, else -1."""
        if self.reset:
            pending = self.pending_reset(group, topic, queue_id)
            if pending is not None:
                return pending
        queues = self.committed.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of the committed offsets of *group* in *topic*."""
        return dict(self.committed.get(f"{topic}@{group}", {}))

    def record_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where the next pull of *group* begins.

        Args:
            group: that pulls.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset behind what was handed out.
        """
        key = f"{topic}@{group}"
        queues = self.pulled.get(key)
        if queues is None:
            queues = self.pulled[key] = {}
        queues[queue_id] = offset

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the next pull begins as far as this broker knows, else -1."""
        queues = self.pulled.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an administrator's offset: committed at once, told to the consumer at its next pull.

        Args:
            group: that consumes.
            topic: of the queue.
            queue_id: of the queue.
            offset: where it goes on.
        """
        key = f"{topic}@{group}"
        self.reset.setdefault(key, {})[queue_id] = offset
        self.log_ends.forget(key, (queue_id,))
        self._stamp(key, queue_id)
        self.committed.setdefault(key, {})[queue_id] = offset
        self._changed(key)

    def _stamp(self, key: str, queue_id: int) -> None:
        """Note a deliberate change, newer than any before it whatever the clock says."""
        stamps = self.stamps.setdefault(key, {})
        stamps[queue_id] = max(self._now_ms(), stamps.get(queue_id, 0) + 1)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the reset offset that the next pull must learn."""
        queues = self.reset.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the pending reset offset and forget it."""
        key = f"{topic}@{group}"
        queues = self.reset.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self.reset[key]
        if offset is not None:
            self._changed(key)
        return offset

    def correction(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Return where a consumer that asks for *offset* has to go on instead, ``None``: there. It knows it then.

        Args:
            group: that pulls.
            topic: of the queue.
            queue_id: of the queue.
            offset: queue offset that it asks for.
        """
        pending = self.take_reset(group, topic, queue_id) if not self.following else None
        end = self.doubts.settle(f"{topic}@{group}", queue_id, offset) if self.doubts.active else None
        return end if pending is None else pending

    def learn_resets(self, stamps: Mapping[str, Mapping[int, int]], pending: Mapping[str, Mapping[int, int]]) -> None:
        """Learn which resets of another replica still wait for their pull. Call it before :meth:`take`.

        The newer reset counts. Of one reset that both know, a consumer has learnt when either says so.

        Args:
            stamps: of the queues that were reset.
            pending: the resets that no consumer has learnt there.
        """
        for key, marks in stamps.items():
            own, waiting = self.stamps.get(key, {}), pending.get(key, {})
            for queue_id, stamp in marks.items():
                known = own.get(queue_id, 0)
                if queue_id in waiting and stamp > known:
                    self.reset.setdefault(key, {})[queue_id] = waiting[queue_id]
                elif queue_id not in waiting and stamp >= known and queue_id in self.reset.get(key, {}):
                    del self.reset[key][queue_id]
                    if not self.reset[key]:
                        del self.reset[key]

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which *group* has committed offsets."""
        return [topic for topic, _, name in (key.partition("@") for key in self.committed) if name == group]

    def topics_by_group(self) -> Generator[None, None, dict[str, list[str]]]:
        """Return the topics of each group that has committed offsets, as :meth:`topics_of` does, in short steps."""
        found: dict[str, list[str]] = {}
        for number, key in enumerate(list(self.committed), 1):
            topic, _, group = key.partition("@")
            found.setdefault(group, []).append(topic)
            if number % _KEYS_IN_A_STEP == 0:
                yield
        return found

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets in *topic*."""
        groups = [key[len(topic) + 1 :] for key in of_topic(self.committed, topic)]
        return [group for group in groups if "@" not in group]

    def remove_group(self, group: str) -> None:
        """Forget every offset of *group*."""
        if not self.following:  # who follows learns of the removal from its master
            self.removed_groups.note(group, self._now_ms(), self.revision + 1)
        run_steps(self._remove(frozenset(), {group}))

    def remove_topics(self, topics: Set[str]) -> Generator[None, None, None]:
        """Forget every offset in *topics*, in steps: each goes through all keys of one kind of offsets."""
        for topic in () if self.following else topics:
            self.removed_topics.note(topic, self._now_ms(), self.revision + 1)
        yield from self._remove(topics, frozenset())

    def learn_removed(self, topics: Mapping[str, int], groups: Mapping[str, int]) -> tuple[set[str], set[str]]:
        """Forget the offsets of topics and groups that another replica removed since we last heard of it.

        Args:
            topics, groups: names with the stamps of their removals.

        Returns:
            Those topics and groups.
        """
        news = (
            self.removed_topics.learn(topics, self.revision + 1),
            self.removed_groups.learn(groups, self.revision + 1),
        )
        if any(news):
            run_steps(self._remove(*news))
        return news

    def clone(self, source_group: str, target_group: str, topic: str) -> Generator[None, None, None]:
        """Give *target_group* the offsets of *source_group* in *topic*, in short steps, the last one all of it."""
        offsets = self.committed.get(f"{topic}@{source_group}")
        if offsets is None:
            return
        key, copied, stamps = f"{topic}@{target_group}", dict(offsets), dict[int, int]()
        known, now_ms = self.stamps.get(key, {}), self._now_ms()
        for number, queue_id in enumerate(copied, 1):
            stamps[queue_id] = max(now_ms, known.get(queue_id, 0) + 1)
            if number % _KEYS_IN_A_STEP == 0:
                yield
        self.committed[key] = copied
        self.stamps.setdefault(key, {}).update(stamps)
        self._changed(key)

    def take(
        self, table: Mapping[str, Mapping[int, int]], stamps: Mapping[str, Mapping[int, int]], version: DataVersion
    ) -> int:
        """Put another replica's offsets over these, as they are; nothing is deleted.

        Args:
            table: offsets by key and queue.
            stamps: of the queues that were reset.
            version: its version; taken when it is newer, or when nothing ever moved the own one.

        Returns:
            How many queues have another offset than before.
        """
        changed = 0
        self.revision += 1
        for key, queues in table.items():
            own = self.committed.setdefault(key, {})
            self.touched[key] = self.revision
            for queue_id, offset in queues.items():
                if own.get(queue_id) != offset:
                    own[queue_id] = offset
                    changed += 1
        for key, marks in stamps.items():
            own_stamps = self.stamps.setdefault(key, {})
            self.touched[key] = self.revision
            for queue_id, stamp in marks.items():
                if own_stamps.get(queue_id, 0) < stamp:
                    own_stamps[queue_id] = stamp
                    changed += 1
        newer = version > self.version or (self.version.is_first and version != self.version)
        if newer:
            self.version = version
        if changed or newer:
            for listener in self.on_change:
                listener()
        return changed

    def cut(self, offsets: Queues) -> None:
        """Set queues back: what groups had beyond that was read in a log that is lost."""
        for key, queues in offsets.items():
            self.committed[key].update(queues)
            self.log_ends.forget(key, queues)
            self._changed(key)

    def to_json(self, since: int = -1, *, later: bool = False) -> dict[str, Any]:
        """Return the content of ``consumerOffset.json``, or of ``lmqConsumerOffset.json``.

        Args:
            since: leave out keys that have not changed after this revision; -1 for everything.
            later: offsets are read while the content is written, by whom, and in whatever thread; those of one key at
                once.
        """
        tables = [self.committed, self.stamps, self.reset, self.log_ends.rows]
        if since >= 0:
            keys = [key for key, revision in self.touched.items() if revision > since]
            tables = [{key: each[key] for key in keys if key in each} for each in tables]
        table, stamps, pending, ends = tables
        content: dict[str, Any] = {"dataVersion": self.version.to_json()}
        for name, offsets in offset_tables(table, self.light_queues).items():
            content[name] = Rows(offsets) if later else dict(offsets)
        for name, queues_of in ((RESET_STAMPS, stamps), (PENDING_RESETS, pending), (LOG_ENDS, ends)):
            # Beyond the reference, whose reader skips the field only when the queue ids in it are quoted.
            if queues_of:
                rows = ((key, Rows(quoted(numbers))) for key, numbers in list(queues_of.items()))
                content[name] = Rows(rows) if later else {key: dict(inner.entries) for key, inner in rows}
        for name, removals in ((REMOVED_TOPICS, self.removed_topics), (REMOVED_GROUPS, self.removed_groups)):
            if removals.stamps and removals.changed_at > since:
                content[name] = dict(removals.stamps)
        return content

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Put a saved table over what is there.

        Raises:
            ValueError: an entry is no offset; the message names it.
        """
        self.committed.update(offset_table(value))
        self.stamps.update(queue_table(value, RESET_STAMPS))
        self.reset.update(queue_table(value, PENDING_RESETS))
        self.log_ends.rows.update(queue_table(value, LOG_ENDS))
        self.removed_topics.stamps.update(removed_table(value, REMOVED_TOPICS))
        self.removed_groups.stamps.update(removed_table(value, REMOVED_GROUPS))
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])

    def _remove(self, topics: Set[str], groups: Set[str]) -> Generator[None, None, None]:
        for table in (self.committed, self.stamps, self.touched, self.reset, self.pulled, self.log_ends.rows):
            for key in of_any(table, topics, groups):
                del table[key]
            yield
        self._changed()

    def _changed(self, key: str | None = None) -> None:
        self.revision += 1
        if key is not None:
            self.touched[key] = self.revision
        if not self.following:
            self.version = self.version.next(self._now_ms(), self.state_version())
        for listener in self.on_change:
            listener()
