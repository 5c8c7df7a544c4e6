"""The holes that the reference has, each named and played against the servers of a cluster with rules: none works.

Those of its proxies are played in ``tests/proxy/test_proxy_attacks.py``.
"""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest
import trio
import trustme
from security_programs import (
    BOB,
    INNER,
    PROGRAMS,
    ROOT,
    SEND,
    SIGNED,
    Caller,
    start_broker,
    started,
    stored,
    with_bob,
)

from understudy.format.record import offset_message_id
from understudy.mqclient.heartbeat import heartbeat_body
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.runtime.disk import RealDisk
from understudy.runtime.network import ByteStream
from understudy.runtime.property_file import read_properties_file
from understudy.runtime.world import real_world
from understudy.security.gate import FOR_USER, FROM_ADDRESS
from understudy.security.settings import read_security
from understudy.security.signature import Credentials
from understudy.security.tls import ClientFiles
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

UNCHECKED = (21, 25, 26, 28, 43, 45, 46, 61, 201, 324, 325, 361, 400, 401, 200151)
"""Requests that the reference lets pass for everybody who signs."""


async def test_configuration_read_and_changed_by_a_user_without_a_policy(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery)
    bob = await with_bob(Caller(client, broker.identity.address, ROOT))
    before = broker.options.properties()
    for code in UNCHECKED:
        for ext in ({}, {"topic": "orders", "consumerGroup": "g", "group": "g"}):
            answer = await bob.ask(code, ext, b"brokerPermission=2\n" if code == 25 else b"{}")
            assert 16 == answer.code, code
            assert "User:bob has no permission" in (answer.remark or "")
    assert before == broker.options.properties()
    nursery.cancel_scope.cancel()


async def test_impersonation_of_a_super_user_by_what_a_header_says(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery)
    bob = await with_bob(Caller(client, broker.identity.address, ROOT))
    for claimed in (
        {"x-mq-authorization-ak": ROOT.access_key, "rpc-remote-address": "10.0.0.1:1", "x-mq-channel-id": "c"},
        {"username": ROOT.access_key},
        {FOR_USER: ROOT.access_key, FROM_ADDRESS: "10.0.0.1"},
    ):
        assert 16 == (await bob.ask(26, claimed)).code
    # nor by his own signature under another name
    assert 16 == (await bob.by(Credentials(ROOT.access_key, BOB.secret_key)).ask(26)).code
    nursery.cancel_scope.cancel()


async def theft_of_passwords(asked: Caller, thief: Caller) -> None:
    """Ask for every user's password, as *thief*, who may look at the cluster and change it."""
    whole = {each["username"]: each["password"] for each in json.loads((await asked.done(3005)).body)}
    assert {ROOT.access_key: ROOT.secret_key, INNER.access_key: INNER.secret_key, "bob": BOB.secret_key} == whole
    # what was asked is answered in its form, so that tables can be printed, without a single password
    listed = json.loads((await thief.done(3005)).body)
    single = [json.loads((await thief.done(3004, {"username": name})).body) for name in whole]
    for rows in (listed, single):
        assert dict.fromkeys(whole, "") == {row["username"]: row["password"] for row in rows}
        assert ["Super", "Super", "Normal"] == [row["userType"] for row in rows]
    # not even when his request says that it is a super user's
    claimed = await thief.done(3005, {FOR_USER: ROOT.access_key, "username": ROOT.access_key})
    assert listed == json.loads(claimed.body)
    # nor in the table that replicas copy
    answer = await thief.ask(960)
    assert (16, b"") == (answer.code, bytes(answer.body))
    assert sorted(whole) == sorted(each["username"] for each in json.loads((await asked.done(960)).body)["users"])


ASKED_OF_ROOT = {"username": ROOT.access_key}


@pytest.mark.parametrize("kind", ["broker", "name server"])
@pytest.mark.parametrize("keys", [{}, {"authorizationEnabled": "false"}, {"authorizationWhitelist": "960,3004,3005"}])
async def test_theft_of_the_passwords_of_super_users(
    kind: str, keys: dict[str, str], tmp_path: Path, client: RemotingClient
) -> None:
    async with started(kind, tmp_path, {**SIGNED, **keys}) as server:
        root = Caller(client, server.place, ROOT)
        own = json.loads((await root.done(3004, ASKED_OF_ROOT)).body)
        assert ROOT.secret_key == own["password"]
        await theft_of_passwords(root, await with_bob(root, ("*", "All")))


