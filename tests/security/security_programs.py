"""One server of every program, over real sockets, made of the settings that its file has."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.container.hosted import host_broker
from understudy.controller import server as controller_server
from understudy.controller.configuration import read_config
from understudy.controller.embed import open_controller
from understudy.controller.server import Controller
from understudy.format.record import Record, decode_records
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.programs import mqbroker, mqbrokercontainer, mqcontroller, mqnamesrv, mqproxy
from understudy.programs.local_proxy import run_local_proxy
from understudy.programs.tls_file import with_tls_file
from understudy.proxy.config import config_of
from understudy.remoting.client import RemotingClient
from understudy.remoting.command import Command, request
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.server import RemotingServer
from understudy.runtime.properties import Properties, format_properties
from understudy.runtime.world import World, real_world
from understudy.security.settings import read_security
from understudy.security.signature import Credentials, signer
from understudy.testkit.local_cluster import SMALL_FILES, LocalCluster
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

ROOT = Credentials("rocketmq", "12345678")
INNER = Credentials("inner", "innersecret")
BOB = Credentials("bob", "secret2")
SIGNED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
}
PROGRAMS = {
    "mqnamesrv": (mqnamesrv.main, "-c"),
    "mqcontroller": (mqcontroller.main, "-c"),
    "mqbroker": (mqbroker.main, "-c"),
    "mqbrokercontainer": (mqbrokercontainer.main, "-c"),
    "mqproxy": (mqproxy.main, "-pc"),
}
"""Every program that has a port, and the option that names its file."""
SEND = {"b": "orders", "a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""What a client of gRPC begins with, and empty settings."""


@attrs.frozen
class Started:
    """A server that runs.

    Attributes:
        address: of its port.
        server: what answers there; ``None`` where that is HTTP/2.
        scope: ends it.
    """

    address: tuple[str, int]
    server: Dispatcher | None
    scope: trio.CancelScope

    @property
    def place(self) -> str:
        """``host:port``."""
        return "{}:{}".format(*self.address)


def broker_keys(folder: Path, **keys: str) -> dict[str, str]:
    return {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "brokerName": "broker-a",
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        **SMALL_FILES,
        **keys,
    }


async def start_broker(folder: Path, nursery: trio.Nursery, **keys: str) -> Broker:
    """Start a broker that asks for signatures, with these *keys* beside; it keeps them in a file."""
    values = broker_keys(folder, **(SIGNED | keys))
    machine = Machine("vm", "127.0.0.1", str(folder / "store"))
    options, warnings = BrokerOptions.from_properties(values, machine=machine)
    assert [] == warnings
    file = folder / "broker.conf"
    file.write_text(format_properties(values))
    options.path = str(file)
    made: Broker = await nursery.start(host_broker, real_world(), options)
    return made


async def _name_server(world: World, folder: Path, keys: dict[str, str], nursery: trio.Nursery) -> RemotingServer:
    config = NamesrvConfig(kv_config_path=str(folder / "namesrv" / "kvConfig.json"))
    security = read_security(Properties(keys, "namesrv.conf"))
    made = NameServer(world, config, "127.0.0.1", 0, security=security)
    await nursery.start(made.run)
    return made._server


async def _broker(world: World, folder: Path, keys: dict[str, str], nursery: trio.Nursery) -> RemotingServer:
    machine = Machine("vm", "127.0.0.1", str(folder / "store"))
    options, warnings = BrokerOptions.from_properties(broker_keys(folder, **keys), machine=machine)
    assert [] == warnings
    return (await nursery.start(host_broker, world, options)).server


async def _container(world: World, folder: Path, keys: dict[str, str], nursery: trio.Nursery) -> RemotingServer:
    options, warnings = ContainerOptions.from_properties({"listenPort": "0", "bindAddress": "127.0.0.1", **keys})
    assert [] == warnings
    made = BrokerContainer(world, options)
    await nursery.start(made.run)
    return made.server


def controller_keys(folder: Path, port: int) -> dict[str, str]:
    return {
        "controllerDLegerGroup": "g",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(folder / "controller"),
        "controllerLogFile": "off",
        "bindAddress": "127.0.0.1",
        "configStorePath": str(folder / "controller.properties"),
    }


@asynccontextmanager
async def _its_server() -> AsyncIterator[list[RemotingServer]]:
    """Note the server that a controller makes for its run."""
    made: list[RemotingServer] = []

    class Noted(RemotingServer):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            made.append(self)

    before = controller_server.RemotingServer
    controller_server.RemotingServer = Noted
    try:
        yield made
    finally:
        controller_server.RemotingServer = before


