"""A store of the real broker in which topics were deleted, and made again, comes to ours: the dead stay dead."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from peer_processes import JAVA, OURS, running, server
from peer_requests import ask, await_true
from test_peers_java_opens_store import configuration

from understudy.format.record import decode_records
from understudy.remoting.codes import RequestCode
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.topic_fields import topic_fields


def make(address: str, topic: str) -> None:
    ext = {**topic_fields(topic, 1), "topicSysFlag": "0"}
    assert ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def delete(address: str, topic: str) -> None:
    assert ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0


def send(address: str, topic: str, body: bytes) -> int:
    """Store one message and return its place in the queue."""
    ext = {
        "producerGroup": "writers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "",
    }
    answer = ask(address, RequestCode.SEND_MESSAGE, ext, body)
    assert answer.code == 0, answer
    return int((answer.ext or {})["queueOffset"])


def bodies(address: str, topic: str) -> list[bytes]:
    ext = {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    answer = ask(address, RequestCode.PULL_MESSAGE, ext)
    return [record.body for record in decode_records(answer.body)] if answer.code == 0 else []


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_deleted_topics_of_a_real_broker_stay_deleted_at_ours(
    killed: bool, java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    folder, port = tmp_path / "store", port_blocks.take()
    address = f"127.0.0.1:{port}"
    # given a real broker at which one topic was deleted and made again, and another was deleted
    # (which needs its timer for that)
    text = configuration(folder, port).replace("timerWheelEnable=false", "timerWheelEnable=true")
    java = server(JAVA, "broker", "broker", tmp_path / "java", text)
    with running(java):
        for topic in ("Again", "Gone"):
            make(address, topic)
            for number in range(10):
                assert send(address, topic, b"old %d" % number) == number
            await_true(lambda topic=topic: len(bodies(address, topic)) == 10, 20, "the messages can be read")
            delete(address, topic)
        make(address, "Again")
        for number in range(3):
            assert send(address, "Again", b"new %d" % number) == number
        await_true(lambda: len(bodies(address, "Again")) == 3, 20, "the messages can be read")
        if killed:
            java.kill()
        else:
            java.stop(60)
    # when ours starts on its folder, and starts again without a mark
    for start in range(2):
        port = port_blocks.take()
        address = f"127.0.0.1:{port}"
        with running(server(OURS, "broker", "broker", tmp_path / f"ours{start}", configuration(folder, port))):
            # then only the living is there, and the next message stands behind it
            living = [b"new 0", b"new 1", b"new 2", *[b"next 0"][:start]]
            assert bodies(address, "Again") == living
            assert send(address, "Again", b"next %d" % start) == len(living)
        with contextlib.suppress(FileNotFoundError):
            (folder / "recovery.mark").unlink()
    with running(server(OURS, "broker", "broker", tmp_path / "last", configuration(folder, port))):
        make(address, "Gone")
        assert bodies(address, "Gone") == []
        assert send(address, "Gone", b"first") == 0
