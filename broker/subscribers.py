"""Who consumes at one broker at the moment, and what of its topics they want."""

from __future__ import annotations

import attrs

from understudy.broker.clients import ConsumerTable
from understudy.broker.conditions import Conditions
from understudy.broker.consumer_filters import ConsumerFilters
from understudy.remoting.connection import Connection


@attrs.frozen
class Subscribers:
    """Consumers that are connected, with their subscriptions.

    Attributes:
        consumers: the members of groups, and what each group has subscribed to.
        conditions: what subscriptions mean that are no sets of tags, compiled.
        filters: the record of these.
    """

    consumers: ConsumerTable[Connection]
    conditions: Conditions
    filters: ConsumerFilters
