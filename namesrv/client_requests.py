"""Requests of clients: routes and the cluster (ClientRequestProcessor.java)."""

from __future__ import annotations

from understudy.namesrv import bodies
from understudy.namesrv.answers import RouteAnswers
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.key_values import KeyValueConfig
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.zone import wanted_zone
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.runtime.clock import Clock
from understudy.runtime.stored_settings import SettingsInForce

# MQVersion.java ordinal of V4_9_4, the first client that reads standard JSON routes.
FIRST_WITH_STANDARD_JSON = 401
_HELP = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class ClientRequests:
    """Answers route and cluster requests.

    Args:
        table: read only.
        key_values: source of the order configuration.
        settings: settings in force.
        clock: tells how long this name server has been up since the object was made.
    """

    def __init__(
        self, table: RouteTable, key_values: KeyValueConfig, settings: SettingsInForce[NamesrvConfig], clock: Clock
    ) -> None:
        self._table = table
        self._settings = settings
        self._answers = RouteAnswers(table, key_values)
        self._clock = clock
        self._started = clock.monotonic()
        self._cluster: tuple[int, bytes] = (-1, b"")

    def register(self, server: Dispatcher) -> None:
        """Register the handlers."""
        server.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route)
        server.register(RequestCode.GET_BROKER_CLUSTER_INFO, self.cluster_info)

    def route(self, connection: Connection, command: Command) -> Command:
        """105: the route of a topic, in the form the asker's version reads."""
        settings = self._settings.current
        if (
            settings.need_wait_for_service
            and self._clock.monotonic() - self._started < settings.wait_seconds_for_service
        ):
            return response(command, ResponseCode.SYSTEM_ERROR, "name server not ready")
        ext = command.ext or {}
        topic = ext.get("topic")
        zone = wanted_zone(ext)
        body = None
        if topic is not None and zone is None:
            standard = (
                command.version >= FIRST_WITH_STANDARD_JSON
                or (ext.get("acceptStandardJsonOnly") or "").lower() == "true"
            )
            body = self._answers.body(
                topic,
                standard=standard,
                acting_master=settings.support_acting_master,
                with_order=settings.order_message_enable,
            )
        elif topic is not None and zone is not None:
            body = self._answers.body_in_zone(
                topic, zone, acting_master=settings.support_acting_master, with_order=settings.order_message_enable
            )
        if body is not None:
            return response(command, 0, None, None, body)
        shown = "null" if topic is None else topic
        remark = f"No topic route info in name server for the topic: {shown}{_HELP}"
        return response(command, ResponseCode.TOPIC_NOT_EXIST, remark)

    def cluster_info(self, connection: Connection, command: Command) -> Command:
        """106: every cluster and broker group. Asked by every broker every few seconds, so the body is kept."""
        revision, body = self._cluster
        if revision != self._table.revision:
            body = bodies.cluster_info(self._table.groups.values(), self._table.clusters)
            self._cluster = (self._table.revision, body)
        return response(command, 0, None, None, body)
