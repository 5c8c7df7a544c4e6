"""A gRPC server alone, over the network and clock of a simulated host, with methods of every kind."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio
from grpc_client import open_client

from understudy.proxy.grpc.call import Call, Method, unary
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.server import GrpcServer
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.runtime.load import Load
from understudy.runtime.world import World
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

PORT = 8081
LIMITS = GrpcLimits(message_bytes=1024 * 1024)


@attrs.define
class Rig:
    """A server on one simulated host, and the world of its clients on another."""

    cluster: SimCluster
    server: GrpcServer
    world: World
    address: tuple[str, int]
    load: Load
    began: list[str] = attrs.field(factory=list)
    ended: list[str] = attrs.field(factory=list)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


@asynccontextmanager
async def served(cluster: SimCluster, limits: GrpcLimits = LIMITS) -> AsyncIterator[Rig]:
    async def echo(call: Call, request: bytes) -> bytes:
        return request

    async def many(call: Call) -> None:
        request = await call.receive() or b""
        for _ in range(10):
            await call.send(request)

    async def both(call: Call) -> None:
        while (message := await call.receive()) is not None:
            await call.send(message)

    async def forever(call: Call) -> None:
        rig.began.append("forever")
        try:
            await trio.sleep_forever()
        finally:
            rig.ended.append("forever")

    async def slow(call: Call, request: bytes) -> bytes:
        rig.began.append("slow")
        await trio.sleep(1)
        return request

    async def refuse(call: Call, request: bytes) -> bytes:
        raise RpcError(StatusCode.INVALID_ARGUMENT, "schlecht: ä%")

    async def fail(call: Call, request: bytes) -> bytes:
        raise ZeroDivisionError("secret")

    async def deaf(call: Call) -> None:
        await trio.sleep_forever()

    async def length(call: Call, request: bytes) -> bytes:
        return b"%d" % len(request)

    methods = {
        "/t/Length": unary(length),
        "/t/Small": unary(echo, most_bytes=100),
        "/t/Echo": unary(echo),
        "/t/Many": Method(many),
        "/t/Both": Method(both, streams=True, endless=True),
        "/t/Forever": Method(forever, endless=True),
        "/t/Slow": unary(slow),
        "/t/Refuse": unary(refuse),
        "/t/Fail": unary(fail),
        "/t/Deaf": Method(deaf, streams=True),
    }
    host = cluster.client_world("server")
    server = GrpcServer(host, "0.0.0.0", PORT, methods, limits)
    rig = Rig(cluster, server, cluster.client_world("client"), (cluster.address("server"), PORT), host.load)
    await server.bind()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with rig.scope:
                await server.run()

        nursery.start_soon(run)
        try:
            yield rig
        finally:
            rig.scope.cancel()


def play(test: object, limits: GrpcLimits = LIMITS, *, reads: bool = True) -> None:
    """Run *test* with a rig and a client on virtual time."""

    async def scenario(source: random.Random) -> None:
        with trio.fail_after(3600):
            async with (
                SimCluster(source) as cluster,
                served(cluster, limits) as rig,
                open_client(rig.world, rig.address, reads=reads) as client,
            ):
                await test(rig, client)  # type: ignore[operator]

    run_seed(scenario, seed=1)
