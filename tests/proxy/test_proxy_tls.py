"""One port for plain and secured connections, over real sockets."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from grpc_client import GrpcClient

from understudy.proxy.config import ProxyConfig, config_of
from understudy.proxy.grpc.call import Call, unary
from understudy.proxy.grpc.server import GrpcServer
from understudy.proxy.self_signed import SelfSigned
from understudy.proxy.server import Proxy
from understudy.runtime.network import ByteStream
from understudy.runtime.properties import ConfigError
from understudy.runtime.tls import TlsStream, Transport
from understudy.runtime.tls_server import CertificateFiles, Certificates, ServerTls, TlsMode
from understudy.runtime.world import real_world

BODY = bytes(60_000)


@asynccontextmanager
async def served(certificates: Certificates, mode: TlsMode) -> AsyncIterator[int]:
    async def echo(call: Call, request: bytes) -> bytes:
        return request

    world = real_world()
    server = GrpcServer(world, "127.0.0.1", 0, {"/t/Echo": unary(echo)}, tls=ServerTls(world.clock, certificates, mode))
    _, port = await server.bind()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield port
        nursery.cancel_scope.cancel()


async def echoed(port: int, context: ssl.SSLContext | None, preamble: bytes = b"") -> list[bytes]:
    """Play one call; nothing comes when the server closes the connection."""
    plain = await real_world().network.connect("127.0.0.1", port, 5)
    stream: ByteStream = plain
    if preamble:
        await plain.send_all(preamble)
    if context is not None:
        secured = trio.SSLStream(Transport(plain), context, server_hostname="localhost")
        await secured.do_handshake()
        assert "h2" == secured.selected_alpn_protocol()
        stream = TlsStream(secured, plain)
    client = GrpcClient(stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        try:
            with trio.fail_after(10):
                stream_of_call = await client.begin("/t/Echo")
                with contextlib.suppress(trio.BrokenResourceError):  # the server has closed
                    await client.send(stream_of_call, BODY, end=True)
                return (await client.wait(stream_of_call)).messages
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await plain.aclose()


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    return context


async def test_a_client_that_looks_at_no_certificate_is_served_beside_a_plain_one() -> None:
    context = client_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with served(SelfSigned(), TlsMode.PERMISSIVE) as port:
        assert [BODY] == await echoed(port, context)
        assert [BODY] == await echoed(port, None)
        assert [BODY] == await echoed(port, context, b"PROXY TCP4 203.0.113.9 10.0.0.1 4711 8081\r\n")


async def test_a_client_that_looks_gets_the_certificate_of_the_files(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    context = client_context()
    authority.configure_trust(context)
    files = CertificateFiles(str(tmp_path / "both.pem"), str(tmp_path / "both.pem"), protocols=("h2",))
    async with served(files, TlsMode.ENFORCING) as port:
        assert [BODY] == await echoed(port, context)
        assert [] == await echoed(port, None)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"tlsServerMode": "always"}, "expected one of disabled, permissive, enforcing"),
        ({"tlsTestModeEnable": False}, "tlsKeyPath and tlsCertPath must name files"),
    ],
)
def test_settings_of_tls_that_cannot_work_are_refused(keys: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config_of(keys, "rmq-proxy.json")


async def test_a_certificate_that_cannot_be_used_stops_the_start_with_its_name() -> None:
    keys: dict[str, object] = {"tlsTestModeEnable": False, "namesrvAddr": "127.0.0.1:1", "grpcServerPort": 0}
    keys |= {"tlsKeyPath": "/missing/a.key", "tlsCertPath": "/missing/a.crt", "remotingListenPort": 0}
    config, _ = config_of(keys, "rmq-proxy.json")
    with pytest.raises(ConfigError, match=r"/missing/a\.crt"):
        await Proxy(real_world(), config).run()


OWN_FILES = {"tlsTestModeEnable": False, "tlsCertPath": "/own.crt", "tlsKeyPath": "/own.key"}
FILE = {
    "tls.server.mode": "enforcing",
    "tls.server.certPath": "/file.crt",
    "tls.server.keyPath": "/file.key",
    "tls.server.keyPassword": "open",
    "tls.server.authClient": "true",
    "tls.server.trustCertPath": "/file.ca",
    "tls.server.need.client.auth": "require",
    "tls.enable": "true",
}


def beside(keys: dict[str, object], file: dict[str, str]) -> ProxyConfig:
    """Return the settings of a proxy with these *keys* on a host with this *file* of TLS keys."""
    config, warnings = config_of(keys, "rmq-proxy.json", lambda own: own.changed(file, "tls.properties"))
    assert warnings == []
    return config


@pytest.mark.parametrize(
    ("keys", "file", "mode", "certificate"),
    [
        ({}, {}, TlsMode.PERMISSIVE, None),
        ({}, FILE, TlsMode.ENFORCING, "/file.crt"),
        ({"tlsServerMode": "permissive"}, FILE, TlsMode.PERMISSIVE, "/file.crt"),
        ({"tlsTestModeEnable": True}, FILE, TlsMode.ENFORCING, None),
        (OWN_FILES, FILE, TlsMode.ENFORCING, "/own.crt"),
        (OWN_FILES | {"tlsServerMode": "Disabled"}, FILE, TlsMode.DISABLED, "/own.crt"),
        ({}, {"tls.server.mode": "enforcing"}, TlsMode.ENFORCING, None),
        (OWN_FILES, {"tls.server.certPath": "/lonely.crt"}, TlsMode.PERMISSIVE, "/own.crt"),
    ],
)
def test_own_keys_count_before_those_of_the_file_for_every_program(
    keys: dict[str, object], file: dict[str, str], mode: TlsMode, certificate: str | None
) -> None:
    config = beside(keys, file)
    assert mode is config.tls.mode
    assert certificate == (None if config.tls.server is None else config.tls.server.certificate)
    # and what the file asks of clients belongs to its certificate
    asked = None if config.tls.server is None else (config.tls.server.authority, config.tls.server.verify)
    expected = {None: None, "/own.crt": (None, ssl.CERT_NONE), "/file.crt": ("/file.ca", ssl.CERT_REQUIRED)}
    assert expected[certificate] == asked
    assert ("tls.enable" in file) is (config.security.tls.client is not None)


PATHS = {"tlsCertPath": "/own.crt", "tlsKeyPath": "/own.key"}


@pytest.mark.parametrize(
    ("keys", "file", "shown"),
    [
        ({}, {}, None),
        ({}, FILE, None),
        (OWN_FILES, FILE, None),
        (PATHS | {"tlsServerMode": "disabled"}, {}, None),
        (PATHS, {}, "a certificate that the proxy makes itself"),
        (PATHS | {"tlsTestModeEnable": True}, FILE, "a certificate that the proxy makes itself"),
        (PATHS, FILE, "the certificate of tls.server.certPath (tls.properties)"),
    ],
)
def test_paths_of_a_certificate_that_is_not_shown_are_named(
    keys: dict[str, object], file: dict[str, str], shown: str | None
) -> None:
    _, warnings = config_of(keys, "rmq-proxy.json", lambda own: own.changed(file, "tls.properties"))
    begin = "rmq-proxy.json: tlsCertPath has no effect without tlsTestModeEnable=false: clients see "
    assert len(warnings) == (shown is not None)
    assert all(line.startswith(f"{begin}{shown}") for line in warnings)


@pytest.mark.parametrize(
    ("keys", "file", "why"),
    [
        ({}, {"tls.server.mode": "strict"}, r"^tls\.properties: tls\.server\.mode=strict: expected one of"),
        ({}, {"tls.server.certPath": "/a"}, r"^tls\.properties: .* belong together"),
        ({"tls.server.certPath": "/a"}, {}, r"^rmq-proxy\.json: tls\.server\.certPath is no key of this file"),
    ],
)
def test_keys_that_cannot_work_are_named_with_their_file(
    keys: dict[str, object], file: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        beside(keys, file)


async def test_a_certificate_of_the_file_that_cannot_be_used_stops_the_start() -> None:
    keys: dict[str, object] = {"namesrvAddr": "127.0.0.1:1", "grpcServerPort": 0, "remotingListenPort": 0}
    file = {"tls.server.certPath": "/missing/a.crt", "tls.server.keyPath": "/missing/a.key"}
    with pytest.raises(ConfigError, match=r"^tls\.server\.certPath=/missing/a\.crt, .*: cannot be used"):
        await Proxy(real_world(), beside(keys, file)).run()
