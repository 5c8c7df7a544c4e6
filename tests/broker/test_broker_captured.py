"""Exchanges captured from a 5.4.0 broker, replayed: the same requests get the same answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, cast

import pytest
from broker_rig import Rig, open_rig

from understudy.broker.groups import GroupConfig
from understudy.broker.topics import TopicConfig
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.frame import FrameReader

DATA = Path(__file__).parent.parent / "data" / "broker" / "exchanges.json.gz"
EXCHANGES: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(DATA.read_bytes()))


def frame(text: str) -> Command:
    (command,) = FrameReader().feed(bytes.fromhex(text))
    return command


def replay(rig: Rig, exchange: dict[str, Any]) -> Command | None:
    """Hand the captured request to the broker; return its answer."""
    command = frame(exchange["request"])
    rig.broker.server.dispatch(cast(Connection, rig.peer), command)
    rig.broker.send.end_receive()
    return rig.peer.replies.pop(command.opaque or 0, None)


def told(answer: Command, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    ext = None if answer.ext is None else {name: text for name, text in answer.ext.items() if name not in without}
    return {"code": answer.code, "remark": answer.remark, "ext": ext, "flag": answer.flag, "version": answer.version}


@pytest.mark.covers("IT-01", "IT-09", "IT-10")
async def test_a_producers_first_messages_get_the_same_offsets_and_ids(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        for exchange in EXCHANGES["producer"]:
            answer = replay(rig, exchange)
            if exchange["response"] is None:
                assert answer is None, exchange["row"]
                continue
            assert answer is not None, exchange["row"]
            assert told(answer) == told(frame(exchange["response"])), exchange["row"]


# What depends on everything the captured broker had stored before, and on its message ids.
HISTORY = frozenset({"msgId", "transactionId", "queueOffset"})
# Rows whose answer is state: store times, and a delayed message that is not there.
STATE_ROWS = frozenset({"broker_details:61", "broker_details:65", "broker_details:69", "broker_details:148"})
# Rows answered with the text of a Java exception, or unfiltered although a filter was asked for.
OTHERWISE_ROWS = frozenset({"broker_details:37", "broker_details:39", "broker_details:144", "broker_details:146"})
# Commits beyond the end of the queue, which the reference stores.
OTHERWISE_ROWS |= {"broker_details:109", "broker_details:117"}


async def details_state(rig: Rig) -> None:
    """What the captured broker had when the detail requests came, as far as they show it."""
    rig.broker.topics.update([TopicConfig("PopRaw", 2, 2), TopicConfig("TopicTest", 4, 4)])
    rig.broker.topics.update([TopicConfig("%RETRY%gpop", 1, 1)])
    rig.broker.groups.update([GroupConfig("gpop")])
    sizes = (263, 262, 201, 202)
    for tag, size in zip(("TagA", "TagA", "TagB", "TagB"), sizes, strict=True):
        rig.send("TopicTest", b"x" * (size - 190), f"TAGS\x01{tag}\x02UNIQ_KEY\x01u\x02")


@pytest.mark.covers("IT-22", "IT-12")
async def test_details_get_the_same_codes_remarks_and_fields(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        await details_state(rig)
        differences = []
        for exchange in EXCHANGES["details"]:
            answer = replay(rig, exchange)
            if exchange["response"] is None or exchange["row"] in STATE_ROWS | OTHERWISE_ROWS:
                continue
            expected = frame(exchange["response"])
            if answer is None:
                differences.append((exchange["row"], "no answer", told(expected)))
            elif told(answer, HISTORY) != told(expected, HISTORY):
                differences.append((exchange["row"], told(answer, HISTORY), told(expected, HISTORY)))
        assert differences == []


@pytest.mark.covers("IT-22", "R351", "R352", "R353")
async def test_pull_consumers_statuses_and_offsets(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.broker.topics.update([TopicConfig("PushTopic", 4, 4), TopicConfig("BcTopic", 4, 4)])
        rig.send("PushTopic", b"x", "TAGS\x01TagA\x02UNIQ_KEY\x01u\x02", 1)
        compared = 0
        for exchange in EXCHANGES["pull_consumer"]:
            command = frame(exchange["request"])
            rig.peer.peer, rig.peer.address = ("127.0.0.1", 36620), "127.0.0.1:36620"
            if (command.ext or {}).get("sysFlag") == "6":
                continue  # held for 20 s
            answer = replay(rig, exchange)
            assert answer is not None, exchange["row"]
            expected = frame(exchange["response"])
            assert told(answer) == told(expected), exchange["row"]
            if command.code == 38:
                assert answer.body == expected.body, exchange["row"]
            compared += 1
        assert compared > 15


@pytest.mark.covers("IT-22")
async def test_binary_headers_are_answered_with_json_ones(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        sends = [each for each in EXCHANGES["binary"] if frame(each["request"]).code == 310]
        assert {frame(each["request"]).serialize for each in sends} == {1}
        answered = 0
        for exchange in sends:
            answer = replay(rig, exchange)
            if exchange["response"] is None:
                assert answer is None
                continue
            expected = frame(exchange["response"])
            assert answer is not None and answer.serialize == 0
            assert answer.code == expected.code
            answered += 1
        assert answered > 0
