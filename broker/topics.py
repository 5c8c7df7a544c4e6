"""The broker's topics: rows, creation on demand, and the version other nodes compare.

Nothing here does I/O. Whoever owns the table listens with :attr:`TopicTable.on_change` and saves and registers.

Source: TopicConfigManager.java, TopicConfig.java, TopicConfigSerializeWrapper.java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Set
from typing import Any

import attrs

from understudy.broker.topic_comparison import compared
from understudy.format import names
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import Rows
from understudy.format.json_values import attributes_of, name_of, truth_of
from understudy.format.light_queues import is_light
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number
from understudy.runtime.pace import run_steps

SINGLE_TAG, MULTI_TAG = "SINGLE_TAG", "MULTI_TAG"
QUEUE_LIMIT = 65_535
"""Most queues of one topic; the reference has no bound, and dies of one that is too large."""
QUEUE_TYPE, BATCH_QUEUES = "queue.type", "BatchCQ"
CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"


def queue_count(value: object, what: str, default: int) -> int:
    """Return how many queues a peer's or a file's row asks for.

    Args:
        value: what stands there; *default* if it is ``None``.
        what: its name, for the message.

    Raises:
        ValueError: it is no number, or above :data:`QUEUE_LIMIT`.
    """
    if value is None:
        return default
    count = whole_number(value, what, INT_MIN, INT_MAX)
    if count > QUEUE_LIMIT:
        raise ValueError(f"{what} is {count}, a topic has {QUEUE_LIMIT} queues at most")
    return count


def has_batch_queues(attributes: object) -> bool:
    """Tell whether attributes, as they stand in a row of the table, are those of a topic with batch queues."""
    return isinstance(attributes, Mapping) and BATCH_QUEUES in (
        attributes.get(QUEUE_TYPE),
        attributes.get(f"+{QUEUE_TYPE}"),
    )


def is_compacted(attributes: Mapping[str, str]) -> bool:
    """Tell whether attributes are those of a topic of whose keys the last message is kept; batch queues are not."""
    return attributes.get(CLEANUP_POLICY) == COMPACTION and not has_batch_queues(attributes)


@attrs.define
class TopicConfig:
    """One topic on this broker, with the reference's class defaults."""

    name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = names.PERM_READ | names.PERM_WRITE
    filter_type: str = SINGLE_TAG
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = attrs.Factory(dict)

    @property
    def queue_limit(self) -> int:
        """Number of queue ids a request may name."""
        return max(self.read_queue_nums, self.write_queue_nums)

    def to_json(self, perm_mask: int = 7) -> dict[str, Any]:
        """Return the row under its wire names, with permission bits outside *perm_mask* cleared."""
        return {
            "attributes": self.attributes,
            "order": self.order,
            "perm": self.perm & perm_mask,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], name: str | None = None) -> TopicConfig:
        """Read a row as any peer writes it; absent fields get the class defaults.

        Raises:
            ValueError: a field is there but is no value of its kind.
        """
        row = cls(name_of(value.get("topicName") or name or "", "topicName"))
        what = f"topic {row.name}"

        def number(key: str, default: int) -> int:
            found = value.get(key)
            return default if found is None else whole_number(found, f"{what}: {key}", INT_MIN, INT_MAX)

        row.read_queue_nums = queue_count(value.get("readQueueNums"), f"{what}: readQueueNums", row.read_queue_nums)
        row.write_queue_nums = queue_count(value.get("writeQueueNums"), f"{what}: writeQueueNums", row.write_queue_nums)
        row.perm = number("perm", row.perm)
        row.sys_flag = number("topicSysFlag", 0)
        row.filter_type = name_of(value.get("topicFilterType") or SINGLE_TAG, f"{what}: topicFilterType")
        row.order = truth_of(value.get("order"), f"{what}: order", False)
        row.attributes = attributes_of(value.get("attributes"), f"{what}: attributes")
        return row

    def describe(self) -> str:
        """Return the row as the reference prints it in remarks."""
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={names.permission_text(self.perm)}, "
            f"topicFilterType={self.filter_type}, topicSysFlag={self.sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


