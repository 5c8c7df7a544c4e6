"""An in-memory network with delay, loss, partitions and dying hosts, drawn from one generator.

It behaves as TCP does: bytes of one connection arrive complete and in order or not at all. A lost packet is therefore a
*stall* (the retransmission), a partition holds bytes back until it heals or the application gives up, a killed process
resets its connections, a host without power says nothing at all.
"""

from __future__ import annotations

import random
from collections import deque

import trio

from understudy.runtime.network import ListenError
from understudy.runtime.signal import Signal
from understudy.testkit.sim.connection import LinkQuality, Pipe, SimStream

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_WILDCARD = frozenset({"", "0.0.0.0", "::"})


class SimListener:
    """A bound address of a simulated host."""

    BACKLOG = 1024

    def __init__(self, host: SimHost, port: int) -> None:
        self.host = host
        self.address = (host.name, port)
        self.waiting: deque[SimStream] = deque()
        self.closed = False
        self.refused = 0  # a simulated host has all the descriptors it needs
        self.changed = Signal()

    def offer(self, stream: SimStream) -> bool:
        if self.closed or len(self.waiting) >= self.BACKLOG:
            return False
        self.waiting.append(stream)
        self.wake()
        return True

    def wake(self) -> None:
        self.changed.set()

    async def accept(self) -> SimStream:
        await trio.lowlevel.checkpoint()
        while not self.waiting:
            if self.closed:
                raise trio.ClosedResourceError("listener is closed")
            await self.changed.wait()
        return self.waiting.popleft()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        if self.closed:
            return
        self.abandon()
        self.wake()

    def abandon(self) -> None:
        """Give the port back as the death of the process does: who waits in :meth:`accept` dies with it."""
        self.closed = True
        self.host.listeners.pop(self.address[1], None)
        for stream in self.waiting:
            stream.reset(silently=False)
        self.waiting.clear()


