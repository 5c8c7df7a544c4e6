"""What clients, and those that are none, do to a proxy: each load ends by itself within some seconds."""

from __future__ import annotations

import contextlib
import gzip
import struct
import time
from collections.abc import Callable

from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from bench.load.beside import Exchange
from bench.load.broker_loads import Load
from bench.load.grpc_wire import GrpcPeer, RawPeer, consumer_settings, message, producer_settings
from bench.load.servers import Server
from understudy.proxy.core.durations import set_ms
from understudy.proxy.grpc.framing import framed
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE

SECONDS = 2.0
CLIENTS = 2_000
CALLS = 900
"""Calls of one connection that are open at a time; a proxy allows 1,000."""
WAITING_CLIENTS = 20
TOPIC, FULL_TOPIC, GROUP = "Beside", "Full", "proxied"


def send_by_grpc() -> Exchange[GrpcPeer]:
    """Return the exchange of a small sender through a proxy."""

    def once(peer: GrpcPeer, number: int) -> bool:
        request = v2.SendMessageRequest(messages=[message(TOPIC, b"%d" % number, number)])
        answer = v2.SendMessageResponse.FromString(peer.ask("SendMessage", request.SerializeToString()))
        return bool(answer.status.code == v2.OK)

    return Exchange(GrpcPeer, once)


def receive_request(topic: str, wait_ms: int) -> bytes:
    """Return a request for messages, with its length before it."""
    queue = v2.MessageQueue(topic=v2.Resource(name=topic))
    request = v2.ReceiveMessageRequest(group=v2.Resource(name=GROUP), message_queue=queue, batch_size=32)
    set_ms(request.long_polling_timeout, wait_ms)
    set_ms(request.invisible_duration, 30_000)
    return framed(request.SerializeToString())


