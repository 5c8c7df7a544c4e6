"""What a container does right now, for people: one row for each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from understudy.broker.broker import Broker
from understudy.container.container import BrokerContainer
from understudy.format.names import is_system_topic
from understudy.programs.command_line import say
from understudy.runtime.clock import Clock

if TYPE_CHECKING:
    from rich.table import Table

_REDRAW_SECONDS = 1.0
_LINE_SECONDS = 10.0


@attrs.frozen
class Row:
    """One broker at one moment; rates are messages per second since the moment before.

    Attributes:
        broker, role: its name and what it is.
        ports: on which it listens, that of clients first.
        topics, queues: how many it has.
        stored: messages in the queues of topics that are not the system's, also those of earlier starts.
        in_per_second, out_per_second: messages taken from senders and given to consumers.
    """

    broker: str
    role: str
    ports: str
    topics: int
    queues: int
    stored: int
    in_per_second: float
    out_per_second: float


class Meter:
    """Turns counters into rows; keeps the counters of the moment before."""

    def __init__(self, clock: Clock, container: BrokerContainer) -> None:
        self._clock = clock
        self._container = container
        self._before: dict[str, tuple[float, int, int]] = {}

    def rows(self) -> list[Row]:
        """Return one row for each broker, as of now."""
        found = []
        now = self._clock.monotonic()
        for hosted in self._container.brokers():
            broker, name = hosted.broker, str(hosted.identity)
            put, got = broker.stats.put_total, broker.stats.transferred
            since, put_before, got_before = self._before.get(name, (now, put, got))
            self._before[name] = (now, put, got)
            seconds = max(now - since, 1e-9)
            found.append(
                Row(
                    broker=broker.identity.name,
                    role=role_of(broker),
                    ports=ports_of(broker),
                    topics=len(broker.topics.rows),
                    queues=sum(row.write_queue_nums for row in broker.topics.rows.values()),
                    stored=stored_messages(broker),
                    in_per_second=(put - put_before) / seconds,
                    out_per_second=(got - got_before) / seconds,
                )
            )
        return found


def role_of(broker: Broker) -> str:
    """Return the broker's role in a word."""
    return f"slave {broker.role.broker_id}" if broker.role.is_slave else "master"


def ports_of(broker: Broker) -> str:
    """Return the ports of *broker*, divided by blanks: for clients, the second one, for replication."""
    found = [broker.identity.port]
    if broker.fast_server is not None:
        found.append(broker.fast_server.address[1])
    _, _, replication = broker.identity.ha_address.rpartition(":")
    return " ".join(map(str, found)) + (f" {replication}" if replication and not broker.role.is_slave else "")


def stored_messages(broker: Broker) -> int:
    """Return how many messages the queues of *broker* hold, but those of system topics."""
    store = broker.store
    return sum(
        store.max_queue_offset(topic, queue_id) - store.min_queue_offset(topic, queue_id)
        for topic, queue_id in store.queues()
        if not is_system_topic(topic)
    )


def table_of(title: str, rows: list[Row]) -> Table:
    """Return *rows* as a table that fits 80 columns."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("broker", "role", "ports"):
        table.add_column(name, no_wrap=True)
    for name in ("topics", "queues", "stored", "in/s", "out/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        rates = f"{row.in_per_second:.0f}", f"{row.out_per_second:.0f}"
        counts = str(row.topics), str(row.queues), str(row.stored)
        table.add_row(row.broker, row.role, row.ports, *counts, *rates)
    return table


async def show_live_table(clock: Clock, container: BrokerContainer) -> None:
    """Redraw a table on the terminal until cancelled."""
    from rich.live import Live

    def draw(rows: list[Row]) -> Table:
        return table_of(f"container {container.address}: messages stored, and per second", rows)

    meter = Meter(clock, container)
    with Live(draw(meter.rows()), auto_refresh=False) as live:
        while True:
            await clock.sleep(_REDRAW_SECONDS)
            live.update(draw(meter.rows()), refresh=True)


async def show_plain_lines(clock: Clock, container: BrokerContainer) -> None:
    """Print a line for each broker that had traffic, every ten seconds, until cancelled."""
    meter = Meter(clock, container)
    meter.rows()
    while True:
        await clock.sleep(_LINE_SECONDS)
        for row in meter.rows():
            if row.in_per_second or row.out_per_second:
                say(
                    f"{row.broker} {row.role} topics={row.topics} queues={row.queues} stored={row.stored} "
                    f"in={row.in_per_second:.0f}/s out={row.out_per_second:.0f}/s"
                )
