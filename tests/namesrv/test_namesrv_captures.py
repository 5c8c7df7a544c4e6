"""Replays of what 5.4.0 was asked and answered: same requests, same state, same answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
from namesrv_wire import DATA, Peer, captured, config_in, connected, running

from understudy.format.data_version import DataVersion
from understudy.format.json_dialect import loads
from understudy.namesrv import bodies
from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.notices import to_command
from understudy.namesrv.records import MinBrokerIdNotice, QueueData, Registration
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.routes import pick_up
from understudy.remoting.command import Command
from understudy.remoting.frame import FrameReader, encode

# Texts of Java exceptions; our sentence differs on purpose, the code does not.
JAVA_EXCEPTIONS = ("java.", "org.apache.")


def frame_of(row: dict[str, Any]) -> bytes:
    if row.get("frame_hex"):
        return bytes.fromhex(row["frame_hex"])
    body = row["body"].encode() if "body" in row else bytes.fromhex(row.get("body_hex", ""))
    return encode(
        Command(
            row["code"], row["language"], row["version"], row["opaque"], row["flag"], row["remark"], row["header"], body
        )
    )


def unordered(value: Any) -> Any:
    """Drop the order of lists: the reference keeps names in hash order, which means nothing."""
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    return value


def check(answer: bytes, expected: dict[str, Any], what: str) -> None:
    (ours,) = FrameReader().feed(answer)
    assert ours.code == expected["code"], f"{what}: {ours.remark}"
    if str(expected["remark"]).startswith(JAVA_EXCEPTIONS):
        assert ours.remark, what
        assert ours.body == b"", what
        return
    if "frame_hex" in expected:
        golden = bytes.fromhex(expected["frame_hex"])
    else:
        golden = encode(Command(expected["code"], "JAVA", 493, ours.opaque, 1, expected["remark"], expected["header"]))
        golden += expected.get("body", "").encode()
        golden = (len(golden) - 4).to_bytes(4, "big") + golden[4:]
    (theirs,) = FrameReader().feed(golden)
    header_bytes = len(golden) - len(theirs.body)
    assert answer[:header_bytes] == golden[:header_bytes], what  # lengths, header fields and their order
    if ours.body != theirs.body:
        assert sorted(ours.body) == sorted(theirs.body), what  # the same bytes, some lists in another order
        assert unordered(loads(ours.body)) == unordered(loads(theirs.body)), what


async def replay(peers: dict[int, Peer], rows: list[dict[str, Any]], skip: frozenset[int] = frozenset()) -> int:
    """Send each request of *rows* whose code is not in *skip* and compare the answers; return how many there were."""
    compared = 0
    answers = {(row["conn"], row["opaque"]): row for row in rows if row["kind"] == "response"}
    for number, row in enumerate(rows, 1):
        expected = answers.get((row["conn"], row["opaque"]))
        if row["kind"] == "response" or row["code"] in skip or (expected is None and row["kind"] == "request"):
            continue
        peer = peers[row["conn"]]
        await peer.stream.send_all(frame_of(row))
        if row["kind"] == "request":
            what = f"row {number} code {row['code']} {row['header']}"
            assert expected is not None
            check(await peer.receive_frame(), expected, what)
            compared += 1
    return compared


def like_captured(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> NamesrvConfig:
    """Return the captured server's settings; its relative paths lead into *folder*."""
    monkeypatch.chdir(folder)
    return config_in(
        folder,
        listen_port=20000,
        config_store_path="ns1.conf",
        kv_config_path="home-ns1/namesrv/kvConfig.json",
        rocketmq_home="home",
        **changes,
    )


@pytest.mark.covers("NS-17", "NS-18", "NS-22")
async def test_every_code_is_answered_as_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a name server at which the captured broker has registered
    lifecycle, rows, errors = (captured(f"namesrv_{name}") for name in ("lifecycle", "requests", "errors"))
    async with running(like_captured(tmp_path, monkeypatch)) as server, connected(server) as raw:
        broker = raw
        assert await replay({1: broker}, lifecycle[:12]) == 6
        # when it is asked everything the captured one was asked
        # then every answer is the captured one
        assert await replay({2: raw}, rows) == 71
        peers = dict.fromkeys({row["conn"] for row in errors}, raw)
        assert await replay(peers, errors) >= 45


async def test_what_a_stopping_broker_asks_is_answered_as_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = captured("namesrv_lifecycle")
    async with running(like_captured(tmp_path, monkeypatch)) as server, connected(server) as broker:
        assert await replay({1: broker}, lifecycle[:12]) == 6
        assert await replay({134: broker}, lifecycle[12:14]) == 1
        await trio.testing.wait_all_tasks_blocked()
        assert await replay({134: broker}, lifecycle[14:]) == 4


