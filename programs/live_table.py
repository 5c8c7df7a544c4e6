"""What a container does right now, for people: one row for each broker."""

from __future__ import annotations

import attrs

from understudy.broker.broker import Broker
from understudy.container.container import BrokerContainer
from understudy.runtime.clock import Clock

_REDRAW_SECONDS = 1.0
_LINE_SECONDS = 10.0


@attrs.frozen
class Row:
    """One broker at one moment; rates are messages per second since the moment before."""

    broker: str
    role: str
    address: str
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
                    address=broker.identity.address,
                    topics=len(broker.topics.rows),
                    queues=sum(row.write_queue_nums for row in broker.topics.rows.values()),
                    stored=put,
                    in_per_second=(put - put_before) / seconds,
                    out_per_second=(got - got_before) / seconds,
                )
            )
        return found


def role_of(broker: Broker) -> str:
    """Return the broker's role in a word."""
    return "master" if broker.identity.broker_id == 0 else f"slave {broker.identity.broker_id}"


async def show_live_table(clock: Clock, container: BrokerContainer) -> None:
    """Redraw a table on the terminal until cancelled."""
    from rich.live import Live
    from rich.table import Table

    def draw(rows: list[Row]) -> Table:
        table = Table(title=f"container {container.address}")
        for title in ("broker", "role", "address"):
            table.add_column(title)
        for title in ("topics", "queues", "stored", "in msg/s", "out msg/s"):
            table.add_column(title, justify="right")
        for row in rows:
            table.add_row(
                row.broker,
                row.role,
                row.address,
                str(row.topics),
                str(row.queues),
                str(row.stored),
                f"{row.in_per_second:.0f}",
                f"{row.out_per_second:.0f}",
            )
        return table

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
                print(
                    f"{row.broker} {row.role} topics={row.topics} queues={row.queues} stored={row.stored} "
                    f"in={row.in_per_second:.0f}/s out={row.out_per_second:.0f}/s",
                    flush=True,
                )
