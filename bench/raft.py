"""Speed of the controller's quorum: separate processes, loopback TCP, real files, every commit durable.

./understudy bench raft commit       latency of one command at a time, then 200 concurrent clients
./understudy bench raft failover     leader killed with -9: first commit of the next term
./understudy bench raft heartbeats   1,000 groups of two brokers, one heartbeat a second each: share of a core
./understudy bench raft recovery     10,000 groups: start from log and snapshot
./understudy bench raft role         broker master's connection closed: notification of the new master (stub brokers)
"""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from bench.quorum.figures import load, median_ms
from bench.quorum.members import MemberProcesses
from bench.quorum.one_controller import heartbeats, recovery, role
from understudy.testkit.port_blocks import PortBlocks


def commit(options: argparse.Namespace) -> None:
    for size in (3, 5, 1):
        if options.members and options.members != size:
            continue
        cluster = MemberProcesses(size)
        try:
            leader = cluster.wait(lambda message: message["event"] == "commit", 30)["member"]
            time.sleep(0.5)
            latency = cluster.ask(leader, do="latency", count=options.count)
            bursts = [cluster.ask(leader, do="burst", count=8000, clients=200, round=number) for number in range(3)]
            rates = sorted(burst["rate"] for burst in bursts)
            print(
                f"{size} members: commit p50 {latency['write']['p50']} ms p99 {latency['write']['p99']} ms, "
                f"read barrier p50 {latency['read']['p50']} ms, 200 concurrent: median {rates[1]:.0f}/s "
                f"(best {rates[2]:.0f}), {bursts[0]['syncs']} syncs for 8000, "
                f"{sum(burst['failed'] for burst in bursts)} refused, "
                f"{bursts[-1]['busy_us']:.0f} us of the leader's processor each; {load()}",
                flush=True,
            )
        finally:
            cluster.close()


def failover(options: argparse.Namespace) -> None:
    cluster = MemberProcesses(3)
    leads, commits = [], []
    try:
        leader = cluster.wait(lambda message: message["event"] == "commit", 30)["member"]
        source = random.Random(1)
        for _ in range(options.count):
            time.sleep(0.7 + source.random() * 0.6)
            killed, began = leader, time.monotonic()
            cluster.kill(killed)
            first: list[float] = []

            def committed(message: dict[str, Any], killed: str = killed, first: list[float] = first) -> bool:
                if message["member"] != killed and message.get("role") == "LEADER":
                    first.append(message["at"])
                return message["member"] != killed and message["event"] == "commit"

            message = cluster.wait(committed, 30)
            leads.append(first[-1] - began)
            commits.append(message["at"] - began)
            leader = message["member"]
            cluster.start(killed)
            cluster.wait(lambda message, killed=killed: message["member"] == killed and message["event"] == "up", 30)
        print(
            f"leader killed {len(commits)} times (0.4-0.8 s timeouts): new leader p50 {median_ms(leads)} ms, "
            f"first commit of the next term p50 {median_ms(commits)} ms max {max(commits) * 1000:.0f} ms; {load()}"
        )
    finally:
        cluster.close()


def _alone(run: Callable[[str, list[int], int], Awaitable[None]], count: int) -> None:
    """Run it with a folder of its own and four ports."""
    with tempfile.TemporaryDirectory(prefix="understudy-raft-") as folder, PortBlocks(10) as blocks:
        trio.run(run, folder, blocks.middles(4), count)


def main(arguments: Sequence[str]) -> None:
    """Measure one thing, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["commit", "failover", "heartbeats", "recovery", "role", "all"])
    parser.add_argument("--count", type=int, help="samples, kills, groups or rounds")
    parser.add_argument("--members", type=int, choices=(1, 3, 5), help="only quorums of this size (commit)")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    given = options.count
    parts: dict[str, tuple[int, Callable[[], None]]] = {
        "commit": (300, lambda: commit(options)),
        "failover": (20, lambda: failover(options)),
        "heartbeats": (1000, lambda: _alone(heartbeats, options.count)),
        "recovery": (10_000, lambda: _alone(recovery, options.count)),
        "role": (20, lambda: _alone(role, options.count)),
    }
    for name, (default, run) in parts.items():
        if options.what in (name, "all"):
            options.count = given or default
            run()
