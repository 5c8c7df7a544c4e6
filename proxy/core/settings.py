"""What a client is told of how to behave: the answer to the settings that it brings (telemetry).

Source: ClientActivity.java, GrpcClientSettingsManager.java, SubscriptionGroupConfig.java, CustomizedRetryPolicy.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.mqclient.errors import InvalidMessageError
from understudy.mqclient.subscription import subscription
from understudy.proxy.core import validation
from understudy.proxy.core.durations import set_ms
from understudy.proxy.messages import rocketmq_v2 as v2

RETRY_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""When a group without a policy of its own tries again."""
_MOST_TOPICS = 1000


@attrs.frozen
class Exponential:
    """A policy of growing waits, in milliseconds."""

    initial_ms: int = 5_000
    most_ms: int = 7_200_000
    multiplier: float = 2.0


@attrs.frozen
class GroupConfig:
    """What a broker says of a consumer group.

    Attributes:
        in_order: it consumes each message group in order.
        retry_max_times: how often a message is tried again.
        waits_ms: how long it waits before each try; the last one repeats.
        exponential: a policy that stands in place of *waits_ms*.
    """

    in_order: bool = False
    retry_max_times: int = 16
    waits_ms: tuple[int, ...] = tuple(seconds * 1000 for seconds in RETRY_SECONDS)
    exponential: Exponential | None = None

    @property
    def max_attempts(self) -> int:
        return self.retry_max_times + 1

    def wait_ms(self, reconsume_times: int) -> int:
        """Return how long a message waits that was tried *reconsume_times* times before."""
        if self.exponential is not None:
            policy = self.exponential
            return int(min(policy.most_ms, policy.initial_ms * policy.multiplier ** min(reconsume_times, 32)))
        return self.waits_ms[min(max(reconsume_times, 0), len(self.waits_ms) - 1)]


def parse_group(body: Mapping[str, Any]) -> GroupConfig:
    """Read a group's configuration from a broker's JSON; what is missing or makes no sense has its default."""
    default = GroupConfig()
    retries = body.get("retryMaxTimes")
    policy = body.get("groupRetryPolicy")
    config = GroupConfig(
        body.get("consumeMessageOrderly") is True,
        retries if isinstance(retries, int) and 0 <= retries < 10_000 else default.retry_max_times,
    )
    if not isinstance(policy, dict):
        return config
    if policy.get("type") == "EXPONENTIAL":
        values = policy.get("exponentialRetryPolicy")
        return attrs.evolve(config, exponential=_exponential(values if isinstance(values, dict) else {}))
    customized = policy.get("customizedRetryPolicy")
    waits = customized.get("next") if isinstance(customized, dict) else None
    if isinstance(waits, list) and waits and all(isinstance(each, int) and each >= 0 for each in waits):
        return attrs.evolve(config, waits_ms=tuple(waits))
    return config


def _exponential(values: Mapping[str, Any]) -> Exponential:
    default = Exponential()
    initial, most, multiplier = (
        value if isinstance(value, int | float) and value > 0 else standard
        for value, standard in (
            (values.get("initial"), default.initial_ms),
            (values.get("max"), default.most_ms),
            (values.get("multiplier"), default.multiplier),
        )
    )
    return Exponential(int(initial), int(most), float(multiplier))


@attrs.frozen
class ClientRules:
    """What a proxy's settings say of its clients; durations in milliseconds.

    Attributes:
        producer_attempts: how often a message is sent.
        producer_backoff_ms: least and greatest wait between two tries.
        producer_multiplier: by how much it grows.
        max_message_bytes: largest body.
        checks_type: whether topics take messages of their kind only.
        receive_batch: most messages of one receive.
        long_polling_ms: how long a receive may wait.
    """

    producer_attempts: int
    producer_backoff_ms: tuple[int, int]
    producer_multiplier: int
    max_message_bytes: int
    checks_type: bool
    receive_batch: int
    long_polling_ms: int


class SettingsError(ValueError):
    """Settings that no client may have; the message says why."""


def check_settings(settings: v2.Settings) -> None:
    """Refuse settings of unknown clients and names that are none.

    Raises:
        SettingsError: neither publishing nor subscription, or of a kind that is not served.
        ProxyError: a topic, group or expression is no good.
    """
    if settings.client_type in (v2.PULL_CONSUMER, v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER):
        raise SettingsError(f"clients of type {v2.ClientType.Name(settings.client_type)} are not served")
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        _check_number(len(settings.publishing.topics))
        for resource in settings.publishing.topics:
            validation.topic_of(resource)
    elif kind == "subscription":
        _check_number(len(settings.subscription.subscriptions))
        validation.group_of(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            topic = validation.topic_of(entry.topic)
            if entry.expression.type in (v2.TAG, v2.FILTER_TYPE_UNSPECIFIED):
                try:
                    subscription(topic, entry.expression.expression, 0)
                except InvalidMessageError as error:
                    raise SettingsError(str(error)) from None
    else:
        raise SettingsError("there is no publishing or subscription data in settings")


def _check_number(topics: int) -> None:
    if topics > _MOST_TOPICS:
        raise SettingsError(f"settings name {topics} topics, {_MOST_TOPICS} are allowed")


def answered_settings(settings: v2.Settings, rules: ClientRules, group: GroupConfig) -> v2.Settings:
    """Return what a client with *settings* is to do.

    Args:
        settings: as it brought them.
        rules: of the proxy.
        group: of its consumer group; not looked at for producers.
    """
    answer = v2.Settings()
    answer.CopyFrom(settings)
    answer.metric.on = False
    if settings.WhichOneof("pub_sub") == "publishing":
        backoff = answer.backoff_policy
        backoff.max_attempts = rules.producer_attempts
        set_ms(backoff.exponential_backoff.initial, rules.producer_backoff_ms[0])
        set_ms(backoff.exponential_backoff.max, rules.producer_backoff_ms[1])
        backoff.exponential_backoff.multiplier = rules.producer_multiplier
        answer.publishing.max_body_size = rules.max_message_bytes
        answer.publishing.validate_message_type = rules.checks_type
        return answer
    answer.subscription.fifo = group.in_order
    answer.subscription.receive_batch_size = rules.receive_batch
    set_ms(answer.subscription.long_polling_timeout, rules.long_polling_ms)
    answer.backoff_policy.Clear()
    answer.backoff_policy.max_attempts = group.max_attempts
    if group.exponential is not None:
        policy = answer.backoff_policy.exponential_backoff
        set_ms(policy.initial, group.exponential.initial_ms)
        set_ms(policy.max, group.exponential.most_ms)
        policy.multiplier = group.exponential.multiplier
    else:
        for wait_ms in group.waits_ms:
            set_ms(answer.backoff_policy.customized_backoff.next.add(), wait_ms)
    return answer
