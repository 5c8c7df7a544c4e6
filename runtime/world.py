"""The outside world of one host, in one object that is handed down the nurseries."""

from __future__ import annotations

import random

import attrs

from understudy.runtime.clock import Clock, SystemClock
from understudy.runtime.disk import Disk, RealDisk
from understudy.runtime.network import Network, TcpNetwork


@attrs.frozen
class World:
    """Clock, network, disk and randomness of one host.

    Services take a ``World`` (or only the part they need). A simulated host has its own, so that its clock can jump,
    its links can break and its disk can lose power without touching its neighbours.
    """

    clock: Clock
    network: Network
    disk: Disk
    random: random.Random


def real_world() -> World:
    """Return the machine's own clock, TCP network, file systems and entropy."""
    return World(SystemClock(), TcpNetwork(), RealDisk(), random.Random())
