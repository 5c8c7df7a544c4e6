"""Attacks on ports other than a broker's own: replication, HTTP, and those of a proxy."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from bench.load import proxy_loads
from bench.load.attacks import (
    Attack,
    Strength,
    floods,
    half_frames,
    hostile_bodies,
    hostile_frames,
    parked_requests,
    was_noticed,
)
from bench.load.effects import Effect, come
from bench.load.grpc_wire import PREAMBLE
from bench.load.servers import Server
from understudy.ha import wire
from understudy.ha.switch.frames import Report, SlaveHandshake

TLS_HELLO = bytes.fromhex("160301020001000001fc0303") + bytes(300)
PATIENCE_S = 0.05
LEAST_MS = 20
"""Processor time that the dearest loads of a proxy cost it at least, each."""
_FAST_PEERS = 20

REPLICATION = [
    b"",
    wire.report(0)[:7],
    wire.report(-1),
    wire.report(2**63 - 1),
    wire.report(1 << 40) * 500,
    wire.report(0) * 5_000,
    wire.report(1),
    b"".join(map(wire.report, range(2_000))),
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    TLS_HELLO,
    SlaveHandshake(7).to_bytes() * 500,
    SlaveHandshake(7).to_bytes()[:15],
    SlaveHandshake(2**63 - 1).to_bytes() + Report(0).to_bytes() * 500,
    b"".join(SlaveHandshake(number).to_bytes() for number in range(1_000)),
    Report(2**62).to_bytes(),
    struct.pack(">iq", 2, -1),
    struct.pack(">ihhq", 1, 9, 9, -1),
]
"""What no slave sends, or sends only once, to a master."""

HTTP = [
    b"",
    b"\r\n" * 2_000,
    b"GET / HTTP/1.1\r\nHost: a\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000,
    b"GET /" + b"x" * 1_000_000,
    b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
    b"POST /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000000\r\n\r\n" + bytes(100_000),
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
    b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 1_000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\xff" * 10_000,
    TLS_HELLO,
]
"""Requests that are none, never end, or are more than one may be."""

GRPC = [
    b"",
    PREAMBLE[:10],
    PREAMBLE,
    PREAMBLE + b"\xff" * 10_000,
    PREAMBLE + b"\x00\x00\x06\x04\x00\x00\x00\x00",
    TLS_HELLO,
    b"PROXY TCP4 999.1.1.1 2 3 4\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    struct.pack(">iI", 2**31 - 1, 20) + bytes(100),
]
"""Beginnings of connections that no gRPC client makes."""


def played(data: Sequence[bytes]) -> Attack:
    """Return the attack of peers that send each of *data* whole, in pieces, and leave in the middle of it."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        came = noticed = 0
        for _ in range(strength.rounds):
            for each in data:
                for size, stays in ((len(each) or 1, True), (7, True), (len(each) // 2 or 1, False)):
                    with contextlib.suppress(OSError), _connected(server) as peer:
                        came += 1
                        whole = each[: 50 * size] if stays else each[:size]
                        last = max(len(whole) - size, 0)
                        for at in range(0, last, size):
                            peer.sendall(whole[at : at + size])
                        noticed += was_noticed(peer, whole[last:], PATIENCE_S)
        all_of_them = 3 * len(data) * strength.rounds
        return [Effect("hostile peers came", came, all_of_them), Effect("were noticed", noticed, all_of_them // 10)]

    return work


def crowd(data: Callable[[int], bytes]) -> Attack:
    """Return the attack of very many peers that come again and again, send *data* of their number, and wait."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        until, came = time.monotonic() + strength.seconds, 0
        while True:
            with contextlib.ExitStack() as stack:
                for number in range(4 * strength.peers):
                    with contextlib.suppress(OSError):
                        peer = stack.enter_context(_connected(server))
                        peer.sendall(data(number))
                        came += 1
                if time.monotonic() > until:
                    return [Effect("peers of a crowd came", came, 2 * strength.peers)]

    return work


def deaf(data: bytes, again: bytes = b"") -> Attack:
    """Return the attack of peers that ask for much by *data*, go on to say *again*, and never read."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        with contextlib.ExitStack() as stack:
            peers = []
            for _ in range(strength.peers // 4):
                with contextlib.suppress(OSError):
                    peer = stack.enter_context(_connected(server, small_buffer=True))
                    peer.sendall(data)
                    peer.setblocking(False)
                    peers.append(peer)
            until = time.monotonic() + strength.seconds
            while time.monotonic() < until:
                for peer in peers if again else []:
                    with contextlib.suppress(OSError):
                        peer.send(again)
                time.sleep(0.01)
            return [come("deaf peers were answered or hung up on", lambda: sum(map(_noticed, peers)), 1)]

    return work


def drip(data: bytes) -> Attack:
    """Return the attack of peers that send *data* byte by byte, as slow as they dare."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(_connected(server)) for _ in range(strength.peers)]
            until, at, taken = time.monotonic() + strength.seconds, 0, 0
            while time.monotonic() < until:
                for peer in peers:
                    with contextlib.suppress(OSError):
                        taken += peer.send(data[at % len(data) : at % len(data) + 1])
                at += 1
                time.sleep(0.05)
            return [Effect("bytes came one by one", taken, 2 * strength.peers)]

    return work


def quick(data: bytes) -> Attack:
    """Return the attack of peers that connect, send *data*, and leave, as fast as they can."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        until, came = time.monotonic() + strength.seconds, 0
        while time.monotonic() < until:
            with contextlib.ExitStack() as stack:
                for _ in range(_FAST_PEERS):
                    with contextlib.suppress(OSError):
                        stack.enter_context(_connected(server)).sendall(data)
                        came += 1
        return [Effect("peers came and left", came, 5 * _FAST_PEERS)]

    return work


def noise(server: Server, strength: Strength) -> list[Effect]:
    """Random bytes of random lengths."""
    source = random.Random(3)
    return played([source.randbytes(source.choice((1, 4, 8, 12, 16, 20, 36, 500, 20_000))) for _ in range(20)])(
        server, strength
    )


def all_of(*attacks: Attack) -> Attack:
    """Return the attack of one after the other."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        return [effect for each in attacks for effect in each(server, strength)]

    return work


def by_load(*names: str) -> Attack:
    """Return the attack of the loads of a proxy whose names hold one of *names*."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        effects = []
        for name, load, prepare in proxy_loads.LOADS:
            if any(each in name for each in names):
                prepare(server)
                before = server.processor_ms
                load(server)
                effects.append(Effect(f"ms of the processor went to {name}", server.processor_ms - before, LEAST_MS))
        return effects

    return work


def _noticed(peer: socket.socket) -> bool:
    """Tell whether something has come that was not read, or the end."""
    try:
        peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _connected(server: Server, *, small_buffer: bool = False) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        if small_buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(1.0)
        stream.connect(("127.0.0.1", server.port))
        stream.settimeout(PATIENCE_S)
        yield stream


def _greeting(number: int) -> bytes:
    """Return what a slave says first, in controller mode for every other one."""
    return SlaveHandshake(number).to_bytes() + Report(0).to_bytes() if number % 2 else wire.report(0)


replication = all_of(
    played(REPLICATION),
    noise,
    crowd(lambda number: b""),
    crowd(_greeting),
    deaf(wire.report(0), wire.report(0)),
    deaf(SlaveHandshake(9).to_bytes() + Report(0).to_bytes(), Report(0).to_bytes()),
    drip(wire.report(0)),
    quick(wire.report(0)),
)
"""Everything that a peer can do to the port of replication."""

http = all_of(
    played(HTTP),
    noise,
    crowd(lambda number: b"GET /metr" if number % 2 else b""),
    deaf(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
    drip(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: y\r\n"),
    quick(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"),
)
"""Everything that a peer can do to a port that speaks HTTP."""

grpc = all_of(
    played(GRPC),
    noise,
    crowd(lambda number: PREAMBLE if number % 2 else b""),
    drip(PREAMBLE),
    quick(PREAMBLE),
    by_load("reset", "pings", "header lists", "inflate"),
)
"""Everything that a peer can do to the gRPC port of a proxy, the dearest of its loads included."""

forwarded = all_of(hostile_frames, hostile_bodies, half_frames, parked_requests, floods, crowd(lambda number: b""))
"""What is done to a broker's port, done to the remoting port of a proxy."""
