"""The program, the embedding and the settings: real sockets, real files, real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trustme
from controller_processes import alone, foreign_store

from understudy.controller.configuration import (
    RAFT_PORT_DISTANCE,
    ControllerConfig,
    read_config,
    read_peers,
    show,
    timing,
    tls_files,
)
from understudy.controller.embed import open_controller
from understudy.controller.file_warnings import NO_EFFECT, unused_keys
from understudy.controller.raft.errors import NotLeaderError
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.pinned import ConsensusLibraryError, check_sources
from understudy.controller.raft.security import TlsFiles
from understudy.controller.raft.settings import QuorumSettings
from understudy.programs.mqcontroller import main
from understudy.remoting import netty_config
from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.runtime.properties import ConfigError, parse_properties
from understudy.runtime.world import real_world
from understudy.testkit.drills import controller as drill
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.quorum.simulation import CounterMachine
from understudy.testkit.waiting import until

PEERS = "controllerDLegerPeers=n0-h:9878;n1-h:9879;n2-h:9880\n"


def read(text: str) -> ControllerConfig:
    return read_config(parse_properties(text, "file"))


KIND = "there is one kind of quorum here, set up by the controllerDLeger keys"


class TestSettings:
    @pytest.mark.covers("R131")
    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ("", "controllerDLegerPeers and controllerDLegerSelfId are needed"),
            (PEERS + "controllerDLegerSelfId=n7\n", "controllerDLegerSelfId=n7 is not one of controllerDLegerPeers"),
            ("controllerDLegerPeers=n0-h:1;n0-h:2\ncontrollerDLegerSelfId=n0\n", "id n0 is given twice"),
            ("controllerDLegerPeers=n0-h:1;n1-h:1\ncontrollerDLegerSelfId=n0\n", "address h:1 is given twice"),
            ("controllerDLegerPeers=n0:h:1\ncontrollerDLegerSelfId=n0\n", "'n0:h:1' is not of the form id-host:port"),
            (PEERS + "controllerDLegerSelfId=n0\ncontrollerRaftPeers=n0-h:1\n", "must name the same ids"),
            (PEERS + "controllerDLegerSelfId=n0\ncontrollerType=zk\n", "controllerType=zk is neither"),
            (
                "controllerDLegerPeers=n0-h:15000;n1-h:35000;n2-h:9878\ncontrollerDLegerSelfId=n0\n",
                "n0-h:15000 and n1-h:35000 would both talk to other members at h:25000: give controllerRaftPeers",
            ),
        ],
    )
    def test_wrong_member_lists_are_refused(self, text: str, wrong: str) -> None:
        with pytest.raises(ConfigError, match=wrong):
            read_peers(read(text))

    def test_members_that_would_share_a_port_are_told_theirs_or_are_on_hosts_of_their_own(self) -> None:
        own = "controllerDLegerSelfId=n0\n"
        text = f"controllerDLegerPeers=n0-h:15000;n1-h:35000\n{own}controllerRaftPeers=n0-h:25000;n1-h:25001\n"
        assert read_peers(read(text)).raft == {"n0": ("h", 25000), "n1": ("h", 25001)}
        text = f"controllerDLegerPeers=n0-h:15000;n1-g:35000\n{own}"
        assert read_peers(read(text)).raft == {"n0": ("h", 25000), "n1": ("g", 25000)}

    def test_small_and_even_groups_are_warned_about(self) -> None:
        one = read("controllerDLegerPeers=n0-h:9878\ncontrollerDLegerSelfId=n0\n")
        two = read("controllerDLegerPeers=n0-h:9878;n1-h:9879\ncontrollerDLegerSelfId=n0\n")
        assert "survives no failure" in read_peers(one).warnings[0]
        assert "use an odd number" in read_peers(two).warnings[0]
        assert read_peers(read(PEERS + "controllerDLegerSelfId=n0\n")).warnings == ()

    def test_raft_addresses_follow_the_api_addresses(self) -> None:
        peers = read_peers(read(PEERS + "controllerDLegerSelfId=n1\n"))
        assert peers.raft == {"n0": ("h", 19878), "n1": ("h", 19879), "n2": ("h", 19880)}
        assert peers.listed() == "n0:h:9878;n1:h:9879;n2:h:9880;"

    @pytest.mark.parametrize("port", [1, 22_767, 22_768, 32_767, 32_768, 42_767, 42_768, 50_999, 60_999, 65_535])
    def test_members_meet_where_no_outgoing_connection_can_be(self, port: int) -> None:
        # given members side by side; when nothing says where they meet
        text = f"controllerDLegerPeers=n0-h:{port};n1-h:{port - 1 or 2}\ncontrollerDLegerSelfId=n0\n"
        raft = [address[1] for address in read_peers(read(text)).raft.values()]
        # then it is below the ports of connections that go out, above those of the system, and two places
        assert all(10_000 <= each <= 32_767 for each in raft)
        assert 2 == len(set(raft))

    def test_bad_values_name_the_key(self) -> None:
        with pytest.raises(ConfigError, match="scanInactiveMasterInterval=soon: expected a whole number"):
            read("scanInactiveMasterInterval=soon\n")
        with pytest.raises(ConfigError, match="more than three heartbeats"):
            timing(read("controllerRaftElectionMin=200\n"))
        with pytest.raises(ConfigError, match="needs controllerRaftTlsKey and controllerRaftTlsAuthority too"):
            tls_files(read("controllerRaftTlsCertificate=/x\n"))

    def test_keys_that_nobody_reads_are_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = (
            "controllerStorPath=/x\nlistenPort=9876\nkvConfigPath=/k\nsupportActingMaster=true\n"
            "jRaftInitConf=h:1\ncontrollerDeployedStandAlone=true\nenableControllerInNamesrv=true\n"
            "mappedFileSize=1073741824\nisProcessReadEvent=true\nserverWorkerThreads=4\n"
        )
        values = parse_properties(text, "file")
        said = [
            "file:1: unknown key controllerStorPath is ignored, the nearest known key is controllerStorePath",
            f"file:5: jRaftInitConf has no effect here: {KIND}",
            f"file:6: controllerDeployedStandAlone has no effect here: {NO_EFFECT['controllerDeployedStandAlone']}",
            f"file:9: isProcessReadEvent has no effect here: {NO_EFFECT['isProcessReadEvent']}",
            f"file:10: serverWorkerThreads has no effect here: {NO_EFFECT['serverWorkerThreads']}",
        ]
        assert unused_keys(values, read_config(values)) == said
        # in a name server it is the name server that warns of its listening side
        assert unused_keys(values, read_config(values), netty_config.NO_EFFECT) == said[:-1]
        path = tmp_path / "controller.conf"
        path.write_text("controllerStorPath=/x\n")
        assert main(["-c", str(path), "-p"]) == 0
        assert f"warning: {path}:1: unknown key controllerStorPath" in capsys.readouterr().err

    @pytest.mark.covers("R133", "R134", "R189")
    def test_defaults_are_the_references(self, capsys: pytest.CaptureFixture[str]) -> None:
        shown = dict(line.split("=", 1) for line in show(ControllerConfig()).splitlines())
        assert shown["enableElectUncleanMaster"] == "false"
        assert shown["notifyBrokerRoleChanged"] == "true"
        assert shown["scanNotActiveBrokerInterval"] == shown["scanInactiveMasterInterval"] == "5000"
        assert shown["electMasterMaxRetryCount"] == "3"
        assert shown["controllerStorePath"].endswith("DLedgerController")
        assert read("controllerDeployedStandAlone=true\n") == ControllerConfig()
        assert main(["-p"]) == 0
        assert "controllerDLegerPeers=" in capsys.readouterr().out


class TestProgram:
    def test_mistakes_are_one_line(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "controller.conf"
        path.write_text(PEERS + "controllerDLegerSelfId=n7\n")
        assert main(["-c", str(path)]) == 1
        assert capsys.readouterr().err == (
            f"mqcontroller: {path}:2: controllerDLegerSelfId=n7 is not one of controllerDLegerPeers: n0, n1, n2\n"
        )
        assert main(["-c", str(tmp_path / "absent")]) == 1
        assert "absent cannot be read" in capsys.readouterr().err

    def test_a_foreign_store_is_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], port_blocks: PortBlocks
    ) -> None:
        assert main(["-c", str(foreign_store(tmp_path, port_blocks))]) == 1
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mqcontroller:")]
        assert len(lines) == 1
        assert "this is no controller log" in lines[0]

    @pytest.mark.parametrize("named", [True, False], ids=["a port that was given", "the default port"])
    def test_a_place_to_meet_that_is_taken_names_its_key(
        self, named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], port_blocks: PortBlocks
    ) -> None:
        path = tmp_path / "controller.conf"
        api, raft = port_blocks.middles(2)
        text = f"controllerDLegerSelfId=n0\ncontrollerStorePath={tmp_path / 'store'}\n"
        if named:
            text += f"controllerRaftPeers=n0-127.0.0.1:{raft}\n"
        else:  # an API port whose default for the other one is ours
            api = raft - RAFT_PORT_DISTANCE
        path.write_text(f"controllerDLegerPeers=n0-127.0.0.1:{api}\n" + text)
        with socket.create_server(("0.0.0.0", raft)):
            assert main(["-c", str(path)]) == 1
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mqcontroller:")]
        assert len(lines) == 1
        assert f":{raft}: " in lines[0]
        assert "controllerRaftPeers" in lines[0]

    @pytest.mark.slow
    @pytest.mark.covers("R125", "R132", "R204")
    def test_killed_again_and_again_it_keeps_what_it_confirmed(self, tmp_path: Path, port_blocks: PortBlocks) -> None:
        text, api = alone(tmp_path, port_blocks)
        path = tmp_path / "controller.conf"
        path.write_text(text)
        command = [sys.executable, "-m", "understudy.programs.mqcontroller", "-c", str(path)]
        for life in range(1, 5):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            assert b"boot success" in process.stdout.readline()
            try:
                known = trio.run(self._apply_next_id, api)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
                process.stdout.close()
            assert known == life

    @staticmethod
    async def _apply_next_id(port: int) -> int:
        address = f"127.0.0.1:{port}"
        async with open_client(real_world()) as client:

            async def ask(code: int, **fields: str) -> tuple[int, dict[str, str]]:
                answer = await client.invoke(
                    address, request(code, {"clusterName": "C", "brokerName": "a", **fields}), 3000
                )
                return answer.code, answer.ext or {}

            with trio.fail_after(20):
                while True:
                    code, fields = await ask(1012)
                    if code == 0:
                        break
                    await trio.sleep(0.05)
            next_id = fields["nextBrokerId"]
            applied = await ask(1013, appliedBrokerId=next_id, registerCheckCode=f"h:{next_id};1")
            assert applied[0] == 0
            return int(next_id)

    @pytest.mark.slow
    @pytest.mark.covers("R124", "R125", "R127", "R335")
    def test_the_drill_plays(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert drill.main(["--java", "none"]) == 0
        said = capsys.readouterr().out
        for step in ("LEADER", "METADATA", "DECIDED", "TOLD", "REJOINED", "REFUSED", "GOES ON", "RESTORED"):
            assert step in said
        assert "outcome=won" in said
        # On a busy machine another controller may become active meanwhile: then that one tells of its own election.
        assert "cause=[the connection of broker" in said or "term=3" in said.partition("REJOINED")[0]


class TestEmbedded:
    @pytest.mark.covers("R122")
    async def test_it_serves_on_its_own_port(self, tmp_path: Path, port_blocks: PortBlocks) -> None:
        text, api = alone(tmp_path, port_blocks)
        text += "listenPort=9876\nenableControllerInNamesrv=true\ncontrollerDLegerGroup=g\n"
        embedded = open_controller(real_world(), parse_properties(text))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(embedded.run)
            await until(embedded.controller.member.leads)
            async with open_client(real_world()) as client:
                answer = await client.invoke(f"127.0.0.1:{api}", request(1005), 3000)
            assert (answer.ext or {})["isLeader"] == "true"
            nursery.cancel_scope.cancel()

    @pytest.mark.covers("R124")
    async def test_a_controller_that_must_stop_leaves_the_name_server_alone(
        self, tmp_path: Path, port_blocks: PortBlocks
    ) -> None:
        text = foreign_store(tmp_path, port_blocks).read_text()
        embedded = open_controller(real_world(), parse_properties(text))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(embedded.run)
            await until(lambda: embedded.controller.member.problem)
            assert "raft.log" in embedded.controller.member.problem
            assert not nursery.cancel_scope.cancel_called
            nursery.cancel_scope.cancel()


class TestMutualTls:
    """Certificates are made for the test; member n0 presents the one of its id, a stranger another."""

    def files(self, folder: Path, authority: trustme.CA, name: str) -> TlsFiles:
        certificate = authority.issue_cert(name)
        paths = TlsFiles(str(folder / f"{name}.pem"), str(folder / f"{name}.key"), str(folder / f"{name}.ca"))
        certificate.cert_chain_pems[0].write_to_path(paths.certificate)
        certificate.private_key_pem.write_to_path(paths.key)
        authority.cert_pem.write_to_path(paths.authority)
        return paths

    def member(self, folder: Path, name: str, ports: list[int], tls: TlsFiles | None) -> QuorumMember:
        addresses = {f"n{index}": ("127.0.0.1", port) for index, port in enumerate(ports)}
        settings = QuorumSettings("g", name, addresses, str(folder / name), listen_host="127.0.0.1", tls=tls)
        return QuorumMember(real_world(), settings, CounterMachine())

    async def test_members_with_their_own_certificates_form_a_quorum(
        self, tmp_path: Path, port_blocks: PortBlocks
    ) -> None:
        authority, ports = trustme.CA(), port_blocks.middles(3)
        members = [
            self.member(tmp_path, name, ports, self.files(tmp_path, authority, name)) for name in ("n0", "n1", "n2")
        ]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(member.run)
            await until(lambda: any(member.leads() for member in members))
            leader = next(member for member in members if member.leads())
            assert await leader.propose("client", 1, b"x") == b"1"
            nursery.cancel_scope.cancel()

    @pytest.mark.parametrize("stranger", ["another name", "another authority", "plain"])
    async def test_a_wrong_certificate_is_refused(self, tmp_path: Path, stranger: str, port_blocks: PortBlocks) -> None:
        authority, ports = trustme.CA(), port_blocks.middles(3)
        tls: TlsFiles | None = None
        if stranger == "another name":
            tls = self.files(tmp_path, authority, "n9")
        elif stranger == "another authority":
            tls = self.files(tmp_path, trustme.CA(), "n2")
        good = [self.member(tmp_path, name, ports, self.files(tmp_path, authority, name)) for name in ("n0", "n1")]
        bad = self.member(tmp_path, "n2", ports, tls)
        async with trio.open_nursery() as nursery:
            for member in [*good, bad]:
                nursery.start_soon(member.run)
            # the quorum is founded by all members only, so nobody leads while one of them is not who it says
            await until(lambda: all(m.links is not None and m.links.counters.rejected_connections for m in good))
            assert not any(member.leads() for member in [*good, bad])
            assert bad.facts().connected == ()
            with pytest.raises(NotLeaderError):
                await bad.propose("client", 1, b"x")
            nursery.cancel_scope.cancel()


def test_another_library_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "syncobj.py").write_text("# not the audited source\n")
    with pytest.raises(ConsensusLibraryError, match=r"is not the audited one of 0\.3\.17 .* pip install"):
        check_sources(tmp_path, {"syncobj.py": "0" * 64})
    with pytest.raises(ConsensusLibraryError, match="missing"):
        check_sources(tmp_path, {"absent.py": "0" * 64})
    assert os.listdir(tmp_path) == ["syncobj.py"]
