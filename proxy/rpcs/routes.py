"""QueryRoute and QueryAssignment: where queues are."""

from __future__ import annotations

from understudy.proxy.core import routes, validation
from understudy.proxy.core.callers import Caller
from understudy.proxy.core.message_types import accepted_types
from understudy.proxy.core.routes import EndpointsOf
from understudy.proxy.core.statuses import ok
from understudy.proxy.grpc.call import Method
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE, Parts, method


class Routes:
    """Answers about routes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {
            SERVICE + "QueryRoute": method(self._parts, v2.QueryRouteRequest, v2.QueryRouteResponse, self.route),
            SERVICE + "QueryAssignment": method(
                self._parts, v2.QueryAssignmentRequest, v2.QueryAssignmentResponse, self.assignment
            ),
        }

    async def route(self, caller: Caller, request: v2.QueryRouteRequest) -> v2.QueryRouteResponse:
        """Return the queues of a topic."""
        topic = validation.topic_of(request.topic)
        route = await self._parts.brokers.route(topic)
        kinds = accepted_types(await self._parts.brokers.topic_type(topic))
        queues = routes.message_queues(request.topic, route, kinds, self._endpoints(request.endpoints))
        return v2.QueryRouteResponse(status=ok(), message_queues=queues)

    async def assignment(self, caller: Caller, request: v2.QueryAssignmentRequest) -> v2.QueryAssignmentResponse:
        """Return what a push consumer reads of a topic."""
        topic, group = validation.topic_of(request.topic), validation.group_of(request.group)
        route = await self._parts.brokers.route(topic)
        in_order = (await self._parts.brokers.group(group)).in_order
        found = routes.assignments(request.topic, route, in_order, self._endpoints(request.endpoints))
        return v2.QueryAssignmentResponse(status=ok(), assignments=found)

    def _endpoints(self, asked: v2.Endpoints) -> EndpointsOf:
        config, own = self._parts.config, self._parts.address()
        if self._parts.own_brokers is not None:  # every broker has a proxy beside it, at the same port
            return lambda address: routes.endpoints([(address.rpartition(":")[0].strip("[]"), own[1])])
        told = routes.asked_endpoints(asked, None if config.use_endpoint_port_from_request else own[1], own)
        return lambda address: told
