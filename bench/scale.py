"""What holds the event loop, and a small sender's p99, beside each load that a large cluster or a rude peer makes.

Two bounds for each row. No turn of the loop may take longer than 20 ms of its thread's processor time: that is the
server's own doing, however busy the machine is. The p99 of a sender beside it is what users feel; it is judged only
while nobody else needs the machine, and the row says so when it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from bench.load import (
    broker_loads,
    controller_loads,
    deletion_loads,
    feature_loads,
    led_loads,
    name_server_loads,
    proxy_loads,
    security_loads,
)
from bench.load.beside import Beside, C, Exchange, Measured, send_small
from bench.load.bounds import markdown
from bench.load.broker_loads import Load
from bench.load.machine import QUIET_SHARE, others_share, proven, ticks_now
from bench.load.servers import Scale, Server, broker, controller, make_topic, name_server, proxy, topic_name
from bench.load.turns import OUTSIDE, Turn
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode

P99_MS = 25.0
"""Bound of the small sender's p99; judged while nobody else needs the machine."""

HOLD_MS = 20.0
"""Bound of a turn of the event loop, in processor time of its thread; judged always."""

OLD = "first reads after a start"
SLAVE = "a slave copies tables"
SLAVE_PERIOD_S = 4.0
"""A slave looks at its master's tables every three seconds."""
SLAVE_LIMIT_S = 60.0

QUIET_MS = 5.0
"""Where the p99 beside nothing is above this, none is judged: the machine is too slow or too busy for it."""

TIMES_QUIET = {"100,000 timer messages due at once": 2.0}
"""Rows whose p99 may be no more than so many times that beside nothing, nor is judged below :data:`QUIET_MS`."""


@attrs.frozen
class Row:
    """One load and what it may cost.

    Args:
        name: what the load is.
        work: makes the load on a server; ends by itself within some seconds.
        prepare: done before the client measures.
    """

    name: str
    work: Callable[[Server], None]
    prepare: Callable[[Server], None] = lambda server: None


@attrs.frozen
class Figures:
    """What one load cost.

    Attributes:
        name: of the row.
        seen: what the small sender saw.
        turns: long turns of the server's event loop, the preparation of the load included.
        others: the share of the machine that others took meanwhile, from 0 to 1.
        quiet: whether a p99 can be judged.
        limit_ms: a bound of the p99 of this row alone.
    """

    name: str
    seen: Measured
    turns: list[Turn]
    others: float
    quiet: bool
    limit_ms: float = float("inf")

    @property
    def judged(self) -> list[Turn]:
        """The turns that count, longest first. Of workers only on a quiet machine: a busy one looks the same."""
        turns = [turn for turn in self.turns if self.quiet or turn.where != OUTSIDE]
        return sorted(turns, key=lambda turn: -turn.processor_ms)

    @property
    def longest(self) -> Turn:
        """The turn that held the loop longest."""
        return next(iter(self.judged), Turn(0.0, 0.0, 0.0, ""))

    def faults(self, p99_ms: float = P99_MS, hold_ms: float = HOLD_MS) -> list[str]:
        """Return what is wrong: the bounds that are broken, and failures of the sender."""
        found = list(self.seen.failures)
        if self.longest.processor_ms > hold_ms:
            found.append(f"HELD THE LOOP above {hold_ms:g} ms")
        bound_ms = min(p99_ms, self.limit_ms)
        if self.quiet and self.seen.p99_ms > bound_ms:
            found.append(f"P99 ABOVE {bound_ms:.3g} ms")
        return found


def rows(wanted: list[str], among: list[Row]) -> list[Row]:
    return [row for row in among if not wanted or any(each in row.name for each in wanted)]


def measure(server: Server, row: Row, exchange: Exchange[C]) -> tuple[Measured, list[Turn], float]:
    """Run one load beside the client; return what it saw, the long turns of the loop, and the share of others.

    What goes wrong with the load is one of the failures: the other rows are measured all the same.
    """
    began, others, wrong = time.monotonic(), 0.0, list[str]()
    beside = Beside(server.port, exchange)
    try:
        row.prepare(server)
        with beside:
            pids = [server.process.pid, beside.pid]
            before = ticks_now(pids)
            time.sleep(0.2)
            row.work(server)
            time.sleep(0.2)
            others = others_share(before, ticks_now(pids))
    except Exception as error:
        wrong.append(f"the load failed: {type(error).__name__}: {error}")
    if server.process.poll() is not None:
        wrong.append(f"THE SERVER HAS ENDED with {server.process.returncode}: {server.last_words()}")
    seen = beside.measured
    return seen._replace(failures=[*wrong, *seen.failures]), server.long_turns(began), others


