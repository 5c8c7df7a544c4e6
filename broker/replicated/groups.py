"""Consumer groups and what is forbidden to them as a table that travels (201)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.replicated.pages import PagedCopying, PageNames, Rows
from understudy.broker.replicated.rules import read_forbidden, takeover, tell_older
from understudy.broker.replicated.table import Copying, FilePlan, KeptTable, Source
from understudy.format.data_version import DataVersion
from understudy.remoting.codes import RequestCode

_PAGES = PageNames("groupSeq", "maxGroupNum", "totalGroupNum", "subscriptionGroupTable")


class ReplicatedGroups(KeptTable):
    """Every consumer group.

    Args:
        groups: the table.
    """

    name = "groups"
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    file = FilePlan("subscriptionGroup.json")

    def __init__(self, groups: GroupTable) -> None:
        self.table = groups

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json(later=True)

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(changed)

    def follow(self, following: bool) -> None:
        """See :class:`KeptTable`."""
        self.table.following = following

    def copying(self, source: Source) -> Copying:
        """See :class:`KeptTable`."""
        return _Groups(self.table, source)


class _Groups(PagedCopying):
    def __init__(self, groups: GroupTable, source: Source) -> None:
        super().__init__(_PAGES)
        self._groups = groups
        self._source = source

    def row(self, name: str, value: Mapping[str, Any]) -> GroupConfig:
        return GroupConfig.from_json(value, name)

    def whole(self, rows: Rows, body: Mapping[str, Any], version: DataVersion) -> Generator[None, None, bool]:
        yield from ()  # fifty thousand groups take 15 ms
        table, source = self._groups, self._source
        plan = takeover(table.version, self.taken, version, source.leads)
        forbidden = read_forbidden(body.get("forbiddenTable"))
        if not plan.adopt and source.leads:
            tell_older("groups", source, table.version, version)
        delete = plan.delete and source.continues()
        table.take(rows.values(), forbidden, version if plan.adopt else None, delete=delete, overwrite=plan.overwrite)
        return delete == plan.delete
