"""`mqadmin stuckWork` acts on the one that is named alone, and its undo file brings back what it ended."""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
import trio
from mqadmin_rig import shell
from stuck_rig import ASKS, GROUP, RETRY, TOPIC, bodies_of, poison_in_front, refuse_poison, rows_of, start

from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.sending import SendResult
from understudy.mqclient.transactions import TransactionState, open_transaction_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

SENT = (b"poison", b"worse", b"good")
BINARY = b"\x00\xff one \x01"
"""No text, so that nothing but bytes brings it back."""


@pytest.fixture(name="illegal")
def _illegal(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    bodies = refuse_poison(monkeypatch)
    bodies.add(b"worse")
    return bodies


async def send_as_told(cluster: SimCluster, decision: dict[str, Any]) -> None:
    """Do what the documentation says brings back what was rolled back or dropped."""
    async with open_producer(cluster.client_world(), cluster.name_servers, "operators") as producer:
        for each in decision["send"]:
            body = b64decode(each.get("bodyBase64", decision["bodyBase64"]))
            message = Message(each["topic"], body, each["properties"], each["flag"])
            await producer.send(message, queue=MessageQueue(each["topic"], "broker-a", each["queueId"]))


@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.parametrize("number", [0, 1])
def test_one_that_is_requeued_alone_waits_once_more(
    number: int, kind: str, tmp_path: Path, illegal: set[bytes]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            # given two that cannot go where they belong, and one behind them
            broker = await poison_in_front(cluster, kind, SENT)
            places, undo = list(await rows_of(cluster, kind)), tmp_path / "undo.json"
            assert len(places) == len(SENT)
            # when one of them is requeued
            say = f"stuckWork -b {address} -t {kind} --requeue {places[number]} --yes --undo {undo}"
            assert (await shell(cluster, say)).count("have wait once more") == 1
            # then only that one does not stand there any more, and nothing was delivered
            left = list(await rows_of(cluster, kind))
            assert left[: len(SENT) - 1] == [each for each in places if each != places[number]]
            assert bodies_of(broker, kind) == []
            if kind == "pop":
                assert broker.pops.moving.in_flight.get(TOPIC, GROUP, 0) == len(SENT)
            # and what was in front of or behind it comes before it, each once
            illegal.clear()
            await trio.sleep(0.5 if kind == "delay" else 20)
            others = sorted(each for each in SENT if each != SENT[number])
            assert sorted(bodies_of(broker, kind)) == (others if kind != "pop" else sorted(SENT))
            await trio.sleep(120)
            assert sorted(bodies_of(broker, kind)) == sorted(SENT)
            assert "Nothing waits." in await shell(cluster, f"stuckWork -a -t {kind}")
            assert broker.pops.moving.in_flight.get(TOPIC, GROUP, 0) == 0
            # and the file has that one alone, as it was
            (kept,) = json.loads(undo.read_text())["decisions"]
            assert (kept["choice"], kept["outcome"]) == ("requeue", "done" if number == 0 else "waits")

    run_seed(scenario, 1)


@pytest.mark.parametrize("kind", ASKS)
def test_one_that_was_dropped_comes_again_as_the_undo_file_says(kind: str, tmp_path: Path, illegal: set[bytes]) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            broker = await poison_in_front(cluster, kind, SENT)
            (place, row), *_ = (await rows_of(cluster, kind)).items()
            undo = tmp_path / "undo.json"
            await shell(cluster, f"stuckWork -b {address} -t {kind} --drop {place} --yes --undo {undo}")
            illegal.clear()
            await trio.sleep(30)
            assert sorted(bodies_of(broker, kind)) == [b"good", b"worse"]
            # then the file has who decided what where, and what was there
            file = json.loads(undo.read_text())
            assert (file["brokerAddr"], file["brokerName"]) == (address, "broker-a")
            (kept,) = file["decisions"]
            assert kept.keys() - {"open"} == {
                *("outcome", "place", "choice", "group", "topic", "uniqKey", "properties", "bodyBase64", "send")
            }
            assert (kept["outcome"], kept["choice"], kept["place"]) == ("done", "drop", row["place"])
            assert (kept["topic"], kept["group"]) == (TOPIC, GROUP if kind == "pop" else "")
            (told,) = kept["send"]
            assert (told["topic"], told["queueId"], told["flag"]) == (RETRY if kind == "pop" else TOPIC, 0, 7)
            assert (told["properties"]["KEYS"], told["properties"]["TAGS"]) == ("k", "a")
            assert told["properties"].keys() & {"DELAY", "TIMER_DELAY_MS", "TIMER_OUT_MS", "REAL_TOPIC"} == set()
            if kind == "pop":
                assert kept["properties"]["TAGS"] == "ck"
                point = json.loads(b64decode(kept["bodyBase64"]))
                assert (point["t"], point["c"], point["q"]) == (TOPIC, GROUP, 0)
                queue = {"brokerName": "broker-a", "topic": TOPIC, "queueId": 0}
                assert kept["open"] == {**queue, "offsets": [0], "returnsTo": RETRY}
            else:
                assert kept["properties"]["REAL_TOPIC"] == TOPIC
            # when that is done, it comes, at once and once
            await send_as_told(cluster, kept)
            await trio.sleep(0.5)
            assert sorted(bodies_of(broker, kind)) == sorted(SENT)
            await trio.sleep(60)
            assert sorted(bodies_of(broker, kind)) == sorted(SENT)

    run_seed(scenario, 1)


async def undecided(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def unknown(message: Message, sent: SendResult) -> TransactionState:
    return TransactionState.UNKNOWN


@pytest.mark.parametrize("choice", ["rollback", "commit"])
def test_one_half_message_is_decided_alone_and_a_rollback_can_be_undone(choice: str, tmp_path: Path) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            broker = cluster.brokers("c1")["broker-a"]
            world, servers = cluster.client_world(), cluster.name_servers
            async with open_transaction_producer(world, servers, "payers", undecided) as payers:
                for body in (b"one", BINARY, b"three"):
                    await payers.send(Message(TOPIC, body, {"KEYS": "k", "size": "7"}, 9), unknown)
            await trio.sleep(10)
            # when one of three is decided
            undo = tmp_path / "undo.json"
            before = json.loads(await shell(cluster, "stuckWork -t half", as_json=True))[0]["rows"]
            assert [each["place"] for each in before] == [f"half queue 0, offset {each}" for each in range(3)]
            await shell(cluster, f"stuckWork -b {address} --{choice} 0:1 --yes --undo {undo}")
            # then the others wait on
            after = json.loads(await shell(cluster, "stuckWork -t half", as_json=True))[0]["rows"]
            assert [each["place"] for each in after] == [before[0]["place"], before[2]["place"]]
            assert bodies_of(broker, "half") == ([BINARY] if choice == "commit" else [])
            # and the file has that one
            (kept,) = json.loads(undo.read_text())["decisions"]
            assert (kept["outcome"], kept["choice"], kept["place"]) == ("done", choice, before[1]["place"])
            assert (kept["group"], kept["topic"]) == ("payers", TOPIC)
            assert kept["bodyBase64"] == b64encode(BINARY).decode()
            assert kept["properties"]["TRAN_MSG"] == "true"
            (told,) = kept["send"]
            assert (told["topic"], told["queueId"], told["flag"]) == (TOPIC, int(kept["queueId"]), 9)
            assert (told["properties"]["size"], told["properties"]["UNIQ_KEY"]) == ("7", kept["uniqKey"])
            # when what it says is sent, consumers get it, and nobody has to decide
            if choice == "rollback":
                await send_as_told(cluster, kept)
                assert bodies_of(broker, "half") == [BINARY]
                again = json.loads(await shell(cluster, "stuckWork -a -t half", as_json=True))[0]["rows"]
                assert len(again) == 2

    run_seed(scenario, 1)
