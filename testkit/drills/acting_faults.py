"""Accidents of one host of a ring: each has a beginning and an end."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import suppress

import attrs
import trio

from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.testkit.sim.cluster import FIRST_BROKER_PORT, NAME_SERVER_PORT, SimCluster
from understudy.testkit.sim.connection import LinkQuality

FAULTS = (
    "kill",
    "power",
    "cut",
    "cut-out",
    "cut-in",
    "cut-off-servers",
    "slow",
    "pause",
    "suspend",
    "clock-forward",
    "clock-back",
)
"""Crash of the process; loss of power; a network cut in both directions, only from the host, only to it, or only
between it and the name servers; a slow link; a stopped process; a suspended machine; a clock set forward or back and
right again later."""
LATER_FAULTS = ("cut-copies", "reset")
"""Drawn for :func:`draw_later_plan` only, so that older seeds stay what they are: nobody reaches the port where the
master of the host gives its log away, all others are as ever; all connections to name servers end at one moment."""
SLOW_DISKS = ("slow-disk", "stalled-disk")
ELSEWHERE_FAULTS = ("sign-off", *SLOW_DISKS)
"""Drawn for :func:`draw_elsewhere_plan` only: something on the host signs its brokers off at all name servers, though
they live; no broker notices anything but that it is listed no more. Each call to the disk of the host takes long, or so
long that a flush is not done in the time that a put may take."""
ENDS_PROCESS = ("kill", "power")
SILENT = ("cut", "cut-out", "cut-off-servers", "pause", "suspend")
"""Faults that no closed connection tells of: only the timeout of the group does."""
DEAF = ("cut", "cut-in", "cut-out", "pause", "suspend", *ENDS_PROCESS)
"""Faults in which a host learns nothing: it hears nothing, or cannot ask."""
LONG_FAULTS = (*SILENT, *ENDS_PROCESS)
"""Faults of the master that :func:`draw_long_plan` draws."""
STANDS_STILL = ("pause", "suspend")
"""Faults in which a host does nothing; what was sent to it before is read when it goes on."""
STEPS_CLOCK = ("clock-forward", "clock-back")
"""Faults after which the wall clock of a host is another one."""
WORKS = {
    "half": ("/broker/transactions/", "/processors/end_transaction.py"),
    "timer": ("/broker/timer/",),
    "pop": ("/broker/pop/", "/broker/pops.py", "/processors/pop.py", "/processors/ack.py"),
    "due": ("/broker/deferred_service.py", "/broker/schedule.py", "/broker/redelivery.py"),
    "escape": ("/container/escape/",),
    "give-back": ("/container/preonline/",),
    "copies": ("/broker/slave_sync.py", "/broker/replicated/"),
}
"""In the midst of what a process may end, and which modules do it."""
WORK_SECONDS = 6.0
"""How long a process is waited for that is to end in the midst of a work; then it ends as it is."""
_MOST_AWAITS = 150
_AROUND, _ACTING = (-3.0, 15.0), (10.0, 19.0)
_LATE = 40.0
"""When further faults begin, in seconds after the first: any time around it, or while a slave acts; and the latest."""
COPY_PORT = FIRST_BROKER_PORT + 1
"""Where a container's first broker, a master, gives its log away."""
_SLOW_DISK = 1_000
"""A flush is some calls one after the other, and a put waits five seconds for it."""
SLOW = LinkQuality(delay_seconds=(0.2, 0.4))


@attrs.frozen
class Fault:
    """One accident of a plan.

    Attributes:
        kind: one of :data:`FAULTS`, :data:`LATER_FAULTS` or :data:`ELSEWHERE_FAULTS`.
        host: whom it meets.
        begins_seconds, lasts_seconds: when it begins after the beginning of the plan, and for how long.
        jump_ms: by how much a clock jumps.
        work: of what ends a process: it waits until the process is in the midst of this one of :data:`WORKS`.
        awaits: at which await of that work, counted from then on.
        slower: by how many times such a disk takes longer than one that is well (a millisecond for each call).
    """

    kind: str
    host: str
    begins_seconds: float = 0.0
    lasts_seconds: float = 10.0
    jump_ms: int = 20_000
    work: str = ""
    awaits: int = 1
    slower: int = 700

    def __str__(self) -> str:
        return f"{self.kind}@{self.host}" + (f" in {self.work}, await {self.awaits}" if self.work else "")

    @property
    def early_ms(self) -> int:
        """By how much it may let a delayed message arrive early."""
        return self.jump_ms if self.kind in STEPS_CLOCK else 0

    @property
    def ahead_seconds(self) -> float:
        """By how much the clock of its host is ahead as long as it lasts; below zero: it is behind."""
        return (-self.early_ms if self.kind == "clock-back" else self.early_ms) / 1000


