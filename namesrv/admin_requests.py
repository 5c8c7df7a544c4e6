"""Requests of operators: key-value configuration, topics, permissions, settings (DefaultRequestProcessor.java)."""

from __future__ import annotations

from understudy.namesrv import bodies
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.key_values import KeyValueConfig, StoreError
from understudy.namesrv.route_table import RouteTable
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.fields import CommandError, optional
from understudy.remoting.settings_requests import SettingsRequests
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger
from understudy.runtime.stored_settings import SettingsInForce

log = get_logger("namesrv.admin")


class AdminRequests:
    """Answers operators. Changes that touch the disk run as tasks and are answered when they are durable.

    Args:
        table: the route table.
        key_values: key-value configuration.
        settings: settings in force.
        disk: of the file that keeps them.
    """

    def __init__(
        self, table: RouteTable, key_values: KeyValueConfig, settings: SettingsInForce[NamesrvConfig], disk: Disk
    ) -> None:
        self._table = table
        self._key_values = key_values
        self._settings = settings
        self._settings_requests = SettingsRequests(settings, disk)

    def register(self, server: Dispatcher) -> None:
        """Register the handlers."""
        server.register_async(RequestCode.PUT_KV_CONFIG, self.put_key_value)
        server.register(RequestCode.GET_KV_CONFIG, self.get_key_value)
        server.register_async(RequestCode.DELETE_KV_CONFIG, self.delete_key_value)
        server.register(RequestCode.GET_KVLIST_BY_NAMESPACE, self.list_namespace)
        server.register(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write)
        server.register(RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_write)
        server.register(RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete_topic)
        server.register(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics)
        server.register(RequestCode.GET_TOPICS_BY_CLUSTER, self.topics_of_cluster)
        server.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.system_topics)
        server.register(RequestCode.GET_UNIT_TOPIC_LIST, self.unit_topics)
        server.register(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self.unit_subscription_topics)
        server.register(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self.unit_subscription_only_topics)
        server.register(RequestCode.GET_NAMESRV_CONFIG, self._settings_requests.get)
        server.register_async(RequestCode.UPDATE_NAMESRV_CONFIG, self._settings_requests.update)

    # -- key-value configuration --------------------------------------------------------------------------------

    async def put_key_value(self, connection: Connection, command: Command) -> Command:
        """100: set a value; without one the namespace is made and the key left without value."""
        namespace, key = optional(command, "namespace"), optional(command, "key")
        if namespace is None or key is None:
            return response(command, ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        try:
            await self._key_values.put(namespace, key, optional(command, "value"))
        except StoreError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        log.info("key-value set", namespace=namespace, key=key)
        return response(command)

    def get_key_value(self, connection: Connection, command: Command) -> Command:
        """101: read a value."""
        namespace, key = optional(command, "namespace"), optional(command, "key")
        value = self._key_values.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {_or_null(namespace)} Key: {_or_null(key)}"
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark, {})
        return response(command, 0, None, {"value": value})

    async def delete_key_value(self, connection: Connection, command: Command) -> Command:
        """102: remove a value; unknown ones are fine."""
        namespace, key = optional(command, "namespace"), optional(command, "key")
        try:
            await self._key_values.delete(namespace, key)
        except StoreError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return response(command)

    def list_namespace(self, connection: Connection, command: Command) -> Command:
        """219: every value of a namespace."""
        namespace = optional(command, "namespace")
        table = self._key_values.namespace(namespace)
        if table is None:
            remark = f"No config item, Namespace: {_or_null(namespace)}"
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark)
        return response(command, 0, None, None, bodies.key_values(table))

    # -- topics -------------------------------------------------------------------------------------------------

    def wipe_write(self, connection: Connection, command: Command) -> Command:
        """205: make a group read-only in the routes until it registers a change."""
        name = optional(command, "brokerName") or ""
        count = self._table.topics.wipe_write(name)
        log.info("write permission wiped", broker=name, topics=count, peer=connection.address)
        return response(command, 0, None, {"wipeTopicCount": str(count)})

    def add_write(self, connection: Connection, command: Command) -> Command:
        """327: make a group writable in the routes."""
        name = optional(command, "brokerName") or ""
        count = self._table.topics.add_write(name)
        log.info("write permission added", broker=name, topics=count, peer=connection.address)
        return response(command, 0, None, {"addTopicCount": str(count)})

    def delete_topic(self, connection: Connection, command: Command) -> Command:
        """216: forget a topic's route, in one cluster or everywhere."""
        topic, cluster = optional(command, "topic"), optional(command, "clusterName")
        if topic is not None:
            self._table.delete_topic(topic, cluster or None)
            log.info("topic route deleted", topic=topic, cluster=cluster or "all", peer=connection.address)
        return response(command)

    def all_topics(self, connection: Connection, command: Command) -> Command:
        """206: every topic."""
        if not self._settings.current.enable_all_topic_list:
            return response(command, ResponseCode.SYSTEM_ERROR, "disable")
        return _topics(command, self._table.topics.names())

    def topics_of_cluster(self, connection: Connection, command: Command) -> Command:
        """224: topics of a cluster's brokers."""
        groups = self._table.clusters.get(optional(command, "cluster") or "", {})
        return self._listed(command, self._table.topics.of_groups(groups))

    def unit_topics(self, connection: Connection, command: Command) -> Command:
        """311: unit topics."""
        return self._listed(command, self._table.topics.of_units())

    def unit_subscription_topics(self, connection: Connection, command: Command) -> Command:
        """312: topics that units subscribe to."""
        return self._listed(command, self._table.topics.with_unit_subscription())

    def unit_subscription_only_topics(self, connection: Connection, command: Command) -> Command:
        """313: topics that units subscribe to but that are no unit topics."""
        return self._listed(command, self._table.topics.with_unit_subscription_only())

    def _listed(self, command: Command, topics: list[str]) -> Command:
        if not self._settings.current.enable_topic_list:
            return response(command, ResponseCode.SYSTEM_ERROR, "disable")
        return _topics(command, topics)

    def system_topics(self, connection: Connection, command: Command) -> Command:
        """304: names of clusters and brokers, which are topics of every broker, and one broker to ask for the rest."""
        names = list(dict.fromkeys([*self._table.clusters, *self._table.groups]))
        addresses = (address for group in self._table.groups.values() for address in group.addresses().values())
        return response(command, 0, None, None, bodies.topic_list(names, next(addresses, None)))


def _topics(command: Command, topics: list[str]) -> Command:
    return response(command, 0, None, None, bodies.topic_list(topics))


def _or_null(value: str | None) -> str:
    return "null" if value is None else value
