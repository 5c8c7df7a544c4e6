"""Where a topic lives: the name server's answer, and the queues a producer or consumer may use."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from understudy.format.static_topics import GLOBAL_SCOPE, logical_broker
from understudy.mqclient.queue import MessageQueue

READ = 4
WRITE = 2
MASTER_ID = 0


@attrs.frozen
class BrokerAddresses:
    """One broker group: its addresses by broker id (0 is the master, or the slave that acts for it)."""

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)

    def first(self) -> tuple[int, str] | None:
        """Return id and address of the master, else of the smallest id."""
        return min(self.addresses.items()) if self.addresses else None

    def any_address(self) -> str | None:
        """Return the master's address, else that of the smallest id."""
        return self.addresses[min(self.addresses)] if self.addresses else None


@attrs.frozen
class QueueGroup:
    """How many queues a topic has on one broker group."""

    broker_name: str
    read_queues: int
    write_queues: int
    permission: int
    topic_sys_flag: int = 0


@attrs.frozen
class TopicRoute:
    """The route of one topic (TopicRouteData.java).

    Attributes:
        topic: its name.
        brokers: the groups that have it.
        queue_groups: how many queues each of them has.
        order_config: ``group:queues`` separated by semicolons, where an operator fixed them.
        leaders: of a static topic, by the id of each of its logical queues the group that leads it now. Producers name
            such a queue by that group and the logical id.
        logical_broker: the name in the place of a group's by which consumers name such a queue, whoever leads it.
    """

    topic: str
    brokers: Mapping[str, BrokerAddresses]
    queue_groups: tuple[QueueGroup, ...]
    order_config: str | None = None
    leaders: Mapping[int, str] = attrs.field(factory=dict)
    logical_broker: str = ""

    @functools.cached_property
    def write_queues(self) -> tuple[MessageQueue, ...]:
        """The queues to which messages can be sent now: writable and with a master."""
        if self.order_config:
            return tuple(
                MessageQueue(self.topic, name, number)
                for name, _, count in (part.partition(":") for part in self.order_config.split(";"))
                if count.isdecimal()  # whatever an operator has stored there
                for number in range(int(count))
            )
        if self.leaders:
            return tuple(
                MessageQueue(self.topic, name, number)
                for number, name in sorted(self.leaders.items())
                if name in self.brokers and self.brokers[name].master
            )
        return tuple(
            MessageQueue(self.topic, group.broker_name, number)
            for group in self.queue_groups
            if group.permission & WRITE and group.broker_name in self.brokers and self.brokers[group.broker_name].master
            for number in range(group.write_queues)
        )

    @functools.cached_property
    def read_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that can be consumed, sorted."""
        if self.leaders:
            return tuple(MessageQueue(self.topic, self.logical_broker, number) for number in sorted(self.leaders))
        return tuple(
            sorted(
                MessageQueue(self.topic, group.broker_name, number)
                for group in self.queue_groups
                if group.permission & READ
                for number in range(group.read_queues)
            )
        )


def parse_route(topic: str, body: Mapping[str, Any]) -> TopicRoute:
    """Make the route of *topic* from the decoded body of the name server's answer."""
    brokers = {}
    for data in body.get("brokerDatas") or ():
        addresses = {int(number): str(address) for number, address in (data.get("brokerAddrs") or {}).items()}
        brokers[data["brokerName"]] = BrokerAddresses(data["brokerName"], data.get("cluster", ""), addresses)
    groups = [
        QueueGroup(
            data["brokerName"],
            int(data.get("readQueueNums", 0)),
            int(data.get("writeQueueNums", 0)),
            int(data.get("perm", 0)),
            int(data.get("topicSysFlag", data.get("topicSynFlag", 0))),
        )
        for data in body.get("queueDatas") or ()
    ]
    groups.sort(key=lambda group: group.broker_name)
    mappings = body.get("topicQueueMappingByBroker") or {}
    scope = next((str(info.get("scope") or GLOBAL_SCOPE) for info in mappings.values()), GLOBAL_SCOPE)
    order_config = body.get("orderTopicConf") or None
    return TopicRoute(
        topic, brokers, tuple(groups), order_config, _leaders(mappings), logical_broker(scope) if mappings else ""
    )


def _leaders(mappings: Mapping[str, Mapping[str, Any]]) -> dict[int, str]:
    """Return who leads each logical queue of a static topic: of those who say so, the one with the newest mapping."""
    newest: dict[int, tuple[int, str]] = {}
    for name, info in mappings.items():
        claim = int(info.get("epoch") or 0), str(info.get("bname") or name)
        for global_id in info.get("currIdMap") or ():
            newest[int(global_id)] = max(newest.get(int(global_id), claim), claim)
    return {global_id: name for global_id, (_, name) in newest.items()}


def for_new_topic(topic: str, template: TopicRoute, queue_limit: int) -> TopicRoute:
    """Return the route a topic will have when its first message creates it from *template* (TBW102).

    Args:
        topic: the missing topic.
        template: route of the topic from which brokers create missing ones.
        queue_limit: most queues the producer asks for on one broker.
    """
    groups = tuple(
        attrs.evolve(
            group, read_queues=min(queue_limit, group.write_queues), write_queues=min(queue_limit, group.write_queues)
        )
        for group in template.queue_groups
    )
    return TopicRoute(topic, template.brokers, groups)