def draw_plan(source: random.Random, home: str, heir: str, others: Sequence[str]) -> list[Fault]:
    """Draw one fault of *home* and, mostly, one or two of *others* that may overlap with it.

    Half of the further ones meet the host of the slave that acts first, and half of those while it acts: that is where
    one failover meets another. Those are mostly silent and long, so that the slave acts on, alone, if nothing stops it.

    Args:
        source: what is drawn from.
        home: host of the master that is watched.
        heir: host of its slave with the smallest id.
        others: all hosts but *home*.
    """

    def draw(host: str, begins_seconds: float, lasts: Sequence[float], kinds: Sequence[str] = FAULTS) -> Fault:
        jump_ms = source.choice((500, 3_000, 20_000, 60_000))
        return Fault(source.choice(kinds), host, begins_seconds, source.choice(lasts), jump_ms)

    plan = [draw(home, 0.0, (2.0, 5.0, 12.0, 20.0))]
    for _ in range(source.choice((0, 1, 1, 2))):
        host = heir if source.random() < 0.5 else source.choice(others)
        if host == heir and source.random() < 0.5:
            plan.append(draw(host, source.uniform(*_ACTING), (5.0, 12.0, 20.0, 30.0), (*FAULTS, *SILENT)))
        else:
            plan.append(draw(host, source.uniform(*_AROUND), (2.0, 5.0, 12.0, 20.0, 30.0)))
    return plan


def draw_later_plan(
    later: random.Random, source: random.Random, home: str, heir: str, others: Sequence[str]
) -> list[Fault]:
    """Draw a plan as :func:`draw_plan` does, and one more fault, from *later*.

    It is the home's copies that are cut off until after the return, so that pre-online takes long; or any fault of
    another host that begins when the first one ends, in the middle of the return; or, after it, connections that end,
    so that name servers drop a healthy master.

    Args:
        later: draws the added fault.
        source: draws the others.
        home: host of the master that is watched.
        heir: host of its slave with the smallest id.
        others: all hosts but *home*.
    """
    plan = draw_plan(source, home, heir, others)
    ends = plan[0].lasts_seconds
    if later.random() < 0.4:
        begins = later.uniform(-1.0, ends)
        plan.append(Fault("cut-copies", home, begins, ends - begins + later.choice((5.0, 12.0, 25.0))))
    elif later.random() < 0.5:
        begins, lasts = ends + later.uniform(-1.0, 4.0), (2.0, 12.0)
        plan.append(Fault(later.choice(FAULTS), later.choice(others), begins, later.choice(lasts)))
    else:
        plan.append(Fault("reset", home, ends + later.uniform(3.0, 6.0), 1.0))
    return plan


def draw_elsewhere_plan(
    masters: Sequence[str],
    servers: Sequence[str],
    slow_disks: bool,
    source: random.Random,
    home: str,
    heir: str,
    others: Sequence[str],
) -> list[Fault]:
    """Draw a plan for a ring whose slaves live apart from masters, so that all that escapes goes to another machine.

    The home is away for long. Shortly before it comes back another master is lost, to which its slave gives what is
    due: puts that are under way then end with the slave's time. At times a name server is slow just then, or another
    master is signed off meanwhile. Or no other master is lost, but the disks of one or all of them are slow.

    Args:
        masters: hosts of all masters.
        servers: hosts of all name servers.
        slow_disks: that is what happens to them.
        source: what is drawn from.
        home: host of the master that is watched.
        heir: host of its slave with the smallest id.
        others: all hosts but *home*.
    """
    plan = [Fault(source.choice(("kill", "power", "cut", "pause", "suspend")), home, 0.0, source.choice((12.0, 20.0)))]
    back = plan[0].lasts_seconds
    targets = [host for host in masters if host != home]
    if slow_disks:
        slow = targets if source.random() < 0.5 else [source.choice(targets)]
        begins, lasts = back - source.uniform(0.5, 9.0), source.choice((5.0, 12.0, 20.0))
        slower = source.choice((300, 700, 1_500, 4_000))
        kind = "stalled-disk" if slower > _SLOW_DISK else "slow-disk"
        return plan + [Fault(kind, host, begins, lasts, slower=slower) for host in slow]
    target = source.choice(targets)
    kind = source.choice(("power", "power", "cut", "suspend", "kill"))
    plan.append(Fault(kind, target, back - source.uniform(0.5, 6.0), source.choice((5.0, 12.0, 20.0))))
    if source.random() < 0.3:
        plan.append(Fault("slow", source.choice(servers), back - source.uniform(1.0, 5.0), 12.0))
    elif source.random() < 0.5:
        plan.append(Fault("sign-off", target, source.uniform(-2.0, 3.0), 1.0))
    return plan


