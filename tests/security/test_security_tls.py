"""TLS beside plain connections on one port: who is let in by which mode, what is bounded, and new certificates."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.mqadmin.main import main as mqadmin
from understudy.mqclient.api import Message, ProducerOptions, SessionOptions, open_producer
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.programs.tls_file import with_tls_file
from understudy.remoting.client import open_client
from understudy.remoting.command import request, response
from understudy.remoting.errors import ConnectFailedError, RemotingError
from understudy.remoting.server import RemotingServer
from understudy.runtime.clock import SystemClock
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.tls_server import HANDSHAKE_SECONDS, NoTlsError
from understudy.runtime.world import real_world
from understudy.security.settings import read_security
from understudy.security.tls import ClientFiles, TlsSettings, idle_keys, read_tls

AUTHORITY = trustme.CA()
OTHER = trustme.CA()


def files(folder: Path, name: str = "server", authority: trustme.CA = AUTHORITY) -> dict[str, str]:
    """Write a certificate, its key and who signed it; return the keys that name them."""
    made = authority.issue_cert("127.0.0.1", common_name=name)
    cert, key, trusted = (str(folder / f"{name}.{kind}") for kind in ("cert", "key", "ca"))
    made.cert_chain_pems[0].write_to_path(cert)
    made.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(trusted)
    return {"tls.server.certPath": cert, "tls.server.keyPath": key, "tls.server.trustCertPath": trusted}


def settings(keys: dict[str, str]) -> TlsSettings:
    return read_tls(Properties(keys, "tls.properties"))


@pytest.fixture
async def server(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[RemotingServer]:
    """A server that answers 77 with what it was sent, and speaks TLS where the peer does."""
    made = RemotingServer(real_world(), "127.0.0.1", 0)
    made.register(77, lambda connection, command: response(command, body=bytes(command.body)))
    made.tls = settings(files(tmp_path)).for_servers(SystemClock())
    await made.bind()
    nursery.start_soon(made.run)
    yield made
    nursery.cancel_scope.cancel()


async def ask(server: RemotingServer, context: ssl.SSLContext | None, body: bytes = b"hello") -> bytes:
    async with open_client(real_world()) as client:
        client.tls = context
        answer = await client.invoke(f"127.0.0.1:{server.address[1]}", request(77, None, body), 3_000)
        return bytes(answer.body)


@pytest.mark.parametrize(
    ("mode", "plain", "secured"), [("permissive", True, True), ("enforcing", False, True), ("disabled", True, False)]
)
async def test_the_mode_says_who_is_let_in(
    server: RemotingServer, tmp_path: Path, mode: str, plain: bool, secured: bool
) -> None:
    server.tls = settings({**files(tmp_path), "tls.server.mode": mode}).for_servers(SystemClock())
    large = os.urandom(3_000_000)
    for context, let_in in ((None, plain), (ClientFiles().context(), secured)):
        if let_in:
            assert large == await ask(server, context, large)
        else:
            with pytest.raises(RemotingError):
                await ask(server, context)


async def test_certificates_of_clients_are_asked_for_and_looked_at(server: RemotingServer, tmp_path: Path) -> None:
    keys = files(tmp_path) | {"tls.server.authClient": "true", "tls.server.need.client.auth": "require"}
    server.tls = settings(keys).for_servers(SystemClock())
    known, stranger = files(tmp_path, "known"), files(tmp_path, "stranger", OTHER)
    good = ClientFiles(known["tls.server.certPath"], known["tls.server.keyPath"], "", known["tls.server.trustCertPath"])
    assert b"hello" == await ask(server, good.context())
    bad = ClientFiles(stranger["tls.server.certPath"], stranger["tls.server.keyPath"])
    for context in (ClientFiles().context(), bad.context()):
        with pytest.raises(RemotingError):
            await ask(server, context)
    # and a client that trusts somebody else does not speak to this server
    with pytest.raises(ConnectFailedError, match="TLS handshake failed: CERTIFICATE_VERIFY_FAILED"):
        await ask(server, ClientFiles(authority=stranger["tls.server.trustCertPath"]).context())
    # whoever goes, the port serves on
    assert b"hello" == await ask(server, good.context())


async def test_a_handshake_may_come_byte_by_byte(server: RemotingServer) -> None:
    raw = await trio.open_tcp_stream("127.0.0.1", server.address[1])
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = ClientFiles().context().wrap_bio(theirs, ours)
    with trio.fail_after(30):
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in ours.read():
                    await raw.send_all(bytes([byte]))
                theirs.write(await raw.receive_some(65_536))
    assert secured.version() in ("TLSv1.2", "TLSv1.3")
    await raw.aclose()


class Silent:
    """A peer that sends *first* and nothing more."""

    local = peer = ("127.0.0.1", 1)

    def __init__(self, first: bytes) -> None:
        self._left = first
        self.closed = False

    async def receive_some(self, max_bytes: int) -> bytes:
        if not self._left:
            await trio.sleep_forever()
        given, self._left = self._left, b""
        return given

    def send_nowait(self, buffers: object) -> int:
        return 0

    async def send_all(self, data: object) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_a_peer_that_says_no_more_is_left_after_a_while(first: bytes, tmp_path: Path) -> None:
    tls = settings(files(tmp_path)).for_servers(SystemClock())
    assert tls is not None

    async def play() -> None:
        begin = trio.current_time()
        with pytest.raises(NoTlsError, match="did not finish its TLS handshake"):
            await tls.accept(Silent(first))
        assert HANDSHAKE_SECONDS == pytest.approx(trio.current_time() - begin)

    trio.run(play, clock=MockClock(autojump_threshold=0))


async def test_what_is_no_handshake_ends_with_its_connection(server: RemotingServer) -> None:
    raw = await trio.open_tcp_stream("127.0.0.1", server.address[1])
    await raw.send_all(b"\x16" + bytes(range(7, 207)))  # of no version: no length that more bytes are waited for
    with trio.fail_after(30):
        while await raw.receive_some(4096):
            pass
    await raw.aclose()
    assert b"hello" == await ask(server, None)


async def test_a_new_certificate_counts_without_a_restart(server: RemotingServer, tmp_path: Path) -> None:
    now = [0.0]

    class Stepped(SystemClock):
        def monotonic(self) -> float:
            return now[0]

    keys = files(tmp_path)
    server.tls = settings(keys).for_servers(Stepped())
    trusts = [ClientFiles(authority=str(tmp_path / name)).context() for name in ("server.ca",)]
    assert b"hello" == await ask(server, trusts[0])
    # when half of a new pair is there, then the old one counts
    new = OTHER.issue_cert("127.0.0.1")
    os.remove(keys["tls.server.keyPath"])
    new.private_key_pem.write_to_path(keys["tls.server.keyPath"])
    now[0] += 5
    assert b"hello" == await ask(server, trusts[0])
    # when it is whole, then it counts for the next connection
    os.remove(keys["tls.server.certPath"])
    new.cert_chain_pems[0].write_to_path(keys["tls.server.certPath"])
    OTHER.cert_pem.write_to_path(str(tmp_path / "other.ca"))
    now[0] += 5
    with pytest.raises(ConnectFailedError, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(server, trusts[0])
    assert b"hello" == await ask(server, ClientFiles(authority=str(tmp_path / "other.ca")).context())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tls.server.mode": "strict"}, "expected one of disabled, permissive, enforcing"),
        ({"tls.server.mode": "enforcing"}, "enforcing needs tls.server.certPath"),
        ({"tls.server.certPath": "a"}, "belong together"),
        ({"tls.enable": "true", "tls.client.authServer": "true"}, "needs tls.client.trustCertPath"),
        (
            {"tls.server.certPath": "a", "tls.server.keyPath": "b", "tls.server.need.client.auth": "require"},
            "otherwise any certificate would do",
        ),
    ],
)
def test_settings_that_promise_what_they_do_not_hold_are_refused(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(keys)


CERTIFICATE = {"tls.server.certPath": "a", "tls.server.keyPath": "b"}


@pytest.mark.parametrize(
    ("keys", "idle"),
    [
        ({}, {}),
        ({"tls.server.mode": "disabled", **CERTIFICATE, "tls.test.mode.enable": "false", "tls.enable": "TRUE"}, {}),
        ({"tls.test.mode.enable": "true"}, {"tls.test.mode.enable": "tls.server.certPath, and without one not at all"}),
        (
            {"tls.server.authClient": "true", "tls.server.trustCertPath": "c"},
            dict.fromkeys(("tls.server.authClient", "tls.server.trustCertPath"), "the ports speak no TLS"),
        ),
        ({**CERTIFICATE, "tls.server.trustCertPath": "c"}, {"tls.server.trustCertPath": "tls.server.authClient=true"}),
        ({**CERTIFICATE, "tls.server.trustCertPath": "c", "tls.server.authClient": "true"}, {}),
        ({"tls.client.authServer": "true"}, {"tls.client.authServer": "calls of this process are plain"}),
        (
            {"tls.enable": "true", "tls.client.trustCertPath": "c"},
            {"tls.client.trustCertPath": "every certificate of a server is taken"},
        ),
        ({"tls.enable": "true", "tls.client.trustCertPath": "c", "tls.client.authServer": "true"}, {}),
    ],
)
def test_keys_that_change_nothing_beside_the_others_are_named(keys: dict[str, str], idle: dict[str, str]) -> None:
    settings(keys)  # can be read
    lines = idle_keys(Properties(keys, "broker.conf"))
    assert len(idle) == len(lines)
    for (key, words), line in zip(idle.items(), lines, strict=True):
        assert line.startswith(f"broker.conf: {key} has no effect here: ")
        assert words in line


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    keys = files(tmp_path)
    with pytest.raises(ConfigError, match=r"none\.key: cannot be used"):
        settings({**keys, "tls.server.keyPath": str(tmp_path / "none.key")}).for_servers(SystemClock())
    with pytest.raises(ConfigError, match="cannot be used"):
        settings({**keys, "tls.server.keyPath": keys["tls.server.trustCertPath"]}).for_servers(SystemClock())


def test_the_file_of_the_reference_counts_before_the_servers_own(tmp_path: Path) -> None:
    usual = tmp_path / "tls.properties"
    usual.write_text("tls.server.mode=disabled\nlistenPort=1\n")
    own = Properties({"tls.server.mode": "permissive", "listenPort": "10911"}, "broker.conf")
    found = with_tls_file(own, str(usual))
    assert {"tls.server.mode": "disabled", "listenPort": "10911"} == found
    assert f"{usual}:1" == found.where("tls.server.mode")
    assert own == with_tls_file(own, str(tmp_path / "none"))
    named = own.changed({"tls.config.file": str(usual)}, "broker.conf:3")
    assert "disabled" == with_tls_file(named, "/none")["tls.server.mode"]


async def test_a_cluster_speaks_nothing_but_tls(tmp_path: Path, nursery: trio.Nursery) -> None:
    keys = files(tmp_path)
    keys |= {"tls.server.mode": "enforcing", "tls.enable": "true", "tls.client.authServer": "true"}
    keys["tls.client.trustCertPath"] = keys.pop("tls.server.trustCertPath")
    world = real_world()
    config = NamesrvConfig(kv_config_path=str(tmp_path / "namesrv" / "kvConfig.json"))
    name_server = NameServer(world, config, "127.0.0.1", 0, security=read_security(Properties(keys, "n")))
    _, port = await nursery.start(name_server.run)
    options, warnings = BrokerOptions.from_properties(
        {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "brokerName": "broker-a",
            "namesrvAddr": f"127.0.0.1:{port}",
            "mappedFileSizeCommitLog": str(1 << 20),
            "storePathRootDir": str(tmp_path / "store"),
            **keys,
        },
        machine=Machine("vm", "127.0.0.1", str(tmp_path / "store")),
    )
    assert [] == warnings
    broker: Broker = await nursery.start(host_broker, world, options)
    assert not any(key.startswith("tls.") for key in broker.options.properties())
    producer_options = ProducerOptions(session=SessionOptions(tls=ClientFiles().context()))
    async with open_producer(world, f"127.0.0.1:{port}", "p", producer_options) as producer:
        assert "SEND_OK" == str((await producer.send(Message("orders", b"hello"))).status)
    async with open_client(world) as client:
        for address in (f"127.0.0.1:{port}", broker.identity.address):
            with pytest.raises(RemotingError):
                await client.invoke(address, request(106), 3_000)
    # and the operators' tool speaks it when it is told to
    command = ["clusterList", "-n", f"127.0.0.1:{port}"]
    assert (0, 1) == (
        await trio.to_thread.run_sync(mqadmin, [*command, "--tls"]),
        await trio.to_thread.run_sync(mqadmin, command),
    )
    nursery.cancel_scope.cancel()
