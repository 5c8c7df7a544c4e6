"""Speed of the controller's quorum: separate processes, loopback TCP, real files, every commit durable.

./understudy bench raft commit       latency of one command at a time, then 200 concurrent clients
./understudy bench raft failover     leader killed with -9: first commit of the next term
./understudy bench raft heartbeats   1,000 groups of two brokers, one heartbeat a second each: share of a core
./understudy bench raft recovery     10,000 groups: start from log and snapshot
./understudy bench raft role         broker master's connection closed: notification of the new master (stub brokers)
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from understudy.controller.commands import ApplyBrokerId, ElectMaster, encode
from understudy.controller.configuration import ControllerConfig
from understudy.controller.raft.core import Timing
from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.facts import Event
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.settings import QuorumSettings
from understudy.controller.server import Controller
from understudy.controller.stub_broker import StubBroker, StubSettings
from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.runtime.ports import free_ports
from understudy.runtime.world import real_world
from understudy.testkit.waiting import until

WINDOW_SECONDS = 20.0


class Counters:
    """The replicated machine of the benchmark."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}

    def apply(self, index: int, now_ms: int, features: int, payload: bytes) -> bytes:
        name = payload[:8].decode()
        self.counters[name] = self.counters.get(name, 0) + 1
        return str(self.counters[name]).encode()

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.counters)

    def restore(self, data: bytes) -> None:
        self.counters = msgspec.msgpack.decode(data, type=dict[str, int])


# -- one member in its own process: commands on standard input, answers on standard output ----------------------------


async def _node(settings: dict[str, Any]) -> None:
    def say(**fields: Any) -> None:
        sys.stdout.write(json.dumps({**fields, "at": time.monotonic()}) + "\n")
        sys.stdout.flush()

    async with trio.open_nursery() as nursery:

        async def probe() -> None:
            try:
                await member.propose(f"{settings['member']}-{os.getpid()}-{member.term()}", 1, b"probe000", 5)
                say(event="commit")
            except Exception as error:
                say(event="no commit", why=repr(error))

        def observe(event: Event) -> None:
            if event.role:
                say(event="role", role=event.role, term=event.term)
                if event.role == "LEADER":
                    nursery.start_soon(probe)

        addresses = {name: ("127.0.0.1", port) for name, port in settings["ports"].items()}
        quorum = QuorumSettings(
            "bench",
            settings["member"],
            addresses,
            settings["folder"],
            "127.0.0.1",
            Timing(*settings["timing"]),
            inline_sync_seconds=0.0 if settings["thread"] else 0.002,
        )
        member = QuorumMember(real_world(), quorum, Counters(), observe)
        await nursery.start(member.run)
        say(event="up")
        stream = trio.lowlevel.FdStream(os.dup(0))
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await _serve(member, json.loads(line), say)


async def _serve(member: QuorumMember, command: dict[str, Any], say: Callable[..., None]) -> None:
    payload = b"latency0" + bytes(92)
    if command["do"] == "latency":
        writes, reads = [], []
        for number in range(command["count"]):
            began = time.perf_counter()
            await member.propose(f"latency-{os.getpid()}", number + 1, payload)
            writes.append(time.perf_counter() - began)
            await trio.sleep(0.002)
            began = time.perf_counter()
            await member.read_barrier()
            reads.append(time.perf_counter() - began)
        say(event="latency", write=_milliseconds(writes), read=_milliseconds(reads))
    elif command["do"] == "burst":
        left = command["count"]

        async def client(number: int) -> None:
            nonlocal left
            sequence = 0
            while left > 0:
                left -= 1
                sequence += 1
                try:
                    await member.propose(f"burst-{os.getpid()}-{command['round']}-{number}", sequence, payload, 10)
                except (NotLeaderError, OutcomeUnknownError):
                    failed.append(number)

        failed: list[int] = []
        syncs, began, busy = member.facts().sync_count, time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for number in range(command["clients"]):
                nursery.start_soon(client, number)
        rate = command["count"] / (time.perf_counter() - began)
        busy_us = (time.process_time() - busy) / command["count"] * 1e6
        say(event="burst", rate=rate, syncs=member.facts().sync_count - syncs, failed=len(failed), busy_us=busy_us)


