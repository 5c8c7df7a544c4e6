"""Our proxy and the real one under the same real gRPC client (Java) in one run; and what idle clients cost ours.

Each side has a name server and a broker of its own kind behind its proxy. A pair plays every step against one side and
then the other, the order swapped at every step; figures are medians over the pairs, and what a side's processor time
and memory are is said for the proxy alone and for all three servers. Without Java only ours is measured, by `--idle`.

    ./understudy bench proxy                    three pairs
    ./understudy bench proxy --quick            one short pair
    ./understudy bench proxy --only ours
    ./understudy bench proxy --idle 1000        clients with open telemetry streams; --parked 10000 receives that wait
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bench.comparison.load import TOOL
from bench.comparison.main import require_java
from bench.comparison.processes import (
    READY_LIMIT_S,
    Cluster,
    Java,
    Understudy,
    anonymous_mb,
    await_port,
    cpu_seconds,
    process_tree,
)
from bench.comparison.targets import Target, compared, medians, table
from bench.load.idle_clients import Idle, measure_idle
from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session, open_session
from understudy.runtime.world import real_world
from understudy.testkit.waiting import eventually

LOAD = Path(__file__).resolve().parent / "java" / "grpc" / "ProxyLoad.java"
CLIENT = "org.apache.rocketmq:rocketmq-client-java:5.2.0"
GROUP = "bench-readers"
SETTLE_S = 8
START_LIMIT_S = 240
BACKLOG = 60_000


def _rate(label: str, step: str) -> Target:
    return Target(label, step, "msgs_s", "/s", 1.2, 2.0, more_is_better=True)


def _cost(label: str, step: str, part: str) -> Target:
    return Target(f"CPU per 100,000 {label}", step, part, "s", 0.6, 0.3)


TARGETS = (
    _rate("send, 1 thread", "send_1"),
    _rate("send, 64 threads", "send_64"),
    _rate("receive and acknowledge a backlog", "drain"),
    _cost("sent, proxy", "send_64", "proxy_cpu_s"),
    _cost("sent, all servers", "send_64", "all_cpu_s"),
    _cost("received, proxy", "drain", "proxy_cpu_s"),
    _cost("received, all servers", "drain", "all_cpu_s"),
    Target("proxy: start to first send", "start_ms", None, "ms", 1 / 8, 1 / 20),
    Target("proxy: RssAnon idle", "idle_mb", None, "MB", 1 / 6, 1 / 12),
    Target("proxy: RssAnon after the load", "after_mb", None, "MB", 1 / 6, 1 / 12),
)


class Side:
    """Servers of one kind with a proxy in front of them."""

    def __init__(self, cluster: Cluster, port: int, jar: Path, heap: str, *, tls: bool) -> None:
        self.name, self.cluster, self.port, self._jar, self._heap, self._tls = (
            cluster.name,
            cluster,
            port,
            jar,
            heap,
            tls,
        )

    def begin(self) -> None:
        """Starts name server and broker, and makes the topics."""
        self.cluster.start()
        await_port(self.cluster.port + 10)
        trio.run(partial(make_topics, self.cluster.namesrv, self.cluster.broker_address))

    def start_proxy(self) -> int:
        """Starts the proxy; returns the ms until a client that was waiting, warm, had its first send acknowledged."""
        folder = self.cluster.folder / "proxy"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "rmq-proxy.json"
        keys = {"namesrvAddr": self.cluster.namesrv, "proxyMode": "CLUSTER", "rocketMQClusterName": "DefaultCluster"}
        path.write_text(json.dumps({**keys, "grpcServerPort": self.port, "remotingListenPort": self.port + 1}))
        if self.name == "java":
            command = [TOOL, "proxy", "--conf", str(path), "--heap", self._heap, "--home", str(folder)]
            if self._tls:
                command += ["--opts", "-Dtls.server.mode=permissive"]  # the tool speaks plain text without it
        else:
            command = [str(Path(sys.executable).parent / "mqproxy"), "-pm", "cluster", "-pc", str(path)]
        waiting = subprocess.Popen(
            self._command("first", "--topic", "First", "--timeout", START_LIMIT_S),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert waiting.stdout is not None
        waiting.stdout.readline()
        begin = time.time()
        self.cluster.spawn(command, folder / "output.log")
        out, _ = waiting.communicate(timeout=START_LIMIT_S + 30)
        result = json.loads(out.strip().splitlines()[-1])
        if "failed" in result:
            printed = (folder / "output.log").read_text(errors="replace").strip()[-500:]
            raise RuntimeError(f"{self.name}: {result['failed']}; its proxy printed: {printed or 'nothing'}")
        return round(result["first_ack_epoch_ms"] - begin * 1000)

    def load(self, *arguments: object) -> dict[str, Any]:
        """Plays one load; returns its result, with the processor time per 100,000 messages that it cost."""
        before = self.proxy_cpu_s(), self.cluster.cpu_s()
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, timeout=300)
        try:
            result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            return {"failed": done.stderr.strip()[-300:]}
        handled = result.get("acked_with_warmup") or result.get("count")
        if handled:
            result["proxy_cpu_s"] = (self.proxy_cpu_s() - before[0]) / handled * 1e5
            result["all_cpu_s"] = (self.cluster.cpu_s() - before[1]) / handled * 1e5
        return result

    def _command(self, *arguments: object) -> list[str]:
        more = ["--endpoints", f"127.0.0.1:{self.port}", "--tls", str(self._tls).lower()]
        return ["java", "-Xmx768m", "-cp", str(self._jar), str(LOAD), *map(str, arguments), *more]

    def proxy_cpu_s(self) -> float:
        return sum(map(cpu_seconds, process_tree(self.cluster.children[-1].pid)))

    def proxy_mb(self) -> float:
        return sum(map(anonymous_mb, process_tree(self.cluster.children[-1].pid)))


async def make_topics(name_server: str, broker: str) -> None:
    async with open_session(real_world(), name_server) as session:
        for topic in ("First", "Send1", "Send64"):
            await eventually(partial(made, session, broker, topic), READY_LIMIT_S)


async def made(session: Session, broker: str, topic: str) -> bool:
    """Makes a topic; returns whether the name server knows it. A real broker may take its time after its start."""
    with contextlib.suppress(ClientError):
        await topics.save_topic(session, broker, TopicSettings(topic, 8, 8))
        return await topics.exists(session, topic)
    return False


def client_jar() -> Path:
    """Returns where the gRPC client for Java is; the tests with real clients install it."""
    home = Path(os.environ.get("UNDERSTUDY_PEERS_HOME") or Path.home() / ".cache" / "understudy-peers")
    found = list((home / "grpc-java").glob("*.jar"))
    if not found:
        raise SystemExit(f"understudy bench proxy: no {CLIENT} in {home}: `./understudy test` installs it")
    return found[0]


def play_pair(sides: Sequence[Side], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns {side: figures} of one pair; every process is ended when it returns or raises."""
    figures: dict[str, dict[str, Any]] = {side.name: {} for side in sides}
    timing = ("--seconds", options.seconds, "--warmup", options.warmup, "--size", options.size)
    try:
        for side in sides:
            shutil.rmtree(side.cluster.folder, ignore_errors=True)
            side.begin()
            figures[side.name]["start_ms"] = side.start_proxy()
            log(f"{side.name}: start to first send {figures[side.name]['start_ms']} ms")
        time.sleep(SETTLE_S)
        for side in sides:
            figures[side.name]["idle_mb"] = side.proxy_mb()
            log(f"{side.name}: group begins: {side.load('touch', '--topic', 'Send64', '--group', GROUP)}")
        for number, threads in enumerate((1, 64)):
            for side in sides if number % 2 == 0 else sides[::-1]:
                result = side.load("send", "--topic", f"Send{threads}", "--threads", threads, *timing)
                figures[side.name][f"send_{threads}"] = result
                log(f"{side.name}: send, {threads} threads: {result}")
        for side in sides:
            count = min(figures[side.name]["send_64"].get("acked_with_warmup", 0), BACKLOG)
            drain = ("drain", "--topic", "Send64", "--group", GROUP, "--threads", 8, "--count", count, "--timeout", 90)
            figures[side.name]["drain"] = side.load(*drain)
            log(f"{side.name}: receive and acknowledge: {figures[side.name]['drain']}")
        for side in sides:
            figures[side.name]["after_mb"] = side.proxy_mb()
    finally:
        for side in sides:
            side.cluster.end(signal.SIGKILL)
    return figures


