"""Requests of remoting clients at a proxy: which broker each is for, and routes that lead to the proxy. Pure.

Source: RemotingProtocolServer.java, GetTopicRouteActivity.java and others of its package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from understudy.format.json_dialect import JsonError, dumps
from understudy.mqclient.route import BrokerAddresses, TopicRoute
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.fields import CommandError

_C = RequestCode


class Target(Enum):
    """For which brokers a request is."""

    MASTER = "the master of the broker that it names"
    READER = "that master, or who can be read in its place"
    LOCKS = "the brokers whose queues its body names"
    EVERY = "every broker of the cluster"
    ONE = "any broker of the cluster"


TARGETS: Mapping[int, Target] = {
    _C.SEND_MESSAGE: Target.MASTER,
    _C.SEND_MESSAGE_V2: Target.MASTER,
    _C.SEND_BATCH_MESSAGE: Target.MASTER,
    _C.CONSUMER_SEND_MSG_BACK: Target.READER,
    _C.RECALL_MESSAGE: Target.MASTER,
    _C.END_TRANSACTION: Target.READER,
    _C.PULL_MESSAGE: Target.READER,
    _C.LITE_PULL_MESSAGE: Target.READER,
    _C.POP_MESSAGE: Target.READER,
    _C.ACK_MESSAGE: Target.READER,
    _C.CHANGE_MESSAGE_INVISIBLETIME: Target.READER,
    _C.UPDATE_CONSUMER_OFFSET: Target.READER,
    _C.QUERY_CONSUMER_OFFSET: Target.READER,
    _C.SEARCH_OFFSET_BY_TIMESTAMP: Target.READER,
    _C.GET_MAX_OFFSET: Target.READER,
    _C.GET_MIN_OFFSET: Target.READER,
    _C.LOCK_BATCH_MQ: Target.LOCKS,
    _C.UNLOCK_BATCH_MQ: Target.LOCKS,
    _C.HEART_BEAT: Target.EVERY,
    _C.UNREGISTER_CLIENT: Target.EVERY,
    _C.CHECK_CLIENT_CONFIG: Target.ONE,
    _C.GET_CONSUMER_LIST_BY_GROUP: Target.ONE,
    _C.GET_CONSUMER_CONNECTION_LIST: Target.ONE,
}
"""What is forwarded, and where to."""

MOST_LOCK_BROKERS, MOST_LOCK_QUEUES, MOST_LOCK_BESIDE_BYTES = 256, 16_384, 4_096
"""What one request to lock or unlock queues may name, and the size of its other fields, which go to each broker."""
_LOCK_FIELDS = ("consumerGroup", "clientId", "onlyThisBroker")
_SHORT_NAMES = (_C.SEND_MESSAGE_V2, _C.SEND_BATCH_MESSAGE)


def broker_of(command: Command) -> str:
    """Return the name of the broker that a request is for.

    Raises:
        CommandError: it names none (15); clients older than 5.0 do not.
    """
    field = "n" if command.code in _SHORT_NAMES else "bname"
    name = (command.ext or {}).get(field)
    if not name:
        raise CommandError(ResponseCode.VERSION_NOT_SUPPORTED, f"Request doesn't have field {field}")
    return name


def topic_of(command: Command) -> str:
    """Return the topic that a request names; an empty text for none."""
    ext = command.ext or {}
    return (ext.get("b") if command.code in _SHORT_NAMES else ext.get("topic")) or ""


def brokers_of_locks(command: Command, read: Callable[[Command], Any]) -> dict[str, Command]:
    """Return what each broker is asked by a request to lock or unlock queues.

    Args:
        command: the request.
        read: returns the JSON value of its body, or raises :class:`JsonError`.

    Raises:
        CommandError: its body is none, or names too much (1).
    """
    parts: dict[str, list[Any]] = {}
    try:
        body = read(command)
        queues = body["mqSet"]
        for queue in queues:
            parts.setdefault(queue["brokerName"], []).append(queue)
        beside = {name: body[name] for name in _LOCK_FIELDS if name in body}
        texts = all(isinstance(name, str) for name in parts)
    except (JsonError, KeyError, TypeError):
        texts = False
    if not texts:
        raise CommandError(ResponseCode.SYSTEM_ERROR, "the body names no queues: mqSet with brokerName")
    if len(parts) > MOST_LOCK_BROKERS or len(queues) > MOST_LOCK_QUEUES or len(dumps(beside)) > MOST_LOCK_BESIDE_BYTES:
        why = f"a request locks up to {MOST_LOCK_QUEUES} queues of {MOST_LOCK_BROKERS} brokers: ask for fewer at once"
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"{why}, with names of {MOST_LOCK_BESIDE_BYTES} bytes at most")
    return {
        name: Command(
            command.code,
            command.language,
            command.version,
            flag=command.flag,
            ext=command.ext,
            body=dumps({**beside, "mqSet": part}),
        )
        for name, part in sorted(parts.items())
    }


def merged_locks(bodies: Iterable[Any]) -> bytes:
    """Return one answer to a lock request of the JSON values that several brokers answered."""
    found: list[Any] = []
    for body in bodies:
        locked = body.get("lockOKMQSet") if isinstance(body, dict) else None
        found += locked if isinstance(locked, list) else []
    return dumps({"lockOKMQSet": found})


def told_route(route: TopicRoute, address: str) -> bytes:
    """Return a route in which every group has one broker, at *address*: of its master's id, or else the smallest.

    Raises:
        CommandError: of a static topic. Differs because the reference leaves its mapping out, and clients take
            physical queues for logical ones.
    """
    if route.leaders:
        remark = (
            f"{route.topic} is a static topic, which clients of the remoting protocol use at the brokers themselves"
        )
        raise CommandError(ResponseCode.NO_PERMISSION, remark)
    brokers = [
        {
            "brokerAddrs": {str(min(group.addresses)): address},
            "brokerName": group.name,
            "cluster": group.cluster,
            "enableActingMaster": False,
        }
        for group in route.brokers.values()
        if group.addresses
    ]
    queues = [
        {
            "brokerName": group.broker_name,
            "perm": group.permission,
            "readQueueNums": group.read_queues,
            "topicSysFlag": group.topic_sys_flag,
            "writeQueueNums": group.write_queues,
        }
        for group in route.queue_groups
    ]
    body: dict[str, Any] = {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": queues}
    if route.order_config:
        body["orderTopicConf"] = route.order_config
    return dumps(body)


def address_for(target: Target, brokers: BrokerAddresses) -> str:
    """Return where a broker of the group *brokers* is that can answer. Raises :class:`CommandError` (1)."""
    address = brokers.master if target is Target.MASTER else brokers.any_address()
    if address is None:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"broker {brokers.name} has no master at the moment; try again")
    return address
