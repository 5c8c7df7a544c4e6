"""Consumer groups the broker knows: their rows, auto-creation, and topics forbidden to them.

Source: SubscriptionGroupManager.java, SubscriptionGroupConfig.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from understudy.broker.group_values import retry_policy_of, subscriptions_of
from understudy.broker.topics import queue_count
from understudy.format import names
from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import Rows
from understudy.format.json_values import attributes_of, name_of, truth_of
from understudy.format.light_queues import is_light
from understudy.format.numbers import INT_MAX, INT_MIN, whole_number


@attrs.define
class GroupConfig:
    """One consumer group, with the reference's class defaults."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    retry_policy: dict[str, Any] = attrs.Factory(lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscriptions: list[dict[str, Any]] | None = None
    attributes: dict[str, str] = attrs.Factory(dict)

    def to_json(self) -> dict[str, Any]:
        """Return the row under its wire names."""
        row: dict[str, Any] = {
            "attributes": self.attributes,
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_message_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.name,
            "groupRetryPolicy": self.retry_policy,
            "groupSysFlag": self.sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
        }
        if self.subscriptions is not None:
            row["subscriptionDataSet"] = self.subscriptions
        row["whichBrokerWhenConsumeSlowly"] = self.which_broker_when_consume_slowly
        return row

    @classmethod
    def from_json(cls, value: Mapping[str, Any], name: str | None = None) -> GroupConfig:
        """Read a row as any peer writes it; absent fields get the class defaults.

        Raises:
            ValueError: a field is there but is no value of its kind.
        """
        row = cls(name_of(value.get("groupName") or name or "", "groupName"))
        what = f"group {row.name}"

        def number(key: str, default: int) -> int:
            found = value.get(key)
            return default if found is None else whole_number(found, f"{what}: {key}", INT_MIN, INT_MAX)

        def long(key: str, default: int) -> int:
            found = value.get(key)
            return default if found is None else whole_number(found, f"{what}: {key}")

        def truth(key: str, default: bool) -> bool:
            return truth_of(value.get(key), f"{what}: {key}", default)

        row.consume_enable = truth("consumeEnable", True)
        row.consume_from_min_enable = truth("consumeFromMinEnable", True)
        row.consume_broadcast_enable = truth("consumeBroadcastEnable", True)
        row.consume_message_orderly = truth("consumeMessageOrderly", False)
        row.notify_consumer_ids_changed_enable = truth("notifyConsumerIdsChangedEnable", True)
        row.retry_queue_nums = queue_count(value.get("retryQueueNums"), f"{what}: retryQueueNums", 1)
        row.retry_max_times = number("retryMaxTimes", 16)
        row.broker_id = long("brokerId", 0)
        row.which_broker_when_consume_slowly = long("whichBrokerWhenConsumeSlowly", 1)
        row.sys_flag = number("groupSysFlag", 0)
        row.consume_timeout_minute = number("consumeTimeoutMinute", 15)
        policy = value.get("groupRetryPolicy")
        if policy is not None:
            row.retry_policy = retry_policy_of(policy, f"{what}: groupRetryPolicy")
        subscriptions = value.get("subscriptionDataSet")
        if subscriptions is not None:
            row.subscriptions = subscriptions_of(subscriptions, f"{what}: subscriptionDataSet")
        row.attributes = attributes_of(value.get("attributes"), f"{what}: attributes")
        return row