def _milliseconds(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {
        "p50": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99": round(ordered[int(len(ordered) * 0.99)] * 1000, 2),
        "max": round(ordered[-1] * 1000, 2),
    }


class Cluster:
    """Members as child processes."""

    def __init__(self, size: int, timing: tuple[float, float, float] = (0.4, 0.8, 0.1), thread: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="understudy-raft-"))
        names = [f"n{index}" for index in range(size)]
        self.ports = dict(zip(names, free_ports(size), strict=True))
        self.timing, self.thread = timing, thread
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.said: queue.Queue[dict[str, Any]] = queue.Queue()
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        settings = {
            "member": name,
            "ports": self.ports,
            "folder": str(self.folder / name),
            "timing": self.timing,
            "thread": self.thread,
        }
        process = subprocess.Popen(
            [sys.executable, __file__, "node", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"{name}.err").open("a"),
            text=True,
        )
        self.processes[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.said.put({**json.loads(line), "member": name, "pid": process.pid})

    def wait(self, wanted: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                message = self.said.get(timeout=0.05)
            except queue.Empty:
                continue
            if self.processes[message["member"]].pid == message["pid"] and wanted(message):
                return message
        raise TimeoutError("the members did not do what was waited for")

    def ask(self, name: str, seconds: float = 120, **command: Any) -> dict[str, Any]:
        process = self.processes[name]
        assert process.stdin is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        return self.wait(lambda message: message["member"] == name and message["event"] == command["do"], seconds)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def close(self) -> None:
        for name in self.processes:
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def commit(options: argparse.Namespace) -> None:
    for size, thread in ((3, False), (3, True), (5, False), (1, False)):
        if options.members and options.members != size:
            continue
        cluster = Cluster(size, thread=thread)
        try:
            leader = cluster.wait(lambda message: message["event"] == "commit", 30)["member"]
            time.sleep(0.5)
            latency = cluster.ask(leader, do="latency", count=options.count)
            bursts = [cluster.ask(leader, do="burst", count=8000, clients=200, round=number) for number in range(3)]
            rates = sorted(burst["rate"] for burst in bursts)
            how = "sync in a thread" if thread else "sync where it is cheaper"
            print(
                f"{size} members, {how}: commit p50 {latency['write']['p50']} ms p99 {latency['write']['p99']} ms, "
                f"read barrier p50 {latency['read']['p50']} ms, 200 concurrent: median {rates[1]:.0f}/s "
                f"(best {rates[2]:.0f}), {bursts[0]['syncs']} syncs for 8000, "
                f"{sum(burst['failed'] for burst in bursts)} refused, "
                f"{bursts[-1]['busy_us']:.0f} us of the leader's processor each; {_load()}",
                flush=True,
            )
        finally:
            cluster.close()


def failover(options: argparse.Namespace) -> None:
    cluster = Cluster(3)
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
            f"leader killed {len(commits)} times (0.4-0.8 s timeouts): new leader p50 {_p50(leads)} ms, first commit "
            f"of the next term p50 {_p50(commits)} ms max {max(commits) * 1000:.0f} ms; {_load()}"
        )
    finally:
        cluster.close()


def _p50(samples: list[float]) -> str:
    return f"{statistics.median(samples) * 1000:.0f}"


# -- one controller in this process ----------------------------------------------------------------------------------


def _config(folder: str) -> ControllerConfig:
    api, raft = free_ports(2)
    return ControllerConfig(
        bind_address="127.0.0.1",
        controller_d_leger_group="bench",
        controller_d_leger_peers=f"n0-127.0.0.1:{api}",
        controller_raft_peers=f"n0-127.0.0.1:{raft}",
        controller_d_leger_self_id="n0",
        controller_store_path=folder + "/store",
        config_store_path=folder + "/controller.properties",
    )


async def _fill(controller: Controller, groups: int, brokers: int) -> None:
    limiter = trio.CapacityLimiter(200)

    async def one(number: int) -> None:
        async with limiter:
            name = f"group-{number}"
            for broker_id in range(1, brokers + 1):
                command = ApplyBrokerId("C", name, broker_id, f"127.0.0.1:{broker_id};{number}")
                await controller.member.propose(f"fill-{number}", 2 * broker_id, encode(command), 30)
            elect = ElectMaster(name, 1, False, {}, False)
            await controller.member.propose(f"fill-{number}", 100, encode(elect), 30)

    async with trio.open_nursery() as nursery:
        for number in range(groups):
            nursery.start_soon(one, number)


async def _until_leading(controller: Controller) -> None:
    while not controller.member.leads():
        await controller.member.wait_change()


async def _heartbeats(folder: str, groups: int) -> None:
    controller = Controller(real_world(), _config(folder))
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        await _until_leading(controller)
        await _fill(controller, groups, 2)
        address = controller.address
        sender = await trio.lowlevel.open_process(  # brokers cost time too: they run elsewhere
            [sys.executable, __file__, "senders", address, str(groups)]
        )
        await trio.sleep(5)
        before, began = time.process_time(), time.monotonic()
        count = _heartbeat_count(controller)
        await trio.sleep(WINDOW_SECONDS)
        share = (time.process_time() - before) / (time.monotonic() - began)
        heard = _heartbeat_count(controller) - count
        print(
            f"{groups} groups, {2 * groups} brokers at one heartbeat a second: {heard / WINDOW_SECONDS:.0f}/s, "
            f"{controller.liveness.count()} alive, {share * 100:.1f} % of a core; {_load()}"
        )
        sender.kill()
        nursery.cancel_scope.cancel()


def _heartbeat_count(controller: Controller) -> int:
    assert controller.requests is not None
    return controller.requests.heartbeat_count


async def _senders(address: str, groups: int) -> None:
    async with open_client(real_world()) as client, trio.open_nursery() as nursery:

        async def broker(number: int, broker_id: int) -> None:
            await trio.sleep(random.random())
            while True:
                fields = {
                    "clusterName": "C",
                    "brokerAddr": f"127.0.0.1:{broker_id}",
                    "brokerName": f"group-{number}",
                    "brokerId": str(broker_id),
                    "epoch": "1",
                    "maxOffset": "1000",
                    "confirmOffset": "1000",
                    "heartbeatTimeoutMills": "10000",
                    "electionPriority": "2147483647",
                }
                await client.invoke_oneway(address, request(904, fields, oneway=True), 3000)
                await trio.sleep(1)

        for number in range(groups):
            for broker_id in (1, 2):
                nursery.start_soon(broker, number, broker_id)


async def _recovery(folder: str, groups: int) -> None:
    config = _config(folder)
    controller = Controller(real_world(), config)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        await _until_leading(controller)
        began = time.monotonic()
        await _fill(controller, groups, 2)
        filled = time.monotonic() - began
        state = controller.metadata.snapshot()
        nursery.cancel_scope.cancel()
    began = time.monotonic()
    again = Controller(real_world(), config)
    async with trio.open_nursery() as nursery:
        await nursery.start(again.run)
        loaded = time.monotonic() - began
        await _until_leading(again)
        leading = time.monotonic() - began
        assert again.metadata.snapshot() == state
        size = _folder_bytes(folder + "/store")
        print(
            f"{groups} groups ({len(state)} bytes of state, {size} bytes of files, filled in {filled:.1f} s): loaded "
            f"in {loaded:.2f} s, active again after {leading:.2f} s; {_load()}"
        )
        nursery.cancel_scope.cancel()


def _folder_bytes(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).iterdir())


