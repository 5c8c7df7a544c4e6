"""`understudy up` in this process: what is changed while it runs is there at its next start."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from understudy.mqclient.api import real_world
from understudy.programs import up
from understudy.programs.up_places import Places
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually

READ, CHANGE, SERVERS = "read", "change", ("namesrv", "container", "broker-b")
CODES = {
    "namesrv": {READ: RequestCode.GET_NAMESRV_CONFIG, CHANGE: RequestCode.UPDATE_NAMESRV_CONFIG},
    "container": {READ: RequestCode.GET_BROKER_CONFIG, CHANGE: RequestCode.UPDATE_BROKER_CONFIG},
    "broker-b": {READ: RequestCode.GET_BROKER_CONFIG, CHANGE: RequestCode.UPDATE_BROKER_CONFIG},
}
KEYS = {
    "namesrv": ("needWaitForService", "false", "true"),
    "container": ("updateNamesrvAddrInterval", "120000", "60000"),
    "broker-b": ("fileReservedTime", "72", "24"),
}


@asynccontextmanager
async def running(folder: Path, ports: dict[str, int]) -> AsyncIterator[RemotingClient]:
    """Run it until the block ends; yields a client, as soon as the second broker answers."""
    async with open_client(real_world()) as client, trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                up.serve,
                real_world(),
                Places(str(folder), "127.0.0.1", ports["namesrv"], ports["container"], ports["broker-b"] - 10),
                live=False,
            )
        )

        async def answers() -> bool:
            try:
                return await setting(client, ports, "broker-b") != ""
            except RemotingError:
                return False

        await eventually(answers)
        yield client
        nursery.cancel_scope.cancel()


async def setting(client: RemotingClient, ports: dict[str, int], server: str) -> str:
    answer = await client.invoke(f"127.0.0.1:{ports[server]}", request(CODES[server][READ]), 3000)
    assert answer.code == 0, answer
    return parse_properties(bytes(answer.body).decode())[KEYS[server][0]]


async def test_settings_that_were_changed_while_it_ran_count_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with PortBlocks(40) as blocks:
        first = blocks.take()
        ports = {"namesrv": first, "container": first + 5, "broker-b": first + 20}
        # given the defaults
        async with running(tmp_path / "data", ports) as client:
            for server, (key, before, after) in KEYS.items():
                assert await setting(client, ports, server) == before
                # when an operator changes a setting of each server
                body = f"{key}={after}\n".encode()
                changed = await client.invoke(
                    f"127.0.0.1:{ports[server]}", request(CODES[server][CHANGE], None, body), 3000
                )
                assert changed.code == 0, changed
        # then it counts at the next start, whose command line counts for ports, whatever the file says
        kept = tmp_path / "data" / "broker-b.conf"
        assert "fileReservedTime=24" in kept.read_text().splitlines()
        kept.write_text(kept.read_text() + "listenPort=1\n")
        # and what an editor misspelt is named with its line
        for server in ("namesrv", "container"):
            with (tmp_path / "data" / f"{server}.conf").open("a") as file:
                file.write("listenPrt=1\n")
        async with running(tmp_path / "data", ports) as client:
            assert {server: await setting(client, ports, server) for server in SERVERS} == {
                server: after for server, (_, _, after) in KEYS.items()
            }
    lines = [record.getMessage() for record in caplog.records if "listenPrt" in record.getMessage()]
    assert [re.search(r"(namesrv|container)\.conf:\d+", line) is not None for line in lines] == [True, True], lines


async def test_a_kept_setting_that_cannot_be_used_is_named_with_its_line(tmp_path: Path) -> None:
    # given a name server's setting that an editor broke
    (tmp_path / "namesrv.conf").write_text("# kept\nneedWaitForService=perhaps\n")
    # when it starts, then the file and the line are named and nothing is changed
    with pytest.raises(ConfigError, match=r"namesrv\.conf:2: needWaitForService"), PortBlocks(40) as blocks:
        first = blocks.take()
        places = Places(str(tmp_path), "127.0.0.1", first, first + 5, first + 10)
        await up.serve(real_world(), places, live=False)
    assert {"broker-a", "broker-b"}.isdisjoint(os.listdir(tmp_path))
