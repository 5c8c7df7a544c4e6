"""The routes that escapes need, kept for as long as the reference keeps them.

Source: TopicRouteInfoManager.java.
"""

from __future__ import annotations

from understudy.container.escape.parts import EscapeParts
from understudy.format.json_dialect import JsonError
from understudy.mqclient.route import TopicRoute, parse_route
from understudy.remoting.bodies import json_value
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger

log = get_logger("container.escape.routes")

TIMEOUT_MS = 3_000
MOST_ROUTES = 10_000


class Routes:
    """Routes of topics by name.

    Args:
        parts: who asks.
    """

    def __init__(self, parts: EscapeParts) -> None:
        self._parts = parts
        self._routes: dict[str, tuple[float, TopicRoute]] = {}

    def forget(self, topic: str) -> None:
        """Throw the route of *topic* away: it led nowhere."""
        self._routes.pop(topic, None)

    async def route(self, topic: str) -> TopicRoute | None:
        """Return the route of *topic*, ``None`` when no name server has one."""
        clock = self._parts.node.world.clock
        known = self._routes.get(topic)
        if known is not None and clock.monotonic() < known[0]:
            return known[1]
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        for address in self._parts.name_servers():
            try:
                answer = await self._parts.client.invoke(address, command, TIMEOUT_MS)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                route = parse_route(topic, await json_value(self._parts.node.world.threads, answer.body))
            except (RemotingError, JsonError, ValueError, KeyError, AttributeError) as error:
                log.warning("no route", topic=topic, name_server=address, why=error)
                continue
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            period = self._parts.node.options.broker.load_balance_poll_name_server_interval / 1000
            self._routes[topic] = (clock.monotonic() + period, route)
            return route
        return None


def masters_of(route: TopicRoute | None) -> dict[str, str]:
    """Return the address of each group's master."""
    if route is None:
        return {}
    return {name: each.master for name, each in route.brokers.items() if each.master is not None}