@attrs.frozen
class SystemTopicPlan:
    """What decides which topics exist from the start."""

    cluster: str
    broker_name: str
    default_queue_nums: int = 8
    revive_queue_nums: int = 8
    auto_create: bool = True
    cluster_topic: bool = True
    broker_topic: bool = True
    trace: bool = False
    trace_topic: str = names.TRACE_TOPIC
    timer_wheel: bool = True

    def rows(self) -> list[TopicConfig]:
        """Return the topics a broker has before anybody created one."""
        inherit, every = names.PERM_INHERIT, 7

        def row(name: str, queues: int, perm: int = 6) -> TopicConfig:
            return TopicConfig(name, queues, queues, perm)

        found = [row(names.DEFAULT_TOPIC, self.default_queue_nums, every)] if self.auto_create else []
        found += [
            row(names.SELF_TEST_TOPIC, 1),
            row(names.BENCHMARK_TOPIC, 1024),
            row(self.cluster, 16, every if self.cluster_topic else inherit),
            row(self.broker_name, 1, every if self.broker_topic else inherit),
            row(names.OFFSET_MOVED_TOPIC, 1),
            row(names.SCHEDULE_TOPIC, 18),
        ]
        if self.trace:
            found.append(row(self.trace_topic, 1))
        found += [
            row(self.cluster + names.REPLY_TOPIC_SUFFIX, 1),
            row(names.REVIVE_TOPIC_PREFIX + self.cluster, self.revive_queue_nums),
            row(names.SYNC_MEMBER_TOPIC_PREFIX + self.broker_name, 1, inherit),
            row(names.HALF_TOPIC, 1),
            row(names.HALF_OPERATION_TOPIC, 1),
            row(names.ROCKSDB_HALF_TOPIC, 1),
            row(names.ROCKSDB_HALF_OPERATION_TOPIC, 1),
        ]
        if self.timer_wheel:
            found.append(row(names.TIMER_TOPIC, 1))
        return found

    def system_names(self) -> frozenset[str]:
        """Return the names that count as system topics on this broker beside the static ones."""
        return names.SYSTEM_TOPICS | {row.name for row in self.rows()}