async def test_theft_of_passwords_where_no_signature_is_needed(tmp_path: Path, client: RemotingClient) -> None:
    async with started("broker", tmp_path, {**SIGNED, "authenticationWhitelist": "960,3004,3005"}) as server:
        nobody = Caller(client, server.place, None)
        for claimed in ({}, {"AccessKey": ROOT.access_key, "Signature": "x"}):
            assert "" == json.loads((await nobody.done(3004, {**ASKED_OF_ROOT, **claimed})).body)["password"]
            assert {""} == {each["password"] for each in json.loads((await nobody.done(3005, claimed)).body)}
            assert 16 == (await nobody.ask(960, claimed)).code


async def test_impersonation_of_a_super_user_where_no_signature_is_needed(
    tmp_path: Path, client: RemotingClient
) -> None:
    async with started("broker", tmp_path, {**SIGNED, "authenticationWhitelist": "26,3001,3002,3003,3004"}) as server:
        root, nobody = Caller(client, server.place, ROOT), Caller(client, server.place, None)
        bob = await with_bob(root)
        signed = {"AccessKey": BOB.access_key, "Signature": "x"}
        # given requests that need no signature, and say whose they are or do not
        for claimed in ({}, {"AccessKey": ROOT.access_key, "Signature": "x"}, {"AccessKey": ROOT.access_key}, signed):
            # then they may what everybody may
            assert 0 == (await nobody.ask(26, claimed)).code
            # and neither make super users, nor change or remove them
            for code, name, info in (
                (3001, "mallory", {"password": "p", "userType": "Super"}),
                (3002, ROOT.access_key, {"password": "p"}),
                (3002, "bob", {"userType": "Super"}),
                (3003, INNER.access_key, {}),
            ):
                answer = await nobody.ask(code, {"username": name, **claimed}, json.dumps(info).encode())
                assert (16, "The super user can only be create by super user") == (answer.code, answer.remark)
        assert 16 == (await bob.ask(3002, {"username": "bob"}, b'{"userType":"Super"}')).code
        # while who has signed is who he is
        await root.done(3001, {"username": "second"}, {"password": "p", "userType": "Super"})
        assert "p" == json.loads((await root.done(3004, {"username": "second"})).body)["password"]


async def relay(ours: ByteStream, theirs: ByteStream, seen: bytearray) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        while data := await ours.receive_some(1 << 16):
            seen += data
            await theirs.send_all(data)


async def test_replay_of_what_was_seen_on_the_wire_of_tls(tmp_path: Path, nursery: trio.Nursery) -> None:
    made = trustme.CA().issue_cert("127.0.0.1")
    keys = {"tls.server.certPath": str(tmp_path / "a.pem"), "tls.server.keyPath": str(tmp_path / "a.key")}
    made.cert_chain_pems[0].write_to_path(keys["tls.server.certPath"])
    made.private_key_pem.write_to_path(keys["tls.server.keyPath"])
    broker = await start_broker(tmp_path, nursery, **keys, **{"tls.server.mode": "enforcing"})
    host, _, port = broker.identity.address.rpartition(":")
    network, seen = real_world().network, bytearray()
    listener = await network.listen("127.0.0.1", 0)

    async def tap() -> None:
        near = await listener.accept()
        far = await network.connect(host, int(port), 5)
        try:
            async with trio.open_nursery() as both:
                both.start_soon(relay, far, near, bytearray())
                await relay(near, far, seen)
                both.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await near.aclose()
                await far.aclose()

    # given a send that somebody on its way has recorded
    nursery.start_soon(tap)
    async with open_client(real_world()) as client:
        client.tls = ClientFiles().context()
        await Caller(client, f"127.0.0.1:{listener.address[1]}", ROOT).done(310, SEND, "once")
    assert 1 == len(stored(broker, "orders"))
    for secret in (b"AccessKey", b"Signature", ROOT.access_key.encode(), b"once"):
        assert secret not in seen
    # when it is sent once more, then nothing comes of it
    again = await network.connect(host, int(port), 5)
    await again.send_all(bytes(seen))
    with contextlib.suppress(trio.BrokenResourceError), trio.fail_after(30):
        while await again.receive_some(1 << 16):
            pass
    assert 1 == len(stored(broker, "orders"))
    await again.aclose()
    await listener.aclose()
    nursery.cancel_scope.cancel()