class SimHost:
    """The network as one host sees it; satisfies ``understudy.runtime.network.Network``."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self.name = name
        self.listeners: dict[int, SimListener] = {}
        self.streams: dict[int, SimStream] = {}
        self.powered = True
        self.frozen = False
        self._next_port = 40_000

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def listen(self, host: str, port: int) -> SimListener:
        await trio.lowlevel.checkpoint()
        if host not in _WILDCARD and host not in _LOOPBACK and self.network.resolve(host) != self.name:
            raise ListenError(f"cannot listen on {host}:{port}: this machine has no such address")
        if port == 0:
            port = self._free_port()
        if port in self.listeners:
            raise ListenError(
                f"cannot listen on {host}:{port}: the port is in use; stop the process that holds it or choose "
                "another port"
            )
        listener = self.listeners[port] = SimListener(self, port)
        return listener

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        await trio.lowlevel.checkpoint()
        found = self.network.stands_for(host)
        if not all(name in self.network.hosts for name in found):
            raise OSError(f"{host} is unknown")
        return list(found)

    async def connect(self, host: str, port: int, timeout_seconds: float) -> SimStream:
        name = self.name if host in _LOOPBACK else self.network.resolve(host)
        with trio.move_on_after(timeout_seconds):
            await self.network.round_trip(self.name, name, (name, port))
            target = self.network.hosts.get(name)
            listener = target.listeners.get(port) if target is not None else None
            if listener is None:
                raise ConnectionRefusedError(f"no listener at {host}:{port}")
            near, far = self.network.make_streams((self.name, self._free_port()), (name, port))
            if not listener.offer(far):
                raise ConnectionRefusedError(f"backlog of {host}:{port} is full")
            return near
        raise TimeoutError(f"no answer within {timeout_seconds:g} s")


class SimNetwork:
    """All links and hosts of one simulation.

    Args:
        source: where every delay and loss is drawn from.
        quality: of links without their own setting.
    """

    def __init__(self, source: random.Random, quality: LinkQuality | None = None) -> None:
        self.random = source
        self.default_quality = quality if quality is not None else LinkQuality()
        self.hosts: dict[str, SimHost] = {}
        self.sent_bytes = 0
        self.stalls = 0
        self.connections = 0
        self._names: dict[str, tuple[str, ...]] = {}
        self._qualities: dict[tuple[str, str], LinkQuality] = {}
        self._cuts: dict[tuple[str, str], int] = {}
        self._blocked: set[tuple[str, int]] = set()
        self._healed = Signal()

    def host(self, name: str) -> SimHost:
        """Return the network seen from host *name*, making the host on first use."""
        if name not in self.hosts:
            self.hosts[name] = SimHost(self, name)
        return self.hosts[name]

    def alias(self, name: str, *hosts: str) -> None:
        """Let *name* stand for *hosts*; who connects to it gets the first."""
        self._names[name] = hosts

    def resolve(self, name: str) -> str:
        return self.stands_for(name)[0]

    def stands_for(self, name: str) -> tuple[str, ...]:
        return self._names.get(name, (name,))

    def set_link(self, source: str, target: str, quality: LinkQuality) -> None:
        """Give one direction its own quality."""
        self._qualities[source, target] = quality

    def quality(self, source: str, target: str) -> LinkQuality:
        return self._qualities.get((source, target), self.default_quality)

    def cut(self, source: str, target: str) -> None:
        """Hold back everything from *source* to *target*, one direction only. Cuts add up; each needs its mend."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1
        self._wake_all()

    def mend(self, source: str, target: str) -> None:
        """Undo one :meth:`cut`."""
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._cuts.pop((source, target), None)
        self._wake_all()

    def block(self, host: str, port: int) -> None:
        """Hold back everything from and to *port* of *host*, as a firewall does that knows nothing of it."""
        self._blocked.add((host, port))
        self._wake_all()

    def unblock(self, host: str, port: int) -> None:
        """Undo :meth:`block`."""
        self._blocked.discard((host, port))
        self._wake_all()

    def reset(self, one: str, other: str) -> None:
        """End all connections between two hosts, as a firewall does that has forgotten them: both sides are told."""
        for near, far in ((one, other), (other, one)):
            for stream in list(self.host(near).streams.values()):
                if stream.peer[0] == far:
                    stream.cut_short()

    def partition(self, *groups: list[str]) -> None:
        """Let hosts of different *groups* not hear each other; hosts in no group are not touched."""
        for index, group in enumerate(groups):
            for other in groups[index + 1 :]:
                for one in group:
                    for two in other:
                        self.cut(one, two)
                        self.cut(two, one)

    def heal(self) -> None:
        """End every cut and partition."""
        self._cuts.clear()
        self._blocked.clear()
        self._wake_all()

    def is_cut(self, source: str, target: str, service: tuple[str, int] | None = None) -> bool:
        """Return whether nothing gets from *source* to *target* now, of a connection to *service* (host and port)."""
        host = self.hosts.get(target)
        blocked = (source, target) in self._cuts or service in self._blocked
        return blocked or host is None or not host.powered or host.frozen

    def freeze(self, name: str) -> None:
        """Let host *name* read nothing that arrives, not even from itself."""
        self.host(name).frozen = True
        self._wake_all()

    def unfreeze(self, name: str) -> None:
        """Let host *name* read again; what waited arrives."""
        self.host(name).frozen = False
        self._wake_all()

    def kill(self, name: str) -> None:
        """End the process of host *name*: its listeners close, its peers see resets."""
        self._end(name, silently=False)

    def power_off(self, name: str) -> None:
        """Take the host away without a word: peers see nothing until they give up."""
        self._end(name, silently=True)
        self.host(name).powered = False
        self._wake_all()

    def power_on(self, name: str) -> None:
        """Bring a host back, with no listeners and no connections."""
        self.host(name).powered = True
        self._wake_all()

    def _end(self, name: str, *, silently: bool) -> None:
        host = self.host(name)
        for stream in list(host.streams.values()):
            stream.reset(silently=silently)
        for listener in list(host.listeners.values()):
            listener.abandon()

    async def round_trip(self, source: str, target: str, service: tuple[str, int] | None = None) -> None:
        """Wait as the handshake of a connection to *service* does; for ever while either direction is cut."""
        quality = self.quality(source, target)
        while True:
            await trio.sleep(2 * self.random.uniform(*quality.delay_seconds))
            if not self.is_cut(source, target, service) and not self.is_cut(target, source, service):
                return
            await self._healed.wait()

    def make_streams(self, near: tuple[str, int], far: tuple[str, int]) -> tuple[SimStream, SimStream]:
        there, back = Pipe(self, near[0], far[0], far), Pipe(self, far[0], near[0], far)
        first = SimStream(near, far, back, there, self)
        second = SimStream(far, near, there, back, self)
        for stream in (first, second):
            self.host(stream.local[0]).streams[id(stream)] = stream
        self.connections += 1
        return first, second

    def forget(self, stream: SimStream) -> None:
        self.host(stream.local[0]).streams.pop(id(stream), None)

    def _wake_all(self) -> None:
        self._healed.set()
        for host in self.hosts.values():
            for stream in host.streams.values():
                stream.wake()