def measured(server: Server, chosen: list[Row], empty: Row, exchange: Exchange[C]) -> Iterator[Figures]:
    """Measure *empty*, which tells whether the machine is quiet enough to judge a p99, and then the others.

    What breaks a bound is measured again, and the better of both counts: the host of a virtual machine may take the
    processor away in the middle of a turn without telling.
    """
    quiet, quiet_ms = True, float("inf")
    for row in [empty, *chosen]:
        seen, turns, others = measure(server, row, exchange)
        if row is empty:
            quiet_ms, quiet = seen.p99_ms, seen.p99_ms <= QUIET_MS
        limit_ms = max(TIMES_QUIET.get(row.name, float("inf")) * quiet_ms, QUIET_MS)
        figures = Figures(row.name, seen, turns, others, quiet and others <= QUIET_SHARE, limit_ms)
        if figures.faults():
            seen, turns, others = measure(server, row, exchange)
            again = Figures(row.name, seen, turns, others, quiet and others <= QUIET_SHARE, limit_ms)
            figures = min(figures, again, key=lambda each: (len(each.faults()), each.longest.processor_ms))
        yield figures


def rows_of(*loads: list[tuple[str, Load, Load]]) -> list[Row]:
    return [Row(*each) for each in itertools.chain(*loads)]


def broker_rows() -> list[Row]:
    return rows_of(broker_loads.LOADS, feature_loads.LOADS)


def every_row() -> list[Row]:
    """Return every row that has a load of its own."""
    others = (deletion_loads, led_loads, controller_loads, security_loads, proxy_loads, name_server_loads)
    return broker_rows() + rows_of(*(each.LOADS for each in others))


def runs(wanted: list[str], scale: Scale) -> Iterator[Figures]:
    """Measure the rows whose names hold one of *wanted*, or all."""
    kinds: list[tuple[list[tuple[str, Load, Load]], Callable[[list[Row], Path, Scale], Iterator[Figures]]]] = [
        ([*broker_loads.LOADS, *feature_loads.LOADS], broker_runs),
        (deletion_loads.LOADS, deletion_runs),
        (name_server_loads.LOADS, name_server_runs),
        (controller_loads.LOADS, controller_runs),
        (led_loads.LOADS, led_runs),
        (security_loads.LOADS, security_runs),
        (proxy_loads.LOADS, proxy_runs),
    ]
    for loads, run in kinds:
        chosen = rows(wanted, rows_of(loads))
        if chosen:
            yield from every_verdict([row.name for row in chosen], partial(run, chosen), scale)
    for name, run_one in ((OLD, old_runs), (SLAVE, slave_runs)):
        if not wanted or any(each in name for each in wanted):
            yield from every_verdict([name], run_one, scale)


def every_verdict(names: list[str], run: Callable[[Path, Scale], Iterator[Figures]], scale: Scale) -> Iterator[Figures]:
    """Yield what *run* measures in a folder of its own; rows of *names* it does not come to have failed, too."""
    left = dict.fromkeys(names)
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for figures in run(Path(folder), scale):
                left.pop(figures.name, None)
                yield figures
    except Exception as error:
        for name in left:
            why = f"not measured: {type(error).__name__}: {error}"
            yield Figures(name, Measured([], [], [why]), [], 0.0, False)


def old_runs(folder: Path, scale: Scale) -> Iterator[Figures]:
    """Measure the first reads of what a former process has stored."""
    with broker(folder) as server:
        make_topic(server.port, "Beside")
        broker_loads.store_old(server)
    with broker(folder) as server:
        old = Row(OLD, broker_loads.first_reads)
        yield from measured(server, [old], Row("nothing (a start later)", nothing), send_small("Beside"))


def broker_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    with broker(folder, scale, keys=feature_loads.KEYS) as server:
        make_topic(server.port, "Beside")
        yield from measured(server, chosen, Row("nothing", nothing), send_small("Beside"))


def deletion_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    """Measure a broker that loses what it has on its disk."""
    with broker(folder, scale, keys=deletion_loads.KEYS) as server:
        make_topic(server.port, "Beside")
        deletion_loads.fill(server)
        yield from measured(server, chosen, Row("nothing (deletions)", nothing), send_small("Beside"))


def name_server_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    with name_server(folder) as server:
        name_server_loads.fill(server.port)
        ask = name_server_loads.ask_route(topic_name(7))
        yield from measured(server, chosen, Row("nothing (name server)", nothing), ask)


def controller_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    with controller(folder) as server:
        controller_loads.fill(server.port)
        ask = controller_loads.ask_master()
        yield from measured(server, chosen, Row("nothing (controller)", nothing), ask)
        controller_loads.leave()


def led_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    """Measure a broker that a controller leads."""
    folders = [folder / name for name in ("controller", "broker")]
    for each in folders:
        each.mkdir()
    with controller(folders[0]) as leading, broker(folders[1], scale, keys=led_loads.keys(leading.port)) as server:
        led_loads.await_master(server, "Beside")
        yield from measured(server, chosen, Row("nothing (led broker)", nothing), send_small("Beside"))


def security_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    """Measure a broker that asks for signatures."""
    security_loads.write_users(folder)
    with broker(folder, keys=security_loads.KEYS) as server:
        security_loads.make_topic(server.port, "Beside")
        yield from measured(server, chosen, Row("nothing (signatures)", nothing), security_loads.send_signed("Beside"))