def draw_long_plan(source: random.Random, home: str, heir: str, others: Sequence[str]) -> list[Fault]:
    """Draw a plan in which the home is away for so long that what waits long falls due, mostly while its heir is lost.

    Args:
        source: what is drawn from.
        home: host of the master that is watched.
        heir: host of its slave with the smallest id.
        others: all hosts but *home*.
    """

    def draw(host: str, begins: float, lasts: Sequence[float], kinds: Sequence[str]) -> Fault:
        return Fault(source.choice(kinds), host, begins, source.choice(lasts), source.choice((500, 3_000, 20_000)))

    plan = [draw(home, 0.0, (22.0, 30.0, 40.0), LONG_FAULTS)]
    if source.random() < 0.7:
        plan.append(draw(heir, source.uniform(*_ACTING), (5.0, 12.0, 20.0), (*SILENT, *ENDS_PROCESS, *FAULTS)))
    if source.random() < 0.4:
        plan.append(draw(source.choice(others), source.uniform(_AROUND[0], _LATE), (5.0, 12.0, 20.0), FAULTS))
    return plan


def draw_work_plan(source: random.Random, home: str, heir: str, others: Sequence[str]) -> list[Fault]:
    """Draw a plan that looks for the awaits of what is done later: half messages, timers, pops, escape, give-back.

    Mostly the home dies in the midst of one of its works. Then it dies once more in the give-back, and it or its heir a
    third time in the same one; or the heir dies in the midst of a work while it acts. At times a clock jumps as well,
    or another host is cut off.

    Args:
        source: what is drawn from.
        home: host of the master that is watched.
        heir: host of its slave with the smallest id.
        others: all hosts but *home*.
    """

    def ends(host: str, begins: float, lasts: Sequence[float], works: Sequence[str], most: int = _MOST_AWAITS) -> Fault:
        kind, work = source.choice(ENDS_PROCESS), source.choice(works)
        return Fault(kind, host, begins, source.choice(lasts), work=work, awaits=source.randint(1, most))

    if source.random() < 0.6:
        plan = [ends(home, 0.0, (5.0, 12.0, 20.0), tuple(WORKS))]
    else:
        plan = [Fault(source.choice((*SILENT, *ENDS_PROCESS)), home, 0.0, source.choice((5.0, 12.0, 20.0)))]
    back, drawn = plan[0].lasts_seconds, source.random()
    if drawn < 0.4:
        plan.append(ends(home, back + source.uniform(0.0, 0.4), (1.0, 3.0, 6.0), ("give-back",), 40))
        host, begins = source.choice((home, heir)), plan[1].begins_seconds + plan[1].lasts_seconds
        plan.append(ends(host, begins + source.uniform(0.0, 3.0), (2.0, 8.0), ("give-back",), 40))
    elif drawn < 0.8:
        plan.append(ends(heir, source.uniform(1.0, back), (5.0, 12.0), ("half", "timer", "pop", "due", "escape")))
    drawn = source.random()
    if drawn < 0.3:
        kind, jump_ms = source.choice(STEPS_CLOCK), source.choice((500, 3_000, 20_000))
        host = source.choice((home, *others))
        plan.append(Fault(kind, host, source.uniform(-3.0, back), source.choice((5.0, 12.0)), jump_ms))
    elif drawn < 0.5:
        kind = source.choice(("cut", "cut-in", "cut-out", "slow"))
        plan.append(Fault(kind, source.choice(others), source.uniform(*_AROUND), source.choice((5.0, 12.0))))
    return plan


