"""Requests of brokers: registration, heartbeats, versions, members (DefaultRequestProcessor.java)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from understudy.format.record import CRC_MASK
from understudy.namesrv import bodies
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.key_values import ORDER_TOPICS, KeyValueConfig
from understudy.namesrv.liveness import Liveness
from understudy.namesrv.records import MASTER_ID, MinBrokerIdNotice, Registration
from understudy.namesrv.registration_body import (
    BodyError,
    RegistrationBody,
    is_compressed,
    read_data_version,
    read_queues,
    read_registration,
)
from understudy.namesrv.route_table import MOST_BROKERS, MOST_OF_ONE_HOST, RegistrationResult, RouteTable
from understudy.namesrv.topic_table import QUEUES_MAX
from understudy.namesrv.trust import is_its_own
from understudy.namesrv.zone import ZONE_NAME
from understudy.remoting.bodies import Reading, body_of, is_large
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.fields import CommandError, optional, optional_bool, optional_int, required, required_int
from understudy.runtime.damping import Damping
from understudy.runtime.log import get_logger
from understudy.runtime.stored_settings import SettingsInForce

log = get_logger("namesrv.brokers")

# What a Java response says until its handler sets a remark; success of 901 still carries it (captured from 5.4.0).
UNSET_REMARK = "not set any response code"
_NO_ROOM = "the topics registered here take too much memory (keptForPeersBytes); delete some first"
_LEFT_OUT = f"mappings have {QUEUES_MAX} queues at most, or {_NO_ROOM}"


class BrokerRequests:
    """Turns requests of brokers into events of the route table.

    Args:
        table: the route table.
        liveness: told of registrations and unregistrations.
        key_values: source of the order configuration that answers of registrations carry.
        settings: settings in force.
        tell: takes the notices that registrations lead to; must not wait.
    """

    def __init__(
        self,
        table: RouteTable,
        liveness: Liveness,
        key_values: KeyValueConfig,
        settings: SettingsInForce[NamesrvConfig],
        tell: Callable[[tuple[MinBrokerIdNotice, ...]], None],
    ) -> None:
        self._table = table
        self._liveness = liveness
        self._key_values = key_values
        self._settings = settings
        self._tell = tell
        self._lines = Damping()

    def register(self, server: Dispatcher) -> None:
        """Register the handlers."""
        server.register(RequestCode.REGISTER_BROKER, self.register_broker, _REGISTRATION)
        server.register(RequestCode.UNREGISTER_BROKER, self.unregister_broker)
        server.register(RequestCode.BROKER_HEARTBEAT, self.heartbeat)
        server.register(RequestCode.QUERY_DATA_VERSION, self.query_data_version)
        server.register(RequestCode.GET_BROKER_MEMBER_GROUP, self.member_group)
        server.register(RequestCode.REGISTER_TOPIC_IN_NAMESRV, self.register_topic)

    def register_broker(self, connection: Connection, command: Command) -> Command:
        """103: a broker with all its topics, or with those that changed."""
        broker_id = required_int(command, "brokerId")
        if broker_id < MASTER_ID:
            remark = f"register broker failed: brokerId={broker_id}: 0 is the master, slaves have 1 and more"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark, {})
        cluster = required(command, "clusterName")
        name = required(command, "brokerName")
        address = required(command, "brokerAddr")
        timeout_ms = optional_int(command, "heartbeatTimeoutMillis")
        body: RegistrationBody = body_of(command, _read_registration)
        settings = self._settings.current
        if self._table.full_for(cluster, name, address, connection.source):
            self._say("registration refused, there are too many brokers", broker=name, address=address)
            remark = f"register broker failed: {len(self._table.live)} brokers are registered here, in {MOST_BROKERS} "
            remark += f"groups and clusters at most, {MOST_OF_ONE_HOST} of a group on one host; stop some first"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark, {})
        topics, mappings = self._table.topics.fitting(name, body.topics, body.mappings)
        left_out = len(body.topics) - len(topics) + len(body.mappings) - len(mappings)
        if left_out:
            self._say("topics of a registration are left out, there are too many", broker=name, left_out=left_out)
        event = Registration(
            cluster,
            name,
            broker_id,
            address,
            optional(command, "haServerAddr"),
            optional(command, ZONE_NAME),
            timeout_ms,
            optional_bool(command, "enableActingMaster"),
            body.version,
            topics,
            tuple(mappings),
            body.filter_servers,
        )
        known = (cluster, address) in self._table.live
        result = self._table.register(
            event,
            connection,
            self._liveness.now_ms(),
            host=connection.source,
            delete_missing_topics=settings.delete_topic_with_broker_registration,
        )
        self._tell(result.notices)
        self._log(event, result, known)
        if result.owner is not None:
            owner, silence_ms = result.owner, self._liveness.now_ms() - result.owner.seen_ms
            remark = (
                f"register broker failed: {owner.name} with id {owner.broker_id} is registered at {owner.address} in "
                f"cluster {owner.cluster} and was heard of {silence_ms} ms ago from another host; stop it first, or "
                "try again when it is silent"
            )
            return response(command, ResponseCode.SYSTEM_ERROR, remark, {})
        if result.refused:
            return response(command, ResponseCode.SYSTEM_ERROR, "register broker failed", {})
        member = self._table.live.get((cluster, address))
        if member is not None:
            self._liveness.registered(member.deadline_ms)
        ext = {}
        if result.ha_address is not None:
            ext["haServerAddr"] = result.ha_address
        if result.master_address is not None:
            ext["masterAddr"] = result.master_address
        order = self._key_values.namespace(ORDER_TOPICS) if settings.return_order_topic_config_to_broker else None
        told = f"{left_out} topics are left out: {_LEFT_OUT}" if left_out else None
        return response(command, 0, told, ext, b"" if order is None else bodies.key_values(order))

    def _log(self, event: Registration, result: RegistrationResult, known: bool) -> None:
        if result.owner is not None:
            self._say(
                "registration refused, a living broker of another host is registered there",
                broker=event.name,
                id=event.broker_id,
                address=event.address,
                owner=f"{result.owner.name}:{result.owner.broker_id}",
                owner_address=result.owner.address,
                owner_host=result.owner.host,
            )
        elif result.refused:
            self._say(
                "registration refused, the full topic table must come first", broker=event.name, id=event.broker_id
            )
        elif result.stale:
            self._say(
                "registration ignored, a member with a newer state version has the id",
                broker=event.name,
                id=event.broker_id,
                address=event.address,
            )
        elif result.displaced is not None:
            self._say(
                "id taken over by another address; two brokers with the same name and id must not both run",
                broker=event.name,
                id=event.broker_id,
                address=event.address,
                before=result.displaced,
            )
        elif not known:
            log.info(
                "broker registered",
                broker=event.name,
                id=event.broker_id,
                address=event.address,
                cluster=event.cluster,
                topics=len(event.topics),
            )

    def _say(self, event: str, **fields: object) -> None:
        self._lines.tell(log.warning, event, self._liveness.now_ms() / 1000, **fields)

    def unregister_broker(self, connection: Connection, command: Command) -> Command:
        """104: a broker that leaves; answered before it is gone."""
        key = (optional(command, "clusterName") or "", optional(command, "brokerAddr") or "")
        broker_id = optional_int(command, "brokerId")
        member = self._table.to_unregister(
            key,
            optional(command, "brokerName"),
            broker_id,
            connection,
            self._liveness.now_ms(),
            host=connection.source,
        )
        if member is None and key in self._table.live:
            self._say("unregistration ignored, it is not the broker's", address=key[1], peer=connection.address)
        capacity = self._settings.current.un_register_broker_queue_capacity
        if member is not None and not self._liveness.unregister(member, capacity):
            remark = f"{capacity} unregistrations are waiting already, try again"
            return response(command, ResponseCode.SYSTEM_ERROR, remark)
        return response(command)

    def heartbeat(self, connection: Connection, command: Command) -> Command:
        """904: alive, nothing more; answered with success whether the broker is known or not."""
        key = (required(command, "clusterName"), required(command, "brokerAddr"))
        self._table.heartbeat(key, connection, self._liveness.now_ms(), host=connection.source)
        return response(command)

    def query_data_version(self, connection: Connection, command: Command) -> Command:
        """322: has the topic table changed; a heartbeat as well. An answer without body means: not registered here."""
        key = (required(command, "clusterName"), required(command, "brokerAddr"))
        try:
            version = read_data_version(command)
        except BodyError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"DataVersion: {error}") from None
        changed, registered = self._table.data_version(
            key, version, connection, self._liveness.now_ms(), host=connection.source
        )
        body = b"" if registered is None else bodies.data_version(registered)
        return response(command, 0, None, {"changed": "true" if changed else "false"}, body)

    def member_group(self, connection: Connection, command: Command) -> Command:
        """901: ids and addresses of a group; empty for an unknown one."""
        name = optional(command, "brokerName")
        group = self._table.groups.get(name or "")
        addresses = {} if group is None else group.addresses()
        body = bodies.member_group(optional(command, "clusterName"), name, addresses)
        return response(command, 0, UNSET_REMARK, None, body)

    def register_topic(self, connection: Connection, command: Command) -> Command:
        """217: a single topic's queues."""
        topic = optional(command, "topic")
        try:
            queues = read_queues(command)
        except BodyError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"TopicRouteData: {error}") from None
        for name in {each.broker_name for each in queues}:
            group = self._table.groups.get(name)
            if group and not any(is_its_own(each, connection, connection.source) for each in group.members.values()):
                self._say(
                    "queues refused, they are not of this broker", broker=name, topic=topic, peer=connection.address
                )
                raise CommandError(ResponseCode.NO_PERMISSION, f"broker {name} is registered from another host")
        if topic:
            for name in {each.broker_name for each in queues} & self._table.groups.keys():
                if not self._table.topics.has_room(name, topic):
                    self._say("topic refused, there are too many", broker=name, topic=topic)
                    raise CommandError(ResponseCode.SYSTEM_BUSY, _NO_ROOM)
            self._table.topics.register(topic, queues, self._table.groups)
        return response(command)


def _read_registration(command: Command) -> RegistrationBody:
    """Return the body of a registration. Raises :class:`CommandError` (1)."""
    checksum = optional_int(command, "bodyCrc32") or 0
    if checksum and checksum != zlib.crc32(command.body) & CRC_MASK:
        raise CommandError(ResponseCode.SYSTEM_ERROR, "crc32 not match", {})
    name = required(command, "brokerName")
    try:
        return read_registration(command.body, command.version, name, compressed=_says_compressed(command))
    except BodyError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}") from None


def _says_compressed(command: Command) -> bool:
    return optional_bool(command, "compressed") is True


# A small compressed body may be a large one.
_REGISTRATION = Reading(
    _read_registration,
    lambda command: is_large(command) or is_compressed(command.body, says_compressed=_says_compressed(command)),
)
