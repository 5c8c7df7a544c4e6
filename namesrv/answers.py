"""Encoded route answers, kept until something they show changes."""

from __future__ import annotations

from understudy.namesrv import bodies
from understudy.namesrv.key_values import ORDER_TOPICS, KeyValueConfig
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.routes import pick_up
from understudy.namesrv.zone import within_zone


class RouteAnswers:
    """Bodies of route answers by topic and form.

    Only existing topics are kept, so the cache is bounded by the table itself. It is emptied when the table, the
    key-value configuration or a setting has changed; heartbeats and unchanged registrations leave it alone.
    """

    def __init__(self, table: RouteTable, key_values: KeyValueConfig) -> None:
        self._table = table
        self._key_values = key_values
        self._state: tuple[int, int, bool, bool] | None = None
        self._standard: dict[str, bytes] = {}
        self._compatible: dict[str, bytes] = {}

    def body(self, topic: str, *, standard: bool, acting_master: bool, with_order: bool) -> bytes | None:
        """Return the encoded route of a topic.

        Args:
            topic: its name.
            standard: in standard JSON, else in the dialect that older clients read.
            acting_master: a group without a master shows its smallest slave as a read-only one.
            with_order: with the topic's order configuration.

        Returns:
            The body; ``None`` when nobody has the topic.
        """
        state = (self._table.revision, self._key_values.revision, acting_master, with_order)
        if state != self._state:
            self._state = state
            self._standard.clear()
            self._compatible.clear()
        kept = self._standard if standard else self._compatible
        body = kept.get(topic)
        if body is None:
            order = self._key_values.get(ORDER_TOPICS, topic) if with_order else None
            route = pick_up(self._table, topic, acting_master=acting_master, order_config=order)
            if route is None:
                return None
            body = kept[topic] = bodies.route(route, standard=standard)
        return body

    def body_in_zone(self, topic: str, zone: str, *, acting_master: bool, with_order: bool) -> bytes | None:
        """Return the encoded route of a topic without other zones; always in the compatible form, never kept.

        Args:
            topic: its name.
            zone: of the client; brokers without a zone stay, too.
            acting_master, with_order: as of :meth:`body`.

        Returns:
            The body; ``None`` when nobody has the topic.
        """
        order = self._key_values.get(ORDER_TOPICS, topic) if with_order else None
        route = pick_up(self._table, topic, acting_master=acting_master, order_config=order)
        return None if route is None else bodies.route(within_zone(route, zone), standard=False)