def proxy_runs(chosen: list[Row], folder: Path, scale: Scale) -> Iterator[Figures]:
    """Measure a proxy in front of a broker."""
    folders = [folder / name for name in ("namesrv", "broker", "proxy")]
    for each in folders:
        each.mkdir()
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(name_server(folders[0])).port
        behind = stack.enter_context(broker(folders[1], name_server_port=port))
        for topic in (proxy_loads.TOPIC, proxy_loads.FULL_TOPIC, "Empty"):
            make_topic(behind.port, topic)
        server = stack.enter_context(proxy(folders[2], port))
        yield from measured(server, chosen, Row("nothing (proxy)", nothing), proxy_loads.send_by_grpc())


def slave_rows(master: Server) -> list[Row]:
    def copied(slave: Server) -> None:
        until = time.monotonic() + SLAVE_LIMIT_S
        while not slave.logged("tables copied"):
            if time.monotonic() > until:
                raise RuntimeError(f"no tables copied within {SLAVE_LIMIT_S:g} s")
            time.sleep(0.1)
        time.sleep(SLAVE_PERIOD_S)

    def change(slave: Server) -> None:
        for number in range(2):
            make_topic(master.port, f"Changed{number}")
            time.sleep(SLAVE_PERIOD_S)

    return [Row("a slave copies all tables", copied), Row("a slave copies a changed table", change)]


def slave_runs(folder: Path, scale: Scale) -> Iterator[Figures]:
    """Measure a slave beside a client of its own: while it copies everything, and when a topic has changed."""
    folders = [folder / name for name in ("namesrv", "master", "slave")]
    for each in folders:
        each.mkdir()
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(name_server(folders[0])).port
        role: dict[str, object] = {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
        master = stack.enter_context(broker(folders[1], scale, keys=role, name_server_port=port))
        role = {"brokerRole": "SLAVE", "brokerId": 1}
        slave = stack.enter_context(broker(folders[2], keys=role, name_server_port=port))
        all_tables, changed = slave_rows(master)
        yield from measured(slave, [changed], all_tables, ask_offset())


def ask_offset() -> Exchange[Peer]:
    """Return the exchange of a client that asks for the end of a queue."""
    end = {"topic": "Beside", "queueId": "0"}
    return Exchange(Peer, lambda peer, number: peer.ask(RequestCode.GET_MAX_OFFSET, end).code == 0)


def nothing(server: Server) -> None:
    """The load that is none."""
    time.sleep(2)


def line(figures: Figures, faults: list[str]) -> str:
    """Return the row of the report."""
    seen, longest = figures.seen, figures.longest
    unjudged = f"loop ok, P99 NOT JUDGED: others took {figures.others:.0%}"
    verdict = "; ".join(faults) or ("ok" if figures.quiet else unjudged)
    return (
        f"{figures.name:44} holds {longest.processor_ms:7.2f} ms  p50 {seen.p50_ms:7.2f}  p99 {seen.p99_ms:8.2f}"
        f"  most {seen.most_ms:8.2f} ms  of {len(seen.seconds):5}  {verdict}"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="understudy bench scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", help="parts of names of loads; all of them if none is given")
    parser.add_argument("--p99-ms", type=float, default=P99_MS, help="bound of the p99 (default %(default)s)")
    parser.add_argument(
        "--hold-ms",
        type=float,
        default=HOLD_MS,
        help="bound of a turn of the loop, processor time (default %(default)s)",
    )
    parser.add_argument("--topics", type=int, default=Scale().topics)
    parser.add_argument("--bounds", action="store_true", help="print what is bounded, and what holds it, and end")
    parser.add_argument("--json", action="store_true", help="print one JSON object a row")
    parser.add_argument("--judge-all", action="store_true", help="end with 1, too, when the p99 of a row is not judged")
    options = parser.parse_args(arguments)
    if options.bounds:
        print(markdown(), end="")
        return 0
    failed = judged = count = 0
    for figures in runs(options.rows, Scale(topics=options.topics)):
        faults = figures.faults(options.p99_ms, options.hold_ms)
        failed += bool(faults)
        judged += figures.quiet
        count += 1
        if options.json:
            print(json.dumps(as_json(figures, faults)), flush=True)
            continue
        print(line(figures, faults), flush=True)
        for turn in [each for each in figures.judged if each.processor_ms > options.hold_ms][:5]:
            print(
                f"    {turn.processor_ms:.1f} ms of the processor, {turn.wall_ms:.1f} ms in all: {turn.where}",
                flush=True,
            )
    print(proven(judged, count), file=sys.stderr if options.json else sys.stdout)
    if failed:
        print(f"{failed} of {count} rows break a bound", file=sys.stderr)
    return 1 if failed or (options.judge_all and judged < count) else 0


def as_json(figures: Figures, faults: list[str]) -> dict[str, object]:
    """Return a row for programs."""
    seen, longest = figures.seen, figures.longest
    return {
        "row": figures.name,
        "hold_ms": longest.processor_ms,
        "hold_wall_ms": longest.wall_ms,
        "where": longest.where,
        "p50_ms": seen.p50_ms,
        "p99_ms": seen.p99_ms,
        "most_ms": seen.most_ms,
        "others": round(figures.others, 3),
        "quiet": figures.quiet,
        "faults": faults,
    }
