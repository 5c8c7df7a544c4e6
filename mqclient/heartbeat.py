"""Heartbeat bodies (HeartbeatData.java) and the words in them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from understudy.mqclient.subscription import Subscription


class MessageModel(StrEnum):
    """Whether members of a group share the messages or each gets all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFrom(StrEnum):
    """Where a group without stored offset starts."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ConsumeType(StrEnum):
    """How a consumer gets its messages."""

    ACTIVELY = "CONSUME_ACTIVELY"
    PASSIVELY = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


def consumer_data(
    group: str,
    consume_type: ConsumeType,
    model: MessageModel,
    consume_from: ConsumeFrom,
    subscriptions: Iterable[Subscription],
) -> dict[str, Any]:
    """Return one entry of a heartbeat's consumer set.

    Args:
        group: consumer group.
        consume_type: whether the client calls a listener or is asked.
        model: whether members share messages or each gets all.
        consume_from: where a new group begins.
        subscriptions: of this member.
    """
    return {
        "consumeFromWhere": consume_from.value,
        "consumeType": consume_type.value,
        "groupName": group,
        "messageModel": model.value,
        "subscriptionDataSet": [subscription.body() for subscription in subscriptions],
        "unitMode": False,
    }


def heartbeat_body(
    client_id: str, producer_groups: Iterable[str], consumers: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Return the whole body. Fingerprint 0 asks for the plain form, in which every heartbeat is complete."""
    return {
        "clientID": client_id,
        "consumerDataSet": list(consumers),
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": group} for group in producer_groups],
        "withoutSub": False,
    }
