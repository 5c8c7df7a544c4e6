"""Consumers that select by a SQL92 condition: pulls, waiting pulls, heartbeats and the check of a subscription."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from broker_rig import Rig, open_rig, pull_header
from trio.testing import wait_all_tasks_blocked

from understudy.broker.topics import TopicConfig
from understudy.format.record import decode_records
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.frame import FrameReader

ON = {"enablePropertyFilter": "true"}
DATA = Path(__file__).parents[1] / "data" / "sql_filter" / "exchanges.json"
CAPTURED: dict[str, list[dict[str, str]]] = json.loads(DATA.read_text())


def frame(text: str) -> Command:
    (command,) = FrameReader().feed(bytes.fromhex(text))
    return command


def replay(rig: Rig, exchange: dict[str, str]) -> tuple[Command, Command]:
    """The answer to a captured request, and the captured one."""
    command = frame(exchange["request"])
    rig.broker.server.dispatch(cast(Connection, rig.peer), command)
    return rig.peer.replies.pop(command.opaque or 0), frame(exchange["response"])


def told(answer: Command) -> tuple[Any, ...]:
    return answer.code, answer.remark, answer.ext


async def filled(rig: Rig) -> None:
    """Messages 0 to 9 in queue 0, `a` is their number; the even ones have TagA."""
    rig.broker.topics.update([TopicConfig("T", 4, 4)])
    for number in range(10):
        rig.send("T", b"m%d" % number, f"a\x01{number}\x02TAGS\x01Tag{'AB'[number % 2]}\x02UNIQ_KEY\x01u{number}\x02")


def sql(rig: Rig, text: str, offset: int = 0, **more: str) -> Command:
    return rig.pull("T", 0, offset, expressionType="SQL92", subscription=text, **more)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


def heartbeat(
    rig: Rig, text: str, version: int = 7, topic: str = "T", name: str = "cg", client: str = "c@1"
) -> Command:
    subscription = {"expressionType": "SQL92", "subString": text, "subVersion": version, "topic": topic}
    group = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": name,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [
            subscription,
            {"subString": "*", "subVersion": version + 10_000, "topic": f"%RETRY%{name}"},
        ],
    }
    return rig.ask(34, None, json.dumps({"clientID": client, "consumerDataSet": [group]}).encode())


async def test_captured_answers_with_the_filter_off(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        answer, captured = replay(rig, CAPTURED["off"][0])
        assert told(answer) == told(captured)


async def test_captured_answers_with_the_filter_on(tmp_path: Path) -> None:
    """Given what the captured broker had stored; then its answers to a Java consumer of `a > 5 AND TAGS IN (...)`."""
    async with open_rig(str(tmp_path), ON) as rig:
        rig.broker.topics.update([TopicConfig("SqlTopic", 4, 4)])
        for queue, values in ((0, ["5", "5"]), (1, ["6"]), (2, ["", "7"]), (3, ["4"])):
            for value in values:
                rig.send("SqlTopic", b"a", f"a\x01{value}\x02TAGS\x01TagA\x02" if value else "TAGS\x01TagA\x02", queue)
        heartbeat(rig, "a > 5 AND TAGS IN ('TagA','TagB')", 1_795_244_750_851, "SqlTopic", "cgsql")
        for exchange in CAPTURED["on"]:
            answer, captured = replay(rig, exchange)
            assert told(answer) == told(captured), exchange["row"]
        answer, captured = replay(rig, CAPTURED["bad"][0])
        assert answer.code == captured.code == 23
        assert answer.remark == "Invalid MessageSelector. a value must stand here, not '>' (at line 1, column 5)"


async def test_the_captured_life_of_a_consumer_from_its_heartbeat_to_its_leave(tmp_path: Path) -> None:
    """Every exchange of the captured consumer with the broker: pulls that wait, and what wakes one of them, too."""
    async with open_rig(str(tmp_path), ON) as rig:
        rig.broker.topics.update([TopicConfig("SqlTopic", 4, 4)])
        for queue, values in ((0, ["5", "5"]), (1, ["6"]), (2, ["", "7"]), (3, ["4"])):
            for value in values:
                rig.send("SqlTopic", b"a", f"a\x01{value}\x02TAGS\x01TagA\x02" if value else "TAGS\x01TagA\x02", queue)
        waits: dict[str, tuple[int, Command]] = {}
        for exchange in CAPTURED["session"]:
            if exchange["row"] == "filter_sql92:53":  # its heartbeat is not in the recording
                text = "a > 5 AND TAGS IN ('TagA','TagB')"
                heartbeat(rig, text, 1_795_244_750_851, "SqlTopic", "cgsql", "127.0.0.1@csqltrue")
            if exchange["row"] == "filter_sql92:78":  # what came meanwhile: one that is wanted, and one that is not
                assert "filter_sql92:74" in waits
                rig.send("SqlTopic", b"a", "a\x018\x02TAGS\x01TagA\x02", 3)
                rig.send("SqlTopic", b"a", "a\x015\x02TAGS\x01TagA\x02", 0)
                await wait_all_tasks_blocked()
                opaque, expected = waits.pop("filter_sql92:74")
                answer = rig.peer.replies.pop(opaque)
                assert told(answer) == told(expected)
                assert [b"a"] == bodies(answer)
            command = frame(exchange["request"])
            rig.broker.server.dispatch(cast(Connection, rig.peer), command)
            await wait_all_tasks_blocked()
            found = rig.peer.replies.pop(command.opaque or 0, None)
            captured = None if exchange["response"] is None else frame(exchange["response"])
            if exchange["row"] == "filter_sql92:74":
                assert found is None and captured is not None
                waits[exchange["row"]] = command.opaque or 0, captured
            elif captured is None:
                assert found is None, exchange["row"]
            elif captured.code == 23:  # in words of ours
                assert found is not None and found.code == 23
            else:
                assert found is not None and told(found) == told(captured), exchange["row"]
                if command.code != 11:
                    assert json.loads(found.body or "{}") == json.loads(captured.body or "{}"), exchange["row"]
                else:
                    assert len(bodies(found)) == len(bodies(captured)), exchange["row"]
        assert [3, 2, 2] == [rig.broker.offsets.query("cgsql", "SqlTopic", queue) for queue in (0, 2, 3)]


async def test_a_pull_gets_the_messages_its_condition_is_true_for(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await filled(rig)
        answer = sql(rig, "a > 5 AND TAGS = 'TagA'")
        assert (answer.code, bodies(answer)) == (0, [b"m6", b"m8"])
        assert (answer.ext or {})["nextBeginOffset"] == "10"
        answer = sql(rig, "a BETWEEN 2 AND 4", maxMsgNums="2")
        assert (bodies(answer), (answer.ext or {})["nextBeginOffset"]) == ([b"m2", b"m3"], "4")
        answer = sql(rig, "a > 100")
        assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
        assert (answer.ext or {})["nextBeginOffset"] == "10"
        # unknown, and what cannot be compared, is no match either
        assert sql(rig, "b = 1").code == sql(rig, "TAGS > 1").code == 20


async def test_a_bad_condition_is_refused_with_its_place_and_nothing_comes_unfiltered(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await filled(rig)
        answer = sql(rig, "a = 3 b")
        assert answer.code == 23
        assert answer.remark == (
            "parse the consumer's subscription failed: Invalid MessageSelector. "
            "the condition ends before 'b', which would be left out (at line 1, column 7)"
        )
        heartbeat(rig, "a >")
        answer = rig.pull("T", sysFlag="0", subVersion="7", expressionType="SQL92")
        assert answer.code == 27
        assert (answer.remark or "").endswith("Invalid MessageSelector. a value must follow (at line 1, column 4)")
        answer = rig.pull("T", expressionType="XPATH", subscription="a")
        assert (answer.code, answer.remark) == (1, "The broker does not support consumer to filter message by XPATH")


async def test_a_switched_off_filter_refuses_and_can_be_switched_on(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await filled(rig)
        heartbeat(rig, "a > 5")
        for answer in (sql(rig, "a > 5"), rig.pull("T", sysFlag="0", subVersion="7")):
            assert (answer.code, answer.remark) == (
                1,
                "The broker does not support consumer to filter message by SQL92",
            )
        rig.broker.options.broker.enable_property_filter = True
        assert bodies(sql(rig, "a > 8")) == [b"m9"]
        assert bodies(rig.pull("T", sysFlag="0", subVersion="7")) == [b"m6", b"m7", b"m8", b"m9"]


async def test_the_newest_heartbeat_counts_and_a_newer_pull_waits_for_it(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await filled(rig)
        now_ms = rig.broker.world.clock.wall_ms()
        heartbeat(rig, "a > 8", now_ms)
        heartbeat(rig, "a > 7", now_ms - 5)
        assert bodies(rig.pull("T", sysFlag="0", subVersion=str(now_ms))) == [b"m9"]
        # what the group wants now is not known here: clients do not look at conditions themselves
        for kind in ("SQL92", "TAG"):
            assert rig.pull("T", sysFlag="0", subVersion=str(now_ms + 5), expressionType=kind).code == 25


@pytest.mark.parametrize("registered", [False, True])
async def test_a_waiting_pull_is_woken_by_a_message_it_wants(tmp_path: Path, registered: bool) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await filled(rig)
        heartbeat(rig, "a > 5")
        more = {"sysFlag": "2" if registered else "6", "subVersion": "7", "suspendTimeoutMillis": "15000"}
        held = rig.tell(11, pull_header("T", 0, 10, expressionType="SQL92", subscription="a > 5", **more))
        other = rig.tell(11, pull_header("T", 0, 10, subscription="TagZ", sysFlag="6", suspendTimeoutMillis="15000"))
        for number in (1, 2, 3):
            rig.send("T", b"new", f"a\x01{number}\x02")
        await wait_all_tasks_blocked()
        assert len(rig.broker.hold) == 2
        rig.send("T", b"wanted", "a\x016\x02")
        answer = await rig.wait(held)
        assert (answer.code, bodies(answer)) == (0, [b"wanted"])
        assert (answer.ext or {})["nextBeginOffset"] == "14"
        assert len(rig.broker.hold) == 1
        rig.broker.hold.drop(cast(Connection, rig.peer))
        assert other.opaque not in rig.peer.replies


async def test_a_dropped_pull_with_a_condition_leaves_nothing(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await filled(rig)
        header = pull_header("T", 0, 10, expressionType="SQL92", subscription="a > 5", sysFlag="6")
        rig.tell(11, header | {"suspendTimeoutMillis": "15000"})
        rig.broker.hold.drop(cast(Connection, rig.peer))
        assert (len(rig.broker.hold), rig.broker.hold._parked) == (0, {})
        held = rig.tell(11, header | {"suspendTimeoutMillis": "100"})
        assert (await rig.wait(held)).code == 19
        assert rig.broker.hold._parked == {}
        held = rig.tell(11, header | {"suspendTimeoutMillis": "15000"})
        rig.broker.hold.wake_all()
        assert (await rig.wait(held)).code == 19


@pytest.mark.parametrize("text", ["a > 5", None, 7])
async def test_the_check_of_a_subscription_takes_any_body(tmp_path: Path, text: object) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        body = {"subscriptionData": {"expressionType": "SQL92", "subString": text}}
        assert rig.ask(46, None, json.dumps(body).encode()).code == (0 if text == "a > 5" else 23)


async def test_a_waiting_pull_counts_with_what_its_condition_keeps(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await filled(rig)
        text = " OR ".join(f"a = {number}" for number in range(100, 700))
        rig.tell(11, pull_header("T", 0, 10, expressionType="SQL92", subscription=text, sysFlag="6"))
        await wait_all_tasks_blocked()  # a long one is compiled in a turn of its own
        assert rig.broker.world.load.parked.used > 60 * len(text)
        rig.broker.hold.drop(cast(Connection, rig.peer))
        assert rig.broker.world.load.parked.used == 0