@pytest.mark.covers("R38", "NS-21")
async def test_an_acting_master_cluster_is_answered_as_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a name server with order configuration and acting masters, and the order configured before the capture
    config = like_captured(
        tmp_path, monkeypatch, order_message_enable=True, support_acting_master=True, notify_min_broker_id_changed=True
    )
    rows = captured("acting_master_broker")
    async with running(config) as server, connected(server) as peer:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "OrderT", "value": "broker-b:2"}
        assert (await peer.ask(100, order)).code == 0
        # when the captured brokers and tools talk to it
        # then every answer is the captured one, heartbeats have none
        peers = dict.fromkeys({row["conn"] for row in rows}, peer)
        registrations = [number for number, row in enumerate(rows) if row["code"] == 103 and row["kind"] == "request"]
        assert len(registrations) == 3
        assert await replay(peers, rows[: registrations[-1] + 1]) >= 12
        # the capture keeps three registrations of a kind; the next one gave the permissions back
        last = rows[registrations[-1]]
        body = last["body"].replace('"perm":2', '"perm":6').replace('"counter":8', '"counter":9').encode()
        assert (await peer.ask(103, {**last["header"], "bodyCrc32": "0"}, body)).code == 0
        assert await replay(peers, rows[registrations[-1] + 1 :]) == 4


async def test_a_compressed_registration_is_accepted_where_the_reference_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given the registration of a broker with compressedRegister=true, whose header says it is not compressed
    row = captured("compressed_register")[0]
    assert row["header"]["compressed"] == "false"
    async with running(like_captured(tmp_path, monkeypatch)) as server, connected(server) as peer:
        # when it registers
        await peer.stream.send_all(frame_of(row))
        answer = await peer.receive()
        # then it is in the routes
        assert answer.code == 0
        route = await peer.route("SCHEDULE_TOPIC_XXXX")
        assert route is not None
        assert route["queueDatas"] == [
            {"brokerName": "broker-b", "perm": 6, "readQueueNums": 18, "topicSysFlag": 0, "writeQueueNums": 18}
        ]
        topics = json.loads((await peer.ask(206)).body)["topicList"]
        assert len(topics) == 15


@pytest.mark.covers("R2", "NS-06")
def test_the_captured_failover_of_two_containers_is_repeated() -> None:
    # given what 5.4.0 showed while a container with master a and slave b was killed and came back
    seen = json.loads((DATA / "acting_routes.json").read_text())
    table = RouteTable()

    def come(name: str, broker_id: int, port: int) -> list[MinBrokerIdNotice]:
        queues = {topic: QueueData(name, 6, 4, 0, 4) for topic in ("T1", "TD")}
        address, ha_address = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
        event = Registration("W2", name, broker_id, address, ha_address, None, 2000, True, DataVersion(), queues)
        return list(table.register(event, None, 0).notices)

    def shown(what: str, *, standard: bool = True) -> None:
        route = pick_up(table, "T1", acting_master=True)
        assert route is not None
        ours, theirs = bodies.route(route, standard=standard), seen[what].encode()
        assert sorted(ours) == sorted(theirs), what
        assert unordered(loads(ours)) == unordered(loads(theirs)), what

    def headers(notices: Iterable[MinBrokerIdNotice]) -> list[dict[str, str] | None]:
        return [to_command(notice).ext for notice in notices]

    # when all four brokers come, then the routes and the notice about the smaller id are the captured ones
    assert come("broker-a", 0, 21220) == []
    assert come("broker-b", 1, 21224) == []
    assert come("broker-a", 1, 21230) == []
    assert headers(come("broker-b", 0, 21234)) == [seen["notices"]["master_of_b_came"]]
    shown("both")
    shown("both_old", standard=False)
    # when the first container is killed, then its two brokers go in one step
    lost = [table.live[("W2", "127.0.0.1:21220")], table.live[("W2", "127.0.0.1:21224")]]
    assert headers(table.remove(lost)) == [seen["notices"]["master_of_a_went"]]
    shown("killed")
    shown("killed_old", standard=False)
    # when its master of a comes back, then the slave steps back
    assert headers(come("broker-a", 0, 21220)) == [seen["notices"]["master_of_a_came"]]
    shown("returned")
    # and a slave that registers alone is read only and in its master's place from the start
    table = RouteTable()
    come("broker-a", 1, 21230)
    shown("slave_alone")
