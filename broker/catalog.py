"""What there is to be sent to and consumed from, and by which groups."""

from __future__ import annotations

import attrs

from understudy.broker.groups import GroupTable
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.topics import TopicTable


@attrs.frozen
class Catalog:
    """What a request's names are looked up in.

    Attributes:
        topics: the topics of one broker, with their queues and permissions.
        groups: its consumer groups, and what they may do.
        mappings: which of the topics are static, and where their queues lie.
    """

    topics: TopicTable
    groups: GroupTable
    mappings: QueueMappings
