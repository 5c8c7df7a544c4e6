"""Attacks on a broker: each kind ends by itself within some seconds and leaves nothing behind."""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Callable, Iterator

import attrs

from bench.load.broker_loads import oneway_floods, pipelined, slow_readers
from bench.load.servers import Server, topic_name
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.frame import encode

HEAD = struct.Struct(">iI")

HARMLESS_ONLY = frozenset({int(RequestCode.UPDATE_BROKER_CONFIG), 902, 953})
"""Codes that may change what the broker is when their body happens to be right; they get broken bodies only."""


@attrs.frozen
class Strength:
    """How hard an attack is.

    Args:
        seconds: how long floods last.
        peers: connections of an attack with many.
        rounds: repetitions of hostile frames and bodies.
    """

    seconds: float = 2.0
    peers: int = 200
    rounds: int = 3


Attack = Callable[[Server, Strength], None]


def hostile_frames(server: Server, strength: Strength) -> None:
    """Bytes that are no frames, or frames of impossible lengths; every connection is given up after one."""
    source = random.Random(1)
    good = encode(request(RequestCode.GET_BROKER_RUNTIME_INFO))
    for _ in range(strength.rounds):
        for data in (
            source.randbytes(200),
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            bytes.fromhex("160301020001000001fc0303") + bytes(300),
            HEAD.pack(-1, 0) + bytes(20),
            HEAD.pack(0, 0) + bytes(20),
            HEAD.pack(2**31 - 1, 0xFFFFFF) + bytes(20),
            HEAD.pack(100, 7 << 24 | 20) + bytes(96),
            HEAD.pack(100, 1 << 24 | 20) + b"\xff" * 96,
            HEAD.pack(20, 16) + b"[" * 16,
            good[:11],
            good + source.randbytes(50),
            b"PROXY TCP4 999.1.1.1 2 3 4\r\n" + good,
        ):
            with contextlib.suppress(OSError), Peer(server.port) as peer:
                peer.socket.settimeout(0.05)
                peer.socket.sendall(data)
                peer.socket.recv(1 << 16)


def hostile_values() -> Iterator[bytes]:
    """Bodies that are hard to read, of the wrong shape, or cannot be written again."""
    yield b'{"a' + b'\\"' * 50_000
    yield b'{"a\\"\\"' * 5_000
    yield b"[" * 10_000
    yield b'{"a":' * 10_000
    yield b'{"topic":"\\ud800","consumerGroup":"\\udfff"}'
    yield b'{"offset":1' + b"0" * 300 + b"}"
    yield b'{"topic":true,"queueId":"x","clientID":[],"producerDataSet":{}}'
    yield b"null"
    yield b'"' * 1_000_000
    yield b"\xff\xfe" * 1000


ODD_TEXTS = (
    "",
    "true",
    "-1",
    "1" + "0" * 30,
    "1.5",
    "../../etc/passwd",
    "/dev/zero",
    "\ud800",
    "x" * 5000,
    "%s\x00\x01\x02",
)
FIELDS = (
    "topic",
    "consumerGroup",
    "group",
    "producerGroup",
    "queueId",
    "offset",
    "commitOffset",
    "maxNum",
    "key",
    "b",
    "e",
)


def hostile_bodies(server: Server, strength: Strength) -> None:
    """Every request code with every kind of bad body and bad fields."""
    source = random.Random(2)
    bodies = list(hostile_values())
    for code in RequestCode:
        if code in HARMLESS_ONLY:
            continue
        try:
            with Peer(server.port) as peer:
                peer.socket.settimeout(10)
                for body in source.sample(bodies, strength.rounds):
                    ext = {name: source.choice(ODD_TEXTS).replace("\ud800", "?") for name in FIELDS}
                    command = request(code, ext, body)
                    command.ext = ext if source.random() < 0.8 else None
                    peer.send(command)
                    peer.socket.settimeout(0.2)
                    peer.socket.recv(1 << 16)
        except OSError:
            continue  # not answered, or closed: both are fine as long as others are served


def half_frames(server: Server, strength: Strength) -> None:
    """Peers that begin the largest request there is, wait, and leave."""
    head = HEAD.pack((16 << 20) - 8, 2) + b"{}"
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(strength.peers)]
        for peer in peers:
            peer.socket.setblocking(False)
            with contextlib.suppress(OSError):
                peer.socket.send(head + bytes(1 << 20))
        until = time.monotonic() + strength.seconds
        while time.monotonic() < until:
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.socket.send(bytes(1 << 16))
            time.sleep(0.01)


def parked_requests(server: Server, strength: Strength) -> None:
    """Pulls with large headers that wait for ever, of peers that leave."""
    ext = {"consumerGroup": "greedy", "topic": topic_name(1), "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    ext |= {"sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "1000000000000", "subVersion": "0"}
    ext |= {"subscription": "a" * 500_000, "expressionType": "TAG", "junk": "x" * 400_000}
    with contextlib.ExitStack() as stack:
        for _ in range(strength.peers // 20):
            peer = stack.enter_context(Peer(server.port))
            with contextlib.suppress(OSError):
                peer.send(*(request(RequestCode.PULL_MESSAGE, ext) for _ in range(20)))
        time.sleep(strength.seconds / 2)


def idle_peers(server: Server, strength: Strength) -> None:
    """More peers than the broker has descriptors, all of them idle."""
    with contextlib.ExitStack() as stack:
        for _ in range(4 * strength.peers):
            with contextlib.suppress(OSError):
                stack.enter_context(Peer(server.port))
        time.sleep(strength.seconds)


def floods(server: Server, strength: Strength) -> None:
    """One-way messages as fast as ten peers can send them."""
    oneway_floods(server)


def packets(server: Server, strength: Strength) -> None:
    """Hundreds of requests with large answers in one packet."""
    pipelined(RequestCode.GET_ALL_TOPIC_CONFIG, 300)(server)


def readers(server: Server, strength: Strength) -> None:
    """Peers that ask for much and read next to nothing."""
    slow_readers(server)
