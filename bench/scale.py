"""A small sender's p99 beside each load that a large cluster or a rude peer makes, with the bound it must hold."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from bench.load import broker_loads, name_server_loads
from bench.load.beside import Beside, Exchange, Measured, send_small
from bench.load.servers import Scale, Server, broker, make_topic, name_server, topic_name

BOUND_MS = 25.0
"""Of the p99; on a machine that has two processors for this alone."""

LOOP_MS = 100.0
"""Nothing may hold the loop longer than this without being named in the log."""


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


def rows(wanted: list[str], among: list[Row]) -> list[Row]:
    return [row for row in among if not wanted or any(each in row.name for each in wanted)]


def measure(server: Server, row: Row, exchange: Exchange) -> tuple[Measured, list[str]]:
    """Run one load beside the client; return what it saw and what the watchdog named."""
    row.prepare(server)
    named = len(server.logged("held the event loop"))
    with Beside(server.port, exchange) as beside:
        time.sleep(0.2)
        row.work(server)
        time.sleep(0.2)
    return beside.measured, server.logged("held the event loop")[named:]


def broker_rows() -> list[Row]:
    return [Row("nothing", lambda server: time.sleep(2)), *(Row(*each) for each in broker_loads.LOADS)]


def name_server_rows() -> list[Row]:
    return [
        Row("nothing (name server)", lambda server: time.sleep(2)),
        *(Row(*each) for each in name_server_loads.LOADS),
    ]


def runs(wanted: list[str], scale: Scale) -> Iterator[tuple[Row, Measured, list[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        chosen = rows(wanted, broker_rows())
        if chosen:
            with broker(Path(folder), scale) as server:
                make_topic(server.port, "Beside")
                for row in chosen:
                    yield row, *measure(server, row, send_small("Beside"))
    with tempfile.TemporaryDirectory() as folder:
        chosen = rows(wanted, name_server_rows())
        if chosen:
            with name_server(Path(folder)) as server:
                name_server_loads.fill(server.port)
                for row in chosen:
                    yield row, *measure(server, row, name_server_loads.ask_route(topic_name(7)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="understudy bench scale", description=__doc__)
    parser.add_argument("rows", nargs="*", help="parts of names of loads; all of them if none is given")
    parser.add_argument("--bound-ms", type=float, default=BOUND_MS, help="bound of the p99 (default %(default)s)")
    parser.add_argument("--topics", type=int, default=Scale().topics)
    parser.add_argument("--json", action="store_true", help="print one JSON object a row")
    options = parser.parse_args(arguments)
    failed = 0
    for row, seen, named in runs(options.rows, Scale(topics=options.topics)):
        good = seen.p99_ms <= options.bound_ms and not seen.failures
        failed += not good
        figures = {"row": row.name, "p50_ms": seen.p50_ms, "p99_ms": seen.p99_ms, "most_ms": seen.most_ms}
        if options.json:
            print(json.dumps({**figures, "bound_ms": options.bound_ms, "good": good, "held": named}), flush=True)
            continue
        verdict = "ok" if good else "ABOVE THE BOUND" if not seen.failures else "; ".join(seen.failures)
        print(
            f"{row.name:44} p50 {seen.p50_ms:7.2f}  p99 {seen.p99_ms:8.2f}  most {seen.most_ms:8.2f} ms"
            f"  of {len(seen.seconds):5}  {verdict}",
            flush=True,
        )
        for line in named:
            print(f"    {line[-200:]}", flush=True)
    if failed:
        print(f"{failed} above the bound of {options.bound_ms:g} ms", file=sys.stderr)
    return 1 if failed else 0
