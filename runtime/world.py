"""The outside world of one host, in one object that is handed down the nurseries."""

from __future__ import annotations

import os
import random

import attrs

from understudy.runtime.clock import Clock, SystemClock
from understudy.runtime.comeback import IdlePoll
from understudy.runtime.damping import Say
from understudy.runtime.disk import Disk, RealDisk
from understudy.runtime.load import Load
from understudy.runtime.memory_limit import memory_limit_bytes
from understudy.runtime.metrics_ports import MetricsPorts
from understudy.runtime.network import Network
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.threads import InPlace, Threads, WorkerThreads


@attrs.frozen
class World:
    """Clock, network, disk and randomness of one host, and of the process that uses them its number, what it may hold,
    and the ports on which its servers show their metrics together.

    Services take a ``World`` (or only the part they need). A simulated host has its own, so that its clock can jump,
    its links can break and its disk can lose power without touching its neighbours.
    """

    clock: Clock
    network: Network
    disk: Disk
    random: random.Random
    process_id: int = 1
    load: Load = attrs.field(factory=Load)
    threads: Threads = attrs.field(factory=InPlace, kw_only=True)
    metrics_ports: MetricsPorts = attrs.field(factory=MetricsPorts, kw_only=True)

    def tell(self, say: Say, event: str, **fields: object) -> None:
        """Log a line that peers can cause; see :class:`~understudy.runtime.damping.Damping`."""
        self.load.lines.tell(say, event, self.clock.monotonic(), **fields)


def real_world(idle_poll_s: float = 0.0) -> World:
    """Return the machine's own clock, TCP network, file systems and entropy, this process's id and memory.

    Args:
        idle_poll_s: see :class:`~understudy.runtime.comeback.IdlePoll`; more than 0 is for programs that serve others.
    """
    disk = RealDisk()
    network = TcpNetwork(idle_poll=IdlePoll(idle_poll_s, disk.busy))
    load = Load(memory_limit_bytes())
    return World(SystemClock(), network, disk, random.Random(), os.getpid(), load, threads=WorkerThreads())
