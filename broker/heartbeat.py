"""What a client's heartbeat says, read with the tolerance the wire needs.

Pure. Source: HeartbeatData.java, ConsumerData.java, ProducerData.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.broker.clients import BROADCASTING, CLUSTERING, CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP
from understudy.broker.filters import Subscription, is_tag_type
from understudy.format.json_values import name_of
from understudy.format.numbers import whole_number
from understudy.remoting.bodies import JsonError, Reading, json_of
from understudy.remoting.command import Command

CONSUME_TYPES = (CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP)
MESSAGE_MODELS = (BROADCASTING, CLUSTERING)
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""In the order of the reference's enumerations (ConsumeType.java, MessageModel.java, ConsumeFromWhere.java)."""


GROUPS_AT_ONCE, SUBSCRIPTIONS_AT_ONCE, CONDITIONS_AT_ONCE = 64, 256, 256
"""A heartbeat with more groups, subscriptions, or characters of conditions, is taken in pieces."""


class HeartbeatError(ValueError):
    """A heartbeat that cannot be understood; the message says what is wrong."""


@attrs.frozen
class ConsumerBeat:
    """One consumer group of a heartbeat."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: tuple[Subscription, ...]
    unit_mode: bool


@attrs.frozen
class Heartbeat:
    """A heartbeat.

    Attributes:
        client_id: the client.
        consumers: its consumer groups.
        producers: its producer groups.
        fingerprint: hash of its subscriptions, 0 in the first heartbeat form.
        without_subscriptions: the subscriptions were left out because the broker knows them.
        long: to enter it takes so long that others must get their turn meanwhile.
    """

    client_id: str
    consumers: tuple[ConsumerBeat, ...]
    producers: tuple[str, ...]
    fingerprint: int
    without_subscriptions: bool
    long: bool = False


def parse_heartbeat(command: Command) -> Heartbeat:
    """Read the body of HEART_BEAT.

    Raises:
        HeartbeatError: it is absent, no JSON, or misses what cannot be guessed.
    """
    data = _json_object(command)
    client_id = data.get("clientID")
    if not isinstance(client_id, str) or not client_id:
        raise HeartbeatError("heartbeat without clientID")
    try:
        fingerprint = whole_number(data.get("heartbeatFingerprint") or 0, "heartbeatFingerprint")
        name_of(client_id, "clientID")
    except ValueError as error:
        raise HeartbeatError(str(error)) from None
    consumers = tuple(_consumer(item) for item in _objects(data, "consumerDataSet"))
    producers = tuple(
        name for name in (item.get("groupName") for item in _objects(data, "producerDataSet")) if isinstance(name, str)
    )
    long = _is_long(consumers, producers)
    return Heartbeat(client_id, consumers, producers, fingerprint, _truth(data.get("withoutSub")), long)


def _is_long(consumers: tuple[ConsumerBeat, ...], producers: tuple[str, ...]) -> bool:
    if len(consumers) + len(producers) > GROUPS_AT_ONCE:
        return True
    if sum(len(consumer.subscriptions) for consumer in consumers) > SUBSCRIPTIONS_AT_ONCE:
        return True
    conditions = sum(
        len(wanted.expression)
        for consumer in consumers
        for wanted in consumer.subscriptions
        if not is_tag_type(wanted.expression_type)
    )
    return conditions > CONDITIONS_AT_ONCE


def _consumer(item: Mapping[str, Any]) -> ConsumerBeat:
    group = item.get("groupName")
    if not isinstance(group, str) or not group:
        raise HeartbeatError("consumerDataSet: an entry without groupName")
    try:
        return ConsumerBeat(
            name_of(group, "groupName"),
            _word(item, "consumeType", CONSUME_TYPES, CONSUME_PASSIVELY),
            _word(item, "messageModel", MESSAGE_MODELS, CLUSTERING),
            _word(item, "consumeFromWhere", CONSUME_FROM_WHERE, CONSUME_FROM_WHERE[0]),
            tuple(Subscription.from_json(each) for each in _objects(item, "subscriptionDataSet")),
            _truth(item.get("unitMode")),
        )
    except ValueError as error:
        raise HeartbeatError(str(error)) from None


def _word(item: Mapping[str, Any], name: str, words: tuple[str, ...], default: str) -> str:
    """Return one of an enumeration's *words*; C++ clients send its number."""
    value = item.get(name)
    if value is None or value == "":
        return default
    if type(value) is int and 0 <= value < len(words):
        return words[value]
    return name_of(value, name)


def _json_object(command: Command) -> Mapping[str, Any]:
    if not command.body:
        raise HeartbeatError("heartbeat without body")
    try:
        data = json_of(command)
    except JsonError as error:
        raise HeartbeatError(f"heartbeat is no JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise HeartbeatError("heartbeat is no JSON object")
    return data


def _objects(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = data.get(name) or []
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise HeartbeatError(f"{name} is no list of objects")
    return found


def _truth(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


READING = Reading(parse_heartbeat)
"""How the body of HEART_BEAT is read."""
