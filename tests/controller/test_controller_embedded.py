"""A controller inside a name server, and names that go into the greetings between members."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import attrs
import pytest
import trio
import trustme

from understudy.controller.configuration import MAX_NAME_BYTES, ControllerConfig, read_peers
from understudy.controller.embed import open_controller
from understudy.controller.raft.admission import Admission
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.messages import MAX_HELLO_BYTES, encode_frame
from understudy.controller.raft.security import MemberSecurity, SecurityError, TlsFiles
from understudy.controller.raft.settings import QuorumSettings
from understudy.format.json_dialect import dumps
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.disk import File, RealDisk
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import eventually, until


@pytest.mark.covers("R124")
async def test_a_disk_that_cannot_be_used_leaves_the_name_server_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, port_blocks: PortBlocks
) -> None:
    in_the_way, (port,) = tmp_path / "store", port_blocks.middles(1)
    in_the_way.write_text("a file")
    text = (
        f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerDLegerSelfId=n0\n"
        f"controllerStorePath={in_the_way}\ncontrollerLogFile=off\n"
    )
    embedded = open_controller(real_world(), parse_properties(text))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(embedded.run)
        await until(lambda: "embedded controller stopped" in caplog.text)
        assert not nursery.cancel_scope.cancel_called
        nursery.cancel_scope.cancel()
    (line,) = [record.getMessage() for record in caplog.records if "embedded controller stopped" in record.getMessage()]
    assert "routes go on, elections do not" in line
    assert f"{in_the_way}/lock cannot be used: Not a directory" in line


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
def test_names_that_fit_no_greeting_are_said_at_the_start(letter: str, tmp_path: Path) -> None:
    length = MAX_NAME_BYTES // len(letter.encode())
    group, members = letter * length, [letter * (length - 1) + number for number in "012"]
    peers = ";".join(f"{member}-10.0.0.{number}:9878" for number, member in enumerate(members, 1))
    config = ControllerConfig(
        controller_d_leger_group=group, controller_d_leger_peers=peers, controller_d_leger_self_id=members[0]
    )
    addresses = read_peers(config).raft
    journal = Journal(real_world().disk, str(tmp_path / "raft.log"), group, members[0], "f" * 24)
    hello = Admission(QuorumSettings(group, members[0], addresses, "/s")).greeting_for(members[1], journal, bytes(32))
    assert len(encode_frame(hello)) <= MAX_HELLO_BYTES
    journal.close()

    with pytest.raises(ConfigError, match=f"controllerDLegerGroup: {letter * 20}... is longer than 100 bytes"):
        read_peers(attrs.evolve(config, controller_d_leger_group=group + "x"))
    with pytest.raises(ConfigError, match=f"controllerDLegerPeers: {letter * 20}... is longer than 100 bytes"):
        read_peers(attrs.evolve(config, controller_d_leger_peers=letter + peers))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("certificate", "cannot use certificate {0}/certificate with key {0}/key: "),
        ("key", "cannot use certificate {0}/certificate with key {0}/key: "),
        ("authority", "cannot use authority {0}/authority: "),
    ],
)
@pytest.mark.parametrize("how", ["missing", "garbage"])
def test_files_for_tls_that_cannot_be_used_are_named(broken: str, said: str, how: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("n0")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key"))
    authority.cert_pem.write_to_path(str(tmp_path / "authority"))
    files = TlsFiles(*(str(tmp_path / name) for name in ("certificate", "key", "authority")))
    MemberSecurity(files)
    if how == "missing":
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_text("garbage")
    with pytest.raises(SecurityError) as refused:
        MemberSecurity(files)
    reason = "No such file or directory" if how == "missing" else "it is damaged, not in PEM format, or does not fit ("
    assert str(refused.value).startswith(said.format(tmp_path) + reason)
    assert "\n" not in str(refused.value)


class FrozenFile:
    """A file whose sync waits while its disk is frozen."""

    def __init__(self, disk: FreezingDisk, file: File) -> None:
        self._disk, self._file = disk, file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._disk.wait()
        self._file.sync()


class FreezingDisk(RealDisk):
    """A disk whose syncs wait while it is frozen; it notes whether the event loop was among those that would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.thawed = threading.Event()
        self.thawed.set()
        self.waiting = 0
        self.on_the_loop = False
        self._loop = threading.get_ident()

    def wait(self) -> None:
        if self.thawed.is_set():
            return
        if threading.get_ident() == self._loop:
            self.on_the_loop = True
            return
        self.waiting += 1
        assert self.thawed.wait(60)

    def open(self, path: str, **more: bool) -> File:
        return cast(File, FrozenFile(self, super().open(path, **more)))

    def sync_folder(self, path: str) -> None:
        self.wait()
        super().sync_folder(path)

    def sync_everything(self, path: str) -> bool:
        self.wait()
        return super().sync_everything(path)


async def test_routes_go_on_while_the_disk_of_an_embedded_controller_stands_still(
    tmp_path: Path, port_blocks: PortBlocks
) -> None:
    (port,), disk = port_blocks.middles(1), FreezingDisk()
    world = attrs.evolve(real_world(), disk=disk)
    text = (
        f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerDLegerSelfId=n0\n"
        f"controllerStorePath={tmp_path / 'store'}\ncontrollerLogFile=off\n"
    )
    config = NamesrvConfig(kv_config_path=str(tmp_path / "kv.json"))
    server = NameServer(world, config, "127.0.0.1", 0, controller=open_controller(world, parse_properties(text)))
    at_controller = f"127.0.0.1:{port}"
    async with trio.open_nursery() as nursery, open_client(real_world()) as client:
        await nursery.start(server.run)
        at_name_server = "{}:{}".format(*server.address)

        async def ask(code: RequestCode, fields: dict[str, str], address: str, body: bytes = b"") -> Command:
            return await client.invoke(address, request(code, fields, body), 30_000)

        async def leads() -> bool:
            try:
                answer = await ask(RequestCode.CONTROLLER_GET_METADATA_INFO, {}, at_controller)
            except RemotingError:
                return False
            return (answer.ext or {}).get("isLeader") == "true"

        await eventually(leads)
        broker = {"brokerName": "a", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0"}
        topics = {name: {"topicName": name, "perm": 6} for name in ("T", "U")}
        registered = dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}})
        assert (await ask(RequestCode.REGISTER_BROKER, broker, at_name_server, registered)).code == 0
        # when the disk takes no more, and a broker wants something written
        disk.thawed.clear()
        fields = {"clusterName": "C", "brokerName": "a", "appliedBrokerId": "1", "registerCheckCode": "10.0.0.1:1;1"}
        nursery.start_soon(ask, RequestCode.CONTROLLER_APPLY_BROKER_ID, fields, at_controller)
        await until(lambda: disk.waiting > 0 or disk.on_the_loop)
        # then routes are answered, and go on being answered
        with trio.fail_after(20):
            for _ in range(100):
                route = await ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, at_name_server)
                assert (route.code, b'"a"' in route.body) == (0, True)
        assert disk.waiting > 0 and not disk.thawed.is_set()
        disk.thawed.set()
        assert not disk.on_the_loop
        nursery.cancel_scope.cancel()
