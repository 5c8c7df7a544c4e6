"""Attacks on a broker: each kind ends by itself within some seconds, leaves nothing behind, and counts what it did."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from bench.load.broker_loads import NO_CODE, oneway_flood, slow_readers
from bench.load.effects import PATIENCE_S, Effect, come, settled
from bench.load.servers import BROKER_NAME, Server, topic_name
from bench.load.wire import TIMEOUT_S, Peer, send_request
from understudy.format.json_values import TEXT_LIMIT
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.frame import HEADER_LIMIT_BYTES, encode

HEAD = struct.Struct(">iI")


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


Attack = Callable[[Server, Strength], list[Effect]]
"""Ends by itself, and returns what shows that it was made."""

LARGE_BYTES = 2 << 20
"""Of a message that is asked for again and again."""
HALF_BYTES = 4 << 20
"""Of a request that is never finished."""
PULLS_EACH = 20
"""Of each peer whose pulls wait."""


def hostile_frames(server: Server, strength: Strength) -> list[Effect]:
    """Bytes that are no frames, or frames of impossible lengths; every connection is given up after one."""
    source, came, ended = random.Random(1), 0, 0
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
                came += 1
                ended += was_noticed(peer.socket, data, 0.05)
    return [Effect("hostile peers came", came, 12 * strength.rounds), Effect("were hung up on", ended, came // 2)]


def was_noticed(stream: socket.socket, data: bytes, patience_s: float) -> bool:
    """Send *data* and return whether the server answers or hangs up within *patience_s* seconds."""
    stream.settimeout(patience_s)
    try:
        stream.sendall(data)
        stream.recv(1 << 16)
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


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
    "brokerName",
    "brokerAddr",
    "brokerAddress",
    "brokerId",
    "clusterName",
    "compressed",
    "bodyCrc32",
    "masterBrokerId",
    "masterEpoch",
    "registerCheckCode",
)


def hostile_bodies(server: Server, strength: Strength) -> list[Effect]:
    """Every request code with every kind of bad body and bad fields, those that change what a broker is among them."""
    source, sent, noticed = random.Random(2), 0, 0
    bodies = list(hostile_values())
    for code in RequestCode:
        with contextlib.suppress(OSError), Peer(server.port) as peer:
            for body in source.sample(bodies, strength.rounds):
                ext = {name: source.choice(ODD_TEXTS).replace("\ud800", "?") for name in FIELDS}
                command = request(code, ext, body)
                command.ext = ext if source.random() < 0.8 else None
                sent += 1
                noticed += was_noticed(peer.socket, encode(command), 0.2)  # or not: fine if others are served
    return [
        Effect("hostile bodies came", sent, len(RequestCode)),
        Effect("were answered", noticed, sent // 2),
    ]


def half_frames(server: Server, strength: Strength) -> list[Effect]:
    """Peers that begin the largest request there is, send much of it, wait, and leave."""
    data, began = HEAD.pack((16 << 20) - 8, 2) + b"{}" + bytes(HALF_BYTES), time.monotonic()
    with contextlib.ExitStack() as stack:
        left = [(stack.enter_context(Peer(server.port)), memoryview(data)) for _ in range(strength.peers)]
        for peer, _ in left:
            peer.socket.setblocking(False)
        while left and time.monotonic() < began + PATIENCE_S:
            left = [(peer, rest) for peer, view in left if (rest := _sent(peer, view))]
            time.sleep(0.001)
        time.sleep(strength.seconds)
        return [settled("bytes of requests waited", lambda: server.waited(began).incoming, 8 << 20)]


def _sent(peer: Peer, view: memoryview) -> memoryview:
    """Send what the network takes of *view*; return the rest, nothing if the peer was hung up on."""
    try:
        return view[peer.socket.send(view) :]
    except BlockingIOError:
        return view
    except OSError:
        return view[:0]


def parked_requests(server: Server, strength: Strength) -> list[Effect]:
    """Pulls with headers of the largest size that wait for ever, of peers that leave."""
    ext = {"consumerGroup": "greedy", "topic": topic_name(1), "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    ext |= {"sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "1000000000000", "subVersion": "0"}
    ext |= {"subscription": "a" * TEXT_LIMIT, "expressionType": "TAG", "bname": BROKER_NAME, "junk": ""}
    # The number of a request may have more digits than that of the first one.
    spare = HEADER_LIMIT_BYTES - header_bytes(request(RequestCode.PULL_MESSAGE, ext)) - 10
    ext["junk"] = "x" * spare
    sent, answers, closed = 0, list[Command](), 0
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(strength.peers // 2):
            peer = stack.enter_context(Peer(server.port))
            peer.send(*(request(RequestCode.PULL_MESSAGE, ext) for _ in range(PULLS_EACH)))
            sent += PULLS_EACH
            try:
                peer.ask(NO_CODE)  # answered after the pulls before it were handed on
                peers.append(peer)
            except ConnectionError:
                closed += PULLS_EACH
        time.sleep(strength.seconds / 2)
        for peer in peers:
            answers += peer.kept_answers()
    waiting = sent - closed - len(answers)
    told = [Effect(f"were answered {code}", count, 0) for code, count in Counter(each.code for each in answers).items()]
    return [Effect("large pulls waited", waiting, PULLS_EACH), *told, Effect("were hung up on", closed, 0)]


def header_bytes(command: Command) -> int:
    """Return the size of the header of *command*."""
    return HEAD.unpack_from(encode(command))[1] & 0xFFFFFF


def idle_peers(server: Server, strength: Strength) -> list[Effect]:
    """More peers than the server has descriptors, all of them idle."""
    limit, came = server.descriptors[1], 0
    with contextlib.ExitStack() as stack:
        for _ in range(limit + strength.peers):
            with contextlib.suppress(OSError):
                stack.enter_context(Peer(server.port))
                came += 1
        time.sleep(strength.seconds)
        # A server keeps descriptors for its files.
        opened = come("descriptors were open", lambda: server.descriptors[0], limit * 2 // 5)
        return [Effect("idle peers came", came, limit + 1), opened]


def floods(server: Server, strength: Strength) -> list[Effect]:
    """One-way messages as fast as ten peers can send them."""
    before = stored_so_far(server.port)
    oneway_flood(server, strength.seconds)
    return [Effect("messages were stored", stored_so_far(server.port) - before, int(2_000 * strength.seconds))]


def stored_so_far(port: int) -> int:
    """Store a message where floods do, and return its offset. Raises ``RuntimeError``: it is refused for good."""
    until = time.monotonic() + TIMEOUT_S
    with Peer(port) as peer:
        while True:
            command = send_request(topic_name(3), b"x", broker=BROKER_NAME)
            peer.send(command)
            answer = peer.wait(command)
            if not answer.code:
                return int((answer.ext or {})["queueOffset"])
            if time.monotonic() > until:
                raise RuntimeError(f"a message is refused: {answer.code} {answer.remark}")
            time.sleep(0.05)


def large_answer(server: Server) -> Command:
    """Return a small request whose large answer costs the server next to nothing: a message is stored and viewed."""
    with Peer(server.port) as peer:
        command = send_request(topic_name(1), bytes(LARGE_BYTES))
        peer.send(command)
        answer = peer.wait(command)
    # The id that a broker gives ends with where the message is.
    return request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(int((answer.ext or {})["msgId"][-16:], 16))})


def packets(wanted: Callable[[Server], Command], count: int) -> Attack:
    """Return the attack of a peer that sends very many requests with large answers in one packet, and reads slowly."""

    def work(server: Server, strength: Strength) -> list[Effect]:
        asked, began = encode(wanted(server)), time.monotonic()
        with contextlib.suppress(ConnectionError), Peer(server.port, small_buffer=True) as peer:
            peer.socket.sendall(asked * count)
            until = time.monotonic() + strength.seconds
            while time.monotonic() < until:
                peer.socket.recv(64 << 10)
                time.sleep(0.001)
            return [settled("bytes of answers waited", lambda: server.waited(began).outgoing, 1 << 20)]
        return []

    return work


def readers(wanted: Callable[[Server], Command], count: int, least: int = 8 << 20) -> Attack:
    """Return the attack of peers that ask for much, *count* times each, and read nothing.

    Args:
        wanted: prepares what is asked for.
        count: of requests.
        least: bytes of answers that must have waited at a time.
    """

    def work(server: Server, strength: Strength) -> list[Effect]:
        asked, began = wanted(server), time.monotonic()

        def waited() -> Effect:
            time.sleep(strength.seconds)
            return settled("bytes of answers waited", lambda: server.waited(began).outgoing, least)

        return [slow_readers(server, asked, count, waited)]

    return work