class TopicTable:
    """Every topic of one broker.

    Attributes:
        rows: topic name to its row; read it freely, change it only through methods.
        version: grows with every change.
        following: the version belongs to the master whose table this is; own changes leave it as it is.
        on_change: called after every change with the rows that changed (none when rows went away).
        created_limit: how many topics the broker accepts to make on demand.
        light_queues: whether every name of a light queue is a topic with one queue. Such a topic has no row: it is
            neither saved nor registered.
    """

    def __init__(self, now_ms: Callable[[], int], created_limit: int = 1_000_000) -> None:
        self._now_ms = now_ms
        self.rows: dict[str, TopicConfig] = {}
        self._changes = 0
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[tuple[TopicConfig, ...]], None]] = []
        self.created_limit = created_limit
        self.following = False
        self.light_queues = False
        self.system_names: frozenset[str] = names.SYSTEM_TOPICS
        self.state_version: Callable[[], int] = lambda: 0

    def get(self, name: str) -> TopicConfig | None:
        """Return the row of *name*, or ``None``; what stands for one when it names a light queue."""
        row = self.rows.get(name)
        if row is None and self.light_queues and is_light(name):
            return TopicConfig(name, 1, 1)
        return row

    def is_order(self, name: str) -> bool:
        """Tell whether *name* is an order topic here."""
        row = self.rows.get(name)
        return row is not None and row.order

    def install(self, plan: SystemTopicPlan) -> None:
        """Add the system topics of *plan*; they are no change that others must learn as news."""
        self.system_names = plan.system_names()
        self.rows.update({row.name: row for row in plan.rows()})
        self._changes += 1

    def create_on_send(
        self, name: str, default_topic: str, default_queue_nums: int, unit: bool, auto_create: bool
    ) -> TopicConfig | None:
        """Make the topic of a send that names an unknown one, after its template topic.

        Args:
            name: the topic to make; its name must be legal.
            default_topic: the template the client named, usually ``TBW102``.
            default_queue_nums: the most queues the client wants.
            unit: the client sends in unit mode.
            auto_create: the broker's ``autoCreateTopicEnable``.

        Returns:
            The row, or ``None`` when the template does not exist or hands nothing down.
        """
        existing = self.rows.get(name)
        if existing is not None:
            return existing
        retry = name.startswith(names.RETRY_PREFIX)
        flag = (names.SYSFLAG_UNIT_SUBSCRIPTION if retry else names.SYSFLAG_UNIT) if unit else 0
        template = self.rows.get(default_topic)
        if template is not None and default_topic == names.DEFAULT_TOPIC and not auto_create:
            template = attrs.evolve(template, perm=names.PERM_READ | names.PERM_WRITE)
        if template is not None and template.perm & names.PERM_INHERIT and len(self.rows) < self.created_limit:
            queues = max(min(default_queue_nums, template.write_queue_nums), 0)
            perm = template.perm & ~names.PERM_INHERIT
            row = TopicConfig(name, queues, queues, perm, template.filter_type, flag)
            self._put(row)
            return row
        if retry:
            return self.ensure(name, 1, sys_flag=flag)
        return None

    def ensure(
        self, name: str, queues: int, perm: int = 6, *, sys_flag: int = 0, order: bool = False
    ) -> TopicConfig | None:
        """Return the row of an internal topic (retry, dead letter), making it when it is not there.

        Args:
            name: of the topic.
            queues: how many a new one gets, to read and to write.
            perm: permissions of a new one.
            sys_flag: bits that its row must have.
            order: whether a new one is ordered.

        Returns:
            ``None`` only when the table is full.
        """
        existing = self.rows.get(name)
        if existing is not None:
            if sys_flag and sys_flag & ~existing.sys_flag:
                self._put(attrs.evolve(existing, sys_flag=existing.sys_flag | sys_flag))
                return self.rows[name]
            return existing
        if len(self.rows) >= self.created_limit:
            return None
        row = TopicConfig(name, queues, queues, perm, sys_flag=sys_flag, order=order)
        self._put(row)
        return row

    def update(self, rows: Iterable[TopicConfig]) -> None:
        """Put *rows* over what is there, as an administrator asked for."""
        changed = tuple(rows)
        if not changed:
            return
        self.rows.update({row.name: row for row in changed})
        self._changed(changed)

    def delete(self, name: str) -> bool:
        """Take *name* away; return whether it was there."""
        if self.rows.pop(name, None) is None:
            return False
        self._changed(())
        return True

    def apply_order_config(self, topics: Iterable[str]) -> None:
        """Mark the topics the name server lists in ``ORDER_TOPIC_CONFIG`` as order topics."""
        changed = tuple(
            attrs.evolve(row, order=True)
            for row in (self.rows.get(name) for name in topics)
            if row is not None and not row.order
        )
        self.update(changed)

    def take(self, rows: Iterable[TopicConfig], *, overwrite: bool = False) -> None:
        """Do as :meth:`take_in_steps` does, in one turn, with rows of the log or of a part of a table."""
        run_steps(self.take_in_steps(rows, None, delete=False, overwrite=overwrite))

    def take_in_steps(
        self,
        rows: Iterable[TopicConfig],
        version: DataVersion | None,
        *,
        delete: bool,
        overwrite: bool,
        spared: Set[str] = frozenset(),
    ) -> Generator[None, None, list[str]]:
        """Take over another replica's rows, all in the last step: nobody sees a part of them.

        Args:
            rows: its whole table; those that say what ours say are ours (:meth:`own`).
            version: becomes the version here; ``None`` keeps the own one.
            delete: rows it does not have go, except those of the system and of *spared* topics.
            overwrite: its rows win over those of the same name here.

        Returns:
            The names of the rows that went.
        """
        theirs = {row.name: row for row in rows}
        yield
        before = self._changes
        stay = self.system_names | spared if delete else None
        changed, gone = yield from compared(self.rows, theirs, overwrite, stay)
        if before != self._changes:  # somebody has changed some of them meanwhile
            changed, gone = run_steps(compared(self.rows, theirs, overwrite, stay))
        self.rows.update({row.name: row for row in changed})
        for name in gone:
            del self.rows[name]
        newer = version is not None and version != self.version
        if version is not None:
            self.version = version
        if changed:
            self._notify(tuple(changed))
        if gone or (newer and not changed):
            self._notify(())
        return gone

    def own(self, row: TopicConfig) -> TopicConfig:
        """Return our row that says what *row* says, or *row*. May be called in any thread: rows never change."""
        known = self.rows.get(row.name)
        return known if known is not None and known == row else row

    def touch(self) -> None:
        """Count a change of what the rows mean (permission of the whole broker) without changing one."""
        self._changed(())

    def to_json(self, *, later: bool = False) -> dict[str, Any]:
        """Return the content of ``topics.json``.

        Args:
            later: the rows of today are written out while the content is; by whom, and in whatever thread.
        """
        rows = ((name, row.to_json()) for name, row in list(self.rows.items()))
        return {
            "dataVersion": self.version.to_json(),
            "topicConfigTable": Rows(rows) if later else dict(rows),
        }

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Put a saved table over the built-in rows.

        Raises:
            ValueError: a row cannot be understood; the message names it.
        """
        table = value.get("topicConfigTable") or {}
        if not isinstance(table, Mapping):
            raise ValueError("topicConfigTable is no JSON object")
        for name, row in table.items():
            if not isinstance(row, Mapping):
                raise ValueError(f"topic {name}: its row is no JSON object")
            self.rows[str(name)] = TopicConfig.from_json(row, str(name))
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])

    def _put(self, row: TopicConfig) -> None:
        self.rows[row.name] = row
        self._changed((row,))

    def stamp(self) -> None:
        """Have the version grow without a change: a new master's table counts as newer than its predecessor's."""
        self._changed(())

    def _changed(self, rows: tuple[TopicConfig, ...]) -> None:
        if not self.following:
            self.version = self.version.next(self._now_ms(), self.state_version())
        self._notify(rows)

    def _notify(self, rows: tuple[TopicConfig, ...]) -> None:
        self._changes += 1
        for listener in self.on_change:
            listener(rows)