async def _role(folder: str, rounds: int) -> None:
    controller = Controller(real_world(), _config(folder))
    ports, told = free_ports(2), []
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        brokers: dict[int, tuple[trio.CancelScope, StubBroker]] = {}

        def start(number: int) -> None:
            former = brokers.get(number)
            settings = StubSettings(
                "C", "a", "127.0.0.1", ports[number], (controller.address,), f"127.0.0.1:{ports[number]};{number}"
            )
            broker = StubBroker(real_world(), settings, former[1].broker_id if former else None)
            scope = trio.CancelScope()
            brokers[number] = (scope, broker)

            async def live() -> None:
                with scope:
                    await broker.run()

            nursery.start_soon(live)

        def in_sync() -> bool:
            group = controller.metadata.groups.get("a")
            return group is not None and group.master_id is not None and len(group.sync_state_set) == 2

        start(0)
        start(1)
        for _ in range(rounds):
            await until(in_sync, 60, 0.05)
            await trio.sleep(0.5)
            master = next(number for number, (_, broker) in brokers.items() if broker.is_master)
            other = brokers[1 - master][1]
            began = time.monotonic()
            brokers[master][0].cancel()
            while not other.is_master:
                await other.changed.wait()
            told.append(time.monotonic() - began)
            start(master)
        print(
            f"master lost {rounds} times: new master told p50 {_p50(told)} ms max {max(told) * 1000:.0f} ms; {_load()}"
        )
        nursery.cancel_scope.cancel()


def _in_folder(run: Callable[[str], None]) -> None:
    folder = tempfile.mkdtemp(prefix="understudy-raft-")
    try:
        run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> None:
    """Measure one thing, or all; this file is also the program of the members and of the senders it measures."""
    if arguments[:1] == ["node"]:
        trio.run(_node, json.loads(arguments[1]))
        return
    if arguments[:1] == ["senders"]:
        trio.run(_senders, arguments[1], int(arguments[2]))
        return
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
        "heartbeats": (1000, lambda: _in_folder(lambda folder: trio.run(_heartbeats, folder, options.count))),
        "recovery": (10_000, lambda: _in_folder(lambda folder: trio.run(_recovery, folder, options.count))),
        "role": (20, lambda: _in_folder(lambda folder: trio.run(_role, folder, options.count))),
    }
    for name, (default, run) in parts.items():
        if options.what in (name, "all"):
            options.count = given or default
            run()


if __name__ == "__main__":
    main(sys.argv[1:])
