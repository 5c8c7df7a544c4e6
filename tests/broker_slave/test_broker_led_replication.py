"""Whole brokers whose roles a controller gives: epochs, cuts and the confirm offset in logs, queues and answers.

The test plays the controller: it says who is master, and accepts every sync-state set that it is asked for.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.pop.revive_log import CheckPoint
from understudy.broker.role import Role
from understudy.broker.switch_replication import SwitchReplication
from understudy.container.hosted import host_broker
from understudy.format.json_dialect import loads
from understudy.format.record import decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.runtime.background import open_background
from understudy.store.checkpoint import load_checkpoint, save_checkpoint
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.cluster import TINY_FILES, SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until

PORT = 10911


class Group:
    """Three brokers of one group on hosts of their own."""

    def __init__(
        self, cluster: SimCluster, nursery: trio.Nursery, client: RemotingClient, keys: dict[str, str]
    ) -> None:
        self.cluster = cluster
        self.nursery = nursery
        self.client = client
        self.keys = keys
        self.brokers: dict[int, Broker] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.epoch = 0
        self.set_epoch = 0
        self.master = 0
        self.members: frozenset[int] = frozenset()

    async def start(self, number: int) -> Broker:
        host = self.cluster.host(f"c{number}")
        process = host.new_process()
        options, _ = BrokerOptions.from_properties(
            {"brokerName": "g", "listenPort": str(PORT), "brokerIP1": host.address, "brokerIP2": host.address,
             "brokerRole": "SLAVE",
             "brokerId": str(number), "storePathRootDir": "/data/store", "storePathCommitLog": "/data/store/commitlog",
             "slaveReadEnable": "true", **TINY_FILES, **self.keys}
        )  # fmt: skip
        options.broker.enable_controller_mode = True
        scope = trio.CancelScope()

        async def life(*, task_status: trio.TaskStatus[Broker]) -> None:
            with scope:
                await host_broker(process.world, options, task_status=task_status)

        broker = self.brokers[number] = await self.nursery.start(life)
        self.scopes[number] = scope
        part = self.part(number)
        part.own_id = number
        part.sync_state_wanted.append(lambda members: self._alter(number, members))
        part.set_fenced(False)
        return broker

    async def stop(self, number: int) -> None:
        self.scopes.pop(number).cancel()
        del self.brokers[number]
        await trio.sleep(1)

    def part(self, number: int) -> SwitchReplication:
        part = self.brokers[number].replication
        assert isinstance(part, SwitchReplication)
        return part

    def let_follow(self, number: int, master: Broker) -> None:
        """Have broker *number* told by the controllers that *master* is, and by that one where its log is."""
        part = self.part(number)
        part.commanded = master.identity.address
        part.follow(master.identity.address, master.identity.ha_address)

    def _alter(self, number: int, members: frozenset[int]) -> None:
        if number == self.master:
            self.set_epoch += 1
            self.members = members
            self.part(number).set_sync_state(members, self.set_epoch)

    async def elect(self, number: int) -> Broker:
        """Have *number* elected, and everybody who runs told."""
        self.epoch += 1
        self.set_epoch += 1
        self.master, self.members = number, frozenset({number})
        master = self.brokers[number]
        await master.change_role(Role("SYNC_MASTER", 0, self.epoch, "elected"))
        self.part(number).set_sync_state(self.members, self.set_epoch)
        for other, broker in self.brokers.items():
            if other != number:
                await broker.change_role(Role("SLAVE", other, self.epoch, "elected another"))
                self.let_follow(other, master)
        return master

    async def ask(self, broker: Broker, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.client.invoke(broker.identity.address, request(code, ext or {}, body), 8_000)

    async def send(self, broker: Broker, body: bytes) -> int:
        values = ("p", "orders", "TBW102", "1", "0", "0", "1", "0", "", "0", "false", "false")
        return (
            await self.ask(broker, RequestCode.SEND_MESSAGE_V2, dict(zip("abcdefghijkm", values, strict=True)), body)
        ).code

    def pop(self, broker: Broker, offset: int) -> None:
        """Do what a pop of one message does; nobody acknowledges it."""
        now_ms = broker.world.clock.wall_ms()
        broker.pops.moving.popped(
            CheckPoint("orders", "readers", 0, offset, now_ms, 60_000, "g", (offset,)), 0, offset + 1
        )

    def bodies(self, broker: Broker) -> list[bytes]:
        found: list[bytes] = []
        while True:
            got = broker.store.get("orders", 0, len(found), 32, 1 << 20)
            if not got.count:
                return found
            found += [record.body for part in got.parts for record in decode_records(part)]

    def logs(self) -> list[bytes]:
        """Return the whole log of each broker."""
        found = []
        for broker in self.brokers.values():
            at, end, log = 0, broker.store.max_physical_offset, bytearray()
            while at < end:
                piece = broker.store.slice(at, 1 << 20)
                log += piece
                at += len(piece)
            found.append(bytes(log))
        return found

    async def in_step(self) -> None:
        await until(lambda: self.members == frozenset(self.brokers) and len(set(self.logs())) == 1, 30)


@asynccontextmanager
async def open_group(source: random.Random, keys: dict[str, str]) -> AsyncIterator[Group]:
    async with (
        SimCluster(source) as cluster,
        open_client(cluster.client_world()) as client,
        open_background() as nursery,
    ):
        group = Group(cluster, nursery, client, keys)
        for number in (1, 2, 3):
            await group.start(number)
        master = await group.elect(1)
        assert (await group.ask(master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("orders", 1))).code == 0
        yield group


SYNC = {"flushDiskType": "SYNC_FLUSH"}
ALL = {"allAckInSyncStateSet": "true"}


@pytest.mark.covers("R206", "R217", "R240", "R241", "HA-04")
@pytest.mark.parametrize("keys", [{}, ALL, SYNC | ALL], ids=["one copy", "all copies", "all copies, flushed"])
def test_masters_change_and_logs_are_equal_at_the_end(keys: dict[str, str]) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, keys) as group:
            sent: list[bytes] = []
            await group.in_step()
            for turn in range(10):
                master = await group.elect(turn % 3 + 1)
                for number in range(3):
                    body = b"%d-%d" % (turn, number)
                    assert await group.send(master, body) == 0
                    sent.append(body)
                await group.in_step()
            await trio.sleep(2)
            for number, broker in group.brokers.items():
                assert group.bodies(broker) == sent
                rows = group.part(number).epochs()
                assert [epoch for epoch, _, _ in rows] == list(range(1, 12))
                assert rows == group.part(1).epochs()

    run_seed(scenario, 4)


@pytest.mark.covers("R213", "R217", "AS-02", "HA-01", "HA-03")
def test_what_a_lost_master_had_alone_is_cut_from_log_and_queues_and_consumers_never_saw_it() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL | {"slaveTimeout": "500", "haMaxTimeSlaveNotCatchup": "60000"}) as group:
            old = await group.elect(1)
            await group.in_step()
            assert await group.send(old, b"kept") == 0
            group.cluster.network.partition(
                {group.cluster.address("c1")}, {group.cluster.address("c2"), group.cluster.address("c3")}
            )
            # The controller hears nothing of it: the old master may not shrink its set, and waits for everybody.
            group.master = 0
            assert await group.send(old, b"lost") == 12
            assert group.bodies(old) == [b"kept"], "nobody sees what not everybody in the set has"
            first = group.brokers.pop(1)
            new = await group.elect(2)
            assert await group.send(new, b"new") == 0
            group.brokers[1] = first
            group.cluster.network.heal()
            await first.change_role(Role("SLAVE", 1, group.epoch, "elected another"))
            group.let_follow(1, new)
            await group.in_step()
            await trio.sleep(2)
            assert [group.bodies(broker) for broker in group.brokers.values()] == [[b"kept", b"new"]] * 3
            assert first.store.max_queue_offset("orders", 0) == 2

    run_seed(scenario, 5)


def test_what_a_lost_master_handed_out_alone_goes_out_again_when_it_leads_next(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate, saved = MessageStore.truncate, list[Any]()

    async def scenario(source: random.Random) -> None:
        keys = ALL | {"slaveTimeout": "500", "haMaxTimeSlaveNotCatchup": "60000", "timerWheelEnable": "true"}
        async with open_group(source, keys) as group:
            old = await group.elect(1)
            for body in (b"first", b"second"):
                assert await group.send(old, body) == 0
            group.pop(old, 0)
            await group.in_step()
            group.cluster.network.partition(
                {group.cluster.address("c1")}, {group.cluster.address("c2"), group.cluster.address("c3")}
            )
            group.master = 0
            # nobody else has the check point, and whoever popped may have died with the master
            group.pop(old, 1)
            assert old.pops.moving.position("readers", "orders", 0) == 2
            await trio.sleep(6)
            first = group.brokers.pop(1)
            new = await group.elect(2)

            async def cut(store: MessageStore, offset: int) -> int:
                # a process that dies here cuts the rest at its next start, and knows of no check points
                saved.append(loads(first.world.disk.read("/data/store/config/consumerOffset.json"))["offsetTable"])
                return await truncate(store, offset)

            monkeypatch.setattr(MessageStore, "truncate", cut)
            group.brokers[1] = first
            group.cluster.network.heal()
            await first.change_role(Role("SLAVE", 1, group.epoch, "elected another"))
            group.let_follow(1, new)
            await group.in_step()
            assert [each["orders@readers"]["0"] for each in saved] == [1]
            again = await group.elect(1)
            assert again.pops.moving.position("readers", "orders", 0) == 1

    run_seed(scenario, 8)


@pytest.mark.covers("R213", "HA-09")
@pytest.mark.parametrize("damaged", [False, True], ids=["as it was", "its epochs damaged"])
def test_what_a_lost_master_had_alone_is_not_seen_when_it_is_back_and_follows_nobody_yet(damaged: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(
            source, ALL | SYNC | {"slaveTimeout": "500", "haMaxTimeSlaveNotCatchup": "60000"}
        ) as group:
            old = await group.elect(1)
            await group.in_step()
            assert [await group.send(old, body) for body in (b"kept", b"and kept")] == [0, 0]
            cluster = group.cluster
            cluster.network.partition({cluster.address("c1")}, {cluster.address("c2"), cluster.address("c3")})
            group.master = 0
            assert await group.send(old, b"lost") == 12
            await group.stop(1)
            cluster.network.heal()
            if damaged:
                cluster.host("c1").disk.damage("/data/store/epochFileCheckpoint", lambda data: b"")
            back = await group.start(1)
            assert back.store.max_queue_offset("orders", 0) == 2
            assert group.bodies(back) == [b"kept", b"and kept"]
            assert b"lost" in bytes(back.store.slice(0, 1 << 20)), "nothing is cut yet"
            # Nobody else wants to lead: alone it may show what it has.
            await group.stop(2)
            await group.stop(3)
            await group.elect(1)
            assert group.bodies(back) == [b"kept", b"and kept", b"lost"]

    run_seed(scenario, 5)


@pytest.mark.covers("HA-09")
def test_what_is_hidden_after_a_crash_is_waited_for_and_consumed_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, ALL) as group:
            master = group.brokers[1]
            await group.in_step()
            assert [await group.send(master, body) for body in (b"one", b"two")] == [0, 0]
            master.offsets.commit("readers", "orders", 0, 2)
            for number in (3, 2, 1):
                await group.stop(number)
            disk, path = group.cluster.host("c1").disk, "/data/store/checkpoint"
            noted = load_checkpoint(disk, path)
            assert noted.confirm_offset > 1
            save_checkpoint(disk, path, attrs.evolve(noted, confirm_offset=1))  # as old as the last note of a crash
            back = await group.start(1)
            assert back.store.max_queue_offset("orders", 0) == 0
            store = back.store
            store.set_correct_offsets(True)  # as a master's
            asked = [store.get("orders", 0, offset, 1, 1 << 20).next_begin_offset for offset in (1, 2, 3)]
            assert asked == [1, 2, 0]
            await group.elect(1)
            assert group.bodies(back) == [b"one", b"two"]
            assert back.offsets.query("readers", "orders", 0) == 2

    run_seed(scenario, 8)


def test_what_readers_have_seen_is_not_hidden_when_the_group_waits_for_all_copies_from_now_on() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {}) as group:
            await group.in_step()
            assert await group.send(group.brokers[1], b"seen") == 0
            await group.in_step()
            for number in (3, 2, 1):
                await group.stop(number)
            group.keys = {**group.keys, **ALL}
            assert group.bodies(await group.start(1)) == [b"seen"]

    run_seed(scenario, 8)


@pytest.mark.covers("R238")
def test_a_set_that_is_too_small_refuses_sends_before_anything_is_written() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {"minInSyncReplicas": "2", "inSyncReplicas": "2"}) as group:
            await group.in_step()
            master = group.brokers[1]
            assert await group.send(master, b"two") == 0
            end = master.store.max_physical_offset
            await group.stop(2)
            await group.stop(3)
            await until(lambda: group.members == frozenset({1}), 10)
            assert await group.send(master, b"one") == 1
            assert master.store.max_physical_offset == end

    run_seed(scenario, 6)


def test_a_fenced_master_takes_and_gives_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {}) as group:
            await group.in_step()
            master = group.brokers[1]
            group.part(1).set_fenced(True)
            assert await group.send(master, b"x") == 14
            group.part(1).set_fenced(False)
            assert await group.send(master, b"y") == 0

    run_seed(scenario, 7)


@pytest.mark.covers("R203")
def test_a_broker_tells_its_epochs_as_the_real_one_does() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, {}) as group:
            await group.in_step()
            assert await group.send(group.brokers[1], b"x") == 0
            await group.in_step()
            begin = group.brokers[1].store.max_physical_offset
            master = await group.elect(2)
            assert await group.send(master, b"y") == 0
            await group.in_step()
            answer = await group.ask(group.brokers[1], RequestCode.GET_BROKER_EPOCH_CACHE)
            end = master.store.max_physical_offset
            expected: dict[str, Any] = {
                "brokerId": 1,
                "brokerName": "g",
                "clusterName": "DefaultCluster",
                "epochList": [
                    {"endOffset": begin, "epoch": 1, "startOffset": 0},
                    {"endOffset": (1 << 63) - 1, "epoch": 2, "startOffset": begin},
                ],
                "maxOffset": end,
            }
            assert loads(answer.body) == expected

    run_seed(scenario, 8)
