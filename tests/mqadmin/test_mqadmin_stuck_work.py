"""`mqadmin stuckWork` says what waits in the brokers of a cluster, and why."""

from __future__ import annotations

import json
import random
import stat
from base64 import b64decode
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell
from stuck_rig import refuse_poison, start

from understudy.mqadmin.command import CommandFailedError
from understudy.mqadmin.options import UsageError
from understudy.mqadmin.stuck_actions import Place, places_of
from understudy.mqclient.admin.cluster import stuck_work
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pop import PopRequest, pop
from understudy.mqclient.producer import open_producer
from understudy.mqclient.sending import SendResult
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionState, open_transaction_producer
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed


async def undecided(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def unknown(message: Message, sent: SendResult) -> TransactionState:
    return TransactionState.UNKNOWN


async def some_of_each(cluster: SimCluster) -> None:
    """Leave a half message, a popped one, a timer and a delayed one behind; their clients are gone."""
    servers = cluster.name_servers
    async with open_producer(cluster.client_world(), servers, "writers") as producer:
        for properties in ({}, {"DELAY": "5"}, {"TIMER_DELAY_SEC": "90"}):
            await producer.send(Message("orders", b"x", properties))
        wanted = PopRequest("readers", subscription("orders", "*", 1), "broker-a", invisible_ms=60_000, hold_ms=0)
        assert len(await pop(producer.session, wanted)) == 1
    async with open_transaction_producer(cluster.client_world(), servers, "payers", undecided) as payers:
        await payers.send(Message("orders", b"half", {}), unknown)


def test_what_waits_is_listed_and_what_is_stuck_says_why() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await start(cluster)
            await some_of_each(cluster)
            await trio.sleep(2)
            # given nothing but what waits for its time
            assert "Nothing is stuck." in await shell(cluster, "stuckWork")
            (answer,) = json.loads(await shell(cluster, "stuckWork -a", as_json=True))
            kinds = {row["kind"]: row for row in answer["rows"]}
            assert kinds.keys() == {"half", "timer", "delay"}  # the check point is in the timer yet
            assert kinds["timer"]["count"] == 2
            assert kinds["delay"]["place"] == "delay level 5"
            assert not any(row["stuck"] for row in answer["rows"])
            assert await shell(cluster, "stuckWork -a -t timer") != await shell(cluster, "stuckWork -a -t delay")
            # when the half message is old, and nobody of its group is there
            await trio.sleep(10)
            printed = await shell(cluster, "stuckWork -t half -g payers")
            assert "no producer of payers is connected" in printed
            assert "start a producer of payers" in printed
            assert "Nothing is stuck." in await shell(cluster, "stuckWork -g others")

    run_seed(scenario, 1)


def test_unknown_kinds_and_silent_brokers() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            with pytest.raises(BrokerError, match="kind must be one of half, pop, timer, delay, not x"):
                await shell(cluster, f"stuckWork -b {address} -t x")
            await cluster.kill("c1")
            with pytest.raises(ClientError):
                await shell(cluster, f"stuckWork -b {address}")

    run_seed(scenario, 1)


def test_half_messages_of_a_lost_producer_are_decided_by_hand(tmp_path: Path) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            servers = cluster.name_servers
            async with open_transaction_producer(cluster.client_world(), servers, "payers", undecided) as payers:
                for body in (b"one", b"two", b"three"):
                    await payers.send(Message("orders", body, {"KEYS": "k"}), unknown)
            decide = f"stuckWork -b {address} --commit 0:0,0:1 --rollback 0:2"
            # given messages that their producer may still decide
            with pytest.raises(CommandFailedError, match="its producer may decide until it is 6 s old"):
                await shell(cluster, decide)
            await trio.sleep(10)
            # when it is only asked what would be done, nothing is
            said = await shell(cluster, decide)
            assert "would roll back" in said
            assert "of payers to orders (half queue 0, offset 2)" in said
            assert len(json.loads(await shell(cluster, "stuckWork -t half", as_json=True))[0]["rows"]) == 3
            # when it is done, then consumers get what was committed, and nothing is left
            undo = tmp_path / "undo.json"
            done = await shell(cluster, f"{decide} --yes --undo {undo}")
            assert done.count("done: commit") == 2
            assert "Nothing waits." in await shell(cluster, "stuckWork -a -t half")
            async with open_producer(cluster.client_world(), servers, "writers") as producer:
                wanted = PopRequest("readers", subscription("orders", "*", 1), "broker-a", hold_ms=0)
                await producer.session.renew_route("orders")
                popped = [await pop(producer.session, wanted) for _ in range(8)]
            assert sorted(each.message.body for batch in popped for each in batch) == [b"one", b"two"]
            # and the file has everything that is needed to send them again; it is never written over
            kept = json.loads(undo.read_text())["decisions"]
            assert [each["outcome"] for each in kept] == ["done"] * 3
            assert stat.S_IMODE(undo.stat().st_mode) == 0o600
            assert [(each["choice"], b64decode(each["bodyBase64"])) for each in kept] == [
                ("commit", b"one"),
                ("commit", b"two"),
                ("rollback", b"three"),
            ]
            assert kept[2]["properties"]["KEYS"] == "k"
            with pytest.raises(CommandFailedError, match="no half message waits there now"):
                await shell(cluster, f"{decide} --yes --undo {undo}")

    run_seed(scenario, 1)


def test_a_group_has_its_half_messages_and_its_pops_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_poison(monkeypatch).add(b"x")

    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            await some_of_each(cluster)
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                for group, invisible_ms in (("others", 20_000), ("readers", 30_000)):
                    await producer.send(Message("orders", b"x", {}))
                    wanted = PopRequest(
                        group, subscription("orders", "*", 1), "broker-a", invisible_ms=invisible_ms, hold_ms=0
                    )
                    assert await pop(producer.session, wanted)
            # given check points of two groups that have come out of the timer, and what they popped cannot come back
            await trio.sleep(90)
            # then each group has its own
            for group in ("readers", "others"):
                (answer,) = json.loads(await shell(cluster, f"stuckWork -a -g {group}", as_json=True))
                assert {(row["kind"], row["group"]) for row in answer["rows"]} == {("pop", group)}
                (answer,) = json.loads(await shell(cluster, f"stuckWork -a -e -t pop -g {group}", as_json=True))
                assert {(row["kind"], row["group"]) for row in answer["rows"]} == {("pop", group)}
            (answer,) = json.loads(await shell(cluster, "stuckWork -a -g payers", as_json=True))
            assert {(row["kind"], row["group"]) for row in answer["rows"]} == {("half", "payers")}
            assert "belong to no group" in await shell(cluster, "stuckWork -a -g payers")
            assert "belong to no group" not in await shell(cluster, "stuckWork -a")
            # a decision meets nothing of another group
            for refused in ("-t pop --drop all -g payers", "--commit 0:0 -g others", "--commit all -g others"):
                with pytest.raises(CommandFailedError):
                    await shell(cluster, f"stuckWork -b {address} {refused}")
            said = await shell(cluster, f"stuckWork -b {address} -t pop --drop all -g readers")
            assert "readers" in said and "others" not in said
            # and kinds that have none say so
            for kind in ("timer", "delay"):
                with pytest.raises(UsageError, match=f"{kind} messages belong to no group"):
                    await shell(cluster, f"stuckWork -t {kind} -g readers")
                async with open_producer(cluster.client_world(), cluster.name_servers, "operators") as operator:
                    with pytest.raises(BrokerError, match=f"{kind} messages belong to no group"):
                        await stuck_work(operator.session, address, kind=kind, group="readers")

    run_seed(scenario, 1)


@pytest.mark.parametrize(("text", "said"), [("7", "'7' names no half message"), ("0:1,0:x", "'0:x' names no half")])
def test_a_place_that_is_none_is_refused(text: str, said: str) -> None:
    assert places_of("0:1,1:20") == [Place(0, 1), Place(1, 20)]
    with pytest.raises(UsageError, match=said):
        places_of(text)


def test_a_decision_is_not_made_when_it_cannot_be_written_down_or_is_named_twice(tmp_path: Path) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            async with open_transaction_producer(
                cluster.client_world(), cluster.name_servers, "payers", undecided
            ) as payers:
                await payers.send(Message("orders", b"x", {}), unknown)
            await trio.sleep(10)
            older = tmp_path / "older.json"
            older.write_text("kept")
            with pytest.raises(CommandFailedError, match="nothing was done"):
                await shell(cluster, f"stuckWork -b {address} --rollback 0:0 --yes --undo {older}")
            with pytest.raises(UsageError, match="named twice"):
                await shell(cluster, f"stuckWork -b {address} --rollback 0:0 --commit 0:0 --yes")
            assert older.read_text() == "kept"
            assert "half queue 0, offset 0" in await shell(cluster, "stuckWork -t half")

    run_seed(scenario, 1)


def test_what_stands_behind_many_of_another_group_is_found_and_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.broker.admin.stuck_work.MOST_HALVES", 3)

    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            for group, count in (("others", 5), ("payers", 1)):
                async with open_transaction_producer(
                    cluster.client_world(), cluster.name_servers, group, undecided
                ) as producer:
                    for _ in range(count):
                        await producer.send(Message("orders", b"x", {}), unknown)
            await trio.sleep(10)
            # given more of another group in front than an answer has
            printed = await shell(cluster, "stuckWork -t half -g payers")
            assert "half queue 0, offset 5" in printed
            assert "and more half messages" not in printed
            assert "and more half messages" in await shell(cluster, "stuckWork -t half -g others")
            # then the one behind them can be decided
            undo = tmp_path / "undo.json"
            done = await shell(cluster, f"stuckWork -b {address} --commit 0:5 --yes --undo {undo}")
            assert done.count("done: commit") == 1
            assert "Nothing is stuck." in await shell(cluster, "stuckWork -t half -g payers")

    run_seed(scenario, 1)
