"""Every program that has a port, one like the other: which connections it takes, and who is answered there."""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
from pathlib import Path

import pytest
import trio
import trustme
from security_programs import BOB, HTTP2, PROGRAMS, PROXIES, ROOT, SERVERS, SIGNED, Caller, framed, started, with_bob

from understudy.programs import mqnamesrv, mqproxy
from understudy.remoting import access
from understudy.remoting.client import open_client
from understudy.runtime.network import ByteStream
from understudy.runtime.program import single_cause
from understudy.runtime.properties import ConfigError
from understudy.runtime.tls_server import dial_tls
from understudy.runtime.world import real_world
from understudy.security.needs import NEEDS
from understudy.security.tls import ClientFiles

KINDS = (*SERVERS, *PROXIES)
FORMER, LATER = trustme.CA(), trustme.CA()
UNKNOWN = 77_777


def put(folder: Path, authority: trustme.CA) -> tuple[str, str]:
    """Write a certificate of *authority* and its key in place of those that are there; return their paths."""
    made = authority.issue_cert("127.0.0.1")
    cert, key = str(folder / "server.pem"), str(folder / "server.key")
    for path in (cert, key):
        if os.path.exists(path):
            os.remove(path)
    made.cert_chain_pems[0].write_to_path(cert)
    made.private_key_pem.write_to_path(key)
    return cert, key


def tls_keys(kind: str, mode: str, certificate: str, key: str) -> dict[str, str]:
    if kind in PROXIES:
        return {"tlsTestModeEnable": "false", "tlsServerMode": mode, "tlsCertPath": certificate, "tlsKeyPath": key}
    return {"tls.server.mode": mode, "tls.server.certPath": certificate, "tls.server.keyPath": key}


def trusting(folder: Path, name: str, authority: trustme.CA) -> ssl.SSLContext:
    authority.cert_pem.write_to_path(str(folder / name))
    context = ClientFiles(authority=str(folder / name)).context()
    context.set_alpn_protocols(["h2"])
    return context


async def answers(kind: str, address: tuple[str, int], context: ssl.SSLContext | None) -> bool:
    """Return whether a peer that begins in this way is answered in its protocol, or its connection ends."""
    stream: ByteStream = await real_world().network.connect(*address, 5)
    try:
        if context is not None:
            try:
                stream = await dial_tls(stream, context)
            except ConnectionError:
                return False
        try:
            with trio.fail_after(20):
                if kind == PROXIES[0]:
                    await stream.send_all(HTTP2)
                    data = await stream.receive_some(9)
                    return len(data) >= 4 and data[3] == 4  # its settings
                await stream.send_all(framed(b'{"code":%d,"opaque":7,"language":"JAVA","version":475}' % UNKNOWN))
                data = await stream.receive_some(4096)
                return len(data) > 8 and b'"opaque":7' in data and len(data) == 4 + struct.unpack_from(">i", data)[0]
        except trio.BrokenResourceError:
            return False
    finally:
        await stream.aclose()