async def test_injection_of_keys_into_a_file_that_say_who_may_ask(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery, haSlaveAddresses="10.0.0.2")
    root = Caller(client, broker.identity.address, ROOT)
    closed = {"authenticationEnabled": "false", "haSlaveAddresses": "", "adminAddresses": "", "tls.server.mode": "x"}
    for key, text in closed.items():
        await root.ask(25, {}, f"{key}={text}\n".encode())
        await root.ask(25, {}, f"brokerPermission=6\n{key}={text}\n".encode())
        await root.ask(25, {}, f"messageDelayLevel=1s\\n{key}\\={text}\n".encode())  # a value of two lines
        await root.ask(25, {}, f"namesrvAddr=127.0.0.1:1\\n{key}={text}\n".encode())
    assert 16 == (await root.by(None).ask(26)).code
    kept = read_properties_file(RealDisk(), str(tmp_path / "broker.conf"), None)
    assert read_security(kept).authorizes
    assert "10.0.0.2" == kept["haSlaveAddresses"]
    assert not {"adminAddresses", "tls.server.mode"} & kept.keys()
    nursery.cancel_scope.cancel()


async def test_injection_of_paths_outside_of_the_folders_of_a_container(tmp_path: Path, client: RemotingClient) -> None:
    secret = tmp_path / "secret.conf"
    secret.write_text("rootPassword=hunter2\n")
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "link.conf").symlink_to(secret)
    async with started("container", tmp_path, {**SIGNED, "addBrokerFolders": str(folder)}) as container:
        root = Caller(client, container.place, ROOT)
        for path in (
            str(secret),
            f"{folder}/../secret.conf",
            f"{folder}/link.conf",
            "/etc/passwd",
            "secret.conf\0.conf",
        ):
            answer = await root.ask(902, {"configPath": path})
            assert 0 != answer.code, path
            assert "hunter2" not in (answer.remark or "") + bytes(answer.body).decode()
            assert "root:" not in (answer.remark or "")


