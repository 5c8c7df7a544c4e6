"""`mqadmin stuckWork --requeue` and `--drop` end what is stuck among pops, timer messages and delayed ones."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell
from stuck_rig import ASKS, TOPIC, bodies_of, place_of_poison, poison_in_front, refuse_poison, start, start_apart

from understudy.mqadmin.command import CommandFailedError
from understudy.mqadmin.options import UsageError
from understudy.mqclient.admin.cluster import settle_stuck_work
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed


@pytest.fixture(name="illegal")
def _illegal(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    return refuse_poison(monkeypatch)


@pytest.mark.parametrize("kind", ASKS)
def test_what_is_dropped_is_passed_and_what_stands_behind_it_comes(
    kind: str, tmp_path: Path, illegal: set[bytes]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            # given a message that cannot go where it belongs, and one behind it
            broker = await poison_in_front(cluster, kind)
            assert b"good" not in bodies_of(broker, kind)
            place, undo = await place_of_poison(cluster, kind), tmp_path / "undo.json"
            # when it is only asked what would be done, nothing is
            said = await shell(cluster, f"stuckWork -b {address} -t {kind} --drop {place}")
            assert "would drop" in said
            assert "Nothing was done" in said
            assert await place_of_poison(cluster, kind) == place
            # when it is dropped
            done = await shell(cluster, f"stuckWork -b {address} -t {kind} --drop {place} --yes --undo {undo}")
            assert done.count("done: drop") == 1
            # then the other one comes, and nothing waits any more
            await trio.sleep(20)
            assert bodies_of(broker, kind)[-1:] == [b"good"]
            assert b"poison" not in bodies_of(broker, kind)[1 if kind == "pop" else 0 :]
            assert "Nothing waits." in await shell(cluster, f"stuckWork -a -t {kind}")
            assert broker.timer.waiting_of == {}
            # and the file has it as it was
            (kept,) = json.loads(undo.read_text())["decisions"]
            assert (kept["choice"], kept["outcome"]) == ("drop", "done")
            body = b64decode(kept["bodyBase64"])
            assert json.loads(body)["t"] == TOPIC if kind == "pop" else body == b"poison"
            # nor does it come after a loss of power
            illegal.clear()
            await cluster.kill("c1", power=True)
            await cluster.restart("c1")
            await trio.sleep(60)
            assert bodies_of(cluster.brokers("c1")["broker-a"], kind).count(b"poison") == 0

    run_seed(scenario, 1)


@pytest.mark.parametrize("kind", ASKS)
def test_what_is_requeued_comes_once_when_it_can_and_holds_up_nothing(
    kind: str, tmp_path: Path, illegal: set[bytes]
) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            broker = await poison_in_front(cluster, kind)
            undo = tmp_path / "undo.json"
            # given nobody who does not say which kind, or names what is not due
            with pytest.raises(CommandFailedError, match="nothing is due there"):
                await shell(cluster, f"stuckWork -b {address} -t {kind} --requeue 1:77")
            # when all that is stuck goes to the end
            done = await shell(cluster, f"stuckWork -b {address} -t {kind} --requeue all --yes --undo {undo}")
            assert done.count("done: have wait once more") == 2
            # then the good one comes, and the other one once it can
            illegal.clear()
            await trio.sleep(120)
            assert sorted(bodies_of(broker, kind)) == [b"good", b"poison"]
            assert "Nothing waits." in await shell(cluster, f"stuckWork -a -t {kind}")
            with pytest.raises(CommandFailedError, match="nothing of it is stuck"):
                await shell(cluster, f"stuckWork -b {address} -t {kind} --drop all --yes")

    run_seed(scenario, 1)


def test_what_stands_behind_something_stuck_is_passed_with_it(tmp_path: Path, illegal: set[bytes]) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            broker = await poison_in_front(cluster, "delay")
            # when one that is not the first is dropped, it waits for the first one
            done = await shell(
                cluster, f"stuckWork -b {address} -t delay --drop 1:1 --yes --undo {tmp_path / 'one.json'}"
            )
            assert "waits: drop" in done
            assert json.loads((tmp_path / "one.json").read_text())["decisions"][0]["outcome"] == "waits"
            (answer,) = json.loads(await shell(cluster, "stuckWork -e -t delay", as_json=True))
            assert [row["place"] for row in answer["rows"]] == ["delay level 1, offset 0"]
            # and is not delivered when that one is
            illegal.clear()
            await trio.sleep(1)
            assert bodies_of(broker, "delay") == [b"poison"]

    run_seed(scenario, 1)


def test_half_messages_of_a_group_are_decided_together() -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            with pytest.raises(CommandFailedError, match="no half message is stuck"):
                await shell(cluster, f"stuckWork -b {address} -g payers --rollback all")

    run_seed(scenario, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--commit 0:0", r"name the broker \(-b\)"),
        ("--drop 1:0", r"name the broker \(-b\)"),
        ("-b h:1 --yes", "are for --commit, --rollback, --requeue and --drop"),
        ("-b h:1 --drop 1:0", "is for one kind"),
        ("-b h:1 -t half --drop 1:0", "is for one kind"),
        ("-b h:1 -t delay --drop 1:0 --requeue 1:1", "one of them"),
        ("-b h:1 -t delay --drop x", "'x' names no"),
        ("-e", "-e is for one kind"),
    ],
)
def test_what_is_no_decision_is_refused(options: str, said: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await cluster.start_name_server("n1")
            with pytest.raises(UsageError, match=said):
                await shell(cluster, f"stuckWork {options}")

    run_seed(scenario, 1)


def test_a_slave_decides_only_while_it_acts_and_stores_nothing(tmp_path: Path) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            shape, broker = await start_apart(cluster)
            decide = f"stuckWork -b {broker.identity.address} -t delay"
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                message = Message(TOPIC, b"late", {"DELAY": "3"})
                await producer.send(message, queue=MessageQueue(TOPIC, "g0", 0))
                for kind, decision, places, why in (
                    ("delay", "drop", "3:0", "does not look after it: the master"),
                    ("half", "drop", "3:0", "kind must be one of"),
                    ("delay", "commit", "3:0", "decision drop or requeue"),
                    ("delay", "drop", "3", "places must be"),
                ):
                    with pytest.raises(BrokerError, match=why):
                        await settle_stuck_work(
                            producer.session, broker.identity.address, kind=kind, decision=decision, places=places
                        )
            with pytest.raises(CommandFailedError, match="does not look after them"):
                await shell(cluster, f"{decide} --drop all")
            # given a slave that acts, and nobody who takes what is due
            for host in shape.masters:
                await cluster.kill(host)
            await trio.sleep(40)
            with pytest.raises(CommandFailedError, match=r"a slave stores nothing.*refused: delay level 3, offset 0"):
                await shell(cluster, f"{decide} --requeue all --yes --undo {tmp_path / 'no.json'}")
            done = await shell(cluster, f"{decide} --drop all --yes --undo {tmp_path / 'undo.json'}")
            assert done.count("done: drop") == 1
            assert "Nothing waits." in await shell(cluster, f"stuckWork -a -t delay -b {broker.identity.address}")

    run_seed(scenario, 1)
