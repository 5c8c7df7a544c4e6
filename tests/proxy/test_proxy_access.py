"""Calls with a signature, and what their users may, at a proxy whose brokers ask for signatures, too."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
import trio
from google.protobuf.message import Message as ProtobufMessage
from grpc_client import open_client
from proxy_rig import Rig, User, consumer_settings, message, play, receive_request

from understudy.mqclient.session import SessionOptions, open_session
from understudy.programs.local_proxy import run_local_proxy
from understudy.proxy.config import config_of
from understudy.proxy.core.access import check_signature, needs_of, read_signed
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE
from understudy.remoting.codes import RequestCode
from understudy.runtime.world import real_world
from understudy.security.policies import Kind
from understudy.security.signature import Credentials
from understudy.security.users import User as Account
from understudy.testkit.local_cluster import LocalCluster

ROOT = Credentials("root", "rootsecret")
BROKER = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
}
PROXY = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "innerClientAuthenticationCredentials": {"accessKey": "root", "secretKey": "rootsecret"},
    "authenticationWhitelist": "apache.rocketmq.v2.QueryRouteRequest",
}
RULES = ("Topic:Normal", "Group:readers")
DATE = "20231114T221320Z"
"""When virtual time begins."""


def signed(name: str, secret: str, *, upper: bool = False, date: str = DATE) -> dict[str, str]:
    found = hmac.new(secret.encode(), date.encode(), "sha1").hexdigest()
    text = f"MQv2-HMAC-SHA1 Credential={name}/x, SignedHeaders=x-mq-date-time, Signature="
    return {"authorization": text + (found.upper() if upper else found), "x_mq_date_time": date}


async def make_alice(rig: Rig) -> None:
    async with open_session(
        rig.cluster.client_world(), rig.cluster.name_servers, SessionOptions(credentials=ROOT)
    ) as session:
        for broker in rig.cluster.brokers("c1").values():
            address = broker.identity.address
            user = {"username": "alice", "password": "alicesecret"}
            entries = [{"resource": each, "actions": ["Pub", "Sub"], "decision": "Allow"} for each in RULES]
            acl = {"subject": "User:alice", "policies": [{"entries": entries}]}
            for code, ext, body in (
                (RequestCode.AUTH_CREATE_USER, {"username": "alice"}, user),
                (RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, acl),
            ):
                await session.call(address, code, ext, json.dumps(body).encode())


def guarded(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def with_alice(rig: Rig) -> None:
        await make_alice(rig)
        await test(rig)

    play(with_alice, broker_keys=BROKER, config=PROXY, credentials=ROOT)


async def sent(rig: Rig, topic: str, **metadata: str) -> v2.Status:
    request = v2.SendMessageRequest(messages=[message(topic, **({"message_group": "g"} if topic == "Fifo" else {}))])
    return (await rig.user.ask("SendMessage", request, v2.SendMessageResponse, **metadata)).status


def test_who_signs_may_what_its_rules_say_and_nothing_else() -> None:
    async def test(rig: Rig) -> None:
        alice = signed("alice", "alicesecret")
        assert v2.OK == (await sent(rig, "Normal", **alice)).code
        assert v2.OK == (await sent(rig, "Normal", **signed("alice", "alicesecret", upper=True))).code
        assert v2.OK == (await sent(rig, "Fifo", **signed("root", "rootsecret"))).code
        refused = await sent(rig, "Fifo", **alice)
        assert v2.UNAUTHORIZED == refused.code
        assert "User:alice has no permission to access Topic:Fifo from" in refused.message
        assert "no matched policies" in refused.message

    guarded(test)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "username cannot be null."),
        (signed("", ""), "username cannot be null."),
        (signed("bob", "secret"), "User:bob is not found."),
        (signed("alice", "wrong"), "check signature failed."),
        ({**signed("alice", "alicesecret"), "x_mq_date_time": "20010101T000000Z"}, "check signature failed."),
        ({"x_mq_authorization_ak": "root", "rpc_remote_address": "127.0.0.1:1"}, "username cannot be null."),
    ],
)
def test_who_does_not_sign_is_refused_whatever_else_it_claims(metadata: dict[str, str], why: str) -> None:
    async def test(rig: Rig) -> None:
        status = await sent(rig, "Normal", **metadata)
        assert (v2.UNAUTHORIZED, why) == (status.code, status.message)
        request = v2.HeartbeatRequest(group=v2.Resource(name="readers"))
        answer = await rig.user.ask("Heartbeat", request, v2.HeartbeatResponse, **metadata)
        assert v2.UNAUTHORIZED == answer.status.code
        stream = await rig.user.begin("ReceiveMessage", receive_request("readers", "Normal"), **metadata)
        await rig.user.connection.wait(stream)
        assert v2.UNAUTHORIZED == v2.ReceiveMessageResponse.FromString(stream.messages[0]).status.code
        route = v2.QueryRouteRequest(topic=v2.Resource(name="Normal"))  # which needs no signature here
        assert v2.OK == (await rig.user.ask("QueryRoute", route, v2.QueryRouteResponse, **metadata)).status.code

    guarded(test)


def test_a_telemetry_stream_brings_settings_of_what_its_user_may() -> None:
    async def test(rig: Rig) -> None:
        connection = rig.user.connection
        fields = {"x-mq-client-id": "c", **signed("alice", "alicesecret")}
        metadata = [(name.replace("_", "-"), text) for name, text in fields.items()]
        for group, topic, code in (("readers", "Normal", v2.OK), ("others", "Normal", v2.UNAUTHORIZED)):
            stream = await connection.begin(SERVICE + "Telemetry", metadata)
            command = v2.TelemetryCommand(settings=consumer_settings(group, topic))
            await connection.send(stream, command.SerializeToString())
            await connection.until(lambda stream=stream: stream.messages)
            assert code == v2.TelemetryCommand.FromString(stream.messages[0]).status.code
        bare = await connection.begin(SERVICE + "Telemetry", metadata[:1])
        await connection.wait(bare)
        assert v2.UNAUTHORIZED == v2.TelemetryCommand.FromString(bare.messages[0]).status.code

    guarded(test)


def fields_of(client_id: str, name: str, secret: str) -> list[tuple[str, str]]:
    fields = {"x-mq-client-id": client_id, **signed(name, secret)}
    return [(key.replace("_", "-"), text) for key, text in fields.items()]


def producer(topic: str) -> bytes:
    settings = v2.Settings(client_type=v2.PRODUCER)
    settings.publishing.topics.add().name = topic
    return v2.TelemetryCommand(settings=settings).SerializeToString()


def test_a_client_id_belongs_to_the_user_who_came_with_it() -> None:
    async def test(rig: Rig) -> None:
        connection, client_id = rig.user.connection, rig.user.client_id
        stream = await connection.begin(SERVICE + "Telemetry", fields_of(client_id, "alice", "alicesecret"))
        await connection.send(stream, producer("Normal"))
        await connection.until(lambda: stream.messages)
        (client,) = rig.proxy.clients
        for command in (b"", producer("Fifo")):  # a super user, who may send to this topic
            other = await connection.begin(SERVICE + "Telemetry", fields_of(client_id, "root", "rootsecret"))
            await connection.send(other, command, end=True)
            await connection.wait(other)
            statuses = [v2.TelemetryCommand.FromString(each).status.code for each in other.messages]
            assert [v2.UNAUTHORIZED] * bool(command) == statuses
        end = v2.NotifyClientTerminationRequest()
        for name, code in (("root", v2.UNAUTHORIZED), ("alice", v2.OK)):
            assert [client] == list(rig.proxy.clients)
            assert 1 == len(client.streams)
            answer = await rig.user.ask(
                "NotifyClientTermination", end, v2.NotifyClientTerminationResponse, **signed(name, name + "secret")
            )
            assert code == answer.status.code
        assert [] == list(rig.proxy.clients)

    guarded(test)


def test_a_stream_counts_once_its_settings_do() -> None:
    async def test(rig: Rig) -> None:
        connection = rig.user.connection
        stream = await connection.begin(SERVICE + "Telemetry", fields_of("c", "alice", "alicesecret"))
        await connection.send(stream, b"")
        await trio.sleep(1)
        assert [] == list(rig.proxy.clients)
        await connection.send(stream, producer("Normal"))
        await connection.until(lambda: stream.messages)
        assert [1] == [len(each.streams) for each in rig.proxy.clients]
        await connection.send(stream, b"", end=True)
        await connection.wait(stream)
        assert [0] == [len(each.streams) for each in rig.proxy.clients]

    guarded(test)


async def ask_broker(rig: Rig, code: RequestCode, user: dict[str, str]) -> None:
    options = SessionOptions(credentials=ROOT)
    async with open_session(rig.cluster.client_world(), rig.cluster.name_servers, options) as session:
        for broker in rig.cluster.brokers("c1").values():
            await session.call(broker.identity.address, code, {"username": user["username"]}, json.dumps(user).encode())


def test_of_the_users_of_a_file_only_the_proxys_own_is_one_without_the_brokers() -> None:
    async def test(rig: Rig) -> None:
        await ask_broker(
            rig, RequestCode.AUTH_CREATE_USER, {"username": "inner", "password": "innersecret", "userType": "Super"}
        )
        await ask_broker(rig, RequestCode.AUTH_UPDATE_USER, {"username": "root", "password": "changed99"})
        assert v2.UNAUTHORIZED == (await sent(rig, "Normal", **signed("root", "rootsecret"))).code
        assert v2.OK == (await sent(rig, "Normal", **signed("root", "changed99"))).code

    own = {"accessKey": "inner", "secretKey": "innersecret"}
    named = {"username": "root", "password": "rootsecret"}
    config = {**PROXY, "innerClientAuthenticationCredentials": own, "initAuthenticationUser": named}
    play(test, broker_keys=BROKER, config=config, credentials=ROOT)


@pytest.mark.parametrize("pauses", [(19,), (6, 6, 6), (9, 9)])
def test_a_user_who_was_deleted_lasts_no_longer_than_the_manual_says(pauses: tuple[int, ...]) -> None:
    async def test(rig: Rig) -> None:
        alice = signed("alice", "alicesecret")
        assert v2.OK == (await sent(rig, "Normal", **alice)).code
        await ask_broker(rig, RequestCode.AUTH_DELETE_USER, {"username": "alice"})
        for pause in (*pauses, 20.1 - sum(pauses)):
            await trio.sleep(pause)
            last = (await sent(rig, "Normal", **alice)).code
        assert v2.UNAUTHORIZED == last

    guarded(test)


def test_brokers_that_cannot_tell_have_not_said_that_there_is_no_such_user() -> None:
    async def test(rig: Rig) -> None:
        await make_alice(rig)
        status = await sent(rig, "Normal", **signed("alice", "alicesecret"))
        assert v2.PROXY_TIMEOUT == status.code
        assert "no broker tells who alice is" in status.message
        status = await sent(rig, "Normal", **signed("stranger" * 40, "secret"))  # longer than any name
        assert v2.UNAUTHORIZED == status.code

    own = {"accessKey": "root", "secretKey": "wrong"}
    config = {**PROXY, "innerClientAuthenticationCredentials": own}
    play(test, broker_keys=BROKER, config=config, credentials=ROOT)


def test_a_proxy_that_signs_as_a_normal_user_says_what_it_lacks() -> None:
    async def test(rig: Rig) -> None:
        await make_alice(rig)
        await ask_broker(rig, RequestCode.AUTH_CREATE_USER, {"username": "proxy", "password": "proxysecret"})
        status = await sent(rig, "Normal", **signed("alice", "alicesecret"))
        assert v2.PROXY_TIMEOUT == status.code
        assert "innerClientAuthenticationCredentials must be one there" in status.message

    config = {**PROXY, "innerClientAuthenticationCredentials": {"accessKey": "proxy", "secretKey": "proxysecret"}}
    play(test, broker_keys={**BROKER, "authorizationEnabled": "false"}, config=config, credentials=ROOT)


@pytest.mark.parametrize(("keys", "added"), [({"authenticationEnabled": True}, False), ({}, True)])
async def test_a_proxy_beside_brokers_asks_for_what_the_strictest_of_them_asks(
    keys: dict[str, object], added: bool
) -> None:
    world = real_world()
    options = SessionOptions(credentials=ROOT)
    async with LocalCluster(1) as cluster, open_session(world, cluster.namesrv_address, options) as session:
        strict = await cluster.add_broker("strict", BROKER)
        user = {"username": "alice", "password": "alicesecret"}
        body = json.dumps(user).encode()
        await session.call(strict.identity.address, RequestCode.AUTH_CREATE_USER, {"username": "alice"}, body)
        places = {"grpcServerPort": 0, "namesrvAddr": cluster.namesrv_address, "localServeAddr": "127.0.0.1"}
        own = {"innerClientAuthenticationCredentials": PROXY["innerClientAuthenticationCredentials"]}
        config, _ = config_of({**places, **own, **keys, "tlsServerMode": "disabled", "remotingListenPort": 0}, "test")
        brokers = [cluster.brokers["broker-a"], *([] if added else [strict])]
        async with trio.open_nursery() as nursery:
            proxy = await nursery.start(run_local_proxy, world, config, lambda: brokers)
            if added:
                brokers.append(strict)
            async with open_client(world, proxy.address) as connection:
                asks = User(connection, "client").ask
                request = v2.SendMessageRequest(messages=[message("Nothing")])
                found = []
                date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
                users = (signed(each, each + "secret", date=date) for each in ("alice", "root"))
                for metadata in ({}, *users):
                    answer = await asks("SendMessage", request, v2.SendMessageResponse, **metadata)
                    found.append((answer.status.code == v2.UNAUTHORIZED, "no permission" in answer.status.message))
            nursery.cancel_scope.cancel()
    assert [(True, False), (True, True), (False, False)] == found


@pytest.mark.parametrize(
    ("window_s", "date", "why"),
    [
        (None, "20231115T121320Z", ""),  # the time of a zone 14 hours ahead, called UTC
        (None, "20231114T101320Z", ""),  # 12 hours behind
        (None, "20231114T071310Z", "the signature is 540.. s old, 54000 s are allowed"),
        (None, "20231115T131400Z", "the signature is 540.. s ahead"),
        (None, "20010101T000000Z", "s old"),
        (None, "2023-11-14T22:13:20.123456789+00:00", ""),
        (None, "yesterday", "is no date"),
        (300, "20231114T220800Z", "the signature is 3.. s old, 300 s are allowed"),
        (300, "20231114T221000Z", ""),
        (0, "20010101T000000Z", ""),
        (0, "yesterday", ""),
    ],
)
def test_a_signature_counts_for_as_long_as_the_window_says(window_s: int | None, date: str, why: str) -> None:
    async def test(rig: Rig) -> None:
        await make_alice(rig)
        status = await sent(rig, "Normal", **signed("alice", "alicesecret", date=date))
        assert (v2.UNAUTHORIZED if why else v2.OK) == status.code, status.message
        assert re.search(why, status.message)

    config = PROXY if window_s is None else {**PROXY, "signatureWindowSeconds": window_s}
    play(test, broker_keys=BROKER, config=config, credentials=ROOT)


@pytest.mark.parametrize(
    ("authorization", "date"),
    [("", DATE), ("MQv2", DATE), ("MQv2 Credential", DATE), ("MQv2 Credential=a", ""), ("MQv2 Signature=a", DATE)],
)
def test_a_header_that_makes_no_sense_is_refused(authorization: str, date: str) -> None:
    with pytest.raises(ProxyError) as refused:
        read_signed(authorization, date)
    assert v2.UNAUTHORIZED == refused.value.code


def test_a_signature_that_is_no_text_of_ascii_is_a_wrong_one() -> None:
    with pytest.raises(ProxyError, match="check signature failed"):
        check_signature(Account("a", "b"), read_signed("M Credential=a, Signature=\u00e4\ud800", DATE))


# --- every call ----------------------------------------------------------------------------------------------------

SERVICE_OF_CLIENTS = v2.DESCRIPTOR.services_by_name["MessagingService"]
NAMES = {"topic": "Secrets", "topics": "Secrets", "group": "thieves"}
NOT_SERVED = {"GetOffset", "PullMessage", "QueryOffset", "SyncLiteSubscription", "UpdateOffset"}
UNIMPLEMENTED = 12


def fill(request: ProtobufMessage, named: set[tuple[Kind, str]]) -> None:
    """Name a topic and a group in every field of *request* that names one, and note them in *named*."""
    for field in request.DESCRIPTOR.fields:
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or inner.file.name.startswith("google/"):
            continue
        if field.containing_oneof is not None and request.WhichOneof(field.containing_oneof.name):
            continue  # one field of several, and another one is there
        value = getattr(request, field.name)
        child = value.add() if hasattr(value, "add") else value
        if inner.name == "Resource" and field.name in NAMES:
            child.name = NAMES[field.name]
            named.add((Kind.GROUP if field.name == "group" else Kind.TOPIC, child.name))
        elif inner.name != "Resource":
            fill(child, named)


def filled(rpc: str) -> tuple[ProtobufMessage, set[tuple[Kind, str]]]:
    """Return a request of *rpc* that names what it can, and what that is; of telemetry the settings."""
    name = "Settings" if rpc == "Telemetry" else SERVICE_OF_CLIENTS.methods_by_name[rpc].input_type.name
    request, named = getattr(v2, name)(), set[tuple[Kind, str]]()
    fill(request, named)
    return request, named


@pytest.mark.parametrize("rpc", sorted({*SERVICE_OF_CLIENTS.methods_by_name} - NOT_SERVED))
def test_every_call_needs_a_right_to_all_that_it_names(rpc: str) -> None:
    request, named = filled(rpc)
    assert named
    assert named == {(need.kind, need.name) for need in needs_of(request)}


def test_no_call_is_served_to_one_without_rules() -> None:
    async def test(rig: Rig) -> None:
        await ask_broker(rig, RequestCode.AUTH_CREATE_USER, {"username": "mallory", "password": "mallorysecret"})
        unserved = set()
        for rpc in SERVICE_OF_CLIENTS.methods_by_name:
            request = filled(rpc)[0]
            if rpc == "Telemetry":
                request = v2.TelemetryCommand(settings=request)  # type: ignore[arg-type]  # they are settings
            for metadata in ({}, signed("mallory", "mallorysecret")):
                stream = await rig.user.begin(rpc, request, **metadata)
                await rig.user.connection.wait(stream)
                if stream.status == UNIMPLEMENTED:
                    unserved.add(rpc)
                    continue
                answer = getattr(v2, SERVICE_OF_CLIENTS.methods_by_name[rpc].output_type.name)
                status, *more = (answer.FromString(each) for each in stream.messages)
                assert v2.UNAUTHORIZED == status.status.code, (rpc, status)
                assert all(each.WhichOneof("content") == "delivery_timestamp" for each in more)  # of a receive
        assert NOT_SERVED == unserved

    play(test, broker_keys=BROKER, config={**PROXY, "authenticationWhitelist": ""}, credentials=ROOT)
