"""The real mqadmin asks a real controller and ours, real brokers behind both: it prints the same."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from controller_processes import received, send_many, until_true
from controller_tools import BothTools, both_tools, lines_of

from understudy.format.json_dialect import loads
from understudy.mqadmin.command import Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.mqclient.api import open_producer, real_world
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.testkit.drills.controller_processes import (
    Processes,
    controller_settings,
    java_broker_settings,
    properties,
)
from understudy.testkit.java_tools import LAUNCHER, missing
from understudy.testkit.port_blocks import PortBlocks

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PYTHON = [sys.executable, "-m"]
SAME_SECONDS = 30
_ID = re.compile(r"(?<=rokerId[=\t])\d+|(?<=old master )\d+|(?<=Broker \[a,  )\d+")
"""Where a broker's id stands in what the tool prints."""


@attrs.define
class Side:
    """A controller, a name server of ours and two real brokers in controller mode.

    Args:
        folder: for settings, data and output.
        real: whether the controller is the real one.
        first_port: of sixty free ones.
    """

    folder: Path
    real: bool
    first_port: int
    processes: Processes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir()
        self.processes = Processes(self.folder)

    @property
    def controller(self) -> str:
        return f"127.0.0.1:{self.first_port}"

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.first_port + 2}"

    def broker(self, number: int) -> str:
        return f"127.0.0.1:{self.first_port + 10 + 20 * number}"

    def start_controller(self, *, real: bool) -> None:
        """Start a controller; a real one and one of ours have nothing in common but their addresses."""
        folder = self.folder / ("real" if real else "ours")
        folder.mkdir(exist_ok=True)
        raft = {"n0": self.first_port + 1}
        path = self._written("n0", controller_settings("n0", {"n0": self.first_port}, raft, folder))
        command = [*PYTHON, "understudy.programs.mqcontroller", "-c", path]
        if real:
            home = str(self.folder / "home-n0")
            command = [str(LAUNCHER), "controller", "--conf", path, "--heap", "256m", "--home", home]
        self.processes.start("n0", command)

    def start_name_server(self) -> None:
        port = str(self.first_port + 2)
        path = self._written("namesrv", {"listenPort": port, "bindAddress": "127.0.0.1"})
        self.processes.start("namesrv", [*PYTHON, "understudy.programs.mqnamesrv", "-c", path])

    def start_broker(self, number: int) -> None:
        port, store = self.first_port + 10 + 20 * number, self.folder / f"store{number}"
        path = self._written(
            f"broker{number}",
            java_broker_settings("a", port, self.name_server, self.controller, store)
            | {"haMaxTimeSlaveNotCatchup": "60000", "controllerHeartBeatTimeoutMills": "20000"},
        )
        home = str(self.folder / f"home{number}")
        command = [str(LAUNCHER), "broker", "--conf", path, "--heap", "256m", "--home", home]
        self.processes.start(f"broker{number}", command)

    def _written(self, name: str, settings: dict[str, str]) -> str:
        path = self.folder / f"{name}.conf"
        path.write_text(properties(settings))
        return str(path)

    async def group(self, client: RemotingClient) -> dict[str, Any]:
        """Return the group as the controller has it; empty when it does not answer or has none."""
        try:
            answer = await client.invoke(self.controller, request(1006, None, b'["a"]'), 3000)
        except RemotingError:
            return {}
        return dict(loads(answer.body)["replicasInfoTable"].get("a", {})) if answer.code == 0 and answer.body else {}

    def ids(self) -> dict[int, int]:
        """Return the id of each broker that has one: a broker to which an answer comes late asks for another one."""
        files = {number: self.folder / f"store{number}" / "brokerIdentity" for number in (0, 1)}
        texts = {number: file.read_text() for number, file in files.items() if file.exists()}
        # A Java broker writes the file in place, so that one who looks may find it empty.
        whole = {number: re.fullmatch(r"[^#]+#[^#]+#(\d+)\s*", text) for number, text in texts.items()}
        return {number: int(found[1]) for number, found in whole.items() if found}

    async def settled(self, client: RemotingClient, members: list[int], master: int) -> None:
        """Wait for a sync state set of these brokers (by number), and for the name server to show it."""

        async def right() -> bool:
            group, ids = await self.group(client), self.ids()
            rows = group.get("inSyncReplicas") or []
            if not set(members) <= set(ids) or group.get("masterBrokerId") != ids[master]:
                return False
            answer = await client.invoke(self.name_server, request(106), 3000)
            shown = loads(answer.body)["brokerAddrTable"].get("a", {}).get("brokerAddrs", {})
            wanted = {"0" if number == master else str(ids[number]): self.broker(number) for number in members}
            return {row["brokerId"] for row in rows} == {ids[number] for number in members} and wanted == {
                key: value for key, value in shown.items() if value in wanted.values()
            }

        await until_true(right)

    def asked(self, command: str) -> str:
        """Return *command* for this side: ``@C`` is its controller, ``@0`` and ``@1`` are its brokers' ids."""
        for number, own in self.ids().items():
            command = command.replace(f"@{number}", str(own))
        return command.replace("@C", self.controller)

    def common(self, lines: list[str]) -> list[str]:
        """Return *lines* with this side's own addresses and folder replaced, and brokers in one order.

        The tool goes through a table of addresses: in which order depends on their ports.
        """
        names = {
            self.controller: "CONTROLLER",
            f"127.0.0.1:{self.first_port + 1}": "QUORUM",
            self.name_server: "NAMESERVER",
            self.broker(0): "BROKER0",
            self.broker(1): "BROKER1",
            str(self.folder / ("real" if self.real else "ours")): "FOLDER",
            f"=  {self.first_port}": "=  PORT",
        }
        text = "\n".join(lines)
        for own, name in names.items():
            text = text.replace(own, name)
        ids = {str(own): f"ID{number}" for number, own in self.ids().items()}
        text = _ID.sub(lambda found: ids.get(found[0], found[0]), text)
        blocks: list[list[str]] = [[]]
        for line in text.splitlines():
            if line.startswith("#clusterName"):
                blocks.append([])
            blocks[-1].append(line)
        return [line for block in sorted(blocks) for line in block]