def log(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def measure_ours_idle(options: argparse.Namespace, folder: Path) -> int:
    """Prints what idle clients and waiting receives cost our proxy."""
    cluster = Understudy(folder, options.port)
    try:
        side = Side(cluster, options.port + 300, Path(), "", tls=False)
        side.begin()
        path = folder / "rmq-proxy.json"
        keys = {"grpcServerPort": side.port, "remotingListenPort": 0, "namesrvAddr": cluster.namesrv}
        path.write_text(json.dumps(keys))
        cluster.spawn(
            [str(Path(sys.executable).parent / "mqproxy"), "-pm", "cluster", "-pc", str(path)], folder / "proxy.log"
        )
        await_port(side.port)
        found: list[Idle] = trio.run(
            partial(measure_idle, side.port, cluster.children[-1].pid, options.idle, options.parked, options.seconds)
        )
        for each in found:
            print(each)
    finally:
        cluster.end(signal.SIGKILL)
    return 0


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="understudy bench proxy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3, help="each on empty stores (default 3)")
    parser.add_argument("--seconds", type=int, default=8, help="measured, each step (default 8)")
    parser.add_argument("--warmup", type=int, default=6, help="before, each step (default 6)")
    parser.add_argument("--quick", action="store_true", help="one pair of short steps")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default 1024)")
    parser.add_argument("--heap", default="512m", help="heap of the real proxy (default 512m)")
    parser.add_argument("--tls", action="store_true", help="connections are secured, as the client does by default")
    parser.add_argument("--only", choices=["java", "ours"], help="measure one side alone")
    parser.add_argument("--idle", type=int, default=0, metavar="COUNT", help="measure idle clients at ours instead")
    parser.add_argument("--parked", type=int, default=0, metavar="COUNT", help="with so many receives that wait")
    parser.add_argument("--port", type=int, default=24100, help="first port of the real system, ours is 400 above")
    parser.add_argument("--json", metavar="FILE", help="also write every pair's figures")
    options = parser.parse_args(given)
    if options.quick:
        vars(options).update(pairs=1, seconds=4, warmup=3)
    return options


def main(given: list[str]) -> int:
    options = arguments(given)
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-")).resolve()
    try:
        if options.idle or options.parked:
            return measure_ours_idle(options, folder)
        require_java()
        jar = client_jar()
        sides = [
            Side(Java(folder, options.port, "1g"), options.port + 300, jar, options.heap, tls=options.tls),
            Side(Understudy(folder, options.port + 400), options.port + 700, jar, "", tls=options.tls),
        ]
        sides = [side for side in sides if options.only in (None, side.name)]
        rounds: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
        for number in range(options.pairs):
            log(f"pair {number + 1} of {options.pairs}")
            for name, figures in play_pair(sides if number % 2 == 0 else sides[::-1], options).items():
                rounds[name].append(figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(compared(medians(rounds.get("java", [])), medians(rounds.get("ours", [])), TARGETS)))
    for name, taken in rounds.items():
        for number, figures in enumerate(taken, 1):
            for key, result in figures.items():
                if isinstance(result, dict) and (result.get("failed") or result.get("errors")):
                    print(f"note: {name}, pair {number}, {key}: {result.get('failed') or result['errors']}")
    if options.json:
        Path(options.json).write_text(json.dumps(rounds, indent=1), encoding="utf-8")
    return 0
