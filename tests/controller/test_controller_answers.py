"""Answers of the API, byte for byte as captured from 5.4.0 (opaque and version ordinals aside)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from controller_desk import Desk

from understudy.controller.group import Group, Replica
from understudy.controller.requests import EXPLAIN_MASTER
from understudy.remoting.frame import FrameReader
from understudy.remoting.frame import encode as encode_frame

CAPTURED = json.loads((Path(__file__).parent.parent / "data/controller/captured_answers.json").read_text())


def stored(name: str, facts: dict[str, Any]) -> Group:
    replicas = {int(i): Replica(address, f"{address};1") for i, address in facts["replicas"].items()}
    return Group(
        facts["cluster"],
        name,
        replicas,
        max(replicas),
        facts["master"],
        facts["epoch"],
        facts["set"],
        facts["set_epoch"],
    )


def described(case: dict[str, Any]) -> str:
    answer = bytes.fromhex(case["frame_hex"])
    return f"{case['code']}-{json.loads(answer[8 : 8 + int.from_bytes(answer[5:8], 'big')])['code']}"


@pytest.mark.covers("R201", "R194", "R198", "CC-07")
@pytest.mark.parametrize("case", CAPTURED, ids=described)
async def test_answers_are_byte_true(case: dict[str, Any], autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    if case["group"] is not None:
        desk.metadata.groups["broker-a"] = stored("broker-a", case["group"])
    desk.alive("broker-a", case["alive"])
    expected = bytes.fromhex(case["frame_hex"])
    [captured] = FrameReader(1 << 20, 1 << 20).feed(expected)

    answer = await desk.ask(case["code"], case["ext"] or None, case["body"].encode())

    answer.opaque, answer.version = captured.opaque, captured.version
    if case["code"] == 1002:
        # the one intended difference: the reference writes map keys without quotes and its own tool fails on them
        expected = expected.replace(b'{1:"127', b'{"1":"127')
        expected = (len(expected) - 4).to_bytes(4, "big") + expected[4:]
    assert bytes(b"".join([encode_frame(answer)])) == expected


@pytest.mark.covers("R195")
async def test_what_followers_say_of_the_leader_is_byte_true(autojump_clock: trio.testing.MockClock) -> None:
    # captured from 5.4.0: member n0 of three, led by n1
    expected = (
        b'{"code":0,"extFields":{"controllerLeaderId":"n1","controllerLeaderAddress":"127.0.0.1:21311",'
        b'"isLeader":"false","peers":"n0:127.0.0.1:21310;n1:127.0.0.1:21311;n2:127.0.0.1:21312;","group":"w2group"},'
        b'"flag":1,"language":"JAVA","opaque":2665,"serializeTypeCurrentRPC":"JSON","version":493}'
    )
    desk = Desk()
    desk.quorum.leading = False

    answer = await desk.ask(1005)

    answer.opaque, answer.version = 2665, 493
    frame = bytes(b"".join([encode_frame(answer)]))
    assert frame == (len(expected) + 4).to_bytes(4, "big") + len(expected).to_bytes(4, "big") + expected


@pytest.mark.covers("R162", "R196", "R195")
async def test_a_follower_answers_1005_and_refuses_the_rest(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    desk.quorum.leading = False
    fields = {
        "brokerName": "a",
        "clusterName": "C",
        "brokerId": "1",
        "appliedBrokerId": "1",
        "registerCheckCode": "h;1",
    }
    for code in (1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013, EXPLAIN_MASTER):
        answer = await desk.ask(code, fields, b'["a"]')
        assert (answer.code, answer.remark) == (2007, "The controller is not in leader state"), code
        assert (answer.ext or {})["controllerLeaderAddress"] == "127.0.0.1:21311"
    metadata = await desk.ask(1005)
    assert (metadata.code, metadata.ext) == (
        0,
        {
            "controllerLeaderId": "n1",
            "controllerLeaderAddress": "127.0.0.1:21311",
            "isLeader": "false",
            "peers": "n0:127.0.0.1:21310;n1:127.0.0.1:21311;n2:127.0.0.1:21312;",
            "group": "w2group",
        },
    )


@pytest.mark.covers("R133", "R134", "R129", "R130")
async def test_configuration_is_shown_and_changed(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    shown = (await desk.ask(1010)).body.decode().splitlines()
    assert "enableElectUncleanMaster=false" in shown
    assert "notifyBrokerRoleChanged=true" in shown
    assert "controllerDLegerGroup=w2group" in shown
    assert shown == sorted(shown)

    assert (await desk.ask(1009, None, b"enableElectUncleanMaster=true\n")).code == 0
    assert desk.settings.current.enable_elect_unclean_master
    assert b"enableElectUncleanMaster=true" in desk.world.disk.read("/conf/controller.properties")
    assert (await desk.ask(1009, None, b"configStorePath=/etc/passwd\n")).code == 16
    bad = await desk.ask(1009, None, b"enableElectUncleanMaster=maybe\n")
    assert (bad.code, bad.remark) == (29, "request: enableElectUncleanMaster=maybe: expected true or false")


async def test_bad_requests_are_told_what_is_wrong(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    assert (await desk.ask(904, {"clusterName": "C", "brokerName": "a", "brokerAddr": "h:1"})).code == 2005
    assert "field brokerId" in str((await desk.ask(1003, {"brokerName": "a", "brokerId": "x"})).remark)
    assert (await desk.ask(1001, {"brokerName": "a"}, b"[1,")).code == 1
    assert (await desk.ask(1001, {"brokerName": "a"}, b'{"syncStateSet":["x"]}')).code == 2005
    clean = await desk.ask(1011, {"brokerName": "a", "brokerControllerIdsToClean": "1;two"})
    assert (clean.code, "illegal brokerControllerIdsToClean" in str(clean.remark)) == (2009, True)
    assert (await desk.ask(1006)).body == b""


async def test_explain_tells_an_operator_why(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    desk.metadata.groups["broker-a"] = stored(
        "broker-a",
        {"cluster": "W2", "replicas": {"1": "h:1", "2": "h:2"}, "master": 1, "epoch": 3, "set": [1], "set_epoch": 2},
    )
    desk.alive("broker-a", [2])
    answer = await desk.ask(EXPLAIN_MASTER, {"brokerName": "broker-a"})
    assert answer.code == 0
    assert b"#NextStep\tstart broker 1" in answer.body
    unknown = await desk.ask(EXPLAIN_MASTER, {"brokerName": "zz"})
    assert (unknown.code, unknown.remark) == (2008, "no broker group zz is registered; registered are broker-a")


@pytest.mark.covers("R243", "R256")
async def test_an_id_is_burnt_only_by_who_applies_for_it(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    group = {"clusterName": "C", "brokerName": "a"}

    async def next_id() -> str:
        return ((await desk.ask(1012, group)).ext or {})["nextBrokerId"]

    async def apply(broker_id: str, code: str) -> int:
        fields = {**group, "appliedBrokerId": broker_id, "registerCheckCode": code}
        return (await desk.ask(1013, fields)).code

    # who asks and dies before it writes anything down costs nothing
    assert [await next_id(), await next_id()] == ["1", "1"]
    assert await apply("1", "10.0.0.1:10911;1700000000000") == 0
    # who wanted the same one is refused, and gets the next one when it asks again
    assert await apply("1", "10.0.0.2:10911;1700000000001") == 2014
    assert await next_id() == "2"
    assert await apply("2", "10.0.0.2:10911;1700000000001") == 0
    # an answer that was lost is asked for again under the same code
    assert await apply("2", "10.0.0.2:10911;1700000000001") == 0
    assert await next_id() == "3"
    # the address is inside the code
    shown = json.loads((await desk.ask(1006, None, b'["a"]')).body)["replicasInfoTable"]["a"]
    addresses = {row["brokerId"]: row["brokerAddress"] for row in shown["notInSyncReplicas"]}
    assert addresses == {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"}


async def test_very_many_who_ask_for_all_sets_at_once_leave_others_their_turns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Turns(trio.abc.Instrument):
        count = 0

        def before_io_wait(self, timeout: float) -> None:
            self.count += 1

    desk, asked = Desk(), 50
    case = next(case for case in CAPTURED if case["group"] is not None)
    names = [f"group-{number}" for number in range(10)]
    for name in names:
        desk.metadata.groups[name] = stored(name, case["group"])
    answers = []

    async def ask() -> None:
        answers.append(await desk.ask(1006, None, json.dumps(names).encode()))

    turns = Turns()
    trio.lowlevel.add_instrument(turns)
    async with trio.open_nursery() as nursery:
        for _ in range(asked):
            nursery.start_soon(ask)
    assert turns.count >= asked
    assert [sorted(names)] * asked == [list(json.loads(answer.body)["replicasInfoTable"]) for answer in answers]