async def _controller(world: World, folder: Path, keys: dict[str, str], nursery: trio.Nursery) -> RemotingServer:
    with PortBlocks(1) as blocks:
        values = Properties({**controller_keys(folder, blocks.middles(1)[0]), **keys}, "controller.conf")
        async with _its_server() as made:
            await nursery.start(Controller(world, read_config(values), read_security(values)).run)
    return made[0]


async def _embedded(world: World, folder: Path, keys: dict[str, str], nursery: trio.Nursery) -> RemotingServer:
    with PortBlocks(1) as blocks:
        values = Properties({**controller_keys(folder, blocks.middles(1)[0]), **keys}, "namesrv.conf")
        embedded = open_controller(world, values)
        config = NamesrvConfig(kv_config_path=str(folder / "namesrv" / "kvConfig.json"))
        name_server = NameServer(world, config, "127.0.0.1", 0, controller=embedded, security=read_security(values))
        async with _its_server() as made:
            await nursery.start(name_server.run)
            await until(lambda: made and made[0]._listener is not None)
    return made[0]


SERVERS: Mapping[str, Callable[[World, Path, dict[str, str], trio.Nursery], Awaitable[RemotingServer]]] = {
    "name server": _name_server,
    "broker": _broker,
    "container": _container,
    "controller": _controller,
    "controller in a name server": _embedded,
}
PROXIES = ("proxy: gRPC", "proxy: remoting")


@asynccontextmanager
async def started(kind: str, folder: Path, keys: Mapping[str, str] | None = None) -> AsyncIterator[Started]:
    """Run a server of one kind with these *keys* in its file."""
    world = real_world()
    async with trio.open_nursery() as nursery:
        if kind in PROXIES:
            async with LocalCluster(1) as cluster:
                with PortBlocks(1) as blocks:
                    values: dict[str, Any] = {"grpcServerPort": 0, "remotingListenPort": blocks.middles(1)[0]}
                    values |= {"namesrvAddr": cluster.namesrv_address, "localServeAddr": "127.0.0.1", **(keys or {})}
                    config, warnings = config_of(values, "rmq-proxy.json", with_tls_file)
                    assert [] == warnings
                    brokers = list(cluster.brokers.values())
                    proxy = await nursery.start(run_local_proxy, world, config, lambda: brokers, "127.0.0.1")
                at = proxy.address if kind == PROXIES[0] else proxy.remoting_address
                yield Started(at, None, nursery.cancel_scope)
                nursery.cancel_scope.cancel()
        else:
            server = await SERVERS[kind](world, folder, dict(keys or {}), nursery)
            yield Started(server.address, server, nursery.cancel_scope)
            nursery.cancel_scope.cancel()


@attrs.frozen
class Caller:
    """Asks one server as one user."""

    client: RemotingClient
    address: str
    credentials: Credentials | None

    async def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        command = request(code, dict(ext or {}), body)
        if self.credentials is not None:
            signer(self.credentials)(command)
        return await self.client.invoke(self.address, command, 5_000)

    async def done(self, code: int, ext: Mapping[str, str] | None = None, body: Any = None) -> Command:
        answer = await self.ask(code, ext, b"" if body is None else json.dumps(body).encode())
        assert answer.code == 0, answer.remark
        return answer

    def by(self, credentials: Credentials | None) -> Caller:
        return attrs.evolve(self, credentials=credentials)


async def with_bob(root: Caller, *rules: tuple[str, str]) -> Caller:
    """Make bob, with rules of resource and actions; return who asks as bob."""
    await root.done(3001, {"username": "bob"}, {"username": "bob", "password": BOB.secret_key})
    for resource, actions in rules:
        entry = {"resource": resource, "actions": actions.split(), "decision": "Allow"}
        await root.done(3006, {"subject": "User:bob"}, {"subject": "User:bob", "policies": [{"entries": [entry]}]})
    return root.by(BOB)


def stored(broker: Broker, topic: str) -> list[Record]:
    """Return the first messages of the first queue of *topic*."""
    found = broker.store.get(topic, 0, 0, 32, 1 << 20)
    return [record for part in found.parts for record in decode_records(part)]


def framed(header: bytes) -> bytes:
    """Return a frame of the remoting protocol with this JSON header and no body."""
    return struct.pack(">ii", 4 + len(header), len(header)) + header