class GroupTable:
    """Every consumer group of one broker.

    Attributes:
        rows: group name to its row; change it only through methods.
        forbidden: group to topic to a set of forbidden permission bits (bit 2 = reading).
        version: grows with every change.
        following: the version belongs to the master whose table this is; own changes leave it as it is.
        light_queues: whether every group whose name is that of a light queue is there, without a row.
        on_change: called after every change.
    """

    READ_BIT = 2

    def __init__(self, now_ms: Callable[[], int], created_limit: int = 1_000_000) -> None:
        self._now_ms = now_ms
        self.rows: dict[str, GroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion(timestamp=now_ms())
        self.on_change: list[Callable[[], None]] = []
        self.created_limit = created_limit
        self.following = False
        self.light_queues = False
        self.auto_create: Callable[[], bool] = lambda: True
        self.create_system: Callable[[], bool] = lambda: True
        self.state_version: Callable[[], int] = lambda: 0

    def install(self) -> None:
        """Add the groups that exist from the start; they are no news to others."""
        for name in names.BUILT_IN_GROUPS:
            self.rows[name] = GroupConfig(name)

    def get(self, name: str) -> GroupConfig | None:
        """Return the row of *name* and make it when groups are made on first use.

        Returns:
            ``None`` when the group does not exist and may not be made, or its name is illegal.
        """
        row = self.find(name)
        if row is not None:
            return row
        if not (self.auto_create() or (names.is_system_group(name) and self.create_system())):
            return None
        if names.group_name_error(name) is not None or len(self.rows) >= self.created_limit:
            return None
        row = GroupConfig(name)
        self.rows[name] = row
        self._changed()
        return row

    def find(self, name: str) -> GroupConfig | None:
        """Return the row of *name* without making one; what stands for one when it is a group of a light queue."""
        row = self.rows.get(name)
        if row is None and self.light_queues and is_light(name) and names.group_name_error(name) is None:
            return GroupConfig(name)
        return row

    def update(self, rows: Iterable[GroupConfig]) -> None:
        """Put *rows* over what is there."""
        changed = list(rows)
        if not changed:
            return
        self.rows.update([(row.name, row) for row in changed])
        self._changed()

    def delete(self, name: str) -> bool:
        """Take *name* and what is forbidden to it away; return whether it was there."""
        forbidden = self.forbidden.pop(name, None)
        row = self.rows.pop(name, None)
        if row is None and forbidden is None:
            return False
        self._changed()
        return row is not None

    def is_forbidden(self, group: str, topic: str, bit: int = READ_BIT) -> bool:
        """Tell whether permission *bit* of *topic* is taken from *group*."""
        return bool(self.forbidden.get(group, {}).get(topic, 0) >> bit & 1)

    def forbid(self, group: str, topic: str, forbidden: bool, bit: int = READ_BIT) -> None:
        """Take permission *bit* of *topic* from *group*, or give it back.

        Args:
            group: that loses or gets the permission.
            topic: that it is about.
            forbidden: whether it is taken.
            bit: number of the permission.
        """
        topics = self.forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        bits = bits | 1 << bit if forbidden else bits & ~(1 << bit)
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden[group]
        self._changed()

    def take(
        self,
        rows: Iterable[GroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion | None,
        *,
        delete: bool,
        overwrite: bool,
    ) -> None:
        """Take over another replica's rows.

        Args:
            rows: its whole table.
            forbidden: what is forbidden to its groups; taken with *overwrite*.
            version: becomes the version here; ``None`` keeps the own one.
            delete: rows it does not have go, except the built-in ones.
            overwrite: its rows win over those of the same name here.
        """
        theirs = {row.name: row for row in rows}
        for name, row in theirs.items():
            if overwrite or name not in self.rows:
                self.rows[name] = row
        if delete:
            for name in [name for name in self.rows if name not in theirs and name not in names.BUILT_IN_GROUPS]:
                del self.rows[name]
        if overwrite:
            self.forbidden = {group: dict(topics) for group, topics in forbidden.items()}
        if version is not None:
            self.version = version
        self._notify()

    def to_json(self, *, later: bool = False) -> dict[str, Any]:
        """Return the content of ``subscriptionGroup.json``; *later* as for topics."""
        rows = ((name, row.to_json()) for name, row in list(self.rows.items()))
        return {
            "dataVersion": self.version.to_json(),
            "forbiddenTable": {group: dict(topics) for group, topics in self.forbidden.items()},
            "subscriptionGroupTable": Rows(rows) if later else dict(rows),
        }

    def merge_json(self, value: Mapping[str, Any]) -> None:
        """Put a saved table over the built-in rows.

        Raises:
            ValueError: a row cannot be understood; the message names it.
        """
        table = value.get("subscriptionGroupTable") or {}
        if not isinstance(table, Mapping):
            raise ValueError("subscriptionGroupTable is no JSON object")
        for name, row in table.items():
            if not isinstance(row, Mapping):
                raise ValueError(f"group {name}: its row is no JSON object")
            self.rows[str(name)] = GroupConfig.from_json(row, str(name))
        forbidden = value.get("forbiddenTable") or {}
        if isinstance(forbidden, Mapping):
            for group, topics in forbidden.items():
                if isinstance(topics, Mapping):
                    self.forbidden[str(group)] = {str(topic): int(bits) for topic, bits in topics.items()}
        if "dataVersion" in value:
            self.version = DataVersion.from_json(value["dataVersion"])

    def _changed(self) -> None:
        if not self.following:
            self.version = self.version.next(self._now_ms(), self.state_version())
        self._notify()

    def _notify(self) -> None:
        for listener in self.on_change:
            listener()
