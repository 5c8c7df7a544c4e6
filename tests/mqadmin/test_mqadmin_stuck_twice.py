"""What an operator decides about stuck work comes once and is told truly, whatever else happens in that moment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell
from stuck_rig import ASKS, GROUP, TOPIC, bodies_of, place_of_poison, poison_in_front, refuse_poison, start, start_apart

from understudy.broker import inner
from understudy.broker.deferred_service import Source
from understudy.mqadmin.command import CommandFailedError
from understudy.mqclient.admin.cluster import settle_stuck_work
from understudy.mqclient.message import Message
from understudy.mqclient.pop import PopRequest, pop
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.store.status import PutStatus
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed


@pytest.fixture(name="illegal")
def _illegal(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    return refuse_poison(monkeypatch)


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
            shape, slave = await start_apart(cluster)
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
