"""Every request code is classified, and a server closed to all but some addresses answers no other administration."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import pytest
import trio

from understudy.remoting.access import (
    ADMINISTRATION,
    CALLS_TO_CLIENTS,
    CLUSTER,
    MESSAGING,
    AddressRanges,
    ranges_of,
)
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.dispatch import Handler
from understudy.remoting.frame import FrameReader, encode
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world


def test_every_request_code_stands_in_exactly_one_class() -> None:
    classes = (MESSAGING, CALLS_TO_CLIENTS, CLUSTER, ADMINISTRATION)
    assert sorted(itertools.chain(*classes)) == sorted(RequestCode)


def test_what_changes_tables_settings_or_files_is_administration() -> None:
    changing = {code for code in RequestCode if code.name.startswith(("UPDATE_", "DELETE_", "CLEAN_", "AUTH_", "PUT_"))}
    changing -= {RequestCode.UPDATE_CONSUMER_OFFSET}
    assert changing <= ADMINISTRATION


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("127.0.0.1", ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "::1", "a.host"]),
        ("10.0.0.0/8; ::1", ["10.255.0.1", "::1"], ["11.0.0.1"]),
    ],
)
def test_addresses_and_networks(text: str, inside: list[str], outside: list[str]) -> None:
    ranges = AddressRanges(text)
    assert all(map(ranges.holds, inside))
    assert not any(map(ranges.holds, outside))
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        AddressRanges("10.0.0.0/99")
    assert ranges_of(" ") is None


@pytest.mark.parametrize(("listed", "code"), [("127.0.0.1", 0), ("10.0.0.1", ResponseCode.NO_PERMISSION), (None, 0)])
async def test_a_closed_server_answers_administration_to_some(listed: str | None, code: int) -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.administrators = ranges_of(listed)
    for asked in RequestCode:
        server.register(asked, lambda connection, command: response(command))
    fast = RemotingServer(world, "127.0.0.1", 0)
    server.copy_to(fast)
    async with trio.open_nursery() as nursery, open_client(world) as client:
        for each in (server, fast):
            host, port = await each.bind()
            nursery.start_soon(each.run)
            for asked in RequestCode:
                answer = await client.invoke(f"{host}:{port}", request(asked), 5000)
                assert answer.code == (code if asked in ADMINISTRATION else 0), asked
                if answer.code:
                    assert "adminAddresses of this server does not name 127.0.0.1" in (answer.remark or "")
        nursery.cancel_scope.cancel()


class Open:
    """A gate that everything passes."""

    def authenticate(self, command: Command, address: str) -> None: ...

    def authorize(self, command: Command, address: str) -> None: ...

    def authorize_in_steps(self, command: Command, address: str) -> Generator[None, None, None]:
        yield from ()

    def guarded(self, code: int, handler: Handler) -> Handler:
        return handler


@pytest.mark.parametrize("gate", [None, Open()], ids=["unsigned", "signed"])
@pytest.mark.parametrize(("ext", "code"), [({"designateElect": "TRUE"}, 16), ({"designateElect": "false"}, 0), ({}, 0)])
async def test_a_request_that_is_administration_by_what_it_says_is_answered_to_some(
    ext: dict[str, str], code: int, gate: Open | None
) -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.administrators, server.gate = ranges_of("10.0.0.1"), gate
    server.register(RequestCode.CONTROLLER_ELECT_MASTER, lambda connection, command: response(command))
    async with trio.open_nursery() as nursery, open_client(world) as client:
        host, port = await server.bind()
        nursery.start_soon(server.run)
        answer = await client.invoke(f"{host}:{port}", request(RequestCode.CONTROLLER_ELECT_MASTER, ext), 5000)
        assert answer.code == code
        nursery.cancel_scope.cancel()


async def test_a_preamble_does_not_make_an_administrator() -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    server.administrators = ranges_of("10.9.9.9")
    server.register(RequestCode.UPDATE_BROKER_CONFIG, lambda connection, command: response(command))

    async with trio.open_nursery() as nursery:
        host, port = await server.bind()
        nursery.start_soon(server.run)
        async with await trio.open_tcp_stream(host, port) as stream:
            preamble = b"PROXY TCP4 10.9.9.9 127.0.0.1 4000 10911\r\n"
            await stream.send_all(preamble + encode(request(RequestCode.UPDATE_BROKER_CONFIG)))
            (answer,) = FrameReader().feed(await stream.receive_some(65536))
        nursery.cancel_scope.cancel()
    assert answer.code == ResponseCode.NO_PERMISSION
