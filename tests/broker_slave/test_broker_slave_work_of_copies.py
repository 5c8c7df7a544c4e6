"""How much work a slave makes its master: what its process executes for the same traffic, with and without a slave.

Counted in opcodes of the interpreter, in virtual time: work is what is executed, however busy the machine is.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from slave_rig import GROUP, SLAVE, bodies, run

import understudy
from understudy.mqclient.message import Message, MessageQueue
from understudy.mqclient.producer import Producer, open_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.waiting import until

MASTERS = {
    "alone": {"brokerRole": "ASYNC_MASTER"},
    "copied later": {"brokerRole": "ASYNC_MASTER"},
    "copied first": {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"},
}
SENDERS, COUNT = 16, 160
BODY = bytes(512)
ROOMS = Path(understudy.__file__).parent
TESTKIT = str(ROOMS / "testkit")
HOST: ContextVar[str] = ContextVar("HOST", default="")
"""The host whose process a task belongs to: tasks inherit it from the one that started them."""


class Work(trio.abc.Instrument):
    """Counts the opcodes that our code executes in tasks of one host, but for what stands in for machines."""

    def __init__(self, host: str) -> None:
        self.opcodes = 0
        self._host = host
        self._ours = {True: self._enter, False: None}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.settrace(self._ours[task.context.get(HOST) == self._host])

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not is_ours(name):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self.opcodes += 1
        return self._step


def is_ours(name: str) -> bool:
    return str(ROOMS) in name and not name.startswith(TESTKIT)


@contextmanager
def counted(host: str) -> Iterator[Work]:
    work = Work(host)
    trio.lowlevel.add_instrument(work)
    try:
        yield work
    finally:
        trio.lowlevel.remove_instrument(work)


async def send_all(producer: Producer) -> None:
    """Send :data:`COUNT` messages, :data:`SENDERS` at a time."""
    left = iter(range(COUNT))

    async def sender() -> None:
        for number in left:
            result = await producer.send(Message("work", BODY), queue=MessageQueue("work", "broker-a", number % 2))
            assert result.status.value == "SEND_OK"

    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(sender)


async def opcodes_of(source: random.Random, kind: str) -> float:
    """Return how many opcodes the master's process executes for one message, copies and all."""
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        HOST.set("c1")
        await cluster.start_container("c1", [{**GROUP, **MASTERS[kind]}])
        HOST.set("c2")
        if kind != "alone":
            await cluster.start_container("c2", [SLAVE])
        HOST.set("client")
        master, slave = cluster.brokers("c1")["broker-a"], cluster.brokers("c2").get("broker-a")

        def copied() -> bool:
            end = master.store.max_physical_offset
            return slave is None or master.replication.copied(2) == end == slave.store.max_physical_offset

        async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
            # connections and files are opened, and the slave waits for more
            await producer.send(Message("work", BODY))
            await until(copied, 60)
            before = len(bodies(master, "work"))
            with counted("c1") as work:
                await send_all(producer)
                await until(copied, 60)
        assert len(bodies(master, "work")) == before + COUNT
        return work.opcodes / COUNT


@pytest.mark.covers("R105", "R108")
def test_a_slave_costs_its_master_little_work() -> None:
    # given a master alone, and two with a slave; when each gets the same messages
    alone, later, first = (run(lambda source, kind=kind: opcodes_of(source, kind)) for kind in MASTERS)
    # then what the copies cost is a part of what the messages cost (found: 1.45 and 1.54 times)
    assert later <= 1.55 * alone
    assert first <= 1.65 * alone