class Accident:
    """One fault on a cluster: call :meth:`near` and :meth:`begin`, later :meth:`end`.

    Args:
        cluster: the ring.
        fault: what happens to whom.
        hosts: all hosts of the ring, the name servers among them.
        name_servers: which of them are name servers.

    Attributes:
        fault: what happens to whom.
        began_at, ended_at: virtual time in seconds; infinity as long as it has not happened.
    """

    def __init__(
        self, cluster: SimCluster, fault: Fault, hosts: Sequence[str], name_servers: Sequence[str] = ("n1",)
    ) -> None:
        self._cluster = cluster
        self.fault = fault
        self.began_at = self.ended_at = math.inf
        self._others = [name for name in hosts if name != fault.host]
        self._servers = [name for name in name_servers if name != fault.host]
        self._cuts: list[tuple[str, str]] = []

    async def near(self) -> None:
        """Wait for the work in the midst of which it is to happen, for a bounded time."""
        if self.fault.work:
            power, modules = self.fault.kind == "power", WORKS[self.fault.work]
            await self._cluster.reach_await(self.fault.host, modules, self.fault.awaits, WORK_SECONDS, power=power)

    async def begin(self) -> None:
        """Let it happen."""
        self.began_at = trio.current_time()
        cluster, kind, host = self._cluster, self.fault.kind, self.fault.host
        clock = cluster.host(host).clock
        if kind in ENDS_PROCESS:
            await cluster.kill(host, power=kind == "power")
        elif kind == "cut":
            self._cut([(one, two) for name in self._others for one, two in ((host, name), (name, host))])
        elif kind == "cut-out":
            self._cut([(host, name) for name in self._others])
        elif kind == "cut-in":
            self._cut([(name, host) for name in self._others])
        elif kind == "cut-off-servers":
            self._cut([(one, two) for name in self._servers for one, two in ((host, name), (name, host))])
        elif kind == "cut-copies":
            cluster.network.block(cluster.address(host), COPY_PORT)
        elif kind == "reset":
            for name in self._servers:
                cluster.network.reset(cluster.address(host), cluster.address(name))
        elif kind == "sign-off":
            await self._sign_off()
        elif kind == "slow":
            self._set_links(SLOW)
        elif kind in SLOW_DISKS:
            cluster.host(host).disk.sync_seconds *= self.fault.slower
        elif kind in ("pause", "suspend"):
            cluster.freeze(host)
        elif kind == "clock-forward":
            clock.jump(self.fault.jump_ms)
        elif kind == "clock-back":
            clock.jump(-self.fault.jump_ms)

    async def end(self) -> None:
        """Let the host be as before; a process that ended starts again."""
        cluster, kind, host = self._cluster, self.fault.kind, self.fault.host
        clock = cluster.host(host).clock
        for source, target in self._cuts:
            cluster.network.mend(source, target)
        self._cuts.clear()
        if kind in ("pause", "suspend"):
            cluster.unfreeze(host, suspended=kind == "suspend")
        elif kind in ENDS_PROCESS and cluster.host(host).process is None:
            await cluster.restart(host)
        elif kind == "cut-copies":
            cluster.network.unblock(cluster.address(host), COPY_PORT)
        elif kind == "slow":
            self._set_links(LinkQuality())
        elif kind in SLOW_DISKS:
            cluster.host(host).disk.sync_seconds /= self.fault.slower
        elif kind == "clock-forward":
            clock.jump(-self.fault.jump_ms)
        elif kind == "clock-back":
            clock.jump(self.fault.jump_ms)
        self.ended_at = trio.current_time()

    async def _sign_off(self) -> None:
        cluster = self._cluster
        async with open_client(cluster.client_world(self.fault.host)) as client:
            for broker in cluster.brokers(self.fault.host).values():
                own = broker.identity
                ext = {
                    "clusterName": own.cluster,
                    "brokerName": own.name,
                    "brokerAddr": own.address,
                    "brokerId": str(own.broker_id),
                }
                for name in self._servers:
                    command = request(RequestCode.UNREGISTER_BROKER, ext)
                    with suppress(RemotingError):
                        await client.invoke(f"{cluster.address(name)}:{NAME_SERVER_PORT}", command, 1_000)

    def _cut(self, pairs: Sequence[tuple[str, str]]) -> None:
        for source, target in pairs:
            pair = (self._cluster.address(source), self._cluster.address(target))
            self._cluster.network.cut(*pair)
            self._cuts.append(pair)

    def _set_links(self, quality: LinkQuality) -> None:
        for name in self._others:
            self._cluster.network.set_link(self._cluster.address(self.fault.host), self._cluster.address(name), quality)
