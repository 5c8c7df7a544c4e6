"""Brokers and name servers that ask for signatures, over real sockets: who gets in, and who does not."""

from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path

import attrs
import pytest
import trio
from security_programs import BOB, ROOT, SIGNED, Caller, broker_keys, start_broker, with_bob

from understudy.broker.config import BrokerOptions, Machine
from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.container.hosted import host_broker
from understudy.mqadmin.credentials import read_credentials
from understudy.mqadmin.options import UsageError
from understudy.mqclient.api import Message, ProducerOptions, SessionOptions, open_producer
from understudy.mqclient.errors import ClientError
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.server import RemotingServer
from understudy.runtime.program import single_cause
from understudy.runtime.properties import Properties
from understudy.runtime.world import real_world
from understudy.security import requests as security_requests
from understudy.security.authority import Authority
from understudy.security.gate import Gate
from understudy.security.settings import SecuritySettings, read_security
from understudy.security.signature import Credentials
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import eventually, until

DATA = Path(__file__).parent.parent / "data" / "security"


async def known(caller: Caller, topic: str) -> bool:
    return (await caller.ask(105, {"topic": topic})).code == 0


async def test_no_code_is_answered_without_a_signature_or_with_a_wrong_one(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery)
    nobody = Caller(client, broker.identity.address, None)
    wrong = nobody.by(Credentials("rocketmq", "87654321"))
    unknown = nobody.by(Credentials("mallory", "x"))
    for code in sorted(broker.server.codes):
        answer = await nobody.ask(code, {"consumerGroup": "g", "topic": "t"})
        assert (16, "username cannot be null.") == (answer.code, answer.remark), code
    for code in (10, 11, 26, 34, 310, 3001):
        answer = await wrong.ask(code, {"consumerGroup": "g", "topic": "t"})
        assert (16, "check signature failed.") == (answer.code, answer.remark), code
        answer = await unknown.ask(code, {"consumerGroup": "g", "topic": "t"})
        assert (16, "User:mallory is not found.") == (answer.code, answer.remark), code
    # an access key that is empty, as C++ clients send it, is none
    answer = await nobody.by(Credentials("", "")).ask(26)
    assert (16, "username cannot be null.") == (answer.code, answer.remark)
    nursery.cancel_scope.cancel()


