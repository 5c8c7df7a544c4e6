"""Which queues a consumer gets when the broker decides, and how it asks for messages (400, 401).

Source: QueryAssignmentProcessor.java, MessageRequestModeManager.java, AllocateMessageQueueAveragely.java,
AllocateMessageQueueAveragelyByCircle.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from understudy.broker.admin.answers import body_object, json_answer, queue_value
from understudy.format import json_dialect, names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

log = get_logger("broker.assignment")

PULL, POP = "PULL", "POP"
ROUTE_LIMIT = 10_000
"""Most topics whose route is remembered."""
ROUTE_TIMEOUT_MS = 3_000

Queue = tuple[str, str, int]
"""Topic, broker name and queue id; their order is the reference's order of queues."""
Strategy = Callable[[str, Sequence[Queue], Sequence[str]], list[Queue]]


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer assignment requests of *broker* on *server*."""
    handlers = AssignmentAdmin(broker)
    server.register_async(RequestCode.QUERY_ASSIGNMENT, handlers.query, kind="assignment")
    server.register(RequestCode.SET_MESSAGE_REQUEST_MODE, handlers.set_mode)


class AssignmentAdmin:
    """Handlers over one broker's members and the cluster's routes."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[str, tuple[float, list[Queue]]] = {}

    async def query(self, connection: Connection, command: Command) -> Command:
        """Return the queues of one client (400); an empty object when nothing can be said."""
        body = body_object(command, "an assignment query")
        topic, group, client_id = (str(body.get(key) or "") for key in ("topic", "consumerGroup", "clientId"))
        if not topic:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the assignment query has no topic")
        queues = await self._queues(topic)
        if body.get("messageModel") != "BROADCASTING" and queues is not None:
            queues = self._share(queues, group, client_id, str(body.get("strategyName") or ""))
        if queues is None:
            return json_answer(command, {})
        rows = [
            {"messageQueue": queue_value(name, broker, queue_id), "mode": PULL} for name, broker, queue_id in queues
        ]
        return json_answer(command, {"messageQueueAssignments": rows})

    def set_mode(self, connection: Connection, command: Command) -> Command:
        """Accept mode PULL, which is what every group has, and refuse POP (401)."""
        body = body_object(command, "a message request mode")
        topic, group = str(body.get("topic") or ""), str(body.get("consumerGroup") or "")
        if topic.startswith(names.RETRY_PREFIX):
            raise CommandError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._broker.topics.get(topic) is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._broker.groups.get(group) is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if body.get("mode") == POP:
            remark = f"group {group} cannot consume {topic} by POP on this broker, use mode PULL"
            raise CommandError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return response(command)

    def _share(self, queues: list[Queue], group: str, client_id: str, strategy_name: str) -> list[Queue] | None:
        if not self._broker.options.broker.server_load_balancer_enable:
            return queues
        info, strategy = self._broker.consumers.get(group), STRATEGIES.get(strategy_name)
        if info is None or strategy is None or not client_id:
            return None
        return strategy(client_id, sorted(queues), sorted(info.client_ids()))

    async def _queues(self, topic: str) -> list[Queue] | None:
        """Return the readable queues of *topic* in the whole cluster, ``None`` when nobody knows it."""
        broker, now = self._broker, self._broker.world.clock.monotonic()
        known = self._routes.get(topic)
        if known is not None and now < known[0]:
            return known[1]
        route = await self._route(topic)
        if route is not None:
            queues = readable_queues(topic, route)
            if len(self._routes) >= ROUTE_LIMIT:
                self._routes.clear()
            self._routes[topic] = (now + broker.options.broker.load_balance_poll_name_server_interval / 1000, queues)
            return queues
        if known is not None:
            return known[1]
        row = broker.topics.get(topic)
        if row is None or not row.perm & names.PERM_READ:
            return None
        return [(topic, broker.identity.name, queue_id) for queue_id in range(row.read_queue_nums)]

    async def _route(self, topic: str) -> dict[str, Any] | None:
        """Return the route of *topic* from the first name server that has it."""
        broker = self._broker
        for address in broker.registration.name_servers:
            question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
            try:
                answer = await broker.client.invoke(address, question, ROUTE_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    route = json_dialect.loads(answer.body)
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


def average(client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]) -> list[Queue]:
    """Give each client one run of neighbouring queues, the first ones one more where it does not divide."""
    if client_id not in client_ids:
        return []
    index, clients = client_ids.index(client_id), len(client_ids)
    share, rest = divmod(len(queues), clients)
    begin = index * share + min(index, rest)
    return list(queues[begin : begin + share + (index < rest)])


def average_by_circle(client_id: str, queues: Sequence[Queue], client_ids: Sequence[str]) -> list[Queue]:
    """Deal the queues out to the clients one by one."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


STRATEGIES: dict[str, Strategy] = {"AVG": average, "AVG_BY_CIRCLE": average_by_circle}
