"""Puts messages of an acting slave to a master that lives, and reads single messages wherever they are.

One bridge serves all brokers of a container. It keeps the routes it needs for as long as the reference does; a put that
fails throws its route away.

Source: EscapeBridge.java, BrokerOuterAPI.java, TopicRouteInfoManager.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from understudy.broker import delay
from understudy.broker.broker import Broker
from understudy.broker.inner import InnerMessage, append
from understudy.broker.redelivery import STORED
from understudy.container.escape import choice
from understudy.container.escape.choice import LocalMaster, NoPlace, Queue, Remote
from understudy.format import names
from understudy.format.json_dialect import JsonError, loads
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import Record, RecordError, decode_records
from understudy.mqclient.route import TopicRoute, parse_route
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.store.status import PutRejected, PutStatus

log = get_logger("container.escape")

SEND_TIMEOUT_MS = 3_000
PULL_TIMEOUT_MS = 10_000
ROUTE_TIMEOUT_MS = 3_000
MOST_ROUTES = 10_000
_UNIQUE_KEY, _PRODUCER_GROUP, _WAIT = "UNIQ_KEY", "PGROUP", "WAIT"
_HOST_FLAGS = 0x10 | 0x20  # the target notes its own view of the hosts
_SAME_MESSAGES = 32
_READ_BYTES = 8 << 20


@attrs.frozen
class Found:
    """The outcome of a read.

    Attributes:
        record: the message, ``None`` when there is none.
        why: a word for logs.
        retry: asking again later may help.
    """

    record: Record | None
    why: str
    retry: bool


class Bridge:
    """Escapes of one container.

    Args:
        masters: the masters that run in this container now, in its order.
        stores: broker name to a broker of this container that holds its log.
    """

    def __init__(self, masters: Callable[[], Sequence[Broker]], stores: Callable[[str], Broker | None]) -> None:
        self._masters = masters
        self._stores = stores
        self._routes: dict[str, tuple[float, TopicRoute]] = {}
        self._turn = 0

    # --- putting -----------------------------------------------------------------------------------------------

    async def redeliver(
        self, broker: Broker, messages: Sequence[InnerMessage], acting_since_ms: int | None
    ) -> list[PutStatus]:
        """Put due messages of an acting slave where consumers find them, in order; none behind one that is refused.

        A message that was due before the slave began to act may have been delivered by the master, whose progress was
        not copied any more: its copy is in the slave's log then, and is recognized by its identity.
        """
        statuses: list[PutStatus] = []
        for message in messages:
            if acting_since_ms is not None and delivered_before(broker, message, acting_since_ms):
                log.info("the master had delivered it", broker=broker.identity.canonical_name, topic=message.topic)
                statuses.append(PutStatus.PUT_OK)
                continue
            status = await self.put(broker, message)
            if status not in STORED:
                log.debug("not escaped yet", topic=message.topic, status=status.value)
                return statuses + [status] * (len(messages) - len(statuses))
            statuses.append(status)
        return statuses

    async def put(self, broker: Broker, message: InnerMessage, *, specific: str | None = None) -> PutStatus:
        """Put *message* of *broker* to the best place there is.

        Args:
            broker: the slave it comes from; its own group is never chosen.
            message: the queue id may be changed, nothing else.
            specific: messages with the same text find the same queue.
        """
        masters = {each.identity.name: each for each in self._masters()}
        offers = choice.locals_in_order(
            broker.identity.name, [_offer(each, message.topic) for each in masters.values()]
        )
        for offer in offers:
            if offer.queues:
                status = await self._put_local(masters[offer.broker_name], offer, message)
                if status in STORED:
                    return status
        status = await self._put_remote(broker, message, specific)
        if status in STORED:
            return status
        for offer in offers:  # nobody else has the topic: the container's first master learns it
            row = broker.topics.rows.get(message.topic)
            if not offer.queues and row is not None and status is not PutStatus.MESSAGE_ILLEGAL:
                master = masters[offer.broker_name]
                made = master.topics.ensure(
                    row.name, max(row.write_queue_nums, 1), sys_flag=row.sys_flag, order=row.order
                )
                if made is not None:
                    return await self._put_local(master, _offer(master, message.topic), message)
        return status

    async def put_to(self, broker: Broker, message: InnerMessage, broker_name: str) -> PutStatus:
        """Put *message* to the master of *broker_name*, its queue kept; never to the own group."""
        if broker_name == broker.identity.name:
            return PutStatus.PUT_TO_REMOTE_BROKER_FAIL
        route = await self._route(broker, message.topic)
        place = choice.named(broker.identity.name, broker_name, _masters_of(route), message.queue_id)
        return await self._send(broker, message, place)

    async def _put_local(self, master: Broker, offer: LocalMaster, message: InnerMessage) -> PutStatus:
        message = attrs.evolve(message, queue_id=choice.local_queue(offer, message.queue_id))
        try:
            appended = append(master.store, message)
        except PutRejected as error:
            log.warning("not put to a local master", master=master.identity.canonical_name, why=error)
            return error.status
        if master.sync_flush:
            end = appended.physical_offset + appended.size_bytes
            if not await master.store.wait_flushed(end, master.options.store.sync_flush_timeout):
                return PutStatus.FLUSH_DISK_TIMEOUT
        return PutStatus.PUT_OK

    async def _put_remote(self, broker: Broker, message: InnerMessage, specific: str | None) -> PutStatus:
        allowed = broker.options.broker.enable_slave_acting_master and broker.options.broker.enable_remote_escape
        route = await self._route(broker, message.topic) if allowed else None
        queues = [] if route is None else [Queue(each.broker_name, each.queue_id) for each in route.write_queues]
        self._turn += 1
        place = choice.remote(
            broker.identity.name, queues, _masters_of(route), self._turn, allowed=allowed, specific=specific
        )
        return await self._send(broker, message, place)

    async def _send(self, broker: Broker, message: InnerMessage, place: Remote | NoPlace) -> PutStatus:
        if isinstance(place, NoPlace):
            log.debug("no place to escape to", broker=broker.identity.canonical_name, why=place.why)
            self._routes.pop(message.topic, None)
            return place.status
        identity = broker.identity
        pairs = parse_properties(message.properties.decode("utf-8", "replace"))
        for name in (delay.DELAY, *delay.TIMER_REQUESTS):
            pairs.pop(name, None)  # it is due now
        pairs[_WAIT] = "false"
        header = {
            "a": pairs.get(_PRODUCER_GROUP, f"InnerProducerGroup_{identity.name}_{identity.broker_id}"),
            "b": message.topic,
            "c": names.DEFAULT_TOPIC,
            "d": "8",
            "e": str(place.queue_id),
            "f": str(message.sys_flag & ~_HOST_FLAGS),
            "g": str(message.born_ms),
            "h": str(message.flag),
            "i": format_properties(pairs),
            "j": str(message.reconsume_times),
            "k": "false",
            "m": "false",
        }
        try:
            command = request(RequestCode.SEND_MESSAGE_V2, header, message.body)
            answer = await broker.client.invoke(place.address, command, SEND_TIMEOUT_MS)
        except RemotingError as error:
            log.warning("not put to a remote master", address=place.address, why=error)
            self._routes.pop(message.topic, None)
            return PutStatus.PUT_TO_REMOTE_BROKER_FAIL
        status = choice.put_status(answer.code)
        if status not in STORED:
            log.warning("refused by a remote master", address=place.address, code=answer.code, why=answer.remark)
            self._routes.pop(message.topic, None)
        return status

    # --- reading -----------------------------------------------------------------------------------------------

    async def read(self, broker: Broker, broker_name: str, topic: str, queue_id: int, offset: int) -> Found:
        """Read one message of *broker_name*: here when its log is in this container, else from whoever serves it."""
        local = broker if broker_name == broker.identity.name else self._stores(broker_name)
        if local is not None:
            return _first(local.store.get(topic, queue_id, offset, 1, _READ_BYTES).parts, "getMessageResult is null")
        route = await self._route(broker, topic)
        address = None
        if route is not None and broker_name in route.brokers:
            address = route.brokers[broker_name].any_address()
        if address is None:
            self._routes.pop(topic, None)
            return Found(None, "brokerAddress not found", True)
        identity = broker.identity
        ext = {
            "consumerGroup": f"InnerConsumerGroup_{identity.name}_{identity.broker_id}",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "1",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": str(broker.world.clock.wall_ms()),
            "expressionType": "TAG",
        }
        try:
            answer = await broker.client.invoke(address, request(RequestCode.PULL_MESSAGE, ext), PULL_TIMEOUT_MS)
        except RemotingError as error:
            return Found(None, str(error), True)
        if answer.code == ResponseCode.SUCCESS:
            return _first([memoryview(answer.body)], "no msg")
        why, retry = choice.read_outcome(answer.code)
        return Found(None, why, retry)

    # --- routes ------------------------------------------------------------------------------------------------

    async def _route(self, broker: Broker, topic: str) -> TopicRoute | None:
        clock = broker.world.clock
        known = self._routes.get(topic)
        if known is not None and clock.monotonic() < known[0]:
            return known[1]
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        for address in broker.registration.name_servers:
            try:
                answer = await broker.client.invoke(address, command, ROUTE_TIMEOUT_MS)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                route = parse_route(topic, loads(answer.body))
            except (RemotingError, JsonError, ValueError, KeyError, AttributeError) as error:
                log.warning("no route", topic=topic, name_server=address, why=error)
                continue
            if len(self._routes) >= MOST_ROUTES:
                self._routes.clear()
            period = broker.options.broker.load_balance_poll_name_server_interval / 1000
            self._routes[topic] = (clock.monotonic() + period, route)
            return route
        return None


def delivered_before(broker: Broker, message: InnerMessage, acting_since_ms: int) -> bool:
    """Return whether the log of a slave shows that its master had delivered *message* before the slave acted."""
    pairs = parse_properties(message.properties.decode("utf-8", "replace"))
    key, level = pairs.get(_UNIQUE_KEY), delay.level_of(pairs)
    due_ms = message.born_ms + delay.delay_of_level(broker.delay_levels_ms, level)
    if not key or due_ms > acting_since_ms:
        return False
    end_ms = broker.world.clock.wall_ms()
    for found in broker.store.query(message.topic, key, _SAME_MESSAGES, message.born_ms, end_ms).records:
        for record in decode_records(found):
            same = record.properties.get(_UNIQUE_KEY) == key and record.topic == message.topic
            if same and record.reconsume_times == message.reconsume_times and record.born_ms == message.born_ms:
                return True
    return False


def _offer(master: Broker, topic: str) -> LocalMaster:
    row = master.topics.rows.get(topic)
    queues = row.write_queue_nums if row is not None and row.perm & names.PERM_WRITE else 0
    return LocalMaster(master.identity.name, not master.registration.isolated, queues)


def _masters_of(route: TopicRoute | None) -> dict[str, str]:
    if route is None:
        return {}
    return {name: each.master for name, each in route.brokers.items() if each.master is not None}


def _first(parts: Sequence[memoryview], missing: str) -> Found:
    for part in parts:
        try:
            for record in decode_records(part):
                return Found(record, "", False)
        except RecordError as error:
            return Found(None, f"the message cannot be read: {error}", False)
    return Found(None, missing, False)
