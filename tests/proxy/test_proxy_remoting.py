"""Clients of the remoting protocol at a proxy: routes that lead to it, and requests that go on to brokers."""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from grpc_client import open_client as open_grpc
from proxy_rig import QUEUES, Rig, User, message, play
from test_proxy_access import BROKER, PROXY, ROOT, make_alice

from understudy.format.json_dialect import dumps, loads
from understudy.format.record import decode_records
from understudy.mqclient.heartbeat import heartbeat_body
from understudy.proxy.core.forwarding import TARGETS
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.testkit.waiting import eventually

PORT, GROUP = 8080, "old-readers"
ASKED_OF_CLIENTS = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY


@attrs.define
class Old:
    """A client of the remoting protocol."""

    client: RemotingClient
    address: str

    async def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.client.invoke(self.address, request(code, dict(ext or {}), body), 5_000)

    async def send(self, topic: str, broker: str, body: bytes, queue: int = 0) -> Command:
        names = {"a": "writers", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "0", "h": "0"}
        return await self.ask(RequestCode.SEND_MESSAGE_V2, {**names, "i": "", "j": "0", "n": broker}, body)

    async def heartbeat(self, client_id: str) -> Command:
        subscription = {"topic": "Normal", "subString": "*", "subVersion": 1, "expressionType": "TAG", "tagsSet": []}
        consumer = {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
        }
        return await self.ask(RequestCode.HEART_BEAT, {}, dumps(heartbeat_body(client_id, ["writers"], [consumer])))


@asynccontextmanager
async def old_client(rig: Rig, name: str = "old") -> AsyncIterator[Old]:
    async with open_client(rig.cluster.client_world(name)) as client:
        yield Old(client, f"{rig.cluster.address('p1')}:{PORT}")


def of_queue(broker: str, **more: str) -> dict[str, str]:
    return {"topic": "Normal", "queueId": "0", "bname": broker, "consumerGroup": GROUP, **more}


def pull(broker: str, suspend_ms: int = 0) -> dict[str, str]:
    numbers = {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2" if suspend_ms else "0", "commitOffset": "0"}
    return of_queue(broker, **numbers, suspendTimeoutMillis=str(suspend_ms), subVersion="1")


@pytest.mark.covers("R121")
def test_a_route_leads_to_the_proxy_and_what_is_sent_there_is_pulled_there() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            route = loads((await old.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Normal"})).body)
            assert [(name, {"0": f"p1:{PORT}"}) for name in ("broker-a", "broker-b")] == [
                (each["brokerName"], each["brokerAddrs"]) for each in route["brokerDatas"]
            ]
            assert {(QUEUES, QUEUES, 6)} == {
                (each["readQueueNums"], each["writeQueueNums"], each["perm"]) for each in route["queueDatas"]
            }
            for name in ("Nothing", "x" * 200_000):
                answer = await old.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name})
                assert (17, True) == (answer.code, len(answer.remark or "") < 1000)
            assert 0 == (await old.heartbeat("old-1")).code
            for broker in ("broker-a", "broker-b"):
                for number in range(3):
                    sent = await old.send("Normal", broker, b"%s %d" % (broker.encode(), number))
                    assert (0, str(number)) == (sent.code, (sent.ext or {})["queueOffset"])
                found = await old.ask(RequestCode.PULL_MESSAGE, pull(broker))
                bodies = [each.body for each in decode_records(found.body)]
                assert [b"%s %d" % (broker.encode(), number) for number in range(3)] == bodies
                moved = of_queue(broker, commitOffset="2")
                assert 0 == (await old.ask(RequestCode.UPDATE_CONSUMER_OFFSET, moved)).code
                known = await old.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_queue(broker))
                assert "2" == (known.ext or {})["offset"]

    play(test, brokers=2, config={"localServeAddr": "p1"})


def test_a_pull_waits_at_the_broker_and_brings_what_a_grpc_client_sends() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            await old.heartbeat("old-1")
            found: list[bytes] = []

            async def wait_for_it(queue: int) -> None:
                fields = {**pull("broker-a", 15_000), "queueId": str(queue)}
                command = request(RequestCode.PULL_MESSAGE, fields)
                answer = await old.client.invoke(old.address, command, 20_000)
                found.extend(each.body for each in decode_records(answer.body))

            async with trio.open_nursery() as nursery:
                for queue in range(QUEUES):
                    nursery.start_soon(wait_for_it, queue)
                await trio.sleep(3)
                assert found == []
                await rig.user.send(message("Normal", b"new"))
            assert [b"new"] == found

    play(test)


def test_members_of_a_group_know_each_other_through_any_proxy_and_are_gone_with_their_connection() -> None:
    async def test(rig: Rig) -> None:
        async def members(old: Old) -> list[str]:
            answer = await old.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})
            return sorted(loads(answer.body)["consumerIdList"])

        async with old_client(rig, "one") as one:
            await one.heartbeat("old-1")
            async with rig.another_proxy("p2"), old_client(rig, "two") as two:
                two.address = f"{rig.cluster.address('p2')}:{PORT}"
                await two.heartbeat("old-2")
                assert [["old-1", "old-2"]] * 2 == [await members(one), await members(two)]
                locked: list[Any] = []
                for old, name in ((one, "old-1"), (two, "old-2")):
                    queues = [{"topic": "Normal", "brokerName": "broker-a", "queueId": 0}]
                    body = dumps({"consumerGroup": GROUP, "clientId": name, "mqSet": queues})
                    locked.append(loads((await old.ask(RequestCode.LOCK_BATCH_MQ, {}, body)).body)["lockOKMQSet"])
                assert (1, 0) == tuple(map(len, locked))
            await trio.sleep(1)
            assert ["old-1"] == await members(one)

    play(test)


