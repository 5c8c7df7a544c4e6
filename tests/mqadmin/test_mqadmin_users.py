"""Users and rules are copied from one broker to another, all of them or some; who is missing is told."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from understudy.format.json_dialect import dumps, loads
from understudy.mqadmin.command import CommandFailedError, Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world

KINDS = {
    "copyUser": ("username", "-u", RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER),
    "copyAcl": ("subject", "-s", RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL),
}


@asynccontextmanager
async def broker(rows: list[dict[str, Any]], asked: list[tuple[int, Any]]) -> AsyncIterator[str]:
    """A server that lists *rows* and notes what is to be changed."""

    def answer(connection: Connection, command: Command) -> Command:
        if command.code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL):
            return response(command, 0, body=dumps(rows))
        asked.append((command.code, loads(command.body)))
        return response(command, 0)

    server = RemotingServer(real_world(), "127.0.0.1", 0)
    server.default(answer)
    host, port = await server.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield f"{host}:{port}"
        nursery.cancel_scope.cancel()


async def run(line: str) -> None:
    words = line.split()
    command = load_commands()[words[0]]
    values = parse(command.all_options, words[1:])
    await run_command(command, values, "127.0.0.1:1", Output(False, io.StringIO()), real_world())


@pytest.mark.parametrize("name", KINDS)
async def test_what_is_there_already_is_updated_and_the_rest_created(name: str) -> None:
    key, _, create, update = KINDS[name]
    rows = [{key: "User:a"}, {key: "User:b"}]
    asked: list[tuple[int, Any]] = []
    async with broker(rows, []) as source, broker(rows[:1], asked) as target:
        await run(f"{name} -f {source} -t {target}")
    assert asked == [(update, rows[0]), (create, rows[1])]


@pytest.mark.parametrize("name", KINDS)
async def test_a_name_that_the_source_does_not_have_is_told_after_the_others_were_copied(name: str) -> None:
    key, option, create, _ = KINDS[name]
    asked: list[tuple[int, Any]] = []
    async with broker([{key: "User:a"}, {key: "User:b"}], []) as source, broker([], asked) as target:
        with pytest.raises(CommandFailedError, match=f"{source} knows nothing of User:c; 1 were copied"):
            await run(f"{name} -f {source} -t {target} {option} User:b,User:c")
    assert asked == [(create, {key: "User:b"})]


async def test_users_whose_passwords_are_not_told_are_not_copied() -> None:
    asked: list[tuple[int, Any]] = []
    async with broker([{"username": "a", "password": ""}], []) as source, broker([], asked) as target:
        with pytest.raises(CommandFailedError, match=f"{source} tells passwords to super users only: sign as one"):
            await run(f"copyUser -f {source} -t {target}")
    assert not asked