class Beside:
    """Both sides, asked by the same tool."""

    def __init__(self, tools: BothTools, sides: list[Side]) -> None:
        self.tools, self.sides = tools, sides

    async def said(self, command: str) -> list[list[str]]:
        """Return what the real tool prints about each side; see :meth:`Side.asked`."""
        said = []
        for side in self.sides:
            printed = await self.tools.real(side.asked(command), side.name_server)
            said.append(side.common(printed))
        return said

    async def same(self, command: str) -> list[str]:
        """Run a command against both sides and return what is printed about either.

        What only looks is asked again while it differs: a log is copied, and a heartbeat comes, a little later.
        """
        real, ours = await self.said(command)
        if command.startswith("get"):
            with trio.move_on_after(SAME_SECONDS):
                while ours != real:
                    real, ours = await self.said(command)
        assert ours == real, command
        return ours

    async def same_again_and_again(self, command: str, count: int) -> list[str]:
        """Run a command that prints for ever in a process of its own; return its first *count* lines."""
        first: dict[bool, list[str]] = {}

        async def read(side: Side) -> None:
            words = side.asked(command).split()
            process = await trio.lowlevel.open_process(
                [str(LAUNCHER), "admin", *words, "-n", side.name_server], stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            text = b""
            async with process.stdout as output:
                async for part in output:
                    text += part
                    if len(lines_of(text.decode())) > count:  # the last one may be half
                        break
            process.kill()
            await process.wait()
            first[side.real] = side.common(lines_of(text.decode())[:count])

        async with trio.open_nursery() as nursery:
            for side in self.sides:
                nursery.start_soon(read, side)
        assert first[False] == first[True], command
        return first[False]


@pytest.mark.covers("R129", "R130", "R133", "R134", "R166", "R202", "R203", "R249", "R251", "R261", "R262", "R345")
async def test_the_real_mqadmin_prints_the_same_of_a_real_controller_and_of_ours(tmp_path: Path) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    blocks = PortBlocks(60)
    sides = [Side(tmp_path / ("real" if real else "ours"), real, blocks.take()) for real in (True, False)]
    try:
        with both_tools() as tools, trio.fail_after(600):
            async with open_client(real_world()) as client:
                await compare(Beside(tools, sides), client)
                await lose_masters(sides, client)
                await move(sides[0], client)
    finally:
        for side in sides:
            side.processes.kill_all()
        blocks.release()


async def compare(beside: Beside, client: RemotingClient) -> None:
    """Lead both groups through the same life and look at them with the same commands."""

    async def settled(members: list[int], master: int) -> None:
        for side in beside.sides:
            await side.settled(client, members, master)

    # given two brokers on each side, the first of which is the master, and the same messages
    for side in beside.sides:
        side.start_controller(real=side.real)
        side.start_name_server()
        side.start_broker(0)
    await settled([0], 0)
    for side in beside.sides:
        side.start_broker(1)
    await settled([0, 1], 0)
    for side in beside.sides:
        async with open_producer(real_world(), side.name_server, "senders") as producer:
            await send_many(producer, "message", 10)

    # when nothing has happened yet, then what is shown is the same
    assert "#ControllerLeaderAddress\tCONTROLLER" in await beside.same("getControllerMetaData -a @C")
    by_name = await beside.same("getSyncStateSet -a @C -b a")
    assert ["#MasterBrokerId\tID0", "#SyncStateSetNums\t2"] == [by_name[1], by_name[5]]
    assert await beside.same("getSyncStateSet -a @C -c drill") == by_name
    assert await beside.same_again_and_again("getSyncStateSet -a @C -b a -i 1", 16) == by_name * 2
    epochs = await beside.same("getBrokerEpoch -b a")
    assert sum(line.startswith("#Epoch: EpochEntry{epoch=1, startOffset=0") for line in epochs) == 2
    assert await beside.same("getBrokerEpoch -c drill") == epochs
    again = await beside.same_again_and_again("getBrokerEpoch -b a -i 1", 2 * len(epochs))
    assert sorted(again) == sorted(epochs * 2)

    # and so is what is refused
    assert "CODE: 2011" in "\n".join(await beside.same("electMaster -a @C -b @0 -bn a -c drill"))
    assert "CODE: 2009" in "\n".join(await beside.same("cleanBrokerMetadata -a @C -b @1 -bn a -c drill"))
    for command in (
        "cleanBrokerMetadata -a @C -b 1 -bn zz -c drill",
        "electMaster -a @C -b 1 -bn zz -c drill",
        "getSyncStateSet -a @C -b zz",
        "getBrokerEpoch -b zz",
        "getSyncStateSet -a @C -c zz",
        "getBrokerEpoch -c zz",
    ):
        await beside.same(command)

    # and so are the settings that both have, before and after a change
    for value in ("4000", "300"):
        assert f"scanInactiveMasterInterval : {value}" in await beside.same(
            f"updateControllerConfig -a @C -k scanInactiveMasterInterval -v {value}"
        )
        real, ours = await beside.said("getControllerConfig -a @C")
        assert f"{'scanInactiveMasterInterval':<50}=  {value}" in ours
        # an object's address, and a folder that each installation has for itself
        differing = {line.partition("=")[0].strip() for line in real if line not in ours}
        assert differing == {"jraftConfig", "rocketmqHome"}

    # when the role is moved: the answer of the real controller breaks the tool afterwards, ours is printed
    real, ours = await beside.said("electMaster -a @C -b @1 -bn a -c drill")
    assert "not support unquoted name" in "\n".join(real)
    assert "#BrokerMasterAddr\tBROKER1" in ours
    await settled([0, 1], 1)
    # then both show it alike
    assert "#MasterBrokerId\tID1" in await beside.same("getSyncStateSet -a @C -b a")
    epochs = await beside.same("getBrokerEpoch -b a")
    assert sum(line.startswith("#Epoch: EpochEntry{epoch=2") for line in epochs) == 2

    # when the former master dies, then both show it alike, and it can be removed from both
    for side in beside.sides:
        side.processes.kill("broker0")
    await settled([1], 1)
    assert "alive=false" in "\n".join(await beside.same("getSyncStateSet -a @C -b a"))
    assert await beside.same("cleanBrokerMetadata -a @C -b @0 -bn a -c drill") == [
        "clear broker a metadata from controller success!"
    ]
    await beside.same("getSyncStateSet -a @C -b a")


async def lose_masters(sides: list[Side], client: RemotingClient) -> None:
    """Kill the only broker that is left on each side: our tool says why nobody leads, whoever controls."""
    for side in sides:
        kind = "a real controller" if side.real else "ours"
        assert f"{side.broker(1)}) is master" in await why_no_master(side), kind
        side.processes.kill("broker1")
        with trio.fail_after(60):
            while "#Master\tnone\n" not in await why_no_master(side):  # noqa: ASYNC110 - other processes decide it
                await trio.sleep(0.2)
        told = await why_no_master(side)
        assert f"{side.broker(1)}\tno answer\trefused: in the sync-state set, but it does not run" in told, kind
        assert f"({side.broker(1)}): nobody else surely has every acknowledged message" in told, kind
    # and after the step that it names there is a master
    sides[0].start_broker(1)
    await sides[0].settled(client, [1], 1)
    assert f"#NextStep\tnothing: broker {sides[0].ids()[1]} ({sides[0].broker(1)}) is master" in await why_no_master(
        sides[0]
    )


async def why_no_master(side: Side) -> str:
    """Return what ``mqadmin whyNoMaster`` prints."""
    stream, command = io.StringIO(), load_commands()["whyNoMaster"]
    values = parse(command.all_options, ["-a", side.controller, "-b", "a"])
    await run_command(command, values, "", Output(False, stream), real_world())
    return stream.getvalue()


async def move(side: Side, client: RemotingClient) -> None:
    """Put our controller into the place of the real one, as the documentation says: nothing is lost."""
    # given a real controller that is replaced by an empty one of ours: the broker goes on
    side.processes.kill("n0")
    side.start_controller(real=False)
    async with open_producer(real_world(), side.name_server, "senders") as producer:
        await send_many(producer, "meanwhile", 5)
    # when the master, stopped, loses what the former controller told it, and starts before the slave, which has nothing
    side.processes.kill("broker1")
    shutil.rmtree(side.folder / "store0")
    for name in ("brokerIdentity", "epochFileCheckpoint"):
        for path in (side.folder / "store1").glob(f"{name}*"):
            path.unlink()
    side.start_broker(1)
    await side.settled(client, [1], 1)
    side.start_broker(0)
    # then they are a group again, with every message
    await side.settled(client, [0, 1], 1)
    wanted = {f"message-{number}" for number in range(10)} | {f"meanwhile-{number}" for number in range(5)}
    assert await received(side.name_server, len(wanted)) == wanted
