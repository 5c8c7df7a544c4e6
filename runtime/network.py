"""Byte streams between addresses as an input, and what is known of addresses.

The machine's own network is in :mod:`understudy.runtime.tcp`; the in-memory one with delays, loss and partitions is in
:mod:`understudy.testkit`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio


class ListenError(Exception):
    """An address could not be listened on; the message says which, why and what to do."""


class ByteStream(Protocol):
    """One two-way connection.

    Raises:
        trio.BrokenResourceError: the peer or the network broke the connection.
        trio.ClosedResourceError: this side closed it.
    """

    @property
    def local(self) -> tuple[str, int]:
        """This side's host and port."""
        ...

    @property
    def peer(self) -> tuple[str, int]:
        """The other side's host and port."""
        ...

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return 1..*max_bytes* bytes, or ``b""`` when the peer has closed its side.

        Bytes that are there already may be returned without a checkpoint, a few times in a row. Only one task may
        receive.
        """
        ...

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Hand over as many bytes of *buffers*, in order, as the network takes without waiting; return how many.

        Not while a :meth:`send_all` is under way. A broken connection takes nothing (0); the next ``receive_some`` or
        ``send_all`` tells.
        """
        ...

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of *data*. Only one task may send at a time."""
        ...

    async def aclose(self) -> None:
        """Close the connection; buffered bytes that were handed to the network may still arrive."""
        ...


class Listener(Protocol):
    """A bound address; the port is taken from creation until :meth:`aclose`."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and real port (never 0)."""
        ...

    @property
    def refused(self) -> int:
        """Connections closed at once because their descriptors are kept for files."""
        ...

    async def accept(self) -> ByteStream:
        """Wait for the next connection; survives transient accept errors and refuses connections when they are many."""
        ...

    async def aclose(self) -> None:
        """Stop listening; established connections live on."""
        ...


class Network(Protocol):
    """What a service may do with the network."""

    async def listen(self, host: str, port: int) -> Listener:
        """Listen on *host*:*port* (0 picks a free port). Raises :class:`ListenError`."""
        ...

    async def connect(self, host: str, port: int, timeout_seconds: float) -> ByteStream:
        """Connect within *timeout_seconds*. Raises ``OSError`` (``TimeoutError`` included) when that fails."""
        ...

    async def resolve(self, host: str, timeout_seconds: float) -> list[str]:
        """Return the addresses a host name stands for, in order; an address stands for itself. Raises ``OSError``."""
        ...


async def accept_loop(
    listener: Listener, handler: Callable[[ByteStream], Awaitable[None]], nursery: trio.Nursery
) -> None:
    """Accept for ever and run *handler* for each connection in *nursery*; *handler* must not raise."""
    while True:
        nursery.start_soon(handler, await listener.accept())


def is_loopback(host: str) -> bool:
    """Return whether *host*, an address or a name, can only be this host."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_own_host(local_host: str, peer_host: str) -> bool:
    """Return whether a connection comes from the host it was accepted on.

    Args:
        local_host, peer_host: the addresses of its two ends.
    """
    return peer_host == local_host or is_loopback(peer_host)


def outgoing_address() -> str:
    """Return the address of the interface that leads outside, or the loopback's; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
