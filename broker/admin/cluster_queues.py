"""The queues of topics in the whole cluster, as name servers know them.

Source: QueryAssignmentProcessor.java, TopicRouteInfoManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from understudy.broker.node import Node
from understudy.broker.topics import TopicTable
from understudy.format import json_dialect, names
from understudy.remoting.bodies import json_value
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.pace import Pace

log = get_logger("broker.assignment")

ROUTE_LIMIT = 10_000
"""Most topics whose route is remembered."""
ROUTE_TIMEOUT_MS = 3_000
QUEUES_OF_A_PIECE = 1_000
"""Named before others may have their turn."""

Queue = tuple[str, str, int]
"""Topic, broker name and queue id; their order is the reference's order of queues."""


class ClusterQueues:
    """Asks name servers for routes, and remembers them for ``loadBalancePollNameServerInterval``.

    Args:
        node: the broker that asks.
        topics: what it has itself: said of topics that no name server knows.
        client: connections to name servers.
        name_servers: returns their addresses.
    """

    def __init__(
        self, node: Node, topics: TopicTable, client: RemotingClient, name_servers: Callable[[], Sequence[str]]
    ) -> None:
        self._node = node
        self._topics = topics
        self._client = client
        self._name_servers = name_servers
        self._routes: dict[str, tuple[float, list[Queue]]] = {}

    async def of(self, topic: str) -> list[Queue] | None:
        """Return the readable queues of *topic* in the whole cluster, ``None`` when nobody knows it."""
        now = self._node.world.clock.monotonic()
        known = self._routes.get(topic)
        if known is not None and now < known[0]:
            return known[1]
        route = await self._route(topic)
        if route is not None:
            queues = sorted(readable_queues(topic, route))
            if len(self._routes) >= ROUTE_LIMIT:
                self._routes.clear()
            self._routes[topic] = (
                now + self._node.options.broker.load_balance_poll_name_server_interval / 1000,
                queues,
            )
            return queues
        if known is not None:
            return known[1]
        row = self._topics.get(topic)
        if row is None or not row.perm & names.PERM_READ:
            return None
        return await self._own_queues(topic, row.read_queue_nums)

    async def _own_queues(self, topic: str, count: int) -> list[Queue]:
        name, queues = self._node.identity.name, list[Queue]()
        async with Pace(self._node.world) as pace:
            for first in range(0, count, QUEUES_OF_A_PIECE):
                queues += [(topic, name, queue_id) for queue_id in range(first, min(first + QUEUES_OF_A_PIECE, count))]
                await pace.breathe()
        return queues

    async def _route(self, topic: str) -> dict[str, Any] | None:
        """Return the route of *topic* from the first name server that has it."""
        for address in self._name_servers():
            question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
            try:
                answer = await self._client.invoke(address, question, ROUTE_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    route = await json_value(self._node.world.threads, answer.body)
                    return route if isinstance(route, dict) else None
            except (RemotingError, json_dialect.JsonError) as error:
                log.warning("name server tells no route", name_server=address, topic=topic, why=error)
        return None


def readable_queues(topic: str, route: dict[str, Any]) -> list[Queue]:
    """Return the queues of a route that may be read."""
    return [
        (topic, str(each["brokerName"]), queue_id)
        for each in route.get("queueDatas") or ()
        if int(each["perm"]) & names.PERM_READ
        for queue_id in range(int(each["readQueueNums"]))
    ]