def test_what_a_broker_asks_reaches_the_client_and_its_answer_the_broker() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            asked: list[tuple[int, bytes]] = []

            def answer(connection: Connection, command: Command) -> Command:
                asked.append((command.code, b"".join(each.body for each in decode_records(command.body))))
                return response(command, body=b'{"answer": "here"}')

            for code in ASKED_OF_CLIENTS:
                old.client.register(code, answer)
            await old.heartbeat("old-1")
            sent = await old.send("Normal", "broker-a", b"look at me")
            (broker,) = rig.cluster.brokers("c1").values()
            fields = {"consumerGroup": GROUP, "clientId": "old-1", "jstackEnable": "false"}
            fields |= {"topic": "Normal", "brokerName": "broker-a", "msgId": (sent.ext or {})["msgId"]}
            async with open_client(rig.cluster.client_world()) as operator:
                for code in ASKED_OF_CLIENTS:
                    told = await operator.invoke(broker.identity.address, request(code, dict(fields)), 5_000)
                    assert (0, b'{"answer": "here"}') == (told.code, bytes(told.body))
            assert [(307, b""), (309, b"look at me")] == asked

    play(test)


def test_what_is_not_for_proxies_or_names_no_broker_is_refused_with_the_code_of_the_reference() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            served = {*TARGETS, RequestCode.GET_ROUTEINFO_BY_TOPIC}
            for code in (*set(RequestCode).difference(served), 77_777):  # those that are asked of clients, too
                fields = {"topic": "Normal", "consumerGroup": GROUP, "clientId": "old-1", "bname": "broker-a"}
                assert (code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED) == (code, (await old.ask(code, fields)).code)
            bare = await old.ask(RequestCode.PULL_MESSAGE, {"topic": "Normal", "queueId": "0"})
            assert (15, "Request doesn't have field bname") == (bare.code, bare.remark)
            strange = await old.ask(RequestCode.PULL_MESSAGE, pull("nobody"))
            assert (1, True) == (strange.code, "no broker nobody" in (strange.remark or ""))
            for body in (b"", b"[]", b'{"mqSet": 3}', b'{"mqSet": [7]}'):
                assert 1 == (await old.ask(RequestCode.LOCK_BATCH_MQ, {}, body)).code

    play(test)


def test_a_grpc_client_may_come_to_this_port_too() -> None:
    async def test(rig: Rig) -> None:
        async with open_grpc(rig.cluster.client_world("x"), (rig.cluster.address("p1"), PORT)) as connection:
            assert v2.OK == (await User(connection, "x").send(message("Normal"))).status.code

    play(test)


def test_after_a_failure_of_a_broker_its_clients_go_on_by_the_same_connection() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            assert 0 == (await old.send("Normal", "broker-a", b"1")).code
            await rig.cluster.kill("c1")
            assert 1 == (await old.send("Normal", "broker-a", b"2")).code
            await rig.cluster.restart("c1")

            async def taken() -> bool:
                return (await old.send("Normal", "broker-a", b"3")).code == 0

            await eventually(taken, 60, 0.5)

    play(test)


def test_a_heartbeat_while_no_name_server_is_reached_is_refused_in_a_sentence() -> None:
    async def test(rig: Rig) -> None:
        await trio.sleep(400)  # long enough for what nobody asks for to be forgotten
        await rig.cluster.kill("n1")
        async with old_client(rig) as old:
            answer = await old.heartbeat("c")
        assert (ResponseCode.SYSTEM_ERROR, False) == (answer.code, "Group" in (answer.remark or ""))

    play(test)


def guarded(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def with_alice(rig: Rig) -> None:
        await make_alice(rig)
        await test(rig)

    play(with_alice, broker_keys=BROKER, config=PROXY, credentials=ROOT)


def test_requests_are_checked_here_and_signed_anew_for_the_broker() -> None:
    async def test(rig: Rig) -> None:
        async with old_client(rig) as old:
            assert ResponseCode.NO_PERMISSION == (await old.send("Normal", "broker-a", b"x")).code

            def sign(command: Command) -> None:
                ext = {**(command.ext or {}), "AccessKey": "alice"}
                content = "".join(ext[name] for name in sorted(ext)).encode() + command.body
                ext["Signature"] = base64.b64encode(hmac.digest(b"alicesecret", content, "sha1")).decode()
                command.ext = ext

        async with open_client(rig.cluster.client_world("alice")) as client:
            client.sign = sign
            alice = Old(client, old.address)
            assert 0 == (await alice.send("Normal", "broker-a", b"x")).code
            refused = await alice.send("Delay", "broker-a", b"x")
            assert ResponseCode.NO_PERMISSION == refused.code
            assert "no permission to access Topic:Delay" in (refused.remark or "")

    guarded(test)


def test_every_code_that_is_forwarded_has_a_way() -> None:
    codes = {
        10,
        310,
        320,
        36,
        37,
        370,
        34,
        35,
        46,
        11,
        361,
        200050,
        15,
        14,
        29,
        30,
        31,
        200051,
        200053,
        38,
        203,
        41,
        42,
    }
    assert codes == set(map(int, TARGETS))