def many_clients(server: Server) -> None:
    """Clients that bring their settings and close all at once."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(GrpcPeer(server.port, f"client-{number}")) for number in range(CLIENTS)]
        streams = [peer.begin("Telemetry", producer_settings(TOPIC), end=False) for peer in peers]
        for peer, stream in zip(peers, streams, strict=True):
            peer.wait(stream)
    time.sleep(SECONDS)


def flood(frames: Callable[[RawPeer], bytes], before: Callable[[RawPeer], bytes] | None = None) -> Load:
    """Return the load of a peer that sends *frames* again and again, on a new connection when it is disconnected."""

    def work(server: Server) -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with RawPeer(server.port) as peer:
                going = before is None or peer.send(before(peer))
                while going and time.monotonic() < until:
                    going = peer.send(frames(peer))
                    peer.read_what_is_there()

    return work


def resets(peer: RawPeer) -> bytes:
    """Calls that are ended as soon as they are begun."""
    return b"".join(
        peer.headers(SERVICE + "ReceiveMessage") + RstStreamFrame(peer.stream, error_code=8).serialize()
        for _ in range(200)
    )


def pings(peer: RawPeer) -> bytes:
    return PingFrame(0, b"12345678").serialize() * 1_000


def settings(peer: RawPeer) -> bytes:
    return SettingsFrame(0, {4: 65_535}).serialize() * 500


def open_calls(peer: RawPeer) -> bytes:
    """Open streams that say nothing."""
    return b"".join(peer.headers(SERVICE + "Telemetry", f"open-{number % 9}") for number in range(CALLS))


def unknown_methods(peer: RawPeer) -> bytes:
    """Calls that are refused at once."""
    return b"".join(peer.headers("/nobody/Nothing", end=True) for _ in range(200))


def window_updates(peer: RawPeer) -> bytes:
    """Room for a byte more, again and again."""
    return WindowUpdateFrame(0, window_increment=1).serialize() * 1_000


def single_bytes(peer: RawPeer) -> bytes:
    """A message that comes byte by byte, a frame for each."""
    return peer.headers(SERVICE + "SendMessage") + DataFrame(peer.stream, b"\x00").serialize() * 2_000


def endless_headers(peer: RawPeer) -> bytes:
    """A header list that goes on in frame after frame."""
    first = HeadersFrame(1, b"\x00" * 16_000)
    return first.serialize() + ContinuationFrame(1, b"\x00" * 16_000).serialize() * 60


def waiting_receives(server: Server) -> None:
    """Very many calls that wait for messages, of few connections; all of them end at once."""
    request = receive_request("Empty", 20_000)
    with contextlib.ExitStack() as stack:
        for number in range(WAITING_CLIENTS):
            name = f"waiting-{number}"
            settled = stack.enter_context(GrpcPeer(server.port, name))
            settled.wait(settled.begin("Telemetry", consumer_settings(GROUP, "Empty"), end=False))
            peer = stack.enter_context(RawPeer(server.port))
            for _ in range(CALLS):
                opened = peer.headers(SERVICE + "ReceiveMessage", name)
                data = DataFrame(peer.stream, request)
                data.flags.add("END_STREAM")
                peer.send(opened + data.serialize())
        time.sleep(SECONDS)
    time.sleep(SECONDS)


def compressed(server: Server) -> None:
    """Small messages that inflate to much more."""
    data = gzip.compress(bytes(120 << 20), 9)
    fields = (("grpc-encoding", "gzip"),)
    for _ in range(5):
        _send_message(server, b"\x01" + struct.pack(">I", len(data)) + data, fields)


def very_many_parts(server: Server) -> None:
    """A request of the largest size that consists of parts of two bytes."""
    data = b"\x0a\x00" * (30 << 20)
    for _ in range(3):
        _send_message(server, b"\x00" + struct.pack(">I", len(data)) + data)


def _send_message(server: Server, data: bytes, fields: tuple[tuple[str, str], ...] = ()) -> None:
    """Send one message of *data*, its length before it, as fast as the windows allow."""
    with contextlib.suppress(OSError), GrpcPeer(server.port) as peer:
        peer.stream(SERVICE + "SendMessage", data, fields)


def full_topic(server: Server) -> None:
    """Send large messages that :func:`zero_windows` receives."""
    body = bytes(1 << 20)
    with GrpcPeer(server.port, "full") as peer:
        for number in range(40):
            request = framed(v2.SendMessageRequest(messages=[message(FULL_TOPIC, body, number)]).SerializeToString())
            peer.stream(SERVICE + "SendMessage", request)


def zero_windows(server: Server) -> None:
    """Calls for large messages of clients that never take one."""
    request = receive_request(FULL_TOPIC, 0)
    with contextlib.ExitStack() as stack:
        settled = stack.enter_context(GrpcPeer(server.port, "zero"))
        settled.wait(settled.begin("Telemetry", consumer_settings(GROUP, FULL_TOPIC), end=False))
        for _ in range(10):
            peer = stack.enter_context(RawPeer(server.port))
            peer.send(SettingsFrame(0, {4: 0}).serialize())
            for _ in range(CALLS // 10):
                opened = peer.headers(SERVICE + "ReceiveMessage", "zero")
                data = DataFrame(peer.stream, request)
                data.flags.add("END_STREAM")
                peer.send(opened + data.serialize())
        time.sleep(SECONDS)


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("2,000 gRPC clients close at once", many_clients, _nothing),
    ("calls begun and reset", flood(resets), _nothing),
    ("pings", flood(pings), _nothing),
    ("settings of HTTP/2", flood(settings), _nothing),
    ("calls of no method beside 900 open ones", flood(unknown_methods, open_calls), _nothing),
    ("windows that grow by a byte", flood(window_updates, open_calls), _nothing),
    ("messages byte by byte", flood(single_bytes), _nothing),
    ("header lists without an end", flood(endless_headers), _nothing),
    ("18,000 waiting receives", waiting_receives, _nothing),
    ("messages that inflate to 120 MiB", compressed, _nothing),
    ("a request of 30 million parts", very_many_parts, _nothing),
    ("large answers that nobody takes", zero_windows, full_topic),
]
