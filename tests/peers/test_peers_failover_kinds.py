"""Failover in mixed groups, with messages of the kinds that need a service: delayed, timer, half and popped ones.

A master of one kind dies, its slave of the other kind acts for it, and another group's master, ours, lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trio
from mixed_groups import JAVA_SYNC_LIMIT_S, MixedGroup, caught_up, complete, kinds_of, routed
from peer_processes import JAVA, OURS, ServerProcess, filled_template, running, server
from peer_requests import ask, await_true, table

from understudy.mqclient.errors import ClientError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import Message, ReceivedMessage
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session
from understudy.mqclient.subscription import subscription
from understudy.mqclient.transactions import TransactionProducer, TransactionState, open_transaction_producer
from understudy.remoting.codes import RequestCode
from understudy.runtime.background import bare_errors
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.topic_fields import topic_fields

TOPIC, POPPED, POPPERS = "kinds", "popped", "poppers"
MIXED, OTHER = "broker-mixed", "broker-other"
COUNT = 10
DUE_MS, INVISIBLE_MS, HELD_MS, TAKEN_MS = 12_000, 15_000, 60_000, 60_000
OUTAGE_SECONDS, BACK_SECONDS, QUIET_SECONDS = 35.0, 60.0, 15.0
CHECKS = {"transactionTimeOut": 3000, "transactionCheckInterval": 3000}
ACTING = {
    **CHECKS,
    "totalReplicas": 2,
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
}


@contextmanager
def mixed_group_beside_ours(folder: Path, ports: PortBlocks, master_kind: str) -> Iterator[tuple[MixedGroup, str]]:
    """Run a mixed group and the master of another group; return the group, and where the other master is."""
    port = ports.take()
    namesrv, place = f"127.0.0.1:{port}", folder / "n"
    keys = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    name_server = server(OURS, "namesrv", "namesrv", place, filled_template("namesrv", PORT=port, DIR=place, **keys))
    members, addresses = list[ServerProcess](), list[str]()
    templates, kinds = ("broker", "broker-slave", "broker"), (*kinds_of(master_kind), OURS)
    for template, kind, name in zip(templates, kinds, (MIXED, MIXED, OTHER), strict=True):
        port, place = ports.take() + 10, folder / f"{name}-{template}"
        own: dict[str, object] = {"NAME": name, "PORT": port, "HA_PORT": port + 1, "NAMESRV": namesrv, "DIR": place}
        text = filled_template(template, **own, **(ACTING if name == MIXED else CHECKS))
        members.append(server(kind, "broker", template, place, text))
        addresses.append(f"127.0.0.1:{port}")
    group = MixedGroup(MIXED, namesrv, addresses[0], addresses[1], (members[0], members[1]))
    with running(name_server):
        try:
            for each in members:
                each.start()
            for each in members:
                each.await_boot()
            await_true(functools.partial(complete, group), 90, "both brokers are registered")
            yield group, addresses[2]
        finally:
            for each in members:
                each.kill()


def active(address: str) -> bool:
    return bool(table(address, RequestCode.GET_BROKER_RUNTIME_INFO)["table"].get("brokerActive") == "true")


def knows_tables(group: MixedGroup) -> bool:
    topics = table(group.slave, RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    groups = table(group.slave, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    return {TOPIC, POPPED} <= topics.keys() and POPPERS in groups


def makes(address: str, topic: str) -> bool:
    ext = {**topic_fields(topic), "topicSysFlag": "0"}
    return ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


async def until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    await trio.to_thread.run_sync(await_true, condition, limit_s, what)


def body_of(popped: PoppedMessage) -> str:
    return popped.message.body.decode()


class Outage:
    """A mixed group that loses its master under messages of every kind, and what came of them.

    Attributes:
        wanted: what must come, by what it is.
        unwanted: what was acknowledged and must not come any more.
        came: from which group each came, each time.
    """

    def __init__(self, group: MixedGroup, other: str) -> None:
        self.group = group
        self.other = other
        self.wanted: dict[str, list[str]] = {}
        self.unwanted: list[str] = []
        self.came: dict[str, list[str]] = {}
        self._decided = False
        self._transactions: TransactionProducer

    @property
    def lost(self) -> dict[str, list[str]]:
        """What did not come, by what it is."""
        found = {kind: [each for each in keys if each not in self.came] for kind, keys in self.wanted.items()}
        return {kind: keys for kind, keys in found.items() if keys}

    @property
    def repeated(self) -> dict[str, list[str]]:
        """From where came what came more than once, or although it was acknowledged."""
        wanted = {each for keys in self.wanted.values() for each in keys}
        twice = {key: places for key, places in self.came.items() if key in wanted and len(places) > 1}
        return twice | {key: self.came[key] for key in self.unwanted if key in self.came}

    async def play(self) -> None:
        """Play it."""
        group = self.group
        for topic in (TOPIC, POPPED):
            for address in (group.master, self.other):
                await until(functools.partial(makes, address, topic), 30, f"{topic} is made")
            await until(functools.partial(routed, group, topic), 30, f"the name server knows {topic}")
        options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            open_transaction_producer(real_world(), group.namesrv, "writers", self._check) as self._transactions,
            open_push_consumer(real_world(), group.namesrv, "readers", {TOPIC: "*"}, self._listen, options),
            trio.open_nursery() as nursery,
        ):
            await self._before()
            group.servers[0].kill()
            self._decided = True
            held = await self._at_the_slave()
            nursery.start_soon(self._pop_all, OTHER)
            await trio.sleep(OUTAGE_SECONDS)
            await trio.to_thread.run_sync(lambda: group.servers[0].start().await_boot())
            await until(functools.partial(complete, group), 90, "the master is registered")
            await until(lambda: not active(group.slave), 60, "the slave stops acting")
            await self._session.renew_route(POPPED)
            # what was handed out by the slave is acknowledged to the master
            for each in held[::2]:
                await ack(self._session, each)
                self.unwanted.append(body_of(each))
            self.wanted["held"] = [body_of(each) for each in held[1::2]]
            nursery.start_soon(self._pop_all, MIXED)
            with trio.move_on_after(BACK_SECONDS):
                while self.lost:  # noqa: ASYNC110 - other processes work on it
                    await trio.sleep(0.2)
            await trio.sleep(QUIET_SECONDS)
            nursery.cancel_scope.cancel()

    async def _before(self) -> None:
        # given a slave that knows its master's tables, and a group that pops
        await self._send("first", POPPED)
        for each in await self._pop(COUNT, TAKEN_MS, "first"):
            await ack(self._session, each)
        await until(functools.partial(knows_tables, self.group), JAVA_SYNC_LIMIT_S, "the slave has the tables")
        # when messages of every kind are on their way
        await self._send("popped", POPPED)
        await self._acknowledge_half("popped", await self._pop(COUNT, INVISIBLE_MS, "popped"))
        self.wanted["timer"] = await self._send("timer", TOPIC, {"TIMER_DELAY_MS": str(DUE_MS)})
        self.wanted["delayed"] = await self._send("delayed", TOPIC, {"DELAY": "3"})
        await self._send("fresh", POPPED)
        await self._send("held", POPPED)
        self.wanted["half"] = [f"half-{number}" for number in range(2 * COUNT)]  # to both groups
        for body in self.wanted["half"]:
            await self._transactions.prepare(Message(TOPIC, body.encode()))
        await until(functools.partial(caught_up, self.group), 60, "the slave has the log")
        await trio.sleep(1.5)  # and its progress

    async def _at_the_slave(self) -> list[PoppedMessage]:
        """Pop at the slave: some for a while that ends in the outage, the others longer; return these."""
        await until(functools.partial(active, self.group.slave), 60, "the slave acts")
        await self._acknowledge_half("fresh", await self._pop(COUNT, INVISIBLE_MS, "fresh"))
        return await self._pop(COUNT, HELD_MS, "held")

    @property
    def _session(self) -> Session:
        return self._transactions.producer.session

    async def _send(self, kind: str, topic: str, properties: Mapping[str, str] | None = None) -> list[str]:
        keys, queue = [f"{kind}-{number}" for number in range(COUNT)], MessageQueue(topic, MIXED, 0)
        for body in keys:
            message = Message(topic, body.encode(), dict(properties or {}))
            await self._transactions.producer.send(message, queue=queue, timeout_ms=10_000)
        return keys

    async def _pop(self, count: int, invisible_ms: int, kind: str) -> list[PoppedMessage]:
        """Pop until there are *count* of a kind, for a bounded time; what else comes is acknowledged and came again."""
        found: list[PoppedMessage] = []
        with trio.move_on_after(40):
            while len(found) < count:
                popped = await self._pop_some(MIXED, invisible_ms, count - len(found))
                found += [each for each in popped if body_of(each).startswith(kind)]
                await self._take([each for each in popped if not body_of(each).startswith(kind)], MIXED)
        return found

    async def _take(self, popped: Sequence[PoppedMessage], broker_name: str) -> None:
        for each in popped:
            self.came.setdefault(body_of(each), []).append(broker_name)
            with suppress(ClientError):  # it comes again
                await ack(self._session, each)

    async def _acknowledge_half(self, kind: str, popped: Sequence[PoppedMessage]) -> None:
        for each in popped[::2]:
            await ack(self._session, each)
        self.unwanted += [body_of(each) for each in popped[::2]]
        self.wanted[kind] = [body_of(each) for each in popped[1::2]]

    async def _pop_all(self, broker_name: str) -> None:
        """Pop and acknowledge what a group has, until cancelled."""
        while True:
            await self._take(await self._pop_some(broker_name), broker_name)
            await trio.sleep(0.2)

    async def _pop_some(self, broker_name: str, invisible_ms: int = TAKEN_MS, most: int = 32) -> list[PoppedMessage]:
        wanted = PopRequest(
            POPPERS, subscription(POPPED, "*", 1), broker_name, invisible_ms=invisible_ms, hold_ms=0, max_messages=most
        )
        try:
            return await pop(self._session, wanted)
        except ClientError:
            await trio.sleep(0.3)
            await self._session.renew_route(POPPED)
            return []

    async def _check(self, half: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT if self._decided else TransactionState.UNKNOWN

    async def _listen(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        for each in batch:
            self.came.setdefault(each.body.decode(), []).append(each.broker_name)


def play(folder: Path, ports: PortBlocks, master_kind: str) -> Outage:
    with mixed_group_beside_ours(folder, ports, master_kind) as (group, other), bare_errors():
        outage = Outage(group, other)
        trio.run(outage.play)
    return outage


@pytest.mark.slow
@pytest.mark.covers("R46", "R53", "R54", "R63")
def test_every_kind_comes_once_when_our_slave_acts_for_a_java_master(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    outage = play(tmp_path, port_blocks, JAVA)
    assert outage.lost == {}
    assert outage.repeated == {}
    # what the slave handed out for longer than the outage is the Java master's
    assert {tuple(outage.came[each]) for each in outage.wanted["held"]} == {(MIXED,)}


@pytest.mark.slow
def test_nothing_is_lost_when_a_java_slave_acts_for_our_master(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    outage = play(tmp_path, port_blocks, OURS)
    assert outage.lost == {}
    # it copies offsets and the progress of timers once a minute, and puts check points where a receipt does not lead
    # any more after the return
    assert {key.partition("-")[0] for key in outage.repeated} <= {"popped", "held", "timer"}
