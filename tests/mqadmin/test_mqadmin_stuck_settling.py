"""`mqadmin stuckWork --requeue` and `--drop` end what is stuck among pops, timer messages and delayed ones."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell

from understudy.broker import inner, redelivery
from understudy.broker.broker import Broker
from understudy.broker.deferred_service import Source
from understudy.format.names import pop_retry_topic
from understudy.format.record import decode_records
from understudy.mqadmin.command import CommandFailedError
from understudy.mqadmin.options import UsageError
from understudy.mqclient.admin.cluster import settle_stuck_work
from understudy.mqclient.errors import BrokerError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import PopRequest, pop
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.store.message_store import MessageStore
from understudy.store.status import Appended, PutRejected, PutStatus
from understudy.testkit.drills.ring import Ring as RingShape
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed

TOPIC, GROUP = "orders", "readers"
RETRY = pop_retry_topic(GROUP, TOPIC)
ASKS = {"delay": {"DELAY": "1"}, "timer": {"TIMER_DELAY_MS": "2000"}, "pop": {}}
SYSTEM = "rmq_sys_", "SCHEDULE_"


@pytest.fixture(name="illegal")
def _illegal(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[bytes]]:
    """Bodies that no log takes for a consumer, as if they were too long."""
    bodies = {b"poison"}
    append = inner.append

    def refuse(store: MessageStore, message: inner.InnerMessage) -> Appended:
        if message.body in bodies and not message.topic.startswith(SYSTEM):
            raise PutRejected(PutStatus.MESSAGE_ILLEGAL, "it is poison")
        return append(store, message)

    monkeypatch.setattr(redelivery, "append", refuse)
    yield bodies


def bodies_of(broker: Broker, kind: str) -> list[bytes]:
    """Return what came where consumers get it."""
    found = list[bytes]()
    for topic, queue_id in sorted(broker.store.queues()):
        if topic == (RETRY if kind == "pop" else TOPIC):
            got = broker.store.get(topic, queue_id, 0, 32, 1 << 20)
            found += [record.body for part in got.parts for record in decode_records(part)]
    return found


async def poison_in_front(cluster: SimCluster, kind: str) -> Broker:
    """Leave a message that nothing takes, and good ones behind it; return their broker."""
    broker = cluster.brokers("c1")["broker-a"]
    async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
        for body in (b"poison", b"good"):
            message = Message(TOPIC, body, {**ASKS[kind], "KEYS": "k"})
            await producer.send(message, queue=MessageQueue(TOPIC, "broker-a", 0))
            if kind == "pop":  # each has a check point of its own, in the same revive queue
                broker.pops.log._turn = 0
                wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "broker-a", invisible_ms=10_000, hold_ms=0)
                assert len(await pop(producer.session, wanted)) == 1
    await trio.sleep(30)
    return broker


async def place_of_poison(cluster: SimCluster, kind: str) -> str:
    printed = await shell(cluster, f"stuckWork -e -t {kind}", as_json=True)
    (answer,) = json.loads(printed)
    rows = answer["rows"]
    assert len(rows) == 2
    assert all(row["stuck"] and row["topic"] == TOPIC and row["kind"] == kind for row in rows)
    queue, offset = (part.rpartition(" ")[2] for part in rows[0]["place"].split(", "))
    return f"{queue}:{offset}"


async def start(cluster: SimCluster) -> str:
    await cluster.start_name_server("n1")
    await cluster.start_container("c1", [{"brokerName": "broker-a"}])
    return cluster.brokers("c1")["broker-a"].identity.address


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
        ("--drop 1:0", r"name the broker \(-b\)"),
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
            shape = RingShape(2, 1, apart=True)
            await shape.start(cluster)
            broker, master = shape.broker_of(cluster, "g0", 1), shape.broker_of(cluster, "g0", 0)
            assert broker is not None
            assert master is not None
            await shell(cluster, f"updateTopic -b {master.identity.address} -t {TOPIC}")
            await trio.sleep(10)
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


async def decide(cluster: SimCluster, kind: str, decision: str, places: str, times: int = 1) -> list[list[str]]:
    """Have the broker take a decision, *times* at once; return the outcomes of each."""
    address, found = cluster.brokers("c1")["broker-a"].identity.address, list[list[str]]()
    async with open_producer(cluster.client_world(), cluster.name_servers, "deciders") as producer:

        async def once() -> None:
            said = await settle_stuck_work(producer.session, address, kind=kind, decision=decision, places=places)
            found.append([each["outcome"] for each in said])

        async with trio.open_nursery() as nursery:
            for _ in range(times):
                nursery.start_soon(once)
    return found


@pytest.mark.parametrize("kind", ASKS)
def test_what_is_requeued_twice_at_once_comes_once(kind: str, illegal: set[bytes]) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await start(cluster)
            broker = await poison_in_front(cluster, kind)
            place = await place_of_poison(cluster, kind)
            # when two operators requeue it in the same moment, each naming it twice
            outcomes = await decide(cluster, kind, "requeue", f"{place},{place}", times=2)
            # then one of them has done it, and it comes once
            assert sorted(outcomes) == [["done"], ["refused"]]
            illegal.clear()
            await trio.sleep(120)
            assert bodies_of(broker, kind).count(b"poison") == 1

    run_seed(scenario, 1)


@pytest.mark.parametrize("decision", ["drop", "requeue"])
def test_what_is_delivered_while_it_is_decided_about_comes_once(decision: str, illegal: set[bytes]) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await start(cluster)
            broker = await poison_in_front(cluster, "delay")
            # given a delivery that is under way: the log takes the message by now, slowly
            put, let_go = broker.schedule.target.put, trio.Event()

            async def slow(messages: Sequence[inner.InnerMessage]) -> list[PutStatus]:
                await let_go.wait()
                return await put(messages)

            monkey = pytest.MonkeyPatch()
            monkey.setattr(broker.schedule.target, "put", slow)
            await trio.sleep(1)
            monkey.undo()
            illegal.clear()
            # when somebody decides about it, and then it is delivered
            outcomes = list[list[str]]()
            async with trio.open_nursery() as nursery:

                async def decided() -> None:
                    outcomes.extend(await decide(cluster, "delay", decision, "1:0"))

                nursery.start_soon(decided)
                await trio.sleep(1)
                let_go.set()
            # then the answer says that nothing came of it, and it is there once
            assert outcomes == [["refused"]]
            await trio.sleep(120)
            assert sorted(bodies_of(broker, "delay")) == [b"good", b"poison"]
            assert (1, 0) not in broker.delay_levels.left_out

    run_seed(scenario, 1)


@pytest.mark.parametrize("kind", ASKS)
def test_a_decision_ends_with_the_role_in_which_it_was_taken(kind: str, illegal: set[bytes]) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await start(cluster)
            broker = await poison_in_front(cluster, kind)
            place = await place_of_poison(cluster, kind)
            queue, _, offset = place.partition(":")
            # given a decision that waits for what stands in front, and a log that a new role may have changed
            behind = f"{queue}:{int(offset) + 1}"
            assert await decide(cluster, kind, "drop", behind) == [["waits"]]
            sources: dict[str, Source] = {
                "delay": broker.delay_levels,
                "timer": broker.timing.source,
                "pop": broker.pops.queues,
            }
            sources[kind].queues()  # as at the begin of a role
            # then what stands there now comes
            illegal.clear()
            await trio.sleep(120)
            assert sorted(bodies_of(broker, kind)) == [b"good", b"poison"]

    run_seed(scenario, 1)


@pytest.mark.parametrize("kind", ASKS)
def test_what_the_disk_does_not_take_yet_is_not_called_refused(
    kind: str, illegal: set[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            await start(cluster)
            broker = await poison_in_front(cluster, kind)
            place = await place_of_poison(cluster, kind)

            async def full(name: str) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(broker.persistence, "save", full)
            assert await decide(cluster, kind, "drop", place) == [["waits"]]
            monkeypatch.undo()
            illegal.clear()
            await trio.sleep(60)
            assert bodies_of(broker, kind) == [b"good"]

    run_seed(scenario, 1)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.FLUSH_SLAVE_TIMEOUT])
def test_an_answer_that_does_not_say_that_nothing_was_done_is_not_called_refused(
    code: ResponseCode, tmp_path: Path, illegal: set[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            address = await start(cluster)
            broker = await poison_in_front(cluster, "delay")

            def fail(*place: int, again: bool = False) -> None:
                raise CommandError(code, "it is half done")

            monkeypatch.setattr(broker.delay_levels.left_out, "add", fail)
            with pytest.raises(CommandFailedError, match="done or not: delay level 1, offset 0"):
                await shell(
                    cluster, f"stuckWork -b {address} -t delay --drop 1:0 --yes --undo {tmp_path / 'undo.json'}"
                )
            monkeypatch.undo()

    run_seed(scenario, 1)


def test_a_slave_that_acts_has_pops_wait_once_more_and_they_come_once(tmp_path: Path, illegal: set[bytes]) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            shape = RingShape(2, 1, apart=True)
            await shape.start(cluster)
            master, slave = shape.broker_of(cluster, "g0", 0), shape.broker_of(cluster, "g0", 1)
            assert master is not None
            assert slave is not None
            await shell(cluster, f"updateTopic -b {master.identity.address} -t {TOPIC}")
            await trio.sleep(10)
            async with open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer:
                await producer.send(Message(TOPIC, b"poison"), queue=MessageQueue(TOPIC, "g0", 0))
                wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g0", invisible_ms=10_000, hold_ms=0)
                assert len(await pop(producer.session, wanted)) == 1
            await trio.sleep(30)  # the check point is in the revive topic, not in the timer any more
            # given a slave that acts, and nobody who takes what was popped
            for host in shape.masters:
                await cluster.kill(host)
            await trio.sleep(60)
            say = f"stuckWork -b {slave.identity.address} -t pop"
            done = await shell(cluster, f"{say} --requeue all --yes --undo {tmp_path / 'undo.json'}")
            assert done.count("done: have wait once more") == 1
            # when its master is back, and the log takes it
            illegal.clear()
            for host in shape.masters:
                await cluster.restart(host)
            await trio.sleep(180)
            found = [each for host in shape.masters for each in cluster.brokers(host).values()]
            assert [body for each in found for body in bodies_of(each, "pop")].count(b"poison") == 1

    run_seed(scenario, 1)
