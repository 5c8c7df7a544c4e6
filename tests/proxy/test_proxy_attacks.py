"""The holes of the reference's proxies, each played against both ports of ours by a user who has signed in: none works.

Those of the other servers are played in ``tests/security/test_security_attacks.py``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import trio
from grpc_client import GrpcClient
from proxy_rig import Rig, User, message, play, receive_request
from test_proxy_access import BROKER, DATE, PROXY, ROOT, make_alice, signed

from understudy.format.record import decode_records
from understudy.mqclient.session import SessionOptions, open_session
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.frame import FrameReader, encode
from understudy.security.gate import FOR_USER, FROM_ADDRESS
from understudy.security.signature import Credentials, signer

ALICE = Credentials("alice", "alicesecret")
REMOTING_PORT = 8080
ELSEWHERE = "10.9.9.9"
HEADERS = {
    "x_mq_authorization_ak": "root",
    "rpc_remote_address": f"{ELSEWHERE}:1",
    "rpc_local_address": f"{ELSEWHERE}:1",
    "x_mq_channel_id": "root",
}
"""What only a server may set, and the reference takes from clients."""
PREAMBLE = f"PROXY TCP4 {ELSEWHERE} 10.0.0.1 4711 8081\r\n".encode()


async def as_root(rig: Rig, code: RequestCode, ext: Mapping[str, str], body: object = None) -> Command:
    async with open_session(
        rig.cluster.client_world(), rig.cluster.name_servers, SessionOptions(credentials=ROOT)
    ) as session:
        (broker,) = rig.cluster.brokers("c1").values()
        data = b"" if body is None else json.dumps(body).encode()
        return await session.call(broker.identity.address, code, dict(ext), data)


def attacked(attack: Callable[[Rig], Awaitable[None]]) -> None:
    """Play *attack* beside alice, who may use Normal and readers, and Fifo from an address that is not hers."""

    async def with_alice(rig: Rig) -> None:
        await make_alice(rig)
        entry = {"resource": "Topic:Fifo", "actions": ["All"], "decision": "Allow", "sourceIps": [ELSEWHERE]}
        acl = {"subject": "User:alice", "policies": [{"entries": [entry]}]}
        await as_root(rig, RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, acl)
        await attack(rig)

    play(with_alice, broker_keys=BROKER, config=PROXY, credentials=ROOT)


@asynccontextmanager
async def user_at(rig: Rig, port: int, preamble: bytes = b"") -> AsyncIterator[User]:
    """Connect to a port of the proxy as a gRPC client, behind a preamble if one is given."""
    stream = await rig.cluster.client_world().network.connect(rig.cluster.address("p1"), port, 5)
    if preamble:
        await stream.send_all(preamble)
    async with trio.open_nursery() as nursery:
        client = GrpcClient(stream)
        nursery.start_soon(client.run)
        yield User(client, "attacker")
        nursery.cancel_scope.cancel()
    await stream.aclose()


async def send(user: User, topic: str, metadata: Mapping[str, str]) -> v2.Status:
    system = {"message_group": "g"} if topic == "Fifo" else {}
    asked = v2.SendMessageRequest(messages=[message(topic, **system)])
    return (await user.ask("SendMessage", asked, v2.SendMessageResponse, **metadata)).status


async def check_what_alice_may(rig: Rig, claimed: Mapping[str, str], preamble: bytes, *ports: int) -> None:
    """Whatever else alice claims, she may what her rules say."""
    mine = {**signed("alice", "alicesecret"), **claimed}
    for port in ports:
        async with user_at(rig, port, preamble) as alice:
            assert v2.OK == (await send(alice, "Normal", mine)).code
            for topic in ("Fifo", "Delay"):
                status = await send(alice, topic, mine)
                assert v2.UNAUTHORIZED == status.code
                assert f"User:alice has no permission to access Topic:{topic} from" in status.message
                assert ELSEWHERE not in status.message
            stream = await alice.begin("ReceiveMessage", receive_request("others", "Normal"), **mine)
            await alice.connection.wait(stream)
            assert v2.UNAUTHORIZED == v2.ReceiveMessageResponse.FromString(stream.messages[0]).status.code
    fields = {name.replace("_", "-"): text for name, text in claimed.items()}
    for topic, code in (("Normal", 0), ("Fifo", 16), ("Delay", 16)):
        assert code == (await ask(rig, RequestCode.SEND_MESSAGE_V2, {**of_send(topic), **fields}, preamble)).code


def test_impersonation_by_headers_that_only_a_server_may_set() -> None:
    async def attack(rig: Rig) -> None:
        for claimed in (HEADERS, *({name: text} for name, text in HEADERS.items())):
            await check_what_alice_may(rig, claimed, b"", rig.proxy.address[1], REMOTING_PORT)

    attacked(attack)


def test_impersonation_of_an_address_by_a_preamble() -> None:
    async def attack(rig: Rig) -> None:
        await check_what_alice_may(rig, {}, PREAMBLE, rig.proxy.address[1])  # the other port reads remoting behind one

    attacked(attack)


def of_send(topic: str) -> dict[str, str]:
    names = {"a": "writers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
    return {**names, "i": "", "j": "0", "n": "broker-a"}


async def ask(rig: Rig, code: int, ext: Mapping[str, str], preamble: bytes = b"") -> Command:
    """Ask the port for remoting clients, signed by alice."""
    command = request(code, dict(ext), b"hello")
    signer(ALICE)(command)
    stream = await rig.cluster.client_world().network.connect(rig.cluster.address("p1"), REMOTING_PORT, 5)
    await stream.send_all(preamble + encode(command))
    reader, found = FrameReader(), list[Command]()
    while not found:
        data = await stream.receive_some(1 << 16)
        assert data, "closed"
        found = reader.feed(data)
    await stream.aclose()
    return found[0]


def test_replay_of_a_call_whose_signature_was_seen_long_ago() -> None:
    async def attack(rig: Rig) -> None:
        seen = signed("alice", "alicesecret", date=DATE)
        assert v2.OK == (await send(rig.user, "Normal", seen)).code
        await trio.sleep(16 * 3_600)
        async with rig.another_user("attacker") as attacker:
            status = await send(attacker, "Normal", seen)
        assert v2.UNAUTHORIZED == status.code
        assert "s old, 54000 s are allowed (signatureWindowSeconds)" in status.message

    attacked(attack)


def test_theft_of_a_message_by_sending_back_a_position_of_the_log() -> None:
    async def attack(rig: Rig) -> None:
        (broker,) = rig.cluster.brokers("c1").values()
        places = {}
        for topic in ("Delay", "Normal"):
            await as_root(rig, RequestCode.SEND_MESSAGE_V2, of_send(topic), "hello")
            (part,) = broker.store.get(topic, 0, 0, 1, 1 << 20).parts
            places[topic] = next(iter(decode_records(part))).physical_offset
        fields = {"group": "readers", "delayLevel": "-1", "bname": "broker-a", "originTopic": "Normal"}
        fields |= {"originMsgId": "m", "unitMode": "false", "maxReconsumeTimes": "16"}
        for claimed in ({}, {FOR_USER: "root"}, {FOR_USER: "root", FROM_ADDRESS: ELSEWHERE}):
            stolen = {**fields, **claimed, "offset": str(places["Delay"])}
            answer = await ask(rig, RequestCode.CONSUMER_SEND_MSG_BACK, stolen)
            assert 16 == answer.code
            assert "User:alice has no permission to access Topic:Delay" in (answer.remark or "")
        own = {**fields, "offset": str(places["Normal"])}
        assert 0 == (await ask(rig, RequestCode.CONSUMER_SEND_MSG_BACK, own)).code
        (part,) = broker.store.get("%DLQ%readers", 0, 0, 9, 1 << 20).parts
        assert ["Normal"] == [each.properties["RETRY_TOPIC"] for each in decode_records(part)]

    attacked(attack)
