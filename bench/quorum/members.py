"""One member of a quorum in its own process, and a quorum of such processes.

A member takes commands as JSON lines on its standard input and says what happens on its standard output.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from understudy.controller.raft.core import Timing
from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError
from understudy.controller.raft.facts import Event
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.settings import QuorumSettings
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.quorum.simulation import CounterMachine

ROOT = Path(__file__).resolve().parents[2]


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
        )
        member = QuorumMember(real_world(), quorum, CounterMachine(), observe)
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


class MemberProcesses:
    """Members as child processes."""

    def __init__(self, size: int, timing: tuple[float, float, float] = (0.4, 0.8, 0.1)) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="understudy-raft-"))
        names = [f"n{index}" for index in range(size)]
        self.blocks = PortBlocks(10)
        self.ports = dict(zip(names, self.blocks.middles(size), strict=True))
        self.timing = timing
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
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.quorum.members", json.dumps(settings)],
            cwd=ROOT,
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
        self.blocks.release()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    trio.run(_node, json.loads(sys.argv[1]))
