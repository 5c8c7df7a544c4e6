"""What an attack is made on: a server in its surroundings, and what a normal client does beside it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from bench.load import led_loads
from bench.load.beside import Exchange, send_small
from bench.load.proxy_loads import send_by_grpc
from bench.load.servers import (
    BROKER_NAME,
    Scale,
    Server,
    broker,
    console,
    controller,
    make_topic,
    name_server,
    proxy,
    topic_name,
)
from bench.load.wire import TIMEOUT_S, Peer

TOPIC = "Beside"
ATTACKED = (1, 3)
"""Numbers of the topics that attacks use."""
FIRST_COPIED = 10**7
"""Above all numbers of messages that a client sends."""
WAIT_SECONDS = 30.0
METRICS, CONSOLE = "/metrics", "/api/session"


@attrs.frozen
class Setting:
    """What an arena is made with.

    Args:
        scale: tables of the broker.
        descriptors: the broker's limit of them; 0 for none.
        keys: of the broker's configuration.
        without: bounds that the attacked server shall not have, see ``without.py``.
    """

    scale: Scale | None = None
    descriptors: int = 0
    keys: dict[str, object] = attrs.field(factory=dict)
    without: tuple[str, ...] = ()


@attrs.frozen
class Arena:
    """A server under attack, and a client that means well.

    Attributes:
        server: what is attacked; its port is that of the attack.
        port: where the normal client goes.
        exchange: what that client does.
        store_port: of the broker that has the messages; 0: the client sends none.
        pids: of the other servers, which take their part of the machine.
        answers: whether the attacked port serves those that ask properly.
        lost: of the exchanges with these numbers, which the server said yes to, returns how many it has forgotten.
    """

    server: Server
    port: int
    exchange: Exchange[Any]
    store_port: int = 0
    pids: tuple[int, ...] = ()
    answers: Callable[[], bool] = lambda: True
    lost: Callable[[list[int]], int] = lambda acknowledged: 0


Place = Callable[[Path, Setting], AbstractContextManager[Arena]]
"""Makes an arena in an empty folder."""


class HttpClient:
    """A client of a port that speaks HTTP: one connection for each request, as the servers want it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def close(self) -> None:
        """Nothing is open between two requests."""

    def get(self, path: str) -> bool:
        """Ask for *path*; return whether it was answered as it should be. Raises ``OSError``."""
        with socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode())
            answer = b""
            while part := stream.recv(1 << 18):
                answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        return head.startswith(b"HTTP/1.1 200 ") and f"content-length: {len(body)}".encode() in head.lower()


def _make_topics(port: int) -> None:
    """Make the topics that the normal client and the attacks use."""
    make_topic(port, TOPIC, 1)
    for number in ATTACKED:
        make_topic(port, topic_name(number))


def _await_copies(port: int) -> None:
    """Wait until a message is acknowledged. Raises ``RuntimeError``: none is, in time."""
    exchange, until = send_small(TOPIC), time.monotonic() + WAIT_SECONDS
    with Peer(port) as peer:
        while not exchange.once(peer, FIRST_COPIED):
            if time.monotonic() > until:
                raise RuntimeError(f"no slave within {WAIT_SECONDS:g} s")
            time.sleep(0.1)


def _answers(client: HttpClient, path: str) -> bool:
    try:
        return client.get(path)
    except OSError:
        return False


def _pids(*servers: Server) -> tuple[int, ...]:
    return tuple(server.process.pid for server in servers)


def _folders(folder: Path, *names: str) -> list[Path]:
    folders = [folder / name for name in names]
    for each in folders:
        each.mkdir()
    return folders


@contextlib.contextmanager
def broker_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the port of a broker that a small sender uses."""
    with broker(
        folder, setting.scale, keys=setting.keys, descriptors=setting.descriptors, without=setting.without
    ) as server:
        _make_topics(server.port)
        yield Arena(server, server.port, send_small(TOPIC), server.port)


@contextlib.contextmanager
def replication_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the HA port of a master whose slave must have every message before it is acknowledged."""
    folders = _folders(folder, "namesrv", "master", "slave")
    master = {"brokerRole": "SYNC_MASTER", "brokerId": 0, "inSyncReplicas": 2, **setting.keys}
    with (
        name_server(folders[0]) as names,
        broker(folders[1], setting.scale, keys=master, name_server_port=names.port) as server,
        broker(folders[2], keys={"brokerRole": "SLAVE", "brokerId": 1}, name_server_port=names.port) as slave,
    ):
        _make_topics(server.port)
        _await_copies(server.port)
        attacked = attrs.evolve(server, port=server.port + 1)
        yield Arena(attacked, server.port, send_small(TOPIC), server.port, _pids(names, slave))


@contextlib.contextmanager
def led_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the HA port of a master that a controller leads."""
    folders = _folders(folder, "controller", "broker")
    with controller(folders[0]) as leading:
        keys = led_loads.keys(leading.port) | setting.keys
        with broker(folders[1], setting.scale, keys=keys) as server:
            led_loads.await_master(server, TOPIC)
            _make_topics(server.port)
            attacked = attrs.evolve(server, port=server.port + 1)
            yield Arena(attacked, server.port, send_small(TOPIC), server.port, _pids(leading))


@contextlib.contextmanager
def metrics_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the port of a broker's metrics."""
    keys = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", **setting.keys}
    with broker(folder, setting.scale, keys=keys) as server:
        _make_topics(server.port)
        attacked = attrs.evolve(server, port=server.port + 2)
        answers = partial(_answers, HttpClient(attacked.port), METRICS)
        yield Arena(attacked, server.port, send_small(TOPIC), server.port, answers=answers)


@contextlib.contextmanager
def console_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the console beside a browser that asks it."""
    folders = _folders(folder, "namesrv", "broker", "console")
    with (
        name_server(folders[0]) as names,
        broker(folders[1], setting.scale, keys=setting.keys, name_server_port=names.port) as shown,
        console(folders[2], names.port) as server,
    ):
        ask = Exchange(HttpClient, lambda client, number: client.get(CONSOLE))
        yield Arena(server, server.port, ask, pids=_pids(names, shown))


@contextlib.contextmanager
def proxy_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the gRPC port of a proxy that a small sender uses."""
    with _proxied(folder, setting) as (names, behind, server):
        yield Arena(server, server.port, send_by_grpc(), behind.port, _pids(names, behind))


@contextlib.contextmanager
def forward_arena(folder: Path, setting: Setting) -> Iterator[Arena]:
    """Attack the remoting port of a proxy that a small sender uses."""
    with _proxied(folder, setting) as (names, behind, server):
        attacked = attrs.evolve(server, port=server.port + 1)
        yield Arena(attacked, attacked.port, send_small(TOPIC, BROKER_NAME), behind.port, _pids(names, behind))


@contextlib.contextmanager
def _proxied(folder: Path, setting: Setting) -> Iterator[tuple[Server, Server, Server]]:
    folders = _folders(folder, "namesrv", "broker", "proxy")
    with (
        name_server(folders[0]) as names,
        broker(folders[1], setting.scale, keys=setting.keys, name_server_port=names.port) as behind,
        proxy(folders[2], names.port) as server,
    ):
        _make_topics(behind.port)
        yield names, behind, server
