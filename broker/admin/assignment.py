"""Which queues a consumer gets when the broker decides, and how it asks for messages (400, 401).

Source: QueryAssignmentProcessor.java, MessageRequestModeManager.java, AllocateMessageQueueAveragely.java,
AllocateMessageQueueAveragelyByCircle.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from understudy.broker.admin.answers import body_object, json_answer, long_json_answer, queue_value
from understudy.broker.admin.cluster_queues import ClusterQueues, Queue
from understudy.broker.catalog import Catalog
from understudy.broker.clients import ConsumerTable
from understudy.broker.node import Node
from understudy.broker.request_modes import POP, PULL, RequestMode, RequestModeTable
from understudy.format import names
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.pace import Pace

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

Strategy = Callable[[str, Sequence[Queue], Sequence[str]], list[Queue]]


@attrs.frozen
class AssignmentParts:
    """What of a broker is needed to share queues among consumers.

    Attributes:
        node: who it is, its settings and its world.
        catalog: topics and groups.
        modes, consumers: the tables.
        queues: of topics in the whole cluster.
    """

    node: Node
    catalog: Catalog
    modes: RequestModeTable
    consumers: ConsumerTable[Connection]
    queues: ClusterQueues


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer assignment requests of *broker* on *server*."""
    handlers = AssignmentAdmin(
        AssignmentParts(
            node=broker.node,
            catalog=broker.catalog,
            modes=broker.request_modes,
            consumers=broker.consumers,
            queues=ClusterQueues(broker.node, broker.topics, broker.client, lambda: broker.registration.name_servers),
        )
    )
    server.register_async(RequestCode.QUERY_ASSIGNMENT, handlers.query, kind="assignment")
    server.register(RequestCode.SET_MESSAGE_REQUEST_MODE, handlers.set_mode)


class AssignmentAdmin:
    """Handlers over one broker's members and the cluster's routes."""

    def __init__(self, parts: AssignmentParts) -> None:
        self._parts = parts
        self._config = parts.node.options.broker

    async def query(self, connection: Connection, command: Command) -> Command:
        """Return the queues of one client (400); an empty object when nothing can be said."""
        body = body_object(command, "an assignment query")
        topic, group, client_id = (str(body.get(key) or "") for key in ("topic", "consumerGroup", "clientId"))
        if not topic:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the assignment query has no topic")
        queues = await self._parts.queues.of(topic)
        mode = self._mode(topic, group)
        if body.get("messageModel") != "BROADCASTING" and queues is not None:
            queues = self._share(queues, group, client_id, str(body.get("strategyName") or ""), mode)
        if queues is None:
            return json_answer(command, {})
        rows = ({"messageQueue": queue_value(*queue), "mode": mode.mode} for queue in _each_once(queues))
        async with Pace(self._parts.node.world) as pace:
            return await long_json_answer(command, {"messageQueueAssignments": rows}, pace)

    def set_mode(self, connection: Connection, command: Command) -> Command:
        """Set how a group consumes a topic (401)."""
        body = body_object(command, "a message request mode")
        topic, group = str(body.get("topic") or ""), str(body.get("consumerGroup") or "")
        if topic.startswith(names.RETRY_PREFIX):
            raise CommandError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._parts.catalog.topics.get(topic) is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._parts.catalog.groups.get(group) is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        try:
            mode = RequestMode.from_json(body, "the message request mode")
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        self._parts.modes.put(topic, group, mode)
        return response(command)

    def _mode(self, topic: str, group: str) -> RequestMode:
        """Return how *group* consumes *topic*: as it was set, else as the broker's settings say."""
        config, known = self._config, self._parts.modes.get(topic, group)
        if known is not None:
            return known
        if topic.startswith(names.RETRY_PREFIX) or config.default_message_request_mode != POP:
            return RequestMode(PULL)
        return RequestMode(POP, config.default_pop_share_queue_num)

    def _share(
        self, queues: list[Queue], group: str, client_id: str, strategy_name: str, mode: RequestMode
    ) -> list[Queue] | None:
        if not self._config.server_load_balancer_enable:
            return queues
        info, strategy = self._parts.consumers.get(group), STRATEGIES.get(strategy_name)
        if info is None or strategy is None or not client_id:
            return None
        client_ids = sorted(info.client_ids())
        if mode.mode == POP:
            return shared_for_pops(client_id, queues, client_ids, strategy, mode.share)
        return strategy(client_id, queues, client_ids)


def _each_once(queues: Iterable[Queue]) -> Iterator[Queue]:
    """Give the queues in order, each of them once; shares of popping clients overlap."""
    known: set[Queue] = set()
    for queue in queues:
        if queue not in known:
            known.add(queue)
            yield queue


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


def shared_for_pops(
    client_id: str, queues: Sequence[Queue], client_ids: Sequence[str], strategy: Strategy, share: int
) -> list[Queue]:
    """Return the queues of one client that pops.

    Args:
        client_id: the client.
        queues: all of them, in order.
        client_ids: all of them, in order.
        strategy: how queues are shared out among pulling clients.
        share: see :class:`~understudy.broker.request_modes.RequestMode`.
    """
    if share <= 0 or share >= len(client_ids) - 1:
        return [(topic, broker, -1) for topic, broker, _ in queues]  # each broker once, for all of its queues
    if client_id not in client_ids:
        return []
    index, clients = client_ids.index(client_id), len(client_ids)
    if clients > len(queues):
        return [queues[index % len(queues)]] if queues else []
    others = [client_ids[(index + each) % clients] for each in range(share + 1)]
    return [queue for other in others for queue in strategy(other, queues, client_ids)]


STRATEGIES: dict[str, Strategy] = {"AVG": average, "AVG_BY_CIRCLE": average_by_circle}