async def test_a_user_without_rules_may_nothing_and_one_with_rules_what_they_say(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery)
    root = Caller(client, broker.identity.address, ROOT)
    bob = await with_bob(root)
    # given a user without rules, then every code is refused that asks for or changes something
    let_in = {code for code in broker.server.codes if (await bob.ask(code)).code != 16}
    assert {34, 35} == let_in  # a heartbeat and a goodbye that name no group
    # also configuration, whose requests the reference lets pass
    for code in (25, 26, 21, 43, 400, 200151):
        answer = await bob.ask(code, None, b"brokerPermission=2\n" if code == 25 else b"{}")
        assert 16 == answer.code, code
        assert "User:bob has no permission to access" in (answer.remark or "")
    # when he is given rules, then they count for the next request
    entries = [
        {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"},
        {"resource": "Topic:order*", "actions": ["Get"], "decision": "Allow", "sourceIps": ["10.0.0.0/8"]},
    ]
    await root.done(3006, {"subject": "User:bob"}, {"subject": "User:bob", "policies": [{"entries": entries}]})
    send = {"b": "orders", "a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    assert 0 == (await bob.ask(310, send, b"hello")).code
    assert 16 == (await bob.ask(310, {**send, "b": "other"}, b"hello")).code
    assert 16 == (await bob.ask(310, {**send, "topic": "other"}, b"hello")).code
    answer = await bob.ask(202, {"topic": "orders"})  # allowed from other addresses only
    expected = "User:bob has no permission to access Topic:orders from 127.0.0.1, no matched policies."
    assert (16, expected) == (answer.code, answer.remark)
    # when he is disabled, then at once
    await root.done(3002, {"username": "bob"}, {"username": "bob", "userStatus": "disable"})
    answer = await bob.ask(310, send, b"hello")
    assert (16, "User:bob is disabled.") == (answer.code, answer.remark)
    nursery.cancel_scope.cancel()


@pytest.mark.covers("R318")
async def test_a_topic_is_deleted_by_those_who_may_and_untouched_by_others(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    broker = await start_broker(tmp_path, nursery)
    root = Caller(client, broker.identity.address, ROOT)
    send = {"b": "orders", "a": "p", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    await root.done(17, topic_fields("orders", 1))
    await root.done(310, send, "hello")
    # given one who may do everything with the topic but that
    bob = await with_bob(root, ("Topic:orders", "Pub Sub Create Update Get List"))
    # when it is deleted by that one, by a wrong password or by nobody, in either form of the request
    nobody, wrong = root.by(None), root.by(Credentials("rocketmq", "87654321"))
    for caller in (bob, nobody, wrong):
        for topic in ("orders", "orders,others"):
            assert 16 == (await caller.ask(215, {"topic": topic})).code
    # then nothing has changed
    kept = await root.done(30, {"topic": "orders", "queueId": "0"})
    assert "1" == (kept.ext or {})["offset"]
    await root.done(351, {"topic": "orders"})
    # when it is allowed, then it goes
    entry = {"resource": "Topic:orders", "actions": ["Delete"], "decision": "Allow"}
    await root.done(3007, {"subject": "User:bob"}, {"subject": "User:bob", "policies": [{"entries": [entry]}]})
    await bob.done(215, {"topic": "orders"})
    assert 0 != (await root.ask(351, {"topic": "orders"})).code
    nursery.cancel_scope.cancel()


async def test_users_survive_a_restart_in_a_file_of_their_own(tmp_path: Path, client: RemotingClient) -> None:
    async with trio.open_nursery() as nursery:
        broker = await start_broker(tmp_path, nursery)
        root = Caller(client, broker.identity.address, ROOT)
        await with_bob(root, ("Topic:orders", "Pub"))
        # then they are durable before the answer, and nobody else on the machine reads their passwords
        path = tmp_path / "store" / "config" / "users.json"
        assert "secret2" in path.read_text()
        assert 0o600 == stat.S_IMODE(os.stat(path).st_mode)
        answer = await root.ask(26)
        assert not any(secret in bytes(answer.body).decode() for secret in ("12345678", "innersecret", "secret2"))
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        broker = await start_broker(tmp_path, nursery)
        root = Caller(client, broker.identity.address, ROOT)
        found = json.loads((await root.done(3005)).body)
        assert {"rocketmq", "inner", "bob"} == {user["username"] for user in found}
        assert json.loads((await root.done(3009, {"subject": "User:bob"})).body)["subject"] == "User:bob"
        nursery.cancel_scope.cancel()


async def test_a_broker_that_nobody_could_sign_in_to_does_not_start(tmp_path: Path) -> None:
    keys = broker_keys(tmp_path, authenticationEnabled="true")
    options, _ = BrokerOptions.from_properties(keys, machine=Machine("vm", "127.0.0.1", str(tmp_path / "store")))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(host_broker, real_world(), options)
    assert "there is no super user who may sign in" in str(single_cause(caught.value))


async def test_admin_requests_are_answered_as_the_reference_answered_them(
    nursery: trio.Nursery, client: RemotingClient
) -> None:
    exchanges = json.loads((DATA / "admin_exchanges.json").read_text())
    server = RemotingServer(real_world(), "127.0.0.1", 0)
    gate = Gate(Authority(), SecuritySettings(), "DefaultCluster", trio.current_time)

    async def save() -> None:
        await trio.lowlevel.checkpoint()

    security_requests.register(server, gate, save, real_world())
    _, port = await server.bind()
    nursery.start_soon(server.run)
    gate.authority.ensure_supers([Credentials("root", "r")])  # so that the recorded user is not the last one
    played = 0
    for each in exchanges:
        if each["code"] < 3000:
            continue
        played += 1
        body = (each["body"] or "").encode()
        answer = await client.invoke(f"127.0.0.1:{port}", request(each["code"], each["header"], body), 5_000)
        expected = each["answer"]
        assert (expected["code"], expected["remark"]) == (answer.code, answer.remark), each
        got = json.loads(answer.body) if answer.body else None
        if each["code"] == RequestCode.AUTH_LIST_USER:
            got = [user for user in got or () if user["username"] != "root"]
        assert (json.loads(expected["body"]) if expected["body"] else None) == got, each["cmd"]
    assert played == 17
    # what it refuses, it refuses in the same words
    for code, ext, text, expected_code, remark in (
        (3001, {"username": " "}, {}, 29, "The username is blank"),
        (3001, {"username": "alice"}, {"password": "x"}, 16, "The user is existed"),
        (3001, {"username": "eve"}, {}, 16, "password can not be blank"),
        (3002, {"username": "eve"}, {"password": "x"}, 16, "The user is not exist"),
        (3009, {"subject": "User:eve"}, None, 16, "The subject is not exist."),
        (3008, {"subject": "User:alice"}, None, 16, "The acl is not exist."),
        (3006, {"subject": "User:eve"}, {"subject": "User:eve"}, 16, "The subject of User:eve is not exist."),
    ):
        data = b"" if text is None else json.dumps(text).encode()
        answer = await client.invoke(f"127.0.0.1:{port}", request(code, ext, data), 5_000)
        assert (expected_code, remark) == (answer.code, answer.remark)
    nursery.cancel_scope.cancel()


async def test_a_cluster_that_asks_for_signatures_serves_clients_that_sign(
    tmp_path: Path, nursery: trio.Nursery, client: RemotingClient
) -> None:
    # given a name server and a broker that sign what they say to each other
    world = real_world()
    config = NamesrvConfig(kv_config_path=str(tmp_path / "namesrv" / "kvConfig.json"))
    security = read_security(Properties(SIGNED, "namesrv.conf"))
    name_server = NameServer(world, config, "127.0.0.1", 0, security=security)
    _, port = await nursery.start(name_server.run)
    broker = await start_broker(tmp_path, nursery, namesrvAddr=f"127.0.0.1:{port}")
    asked = Caller(client, f"127.0.0.1:{port}", None)
    for code in (100, 103, 104, 105, 106, 205, 318, 319):
        assert (16, "username cannot be null.") == ((answer := await asked.ask(code)).code, answer.remark)
    for server in (asked.by(ROOT), Caller(client, broker.identity.address, ROOT)):
        await with_bob(server, ("Topic:orders", "Pub"))
    table = json.loads((await asked.by(ROOT).done(106)).body.replace(b"{0:", b'{"0":'))
    assert "broker-a" in table["brokerAddrTable"]
    assert (tmp_path / "namesrv" / "users.json").exists()

    # then a producer with bob's key sends to his topic, with another key or none it does not
    async def send(credentials: Credentials | None, topic: str) -> str:
        options = ProducerOptions(session=SessionOptions(credentials=credentials))
        async with open_producer(world, f"127.0.0.1:{port}", "p", options) as producer:
            try:
                return str((await producer.send(Message(topic, b"hello"))).status)
            except ClientError as error:
                return str(error)

    await Caller(client, broker.identity.address, ROOT).done(
        17,
        {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        | {"topicFilterType": "SINGLE_TAG", "order": "false"},
    )
    await eventually(lambda: known(asked.by(ROOT), "orders"))
    assert "SEND_OK" == await send(BOB, "orders")
    assert "no permission to access Topic:other" in await send(BOB, "other")
    assert "username cannot be null" in await send(None, "orders")
    assert "check signature failed" in await send(Credentials("bob", "secret3"), "orders")
    nursery.cancel_scope.cancel()


async def test_a_container_adds_brokers_for_those_who_sign(nursery: trio.Nursery, client: RemotingClient) -> None:
    options, warnings = ContainerOptions.from_properties({"listenPort": "0", "bindAddress": "127.0.0.1", **SIGNED})
    assert [] == warnings
    container = BrokerContainer(real_world(), options)
    await nursery.start(container.run)
    nobody = Caller(client, f"127.0.0.1:{container.server.address[1]}", None)
    for code in (902, 903, 25, 26):
        assert 16 == (await nobody.ask(code)).code
    assert 16 != (await nobody.by(ROOT).ask(902, {"configPath": "/none"})).code
    nursery.cancel_scope.cancel()


def test_the_tools_file_is_read_as_the_reference_writes_it() -> None:
    text = "accessKey: rocketmq2\nsecretKey: '12345678'  \n# accessKey: other\n"
    assert Credentials("rocketmq2", "12345678") == read_credentials(text, "tools.yml")
    with pytest.raises(UsageError, match=r"tools\.yml has no secretKey"):
        read_credentials("accessKey: a\n", "tools.yml")


@pytest.mark.parametrize(("addresses", "admitted"), [("10.0.0.1;127.0.0.2", False), ("10.0.0.1;127.0.0.0/30", True)])
async def test_the_port_of_replication_is_open_to_slaves_alone(
    tmp_path: Path, nursery: trio.Nursery, addresses: str, admitted: bool
) -> None:
    broker = await start_broker(tmp_path, nursery, haSlaveAddresses=addresses)
    host, _, port = broker.identity.ha_address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    await stream.send_all(bytes(8))
    if admitted:
        await until(lambda: broker.replication.master is not None and broker.replication.master._slaves)
    else:
        with trio.fail_after(30):
            assert b"" == await stream.receive_some(1)
    await stream.aclose()
    nursery.cancel_scope.cancel()


async def check_a_failover_of_users(source: random.Random) -> None:
    async with SimCluster(source) as cluster:
        await cluster.start_name_server("n1")
        keys = {"brokerName": "broker-a", "enableSlaveActingMaster": "true", **SIGNED}
        await cluster.start_container("c1", [{**keys, "brokerRole": "SYNC_MASTER"}], SIGNED)
        await cluster.start_container("c2", [{**keys, "brokerRole": "SLAVE", "brokerId": "1"}], SIGNED)
        async with open_client(cluster.client_world()) as client:
            root = Caller(client, f"{cluster.address('c1')}:10911", ROOT)
            bob = await with_bob(root, ("Topic:orders", "Sub Get"))
            # when the slave has copied the users and its master is lost
            await trio.sleep(15)
            await cluster.kill("c1")
            await trio.sleep(15)
            # then the slave that acts knows who may ask it what, and still refuses the others
            acting = cluster.brokers("c2")["broker-a"].session
            assert acting.rules.active, acting.rules.reason
            slave = attrs.evolve(bob, address=f"{cluster.address('c2')}:10911")
            assert 16 != (await slave.ask(30, {"topic": "orders", "queueId": "0"})).code
            assert 16 == (await slave.ask(30, {"topic": "other", "queueId": "0"})).code
            assert 16 == (await slave.by(None).ask(30, {"topic": "orders", "queueId": "0"})).code
            # and believes the master that comes back, for what they say to each other is signed
            await cluster.restart("c1")
            await trio.sleep(20)
            assert not acting.rules.active
            master = cluster.brokers("c1")["broker-a"]
            assert (False, "") == (master.presence.isolated, master.session.rules.summary.partition("under way")[1])
            assert 16 != (await bob.ask(30, {"topic": "orders", "queueId": "0"})).code


def test_users_are_copied_by_slaves_and_survive_a_failover() -> None:
    run_seed(check_a_failover_of_users, 1)
