"""What a pull wants to have of a queue: every message, some tags, or what a condition is true of.

Source: PullMessageProcessor.java.
"""

from __future__ import annotations

from understudy.broker import filters
from understudy.broker.conditions import UnsupportedFilterError
from understudy.broker.filter_bits import wanted_bits
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.parked_pulls import Wanted
from understudy.broker.processors.send_admission import FAQ
from understudy.broker.property_filter import PropertyFilter
from understudy.broker.sql_filter.lexer import SqlError
from understudy.broker.subscribers import Subscribers
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.runtime.clock import Clock
from understudy.store.extensions import WantedBits

FORBIDDEN_BROKER, FORBIDDEN_GROUP, FORBIDDEN_TOPIC, FORBIDDEN_BROADCAST, FORBIDDEN_SUBSCRIPTION = 1, 2, 3, 4, 5
HEARTBEAT_GRACE_MS = 40_000
"""A subscription version this young may be announced by a heartbeat that has not come yet (clients send every 30 s)."""


class Subscriptions:
    """Finds out what pulls want, from their headers or from what their groups have subscribed to.

    Args:
        clock: wall time.
        groups: what each may read.
        subscribers: what each has subscribed to.

    Attributes:
        consumers: the members of groups.
        conditions: of subscriptions that are no set of tags.
    """

    def __init__(self, clock: Clock, groups: GroupTable, subscribers: Subscribers) -> None:
        self._clock = clock
        self._groups = groups
        self.consumers = subscribers.consumers
        self.conditions = subscribers.conditions
        self._filters = subscribers.filters

    def bits_of(self, group: str, topic: str, condition: PropertyFilter) -> WantedBits | None:
        """Return by which bits of *topic*'s messages *group* leaves out what it does not want by *condition*."""
        return wanted_bits(self._filters, group, topic, condition)

    def of_header(self, ext: dict[str, str], known: Wanted) -> Wanted:
        """Return what the header of a pull asks for by itself.

        Args:
            ext: its fields.
            known: what the same pull asked for when it was parked.

        Raises:
            CommandError: it is no subscription.
        """
        kind = ext.get("expressionType")
        try:
            if kind != "TAG" and not filters.is_tag_type(kind):
                return self._condition(str(kind), ext.get("subscription") or "", known)
            return filters.tag_codes(ext.get("subscription") or "")
        except (filters.SubscriptionError, SqlError) as error:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}", {}
            ) from None

    def _condition(self, kind: str, text: str, known: Wanted) -> PropertyFilter:
        """Return a subscription that is no set of tags. Raises :class:`SqlError`, :class:`CommandError`."""
        try:
            return self.conditions.get(kind, text, known)
        except UnsupportedFilterError as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error), {}) from None

    def of_group(self, ext: dict[str, str], group: str, topic: str, row: GroupConfig, known: Wanted) -> Wanted:
        """Return what the group of a pull has subscribed to by its heartbeats.

        Args:
            ext: fields of the pull's header.
            group: that pulls.
            topic: that it pulls of.
            row: the settings of the group.
            known: what the same pull looked for when it was parked.

        Raises:
            CommandError: the group is not there, may not read, or has subscribed to something else since.
        """
        info = self.consumers.groups.get(group)
        if info is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}", {})
        if info.broadcasting and not row.consume_broadcast_enable:
            raise forbidden(f"the consumer group[{group}] can not consume by broadcast way", FORBIDDEN_BROADCAST)
        if self._groups.forbidden and self._groups.is_forbidden(group, topic):
            raise forbidden(f"the consumer group[{group}] is forbidden for topic[{topic}]", FORBIDDEN_SUBSCRIPTION)
        subscription = info.subscriptions.get(topic)
        if subscription is None:
            raise CommandError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}", {})
        try:
            version = int(ext.get("subVersion") or 0)
        except ValueError:
            version = 0
        condition: PropertyFilter | None = None
        if not filters.is_tag_type(subscription.expression_type):
            try:
                condition = self._condition(subscription.expression_type, subscription.expression, known)
            except SqlError as error:
                raise CommandError(
                    ResponseCode.FILTER_DATA_NOT_EXIST,
                    f"the consumer's filter data not exist, its condition is none: {error}",
                    {},
                ) from None
        if subscription.version < version:
            young = abs(self._clock.wall_ms() - version) <= HEARTBEAT_GRACE_MS
            if not young or condition is not None or not filters.is_tag_type(ext.get("expressionType")):
                raise CommandError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest", {})
            # Differs because the reference refuses until the client's next heartbeat: a Java client that rebalances
            # while its heartbeat is under way announces the new version up to 30 s later and gets nothing until then.
            # What the group wants now is not known here, so nothing is held back; clients compare tags themselves.
            return None
        return subscription.wanted if condition is None else condition


def forbidden(remark: str, kind: int) -> CommandError:
    """Return the refusal of a pull that may not be.

    Args:
        remark: why.
        kind: one of the ``FORBIDDEN_`` numbers, by which clients tell the reasons apart.
    """
    return CommandError(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})
