"""The users of a server that keeps them in a file of its own: what was acknowledged is there after a restart."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.table import load_table
from understudy.runtime.world import real_world
from understudy.security.kept import KeptAuthority
from understudy.security.settings import SecuritySettings
from understudy.security.signature import Credentials, signer
from understudy.testkit.sim.disk import SimDisk

ROOT = Credentials("root", "r")
PATH = "conf/users.json"
NAMES = [f"user{number}" for number in range(60)]


async def reloaded(disk: SimDisk) -> set[str]:
    again = KeptAuthority(disk, PATH, [])
    await again.load()
    return set(again.table.users)


def body_of(name: str) -> dict[str, str]:
    return {"username": name, "password": "p"}


async def add(users: KeptAuthority, name: str) -> None:
    users.table.create_user(name, body_of(name), users.table.users["root"])
    await users.save()


async def test_users_created_at_once_are_all_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "kv.json")
    settings = SecuritySettings(authenticates=True, init_user=ROOT)

    async def create(client: RemotingClient, address: str, name: str) -> None:
        body = json.dumps(body_of(name)).encode()
        command = request(RequestCode.AUTH_CREATE_USER, {"username": name}, body)
        signer(ROOT)(command)
        answer = await client.invoke(address, command, 20_000)
        assert 0 == answer.code, answer.remark

    async with trio.open_nursery() as nursery:
        config = NamesrvConfig(kv_config_path=path)
        server = NameServer(real_world(), config, "127.0.0.1", 0, security=settings)
        host, port = await nursery.start(server.run)
        async with open_client(real_world()) as client, trio.open_nursery() as asking:
            for name in NAMES:
                asking.start_soon(create, client, f"{host}:{port}", name)
        nursery.cancel_scope.cancel()
    again = KeptAuthority(real_world().disk, str(tmp_path / "users.json"), [])
    await again.load()
    assert {*NAMES, "root"} == set(again.table.users)


@pytest.mark.parametrize("seed", range(5))
async def test_each_save_returns_when_its_own_change_is_on_the_disk(seed: int, autojump_clock: MockClock) -> None:
    disk = SimDisk(random.Random(seed), sync_seconds=0.01, spread_seconds=0.05)
    users = KeptAuthority(disk, PATH, [ROOT])

    async def add_and_look(name: str) -> None:
        await trio.sleep(int(name.removeprefix("user")) / 500)
        await add(users, name)
        found = load_table(disk, PATH).data
        assert found is not None and name in {user["username"] for user in found["users"]}

    async with trio.open_nursery() as nursery:
        for name in NAMES:
            nursery.start_soon(add_and_look, name)
    assert {*NAMES, "root"} == await reloaded(disk)


async def test_what_a_failed_or_cancelled_save_left_out_is_written_with_those_that_wait(
    autojump_clock: MockClock,
) -> None:
    disk = SimDisk(random.Random(1), sync_seconds=1)
    users = KeptAuthority(disk, PATH, [ROOT])
    await add(users, "first")
    # when a write fails while another waits, whose table is the same
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    failures = 0

    async def fail(name: str) -> None:
        nonlocal failures
        with pytest.raises(OSError, match="Input/output"):
            await add(users, name)
        failures += 1

    async with trio.open_nursery() as nursery:
        for name in ("second", "third"):
            nursery.start_soon(fail, name)
    # then neither is told that its change is durable
    assert 2 == failures
    disk.sync_error = None
    # and a caller that leaves while it waits takes nothing with it
    async with trio.open_nursery() as nursery:
        nursery.start_soon(add, users, "fourth")
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.1):
            await add(users, "fifth")
        await users.save()
    assert {"root", "first", "second", "third", "fourth", "fifth"} == await reloaded(disk)
