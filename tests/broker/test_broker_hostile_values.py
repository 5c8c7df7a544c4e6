"""What a broker accepts it can save, load, show and replicate, whatever a peer writes into any field of any request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import trio
from broker_rig import NoNetwork, Peer, Rig, open_rig, pull_header
from pop_rig import POP, pop_header

from understudy.broker.groups import GroupConfig
from understudy.broker.persistence import RETRY_SECONDS, Persistence, SavedTable
from understudy.broker.topics import TopicConfig
from understudy.format.json_dialect import loads
from understudy.format.json_values import TEXT_LIMIT
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.connection import Connection
from understudy.remoting.frame import FrameReader, encode
from understudy.remoting.server import RemotingServer
from understudy.runtime.table import load_table
from understudy.runtime.world import World
from understudy.security import requests as security_requests
from understudy.security.gate import Gate
from understudy.security.kept import KeptAuthority
from understudy.security.settings import SecuritySettings
from understudy.security.signature import Credentials
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

BIG = 10**30
TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "1.5",
    "true",
    "TRUE",
    str(BIG),
    str(2**31),
    str(2**63),
    "9" * 5000,
    "x" * 100_000,
    '"' * 50_000,
    "\x00\x01\x1f\x7f",
    "é\u2028😀",
    "../../etc/passwd",
    "{",
    '{"a":1}',
    "T",
    "g",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1.5,
    1e300,
    2**31,
    2**63,
    BIG,
    [],
    {},
    [[1]],
    {"a": {"b": [None]}},
    [True] * 5,
    *TEXTS,
)
FIELDS = {
    17: "topic readQueueNums writeQueueNums perm topicFilterType topicSysFlag order attributes",
    15: "consumerGroup topic queueId commitOffset",
    353: "group topic readable",
    222: "topic group queueId timestamp isForce offset",
    314: "srcGroup destGroup topic offline",
    35: "clientID producerGroup consumerGroup",
    11: "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset subscription expressionType",
    36: "offset group delayLevel originMsgId originTopic maxReconsumeTimes",
}
GOOD = {
    "topic": "T",
    "group": "g",
    "consumerGroup": "g",
    "queueId": "0",
    "commitOffset": "1",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "timestamp": "-1",
    "isForce": "true",
    "readable": "false",
    "srcGroup": "g",
    "destGroup": "h",
    "sysFlag": "3",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "subscription": "*",
}
TOPIC = {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "attributes": {}, "order": False}
GROUP: dict[str, Any] = {
    "groupName": "g",
    "retryQueueNums": 1,
    "retryMaxTimes": 3,
    "brokerId": 0,
    "groupSysFlag": 0,
    "consumeEnable": True,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "subscriptionDataSet": [],
    "attributes": {},
}
MAPPED = {"topic": "S", "bname": "broker-a", "scope": "__global__", "totalQueues": 1, "epoch": 1, "dirty": False}
ITEM = {"gen": 0, "queueId": 0, "bname": "broker-a", "logicOffset": 0, "startOffset": 0, "endOffset": -1}
ITEM |= {"timeOfStart": -1, "timeOfEnd": -1}
MAPPED_HEADER = {"topic": "S", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "order": "false"}
MAPPED_HEADER |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "force": "true"}
USER = {"username": "u", "password": "p", "userType": "Normal", "userStatus": "enable"}
ENTRY = {"resource": "Topic:a", "actions": ["PUB"], "sourceIps": ["10.0.0.0/8"], "decision": "ALLOW"}
CONSUMER = {"groupName": "g", "consumeType": "P", "messageModel": "CLUSTERING", "subscriptionDataSet": []}
SUBSCRIPTION = {"topic": "T", "subString": "*", "subVersion": 1, "codeSet": [1], "tagsSet": ["a"]}
HALF_PAIR = b'"\\ud800"'


def each_field(row: dict[str, Any]) -> list[dict[str, Any]]:
    names = [*row, *(["topicSysFlag", "topicFilterType"] if "topicName" in row else [])]
    return [{**row, name: value} for name in names for value in VALUES]


def requests() -> list[tuple[int, dict[str, str] | None, bytes]]:
    found: list[tuple[int, dict[str, str] | None, bytes]] = []
    for code, names in FIELDS.items():
        fields = names.split()
        good = {name: GOOD[name] for name in fields if name in GOOD}
        found += [(code, {**good, name: text}, b"") for name in fields for text in TEXTS]
    bodies: list[tuple[int, Any]] = [(18, {"topicConfigList": [row]}) for row in each_field(TOPIC)]
    bodies += [(200, row) for row in each_field(GROUP)]
    bodies += [(225, {"groupConfigList": [row]}) for row in each_field(GROUP)]
    policies = [{"type": value} for value in VALUES]
    policies += [{"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": value}} for value in VALUES]
    policies += [{"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": value}} for value in VALUES]
    bodies += [(200, {**GROUP, "groupRetryPolicy": policy}) for policy in policies]
    bodies += [(200, {**GROUP, "subscriptionDataSet": [{"topic": value, "version": value}]}) for value in VALUES]
    for row in each_field(CONSUMER):
        bodies.append((34, {"clientID": "c", "consumerDataSet": [row]}))
    for row in each_field(SUBSCRIPTION):
        consumer = {**CONSUMER, "subscriptionDataSet": [row]}
        bodies.append((34, {"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "p"}]}))
    queues = {"brokerName": "broker-a", "topic": "T", "queueId": 0}
    for row in each_field(queues):
        bodies.append((41, {"clientId": "c", "consumerGroup": "g", "mqSet": [row]}))
        bodies.append((42, {"clientId": "c", "consumerGroup": "g", "mqSet": [row]}))
    bodies += [
        (401, {"topic": value, "consumerGroup": value, "mode": value, "popShareQueueNum": value}) for value in VALUES
    ]
    found += [(code, {}, text) for code, body in bodies for text in written(body)]
    whole = json.dumps(mapping()).encode()
    found += [(513, {**MAPPED_HEADER, name: text}, whole) for name in MAPPED_HEADER for text in TEXTS]
    mappings = [{**mapping(), **row} for row in each_field(MAPPED)] + [mapping(item=row) for row in each_field(ITEM)]
    mappings += [mapping(queue=text) for text in TEXTS] + [{**MAPPED, "hostedQueues": value} for value in VALUES]
    return found + [(513, MAPPED_HEADER, text) for body in mappings for text in written(body)]


def mapping(queue: str = "0", item: dict[str, Any] = ITEM) -> dict[str, Any]:
    return {**MAPPED, "hostedQueues": {queue: [item]}}


def written(body: Any) -> list[bytes]:
    """Return *body* as JSON, and again with half a surrogate pair, which json.dumps does not write, for one text."""
    text = json.dumps(body).encode()
    return [text, text.replace(b'"../../etc/passwd"', HALF_PAIR)] if b"passwd" in text else [text]


SHOWN = ((21, {}), (201, {}), (43, {}), (45, {}), (305, {}), (26, {}), (202, {"topic": "T"}), (352, {"group": "g"}))
SHOWN_OF_CLIENTS = ((203, {"consumerGroup": "g"}), (38, {"consumerGroup": "g"}), (208, {"consumerGroup": "g"}))


async def show_everything(rig: Rig, codes: tuple[tuple[int, dict[str, str]], ...]) -> dict[int, bytes]:
    shown = {}
    for code, ext in codes:
        answer = await rig.wait(rig.tell(code, dict(ext)))
        assert answer.code == 0, (code, answer.remark)
        shown[code] = answer.body
    return shown


async def test_every_accepted_value_is_saved_loaded_shown_and_replicated(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("T", 1, 1)])
        rig.broker.groups.update([GroupConfig("g")])
        rig.send("T")
        for code, ext, body in requests():
            answer = await rig.wait(rig.tell(code, ext, body))
            assert "Error: " not in (answer.remark or ""), (code, ext, body[:300], answer.remark)
            assert rig.broker.persistence.unsaved == {}, (code, ext, body[:300])
        await rig.broker.persistence.save_all()
        assert rig.broker.persistence.unsaved == {}
        before = await show_everything(rig, SHOWN + SHOWN_OF_CLIENTS)
        for body in before.values():
            if body[:1] == b"{":
                json.dumps(loads(body))
        # what a slave does with the answers it copies
        for row in loads(before[21])["topicConfigTable"].values():
            assert TopicConfig.from_json(row).to_json() == row
        for row in loads(before[201])["subscriptionGroupTable"].values():
            assert GroupConfig.from_json(row).to_json() == row
    async with open_rig(str(tmp_path)) as again:
        after = await show_everything(again, SHOWN)
        assert "S" in loads(after[21])["topicQueueMappingDetailMap"]
        for code in (21, 201, 43, 45):
            theirs, ours = loads(after[code]), loads(before[code])
            assert theirs == ours
        again.serves_another()


def changes_of_users() -> list[tuple[RequestCode, dict[str, str], bytes]]:
    named, subject = {"username": "u"}, {"subject": "User:u"}
    users = [text for row in each_field(USER) for text in written(row)] + [
        text for each in VALUES for text in written(each)
    ]
    found = [
        (code, named, text) for text in users for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER)
    ]
    found += [(RequestCode.AUTH_CREATE_USER, {"username": text}, json.dumps(USER).encode()) for text in TEXTS]
    found += [(RequestCode.AUTH_CREATE_USER, named, json.dumps(USER).encode())]
    policies = [{"policyType": "CUSTOM", "entries": [row]} for row in each_field(ENTRY)]
    policies += each_field({"policyType": "CUSTOM", "entries": [ENTRY]})
    rules: list[Any] = [{"subject": "User:u", "policies": [policy]} for policy in policies]
    rules += [{"subject": value, "policies": value} for value in VALUES]
    for code in (RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL):
        found += [(code, subject, text) for body in rules for text in written(body)]
    found += [(RequestCode.AUTH_DELETE_ACL, {**subject, "resource": text, "policyType": text}, b"") for text in TEXTS]
    return found + [(RequestCode.AUTH_DELETE_USER, {"username": text}, b"") for text in TEXTS]


async def test_every_accepted_user_and_rule_is_saved_loaded_and_shown() -> None:
    world = World(VirtualClock(), NoNetwork(), SimDisk(Random(1)), Random(1))  # type: ignore[arg-type]
    supers = [Credentials("root", "secret")]
    kept = KeptAuthority(world.disk, "/users/users.json", supers)
    server = RemotingServer(world, "127.0.0.1", 0)
    security_requests.register(
        server, Gate(kept.table, SecuritySettings(), "C", world.clock.monotonic), kept.save, world
    )
    accepted = Counter[RequestCode]()
    async with trio.open_nursery() as nursery:
        peer = Peer(nursery)
        for code, ext, body in changes_of_users():
            before = kept.table.revision
            (command,) = FrameReader().feed(encode(request(code, ext, body)))
            server.dispatch(cast(Connection, peer), command)
            with trio.fail_after(30):
                while command.opaque not in peer.replies:
                    await peer.arrival.wait()
            answer = peer.replies.pop(command.opaque or 0)
            assert "Error: " not in (answer.remark or ""), (code, ext, body[:300], answer.remark)
            assert not (answer.code and kept.table.revision != before), (code, ext, body[:300], answer.remark)
            if kept.table.revision == before:
                continue
            # what was changed can be read again, as it is
            accepted[code] += 1
            again = KeptAuthority(world.disk, "/users/users.json", supers)
            await again.load()
            assert (kept.table.users, kept.table.acls) == (again.table.users, again.table.acls), (code, ext, body[:300])
    assert len(accepted) == 6


@pytest.mark.parametrize("policy", [b'{"type":"\\ud800"}', b'{"type":"CUSTOMIZED","x":"\\udc00"}', b"5", b"[]"])
async def test_a_retry_policy_that_cannot_be_kept_is_refused(tmp_path: Path, policy: bytes) -> None:
    async with open_rig(str(tmp_path)) as rig:
        answer = await rig.wait(rig.tell(200, {}, b'{"groupName":"g","groupRetryPolicy":%b}' % policy))
        assert answer.code != 0
        assert rig.broker.groups.find("g") is None
        rig.serves_another()


async def test_a_table_that_cannot_be_written_is_its_own_fault(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    content: dict[str, Any] = {"broken": {"a": "\ud800"}, "sound": {"a": 1}}
    world = World(VirtualClock(), NoNetwork(), SimDisk(Random(1)), Random(1))  # type: ignore[arg-type]
    world.disk.make_folder("/t")
    persistence = Persistence(world)
    for name in content:
        persistence.add(SavedTable(name, f"/t/{name}.json", partial(content.__getitem__, name), lambda: 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(persistence.run)
        for name in content:
            persistence.changed(name)
        await trio.sleep(RETRY_SECONDS / 2)
        assert load_table(world.disk, "/t/sound.json").data == {"a": 1}
        assert list(persistence.unsaved) == ["broken"]
        assert "cannot be written as JSON" in persistence.unsaved["broken"]
        # it is tried again, and well as soon as its content is
        content["broken"] = {"a": 2}
        await trio.sleep(RETRY_SECONDS)
        assert persistence.unsaved == {}
        assert load_table(world.disk, "/t/broken.json").data == {"a": 2}
        # a content that cannot even be collected is no different
        del content["sound"]
        await persistence.save_all()
        assert list(persistence.unsaved) == ["sound"]
        nursery.cancel_scope.cancel()


async def test_a_running_broker_shows_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        row = GroupConfig("g")
        row.attributes = {"a": "\ud800"}
        rig.broker.groups.update([row])
        await rig.broker.persistence.save_all()
        roster = loads((await rig.wait(rig.tell(950))).body)["services"]
        (line,) = [each for each in roster if each["name"] == "table groups"]
        assert line["state"] == "failed"
        rig.serves_another()
        rig.broker.groups.delete("g")


DOORS: dict[str, tuple[int, Callable[[str], dict[str, str]], Callable[[str], bytes]]] = {
    "pull": (11, lambda text: pull_header("T", subscription=text), lambda text: b""),
    "light pull": (361, lambda text: pull_header("T", subscription=text), lambda text: b""),
    "pop": (POP, lambda text: pop_header(exp=text), lambda text: b""),
    "check": (46, lambda text: {}, lambda text: json.dumps({"subscriptionData": {"subString": text}}).encode()),
    "heartbeat": (
        34,
        lambda text: {},
        lambda text: json.dumps(
            {
                "clientID": "c",
                "consumerDataSet": [{**CONSUMER, "subscriptionDataSet": [{**SUBSCRIPTION, "subString": text}]}],
            }
        ).encode(),
    ),
}


@pytest.mark.parametrize("door", DOORS)
async def test_every_door_takes_subscriptions_of_one_length(door: str, tmp_path: Path) -> None:
    code, fields, body = DOORS[door]
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("T", 1, 1)])
        for text, accepted in (("a||" * 10_922, True), ("a||" * 10_923, False)):
            assert (len(text) <= TEXT_LIMIT) is accepted
            answer = await rig.wait(rig.tell(code, fields(text), body(text)))
            assert ("the limit is 32768" in (answer.remark or "")) is not accepted, answer.remark
