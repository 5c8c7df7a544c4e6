"""Large bodies are read beside the event loop: a small request is answered meanwhile."""

from __future__ import annotations

import time

import pytest
import trio

from understudy.format.json_dialect import JsonError
from understudy.remoting import bodies
from understudy.remoting.bodies import LARGE_BODY_BYTES, Reading, body_of, json_of
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.remoting.frame import FrameError, FrameReader
from understudy.remoting.json_header import HeaderError, decode
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world
from understudy.testkit.processor_time import least_seconds

MIB = 1024 * 1024
HOSTILE = {
    "escaped quotes": b'{"a' + b'\\"' * (7 * MIB),
    "empty lists": b"[" + b"[]," * (5 * MIB) + b"1]",
    "objects": b"[" + b'{"a":1},' * (MIB * 15 // 8) + b"1]",
    "texts": b"[" + b'"",' * (5 * MIB) + b"1]",
    "dialect": b"[" + b"{a:1}," * (MIB * 5 // 2) + b"1]",
}


def count(connection: Connection, command: Command) -> Command:
    try:
        return response(command, ResponseCode.SUCCESS, str(len(json_of(command))))
    except JsonError as error:
        raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None


async def exchange(body: bytes) -> tuple[Command, float]:
    """Return the answer to a request with *body*, and for how many seconds the event loop stood still at most."""
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.register(RequestCode.CHECK_CLIENT_CONFIG, count)
    host, port = await server.bind()
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await trio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    async with trio.open_nursery() as nursery, open_client(world) as client:
        nursery.start_soon(server.run)
        await client.invoke(f"{host}:{port}", request(RequestCode.CHECK_CLIENT_CONFIG, body=b"[]"), 30_000)
        nursery.start_soon(watch)
        answer = await client.invoke(f"{host}:{port}", request(RequestCode.CHECK_CLIENT_CONFIG, body=body), 30_000)
        nursery.cancel_scope.cancel()
    return answer, longest


@pytest.mark.parametrize("shape", HOSTILE)
async def test_a_hostile_body_is_refused_and_leaves_the_loop_its_turns(shape: str) -> None:
    for _ in range(10):  # a busy machine takes turns away, too, but not always
        answer, longest = await exchange(HOSTILE[shape])
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "too many values" in (answer.remark or "")
        if longest < 0.25:
            break
    assert longest < 0.25  # 20 ms on a quiet machine; in one go it is about a second


async def test_a_small_request_overtakes_a_large_body_and_the_reader_runs_once() -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    seen: list[int] = []
    free = trio.Event()

    handled: list[int] = []

    class Gate:
        async def run(self, function):  # type: ignore[no-untyped-def]
            await free.wait()
            return function()

    def read(command: Command) -> int:
        seen.append(len(command.body))
        return len(command.body)

    def handler(connection: Connection, command: Command) -> Command:
        size = body_of(command, read)
        if size <= LARGE_BODY_BYTES:
            free.set()
        handled.append(size)
        return response(command, ResponseCode.SUCCESS, str(size))

    server._threads = Gate()
    server.register(7777, handler, Reading(read))
    host, port = await server.bind()
    async with trio.open_nursery() as nursery, open_client(world) as client:
        nursery.start_soon(server.run)

        async def ask(size: int) -> None:
            answer = await client.invoke(f"{host}:{port}", request(7777, body=b" " * size), 5000)
            assert str(size) == answer.remark

        async with trio.open_nursery() as asking:
            asking.start_soon(ask, LARGE_BODY_BYTES + 1)
            await trio.testing.wait_all_tasks_blocked(0.01)
            asking.start_soon(ask, 5)
        nursery.cancel_scope.cancel()

    assert handled == [5, LARGE_BODY_BYTES + 1]
    assert sorted(seen) == [5, LARGE_BODY_BYTES + 1]


def test_a_small_body_of_odd_forms_is_refused_before_it_takes_long() -> None:
    odd = b"[" + b"{a:1}," * (LARGE_BODY_BYTES // 6 - 10) + b"]"
    with pytest.raises(JsonError, match="too many values"):
        json_of(Command(code=46, opaque=1, body=odd))
    assert len(json_of(Command(code=46, opaque=1, body=b"[" + b"{a:1}," * 500 + b"]"))) == 500


async def test_what_reading_a_large_body_refuses_is_refused_by_the_handler() -> None:
    command = Command(code=46, opaque=1, body=b"[" + b" " * LARGE_BODY_BYTES)
    await bodies.read_ahead(real_world().threads, command, bodies.JSON.read)
    with pytest.raises(JsonError, match="text ends"):
        json_of(command)


def test_fields_of_a_header_that_mean_nothing_are_not_looked_into() -> None:
    nested = b"[" + b"[]," * 80_000 + b"1]"
    header = b'{"code":"105","opaque":"7","x":%b,"extFields":{"a":%b,"b":5}}' % (nested, nested)
    assert least_seconds(lambda: decode(header), 0.1) < 0.1
    command = decode(header)
    assert command.code == 105
    assert (command.ext or {})["b"] == "5"
    assert (command.ext or {})["a"] == nested.decode()


def test_headers_with_very_many_odd_fields_or_above_their_limit_are_refused() -> None:
    with pytest.raises(HeaderError, match="2000 ext fields"):
        decode(b'{"code":1,"extFields":{%b}}' % b",".join(b'"k%d":1' % number for number in range(2000)))
    with pytest.raises(FrameError, match="above the limit of 262144"):
        FrameReader().feed(b"\x00\x10\x00\x00\x00\x04\x00\x01")
