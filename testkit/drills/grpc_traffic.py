"""Traffic of real gRPC clients across a failover of the brokers behind their proxy, all in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from understudy.format.json_dialect import loads
from understudy.mqclient.admin import groups, topics
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session, open_session
from understudy.remoting.codes import RequestCode
from understudy.runtime.world import real_world
from understudy.testkit.drills.acting_repeats import Repeat
from understudy.testkit.drills.held_handles import CODES, OK, Settled, judge
from understudy.testkit.drills.met_faults import Met
from understudy.testkit.drills.process_traffic import (
    CONCURRENT,
    JAVA_START_SECONDS,
    ORDERLY,
    SEND_PAUSE_SECONDS,
    SENDERS,
    TOPIC,
    ProgramTraffic,
    options,
)
from understudy.testkit.drills.ring_processes import CLUSTER, HOST, DrillError
from understudy.testkit.history import Verdict
from understudy.testkit.java_tools import PROXY_TRAFFIC, grpc_client
from understudy.testkit.port_blocks import PortBlocks

HOLDING = "holding-readers"
DELAY_SECONDS = 5.0
HOLD_SECONDS = 4.0
_PROXY_SECONDS = 60.0
_PLACE_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_SHOWN = 20
_BOOT_LINE = "rocketmq-proxy startup successfully"


class GrpcTraffic(ProgramTraffic):
    """By the official gRPC client for Java as it is shipped, and a proxy of ours; no broker is told of either.

    Beside the senders and groups of the other kinds there is a sender whose messages have a message group, and a simple
    consumer that acknowledges each message only seconds after it came: many of its handles are older than the fault.
    """

    groups: ClassVar[tuple[str, ...]] = (CONCURRENT, ORDERLY, HOLDING)
    delay_seconds: ClassVar[float] = DELAY_SECONDS
    drain_seconds: ClassVar[float] = 240.0
    """What a dead client or master has popped comes again after a minute, the time for which a proxy hides it."""

    def __init__(self, process: trio.Process) -> None:
        super().__init__(process)
        self._settled: list[Settled] = []
        self._held: Counter[str] = Counter()
        self._acknowledged: set[str] = set()
        self._again: dict[str, float] = {}
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._story: defaultdict[str, list[str]] = defaultdict(list)  # of each message that is held

    @classmethod
    @asynccontextmanager
    async def open(cls, name_servers: str) -> AsyncIterator[GrpcTraffic]:
        """Send and consume until the block ends. Raises :class:`DrillError` when a program does not start."""
        async with (
            open_session(real_world(), name_servers) as session,
            _running_proxy(name_servers) as endpoints,
        ):
            await _prepare(session)
            arguments = {
                "endpoints": endpoints,
                "topic": TOPIC,
                "senders": str(SENDERS),
                "pause-ms": str(round(SEND_PAUSE_SECONDS * 1000)),
                "delay-ms": str(round(DELAY_SECONDS * 1000)),
                "hold-ms": str(round(HOLD_SECONDS * 1000)),
                "concurrent-group": CONCURRENT,
                "orderly-group": ORDERLY,
                "holding-group": HOLDING,
            }
            java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(grpc_client())]
            async with cls.started([*java, str(PROXY_TRAFFIC), *options(arguments)]) as traffic:
                await traffic.told_of("consuming", JAVA_START_SECONDS)
                await _begun(session, cls.groups)
                await traffic.say("send")
                await traffic.told_of("ready", JAVA_START_SECONDS)
                yield traffic

    def _record(self, event: str, told: dict[str, Any]) -> bool:
        if event == "sent":
            self.history.sent(told["key"], told["sender"], None, acknowledged=told["ok"])
        elif event == "delivered":
            topic = f"%RETRY%{told['group']}" if told["retry"] else TOPIC
            queue = (topic, str(told["broker"]), int(told["queue"]))
            self.delivered(told["key"], told["group"], queue, int(told["offset"]))
            if told["group"] == HOLDING:
                place = f"{topic}-{told['queue']} at {told['offset']}"
                self._story[told["key"]].append(f"{trio.current_time():.2f} s {place}")
                self._held[told["key"]] += 1
                if told["key"] in self._acknowledged:
                    self._again.setdefault(told["key"], trio.current_time())
        elif event == "acked":
            self._settled.append(Settled(told["key"], trio.current_time(), told["code"]))
            self._held[told["key"]] -= 1
            self._story[told["key"]].append(f"{trio.current_time():.2f} s {CODES.get(told['code'], told['code'])}")
            if told["code"] == OK:
                self._acknowledged.add(told["key"])
            else:
                self._refusals[told["code"].partition(":")[0], _kind_of(told.get("why", ""))] += 1
        else:
            return False
        return True

    def _wanting(self) -> bool:
        return super()._wanting() or any(self._held.values())

    def verdict(self) -> Verdict:
        """Judge what was seen, and what handles from before were answered."""
        found = super().verdict()
        wrong = judge(self._settled, self._again.items(), self.faults)
        return attrs.evolve(found, violations=(*found.violations, *wrong))

    def repeats(
        self, met_by: Callable[[str | None], tuple[Met, ...]], hosts: Callable[[str | None], frozenset[str]]
    ) -> list[Repeat]:
        """Return nothing for a table of offsets to explain: these clients pop.

        What was handed out and not acknowledged when the master died comes again, and only the group that holds its
        messages tells what it acknowledged: that is judged by its handles (:meth:`verdict`).

        Args:
            met_by, hosts: as of other clients.
        """
        return []

    def told(self) -> list[str]:
        answers = Counter(_kind_of(each.code) if each.code not in CODES else each.code for each in self._settled)
        shown = [f"{CODES.get(code, code)} {count}" for code, count in answers.most_common()]
        return [
            f"Acknowledgements {HOLD_SECONDS:g} s after delivery, by the handle of then: {', '.join(shown) or 'none'}; "
            f"delivered again although acknowledged: {len(self._again)}",
            *(f"  {count} x {CODES.get(code, code)}: {why}" for (code, why), count in self._refusals.most_common()),
            *(f"  again: {key}: {', '.join(self._story[key])}" for key in [*self._again][:_SHOWN]),
        ]


def _kind_of(why: str) -> str:
    """Return what reasons have in common that differ in numbers only."""
    return re.sub(r"\d+", "#", why)


class _Proxy:
    """A proxy in a process of its own."""

    def __init__(self, folder: Path, name_servers: str, port: int) -> None:
        self.endpoints = f"{HOST}:{port}"
        self._output = folder / "proxy.log"
        # The one topic gets messages of all types.
        keys = {"grpcServerPort": port, "remotingListenPort": 0, "enableTopicMessageTypeCheck": False}
        path = folder / "rmq-proxy.json"
        path.write_text(json.dumps({**keys, "rocketMQClusterName": CLUSTER}), encoding="utf-8")
        command = [sys.executable, "-m", "understudy.programs.mqproxy", "-n", name_servers, "-pm", "cluster"]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "-pc", str(path)], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def output(self) -> str:
        return self._output.read_text(errors="replace")


@asynccontextmanager
async def _running_proxy(name_servers: str) -> AsyncIterator[str]:
    """Run a proxy until the block ends; yields where it takes gRPC clients. Raises :class:`DrillError`."""
    with PortBlocks() as blocks, tempfile.TemporaryDirectory(prefix="understudy-drill-proxy-") as folder:
        proxy = _Proxy(Path(folder), name_servers, blocks.take())
        try:
            with trio.move_on_after(_PROXY_SECONDS):
                while _BOOT_LINE not in proxy.output() and proxy.process.poll() is None:  # noqa: ASYNC110
                    await trio.sleep(_LOOK_SECONDS)
            if _BOOT_LINE not in proxy.output():
                raise DrillError(f"the proxy did not start: {proxy.output()[-500:]}")
            yield proxy.endpoints
        finally:
            proxy.process.kill()
            proxy.process.wait()


async def _prepare(session: Session) -> None:
    """Have one group consume in order, which a client of a proxy cannot say itself."""
    for address in await topics.master_addresses(session, TOPIC):
        await groups.save_group(session, address, {"groupName": ORDERLY, "consumeMessageOrderly": True})


async def _begun(session: Session, names: tuple[str, ...]) -> None:
    """Wait until every group has its place in every queue: it begins with the newest message, once it pops."""

    async def wanting() -> list[str]:
        found = []
        for address in await topics.master_addresses(session, TOPIC):
            queues = (await topics.topic_settings(session, address, TOPIC)).read_queues
            table = loads((await session.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET)).body)["offsetTable"]
            found += [f"{name} at {address}" for name in names if len(table.get(f"{TOPIC}@{name}", {})) < queues]
        return found

    missing = ["everything"]
    with trio.move_on_after(_PLACE_SECONDS):
        while missing:
            try:
                missing = await wanting()
            except ClientError as error:
                missing = [str(error)]
            await trio.sleep(_LOOK_SECONDS)
    if missing:
        raise DrillError(f"not begun within {_PLACE_SECONDS:g} s: {', '.join(missing)}")
