"""The way back of a master, step by step, as its name server, its slaves and its clients see it."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import trio
from container_ring import TOPIC, Ring, lock, open_ring, reading, run

from understudy.broker.broker import Broker
from understudy.format.json_dialect import loads
from understudy.ha.following import HaState
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer, Dispatcher
from understudy.remoting.errors import RemotingError
from understudy.testkit.waiting import until

Heard = list[tuple[float, Command]]


def tap(server: Dispatcher, codes: Iterable[int], heard: Heard) -> None:
    """Note requests of *codes* before they are answered as ever."""
    for code in codes:
        handler = server.handler(code)
        assert handler is not None

        def note(connection: Connection, command: Command, handler: object = handler) -> Answer:
            heard.append((trio.current_time(), command))
            return handler(connection, command)  # type: ignore[operator,no-any-return]

        server.register(code, note)


def tap_name_server(ring: Ring, codes: Iterable[int]) -> Heard:
    server = ring.cluster.host("n1").name_server
    assert server is not None
    heard: Heard = []
    tap(server._server, codes, heard)
    return heard


def of_master(heard: Heard) -> list[int]:
    """Return the codes that the master of g0 itself has sent."""
    own = {"brokerName": "g0", "brokerId": "0"}
    return [command.code for _, command in heard if own.items() <= (command.ext or {}).items()]


async def routed(ring: Ring) -> dict[int, str]:
    answer = await ring.client.invoke(
        ring.cluster.name_servers, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}), 5_000
    )
    groups = {each["brokerName"]: each["brokerAddrs"] for each in loads(answer.body)["brokerDatas"]}
    return {int(number): address for number, address in groups.get("g0", {}).items()}


async def dead_master(ring: Ring) -> Broker:
    """Kill the master of g0; return its slave, which acts."""
    await ring.cluster.kill("c1")
    slave = ring.broker("g0", 1)
    await until(lambda: "schedule" in slave.services.running(), 5)
    return slave


@pytest.mark.covers("R56", "R57", "R58", "R59", "R60", "R64", "R70")
def test_a_master_stays_invisible_until_every_slave_was_handled() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given a master that died before a delayed message of its group was due, while the second slave of the
            # group can be reached by the name server but not by the master
            await ring.commit(ring.broker("g0", 0), 5)
            await trio.sleep(5)
            slave, second = await dead_master(ring), ring.broker("g0", 2)
            await ring.commit(slave, 9)
            announced: Heard = []
            tap(slave.server, [RequestCode.EXCHANGE_BROKER_HA_INFO], announced)
            codes = (103, 105, 322, 901, 904)
            heard = tap_name_server(ring, codes)
            ring.cluster.network.cut(ring.cluster.address("c1"), ring.cluster.address("c3"))
            # when it comes back
            await ring.cluster.restart("c1")
            master = ring.broker("g0", 0)
            await until(lambda: len(announced) > 0, 10)
            await until(
                lambda: slave.replication.slave is not None and slave.replication.slave.state is HaState.TRANSFER, 10
            )
            # then the first slave was told where its log is, and copies from it, before anybody can find it
            assert announced[0][1].ext is not None
            assert announced[0][1].ext["masterHaAddress"] == master.identity.ha_address
            for _ in range(50):
                await trio.sleep(0.5)
                assert not {103, 322, 904} & set(of_master(heard))
                assert (await routed(ring)).get(0) != master.identity.address
                assert "schedule" not in master.services.running()
            # when the second slave can be reached, too
            ring.cluster.heal()
            await until(lambda: not master.registration.isolated, 40)
            await until(lambda: 103 in of_master(heard), 5)
            # then it has asked for its group first, and it is there with what the slaves knew
            member_questions = [
                moment
                for moment, command in heard
                if command.code in (105, 901) and "g0" in str(sorted((command.ext or {}).values()))
            ]
            registered = next(
                moment for moment, command in heard if command.code == 103 and of_master([(moment, command)])
            )
            assert min(member_questions) < registered
            await ring.online()
            assert (await routed(ring))[0] == master.identity.address
            assert master.offsets.query("readers", TOPIC, 0) == 9
            assert second.replication.slave is not None

    run(scenario)


@pytest.mark.covers("R71")
def test_skipping_pre_online_registers_at_once() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"skipPreOnline": "true"}) as ring:
            slave = await dead_master(ring)
            announced: Heard = []
            tap(slave.server, [RequestCode.EXCHANGE_BROKER_HA_INFO], announced)
            heard = tap_name_server(ring, [103])
            ring.cluster.partition(["c1"], ["c2", "c3"])
            await ring.cluster.restart("c1")
            await until(lambda: 103 in of_master(heard), 1)
            assert announced == []

    run(scenario)


@pytest.mark.covers("R55")
def test_escape_does_not_fork_the_logs_of_the_group() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given delayed messages that fall due while the master is dead
            for number in range(20):
                message = Message(TOPIC, b"%d" % number, {"DELAY": "2"})
                await ring.producer.send(message, queue=MessageQueue(TOPIC, "g0", number % 2))
            await trio.sleep(1)
            await dead_master(ring)
            await trio.sleep(10)
            # when it is back and has taken new messages
            await ring.cluster.restart("c1")
            await ring.online()
            for _ in range(5):
                await ring.producer.send(Message(TOPIC, b"new"), queue=MessageQueue(TOPIC, "g0", 0))
            master = ring.broker("g0", 0)
            end = master.store.max_physical_offset
            for broker_id in (1, 2):
                copy = ring.broker("g0", broker_id)
                await until(lambda: copy.store.max_physical_offset == end, 15)  # noqa: B023
                # then both logs are the same, byte for byte
                assert log_of(copy, end) == log_of(master, end)

    run(scenario)


def log_of(broker: Broker, end: int) -> bytes:
    found = bytearray()
    while len(found) < end:
        found += broker.store.slice(len(found), end - len(found))
    return bytes(found)


@pytest.mark.covers("R47", "R62")
def test_escaped_messages_are_what_was_sent_and_are_not_delivered_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring, reading(ring) as received:
            # given
            for number in range(8):
                properties = {"DELAY": "2", "TAGS": "paid", "KEYS": f"order-{number}", "colour": "rød"}
                message = Message(TOPIC, b"body %d" % number, properties)
                await ring.producer.send(message, queue=MessageQueue(TOPIC, "g0", 0))
            await trio.sleep(1)
            # when
            await dead_master(ring)
            await trio.sleep(12)
            # then
            assert sorted(b"body %d" % number for number in range(8)) == sorted(each.body for each in received)
            for each in received:
                number = each.body.decode().split()[1]
                kept = {name: each.properties.get(name) for name in ("TAGS", "KEYS", "colour")}
                assert {"TAGS": "paid", "KEYS": f"order-{number}", "colour": "rød"} == kept
            # and after the return nothing comes again
            await ring.cluster.restart("c1")
            await ring.online()
            await trio.sleep(20)
            assert len(received) == 8

    run(scenario)


@pytest.mark.covers("R61", "R68", "R72")
def test_progress_never_goes_backwards_while_a_master_dies_and_returns() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given two groups of consumers, one of which will stand still at the slave
            await ring.commit(ring.broker("g0", 0), 5, "readers")
            await ring.commit(ring.broker("g0", 0), 8, "others")
            await trio.sleep(5)
            seen: dict[str, list[int]] = {"readers": [], "others": []}

            async def watch() -> None:
                while True:
                    await trio.sleep(0.05)
                    for group, offsets in seen.items():
                        address = (await routed(ring)).get(0)
                        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": "0"}
                        if address is None:
                            continue
                        with trio.move_on_after(1):
                            try:
                                answer = await ring.client.invoke(
                                    address, request(RequestCode.QUERY_CONSUMER_OFFSET, ext), 500
                                )
                            except RemotingError:
                                continue
                            if answer.code == 0:
                                offsets.append(int((answer.ext or {})["offset"]))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                # when the master dies, one group goes on at the slave, and the master comes back
                await trio.sleep(1)
                slave = await dead_master(ring)
                for offset in range(6, 16):
                    await ring.commit(slave, offset, "readers")
                    await trio.sleep(0.1)
                await ring.cluster.restart("c1")
                await ring.online()
                await trio.sleep(2)
                nursery.cancel_scope.cancel()
            # then nobody ever saw an older place, and both are where they were
            for group, end in (("readers", 15), ("others", 8)):
                assert seen[group] == sorted(seen[group])
                assert (seen[group][0], seen[group][-1]) == ({"readers": 5, "others": 8}[group], end)
                assert ring.broker("g0", 0).offsets.query(group, TOPIC, 0) == end

    run(scenario)


# --- locks ---


async def return_after_a_lock_at_the_slave(ring: Ring) -> list[int]:
    """Let one client lock at the acting slave; return what another one gets from the master that is back."""
    slave = await dead_master(ring)
    await until(lambda: len(slave.member_group.members or {}) == 2, 5)
    assert await lock(ring, slave, "client-1", [0]) == [0]
    await ring.cluster.restart("c1")
    await ring.online()
    return await lock(ring, ring.broker("g0", 0), "client-2", [0])


@pytest.mark.covers("R76")
def test_with_strict_locks_two_clients_never_hold_a_queue_across_the_return() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            assert await return_after_a_lock_at_the_slave(ring) == []

    run(scenario)


@pytest.mark.covers("R77")
def test_without_strict_locks_the_return_opens_a_window() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"lockInStrictMode": "false"}) as ring:
            assert await return_after_a_lock_at_the_slave(ring) == [0]

    run(scenario)


@pytest.mark.covers("R73", "R74")
@pytest.mark.parametrize("strict", [True, False])
def test_conflicting_locks_on_one_or_two_of_three_replicas(strict: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"lockInStrictMode": str(strict).lower()}) as ring:
            # given somebody else's lock on one replica (queue 0), on two (queue 1)
            wall_ms = ring.cluster.host("c1").clock.wall_ms()
            for broker_id, queues in ((1, [0, 1]), (2, [1])):
                held = [(TOPIC, "g0", number) for number in queues]
                assert ring.broker("g0", broker_id).locks.lock("readers", "other", held, wall_ms) == held
            # then a majority decides, or the asked replica alone
            assert await lock(ring, ring.broker("g0", 0), "client", [0, 1]) == ([0] if strict else [0, 1])

    run(scenario)
