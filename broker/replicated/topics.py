"""Topics and the mappings of static ones as tables that travel: one answer holds both (21)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Set
from typing import Any

from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.replicated.pages import PagedCopying, PageNames, Rows
from understudy.broker.replicated.rules import ReplicaTableError, read_deletions, takeover, tell_older
from understudy.broker.replicated.table import Copying, FilePlan, KeptTable, Source
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.format.data_version import DataVersion
from understudy.remoting.codes import RequestCode
from understudy.runtime.log import get_logger
from understudy.store.deletions import Deletion

log = get_logger("broker.slave_sync")

_NAMED = 10
_PAGES = PageNames("topicSeq", "maxTopicNum", "totalTopicNum", "topicConfigTable")


def _none(topics: Set[str]) -> Generator[None, None, Set[str]]:
    yield from ()
    return frozenset()


class ReplicatedMappings(KeptTable):
    """Which queues of static topics lie where; it travels in the answer about topics.

    Args:
        mappings: the table.
    """

    name = "queue mappings"
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    file = FilePlan("topicQueueMapping.json")

    def __init__(self, mappings: QueueMappings) -> None:
        self._mappings = mappings

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self._mappings.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self._mappings.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self._mappings.on_change.append(changed)

    def take(self, answer: Mapping[str, Any], source: Source) -> None:
        """Keep what the answer about topics says of static ones.

        Raises:
            ValueError: it holds something that is no mapping.
        """
        table = answer.get("topicQueueMappingDetailMap")
        version = DataVersion.from_json(answer.get("mappingDataVersion"))
        if not isinstance(table, Mapping):
            return  # a master of before static topics
        if not all(isinstance(row, Mapping) for row in table.values()):
            raise ReplicaTableError("topicQueueMappingDetailMap holds something that is no mapping")
        if not self._mappings.take(table, version):
            tell_older(self.name, source, self._mappings.version, version)


class ReplicatedTopics(KeptTable):
    """Every topic.

    Args:
        topics: the table.
        mappings: travel along.

    Attributes:
        on_gone: makes the steps that forget the topics that were deleted at the source, by where in its log if it says
            so.
        on_deletions: called with all that a master of ours says of deleted topics, once its log continues ours.
        young: makes the steps that find out which of some topics may be so new that a master which was elected since
            has never heard of them.
    """

    name = "topics"
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    file = FilePlan("topics.json", required=True)

    def __init__(self, topics: TopicTable, mappings: ReplicatedMappings) -> None:
        self.table = topics
        self.mappings = mappings
        self.on_gone: list[Callable[[Mapping[str, Deletion | None]], Generator[None, None, None]]] = []
        self.on_deletions: list[Callable[[Mapping[str, Deletion]], None]] = []
        self.young: Callable[[Set[str]], Generator[None, None, Set[str]]] = _none

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json(later=True)

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(lambda rows: changed())

    def follow(self, following: bool) -> None:
        """See :class:`KeptTable`."""
        self.table.following = following

    def copying(self, source: Source) -> Copying:
        """See :class:`KeptTable`."""
        return _Topics(self, source)


class _Topics(PagedCopying):
    def __init__(self, topics: ReplicatedTopics, source: Source) -> None:
        super().__init__(_PAGES)
        self._topics = topics
        self._source = source
        #: Topics that this source lacked at the first look and ever since: who never had a topic has not deleted it.
        self._unheard: Set[str] | None = None

    def row(self, name: str, value: Mapping[str, Any]) -> TopicConfig:
        return self._topics.table.own(TopicConfig.from_json(value, name))

    def whole(self, rows: Rows, body: Mapping[str, Any], version: DataVersion) -> Generator[None, None, bool]:
        table, source = self._topics.table, self._source
        self._topics.mappings.take(body, source)
        plan = takeover(table.version, self.taken, version, source.leads)
        if not plan.adopt and source.leads:
            tell_older("topics", source, table.version, version)
        deletions = read_deletions(body) if source.leads and source.continues() else {}
        yield from self._note_unheard(rows, deletions)
        delete = plan.delete and source.continues()
        adopted = version if plan.adopt else None
        gone = yield from table.take_in_steps(
            rows.values(), adopted, delete=delete, overwrite=plan.overwrite, spared=self._unheard or frozenset()
        )
        for forget in self._topics.on_gone:
            yield from forget({topic: deletions.get(topic) for topic in gone})
        for learn in self._topics.on_deletions:
            learn(deletions)
        return delete == plan.delete

    def _note_unheard(self, rows: Rows, deletions: Mapping[str, Deletion]) -> Generator[None, None, None]:
        if self._unheard is not None:
            self._unheard = {topic for topic in self._unheard if topic not in rows and topic not in deletions}
            return
        table = self._topics.table
        missing = {topic for topic in table.rows if topic not in rows and topic not in deletions}
        self._unheard = yield from self._topics.young(missing - table.system_names)
        if self._unheard:
            log.warning(
                "another replica knows nothing of topics that were new when it came to serve; they stay here",
                source=self._source.address,
                topics=",".join(sorted(self._unheard)[:_NAMED]),
                count=len(self._unheard),
            )