async def test_injection_of_lines_into_the_log(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(tmp_path, nursery)
    root = Caller(client, broker.identity.address, ROOT)
    line = "x\nWARNING forged line\r\u2028\x1b[31m"
    bob = await with_bob(root, ("Topic:orders", "Pub"))
    await root.by(Credentials(line, "secret")).ask(26)
    for code in (10, 310, 11, 36, 105, 202):
        await bob.ask(code, {"topic": line, "b": line, "group": line, "consumerGroup": line})
    await root.ask(3001, {"username": line}, json.dumps({"username": line, "password": "p" * 9}).encode())
    await root.ask(3003, {"username": line})
    assert any("forged" in each for each in caplog.messages)
    for each in caplog.messages:
        assert not set(each) & set("\n\r\u2028\x1b"), each
    nursery.cancel_scope.cancel()


async def test_deletion_of_the_last_super_user(tmp_path: Path, nursery: trio.Nursery, client: RemotingClient) -> None:
    broker = await start_broker(tmp_path, nursery)
    root = Caller(client, broker.identity.address, ROOT)
    await root.done(3003, {"username": INNER.access_key})
    for code, change in ((3003, {}), (3002, {"userStatus": "disable"}), (3002, {"userType": "Normal"})):
        body = json.dumps({"username": ROOT.access_key, **change}).encode()
        assert 0 != (await root.ask(code, {"username": ROOT.access_key}, body)).code
    assert 0 == (await root.ask(26)).code
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("text", ["aclEnable=true", "authorizationEnabled=true"])
def test_a_program_that_looks_closed_and_is_open(
    program: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, option = PROGRAMS[program]
    file, key = tmp_path / "own.conf", text.partition("=")[0]
    if option == "-pc":
        file.write_text(json.dumps({"namesrvAddr": "127.0.0.1:1", key: True}))
    else:
        peers = "controllerDLegerPeers=n0-127.0.0.1:1\ncontrollerDLegerSelfId=n0\n" * (program == "mqcontroller")
        file.write_text(f"{peers}listenPort=0\n{text}\n")
    assert 1 == main([option, str(file)])
    *_, said = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{program}: {file}"), said
    assert text in said


async def test_codes_that_nobody_has_thought_of(tmp_path: Path, nursery: trio.Nursery, client: RemotingClient) -> None:
    broker = await start_broker(tmp_path, nursery)
    root = Caller(client, broker.identity.address, ROOT)
    bob = await with_bob(root, ("*", "All"))
    for code in (-1, 0, 50, 54, 999, 3011, 3012, 77_777, 2**31 - 1):
        assert (16, "username cannot be null.") == ((answer := await root.by(None).ask(code)).code, answer.remark)
        answer = await bob.ask(code)
        assert (16, f"User:bob has no permission for requests of code {code}") == (answer.code, answer.remark)
        assert 3 == (await root.ask(code)).code
    nursery.cancel_scope.cancel()


async def test_theft_of_messages_by_their_position_in_the_log(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery)
    root = Caller(client, broker.identity.address, ROOT)
    bob = await with_bob(root, ("Group:thieves", "Sub Get Update"), ("Topic:orders", "Sub"))
    for topic in ("secrets", "orders"):
        await root.done(310, {**SEND, "b": topic}, topic)
    (secret,), (own,) = stored(broker, "secrets"), stored(broker, "orders")
    # when a group sends back (36) what its members may not read, then it gets nothing
    back = {"group": "thieves", "delayLevel": "-1", "originTopic": "orders", "originMsgId": "m", "unitMode": "false"}
    answer = await bob.ask(36, {**back, "offset": str(secret.physical_offset)})
    expected = "User:bob has no permission to access Topic:secrets from 127.0.0.1, no matched policies."
    assert (16, expected) == (answer.code, answer.remark)
    await bob.done(36, {**back, "offset": str(own.physical_offset)})
    # what it gave up is its own, and may be given back again
    (dead,) = stored(broker, "%DLQ%thieves")
    await bob.done(36, {**back, "offset": str(dead.physical_offset)})
    assert [b'"orders"'] * 2 == [each.body for each in stored(broker, "%DLQ%thieves")]
    # when a member of it is to consume a message by its id (309), the same
    shown: list[bytes] = []
    async with open_client(real_world()) as reader:

        def consume(connection: object, command: Command) -> Command:
            shown.append(bytes(command.body))
            return response(command)

        reader.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, consume)
        consumer = {"groupName": "thieves", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
        consumer |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [], "unitMode": False}
        thief = Caller(reader, root.address, BOB)
        await thief.done(34, {}, heartbeat_body("thief", [], [consumer]))
        for record, code in ((secret, 16), (own, 0)):
            message_id = offset_message_id(record.store_host, record.physical_offset)
            ext = {"consumerGroup": "thieves", "clientId": "thief", "msgId": message_id, "topic": "orders"}
            answer = await thief.ask(309, ext)
            assert code == answer.code, answer.remark
    assert 1 == len(shown)
    assert b"secrets" not in shown[0]
    nursery.cancel_scope.cancel()


async def heard_by(cluster: SimCluster, host: str, address: str) -> bytes:
    """Return what a slave at *host* that asks for the whole log hears first."""
    at, _, port = address.rpartition(":")
    stream = await cluster.network.host(host).connect(at, int(port), 1)
    heard = b""
    with trio.move_on_after(3), contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(bytes(8))
        heard = await stream.receive_some(1 << 16)
    await stream.aclose()
    return heard


@pytest.mark.parametrize("signs", [True, False])
def test_theft_of_the_log_by_a_foreign_slave(signs: bool) -> None:
    keys = {**SIGNED, "authenticationWhitelist": str(int(RequestCode.GET_ALL_DELAY_OFFSET))} if signs else {}

    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{"brokerName": "broker-a", "brokerRole": "SYNC_MASTER", **keys}], keys)
            async with open_client(cluster.client_world()) as client:
                root = Caller(client, f"{cluster.address('c1')}:10911", ROOT if signs else None)
                await root.done(310, SEND, "hello")
                master = cluster.brokers("c1")["broker-a"]
                # given who knows the protocol alone, or signs as one who may read the tables, but not the log
                if signs:
                    unsigned = await root.by(None).ask(RequestCode.GET_ALL_DELAY_OFFSET)  # which needs none here
                    assert 0 == unsigned.code
                    bob = await with_bob(root, ("Cluster:*", "Get"))
                    assert 0 == (await bob.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code
                for host in ("10.9.9.9", cluster.address("client")):
                    heard = await heard_by(cluster, host, master.identity.ha_address)
                    assert signs is (b"" == heard), host
                # then slaves that sign what they ask get it all the same
                slave = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": "1", **keys}
                await cluster.start_container("c2", [slave], keys)
                copy = cluster.brokers("c2")["broker-a"]
                await until(lambda: copy.store.max_physical_offset == master.store.max_physical_offset > 0)

    run_seed(scenario, 1)