@pytest.mark.parametrize("mode", ["permissive", "enforcing", "disabled"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_port_tells_by_the_first_byte_who_is_let_in_and_takes_new_certificates(
    kind: str, mode: str, tmp_path: Path
) -> None:
    keys = tls_keys(kind, mode, *put(tmp_path, FORMER))
    former, later = trusting(tmp_path, "former.ca", FORMER), trusting(tmp_path, "later.ca", LATER)
    async with started(kind, tmp_path, keys) as running:
        # given a pair of files that came after the start
        put(tmp_path, LATER)
        # then they count for the connections that come, and those of each kind are let in as the mode says
        secured, plain = mode != "disabled", mode != "enforcing"
        assert (secured, False) == (
            await answers(kind, running.address, later),
            await answers(kind, running.address, former),
        )
        assert plain is await answers(kind, running.address, None)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_file_that_promises_tls_and_has_none_starts_no_program(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, option = PROGRAMS[program]
    file = tmp_path / "own.conf"
    for key, text in (("tls.server.mode", "strict"), ("tls.server.mode", "enforcing"), ("tls.server.certPath", "/a")):
        json_text = json.dumps({"namesrvAddr": "127.0.0.1:1", key: text}, indent=1)
        own = "controllerDLegerPeers=n0-127.0.0.1:1\ncontrollerDLegerSelfId=n0\n" if program == "mqcontroller" else ""
        file.write_text(json_text if option == "-pc" else f"{own}listenPort=0\n{key}={text}\n")
        assert 1 == main([option, str(file)]), key
        *_, said = capsys.readouterr().err.splitlines()
        assert said.startswith(f"{program}: {file}"), said
        assert key in said


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("tlsEnable", "docs/security.md says how TLS is set"),
        ("tls.client.authServer", "has no effect here: without tls.enable=true the calls of this process are plain"),
    ],
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_words_for_tls_that_no_program_reads_are_named_by_every_one(
    program: str, key: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, option = PROGRAMS[program]
    file = tmp_path / "own.conf"
    if option == "-pc":  # it prints no settings: what follows the warnings is that its port cannot be had
        with socket.create_server(("0.0.0.0", 0)) as taken:
            file.write_text(f'{{"{key}":true,"namesrvAddr":"127.0.0.1:1","grpcServerPort":{taken.getsockname()[1]}}}')
            assert 1 == main([option, str(file)])
    else:
        file.write_text(f"{key}=true\n")
        main([option, str(file), "-p"])
    said = [line for line in capsys.readouterr().err.splitlines() if key in line]
    assert 1 == len(said), said
    assert words in said[0]


def test_a_name_server_without_a_file_has_the_keys_of_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = tmp_path / "tls.properties"
    usual.write_text("tls.server.mode=enforcing\n")
    monkeypatch.setattr("understudy.programs.tls_file.with_tls_file.__defaults__", (str(usual),))
    assert 1 == mqnamesrv.main([])
    assert f"{usual}:1: tls.server.mode=enforcing needs" in capsys.readouterr().err


@pytest.mark.parametrize("named", [False, True])
def test_a_proxy_has_the_keys_of_the_file_that_it_names_or_of_the_usual_one(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, own = tmp_path / "tls.properties", tmp_path / "rmq-proxy.json"
    file.write_text("# of the host\ntls.server.mode=strict\n")
    usual = tmp_path / "none" if named else file
    monkeypatch.setattr("understudy.programs.tls_file.with_tls_file.__defaults__", (str(usual),))
    own.write_text(json.dumps({"namesrvAddr": "127.0.0.1:1"} | ({"tls.config.file": str(file)} if named else {})))
    assert 1 == mqproxy.main(["-pc", str(own)])
    said = f"mqproxy: {file}:2: tls.server.mode=strict: expected one of disabled, permissive, enforcing\n"
    assert said == capsys.readouterr().err


async def test_both_ports_of_a_proxy_have_the_certificate_of_the_file(tmp_path: Path) -> None:
    certificate, key = put(tmp_path, FORMER)
    file = tmp_path / "tls.properties"
    file.write_text(f"tls.server.certPath={certificate}\ntls.server.keyPath={key}\ntls.server.mode=enforcing\n")
    context = trusting(tmp_path, "former.ca", FORMER)
    for kind in PROXIES:
        async with started(kind, tmp_path, {"tls.config.file": str(file)}) as running:
            assert await answers(kind, running.address, context)
            assert not await answers(kind, running.address, None)


@pytest.mark.parametrize("kind", SERVERS)
async def test_every_code_of_every_program_has_a_class_and_a_rule_and_others_are_refused(
    kind: str, tmp_path: Path
) -> None:
    classes = (access.MESSAGING, access.CLUSTER, access.ADMINISTRATION)
    async with started(kind, tmp_path, SIGNED) as running, open_client(real_world()) as client:
        assert running.server is not None
        codes = running.server.codes
        # then each code that is served stands in one class and has a rule
        assert {1} == {sum(code in each for each in classes) for code in codes}
        assert codes <= NEEDS.keys()
        # and of codes that are not, nobody is told even that, unless it signs and may do everything
        nobody = Caller(client, running.place, None)
        wrong, root = nobody.by(BOB), nobody.by(ROOT)
        for code in (UNKNOWN, 1_013 if kind == "broker" else 310, *sorted(codes)):
            answer = await nobody.ask(code)
            assert (16, "username cannot be null.") == (answer.code, answer.remark), code
            answer = await wrong.ask(code)
            assert (16, "User:bob is not found.") == (answer.code, answer.remark), code
        assert 3 == (await root.ask(UNKNOWN)).code
        if 3001 in codes:
            answer = await (await with_bob(root, ("*", "All"))).ask(UNKNOWN)
            assert (16, f"User:bob has no permission for requests of code {UNKNOWN}") == (answer.code, answer.remark)


async def test_a_controller_in_a_name_server_knows_its_users(tmp_path: Path) -> None:
    async with (
        started("controller in a name server", tmp_path, SIGNED) as running,
        open_client(real_world()) as client,
    ):
        root = Caller(client, running.place, ROOT)
        assert 0 == (await root.ask(1005)).code
        assert 16 == (await root.by(BOB).ask(1005)).code


@pytest.mark.parametrize("kind", [each for each in SERVERS if each != "broker"])
async def test_a_server_that_nobody_could_sign_in_to_does_not_start(kind: str, tmp_path: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with started(kind, tmp_path, {"authenticationEnabled": "true"}):
            pass
    assert isinstance(single_cause(caught.value), ConfigError)
    assert "there is no super user who may sign in" in str(single_cause(caught.value))
