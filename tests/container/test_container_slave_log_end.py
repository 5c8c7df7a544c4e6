"""A slave that was away while its master died takes what its log lacks from the one that acts, before it acts."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from container_ring import run
from test_container_lost_end import Group, bodies, content, copied, fail, open_group

from understudy.broker.broker import Broker
from understudy.container.preonline import completion, service
from understudy.container.preonline.asking import RefusedError
from understudy.container.preonline.handshake import Member
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PopRequest
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.remoting.client import open_client
from understudy.testkit.waiting import until

TOPIC = "orders"


def acts(broker: Broker) -> bool:
    return "schedule" in broker.services.running()


async def second_slave_acts(group: Group, count: int = 40) -> bytes:
    """Let the first slave miss messages, and the master die after it; return the log that the second slave has."""
    await copied(group, 1, 2)
    await group.cluster.kill("c2")
    await group.send(count, b"missed")
    await copied(group, 2)
    whole = content(group.master)
    await trio.sleep(4)  # the second slave copies tables every three seconds
    await group.cluster.kill("c1")
    await until(lambda: acts(group.slave(2)), 30)
    return whole


@pytest.mark.parametrize("wiped", [False, True])
def test_it_has_what_the_other_one_has_when_it_acts(wiped: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            # given a slave that lacks messages, or has a new disk, and comes back while another one acts
            whole = await second_slave_acts(group)
            if wiped:
                group.cluster.host("c2").disk.wipe()
            await group.cluster.restart("c2")
            assert len(content(group.slave(1))) < len(whole)
            # when it acts, for its id is smaller
            await until(lambda: acts(group.slave(1)), 60)
            # then it has every message, of the same history, and the other one stands back
            assert content(group.slave(1)) == whole
            assert bodies(group.slave(1)) == bodies(group.slave(2))
            assert group.slave(1).history.value == group.slave(2).history.value != []
            await until(lambda: not acts(group.slave(2)), 10)
            # and follows its master as ever
            await group.cluster.restart("c1")
            await group.online()
            await group.send(2, b"later")
            await copied(group, 1, 2)
            assert bodies(group.slave(1)) == bodies(group.master)

    run(scenario)


def test_delayed_messages_are_delivered_though_a_master_would_give_a_new_disk_its_last_file_only() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, haTransferWholeLog="false") as group:
            # given delayed messages in several files, and a slave that comes back with a new disk
            await copied(group, 1, 2)
            await group.cluster.kill("c2")
            await group.send(3, b"delayed", {"DELAY": "7"})
            await group.send(20, bytes(1_000))
            await group.send(2, b"delayed later", {"DELAY": "7"})
            await copied(group, 2)
            whole = content(group.master)
            await trio.sleep(4)
            await group.cluster.kill("c1")
            await until(lambda: acts(group.slave(2)), 30)
            group.cluster.host("c2").disk.wipe()
            await group.cluster.restart("c2")
            # when it acts, and its master comes back
            await until(lambda: acts(group.slave(1)), 60)
            assert content(group.slave(1)) == whole
            await trio.sleep(5)
            await group.cluster.restart("c1")
            await group.online()
            # then all fall due
            await trio.sleep(200)
            assert sum(body.startswith(b"delayed") for body in bodies(group.master)) == 5

    run(scenario)


def test_what_was_popped_and_acknowledged_of_messages_that_it_lacked_does_not_go_out_again() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            await copied(group, 1, 2)
            await group.cluster.kill("c2")
            await group.send(8, b"missed")
            # given that everything was popped and acknowledged while it was away
            wanted = PopRequest("poppers", subscription(TOPIC, "*", 1), "g", invisible_ms=60_000, hold_ms=0)
            popped: list[Any] = []
            while batch := await pop(group.producer.session, wanted):
                popped += batch
            assert len(popped) == 13
            for each in popped:
                await ack(group.producer.session, each)
            await copied(group, 2)
            await trio.sleep(4)
            await group.cluster.kill("c1")
            await until(lambda: acts(group.slave(2)), 30)
            # when it acts
            await group.cluster.restart("c2")
            await until(lambda: acts(group.slave(1)), 60)
            # then there is nothing to pop
            await until(lambda: not acts(group.slave(2)), 10)
            await trio.sleep(1)  # name servers know who stands for the master
            await group.producer.session.renew_route(TOPIC)
            assert await pop(group.producer.session, wanted) == []

    run(scenario)


def test_what_was_read_of_messages_that_its_master_lost_does_not_count_for_those_in_their_place() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            await copied(group, 1, 2)
            queue = MessageQueue(TOPIC, "g", 0)
            base = group.master.store.max_queue_offset(TOPIC, 0)
            # given a slave that was told of more than it had copied when it went away
            group.slave(1).groups.get("readers")
            group.slave(1).offsets.commit("readers", TOPIC, 0, base + 12)
            await group.slave(1).persistence.save_all()
            await group.cluster.kill("c2")
            await group.cluster.kill("c3")
            # and a master that has lost that since, and goes on with other messages, of which some are read
            await group.send(4, b"lost")
            await fail(group)
            await group.cluster.restart("c1")
            await group.online()
            async with open_producer(group.cluster.client_world("w"), group.cluster.name_servers, "w") as producer:
                for number in range(20):
                    await producer.send(Message(TOPIC, b"new %d" % number), queue=queue)
            await group.cluster.restart("c3")
            await copied(group, 2)
            await trio.sleep(4)
            await group.cluster.kill("c1")
            await until(lambda: acts(group.slave(2)), 40)
            async with open_client(group.cluster.client_world("r")) as group.client:
                await group.commit(group.slave(2), base + 7)
            # when it acts
            await group.cluster.restart("c2")
            assert group.slave(1).offsets.query("readers", TOPIC, 0) == base + 12
            await until(lambda: acts(group.slave(1)), 90)
            # then it goes on where the group is
            assert content(group.slave(1)) == content(group.slave(2))
            assert group.slave(1).history.value == group.slave(2).history.value
            assert group.slave(1).offsets.query("readers", TOPIC, 0) == base + 7

    run(scenario)


def in_pieces(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[int]:
    """Let a log be given a thousand bytes at a time, each after so many seconds; return the list of what was asked."""
    read, asked = completion.read_log, list[int]()

    async def little(broker: Broker, member: Member, offset: int) -> Any:
        asked.append(offset)
        await trio.sleep(seconds)
        part, end, header = await read(broker, member, offset)
        return part[:1_000], end, header

    monkeypatch.setattr(completion, "read_log", little)
    return asked


def test_the_other_one_acts_until_all_has_come_however_long_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, preOnlineMaxWaitMillis="1000") as group:
            whole = await second_slave_acts(group)
            asked = in_pieces(monkeypatch, service.LOOK_SECONDS / 2)
            await group.cluster.restart("c2")
            acting: list[tuple[bool, bool]] = []
            while not acts(group.slave(1)) and len(acting) < 4_000:
                acting.append((acts(group.slave(2)), len(content(group.slave(1))) < len(whole)))
                await trio.sleep(0.05)
            assert len(asked) > 12
            assert all(each for each, lacks in acting if lacks)
            assert content(group.slave(1)) == whole

    run(scenario)


def test_a_master_that_comes_meanwhile_gives_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            whole = await second_slave_acts(group)
            asked = in_pieces(monkeypatch, 0.5)
            await group.cluster.restart("c2")
            await until(lambda: len(asked) > 5, 30)
            assert group.durable < len(content(group.slave(1))) < len(whole)
            await group.cluster.restart("c1")
            await group.online()
            await group.send(2, b"later")
            await copied(group, 1, 2)
            assert bodies(group.slave(1)) == bodies(group.master)
            assert max(asked) < len(whole)

    run(scenario)


@pytest.mark.parametrize("why", [RefusedError("request code 953 not supported"), "another log"])
def test_where_the_other_one_cannot_give_it_acts_with_what_it_has(
    why: RefusedError | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = completion.read_log

    async def refuse(broker: Broker, member: Member, offset: int) -> Any:
        if isinstance(why, RefusedError):
            raise why
        part, end, header = await read(broker, member, offset)
        return memoryview(bytes(byte ^ 1 for byte in part)), end, header

    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            whole = await second_slave_acts(group)
            monkeypatch.setattr(completion, "read_log", refuse)
            await group.cluster.restart("c2")
            before = content(group.slave(1))
            await until(lambda: acts(group.slave(1)), 60)
            assert content(group.slave(1)) == before == whole[: len(before)]
            # and its master gives it the rest
            monkeypatch.undo()
            await group.cluster.restart("c1")
            await group.online()
            await copied(group, 1, 2)

    run(scenario)


def test_a_slave_that_dies_while_it_takes_the_log_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            whole = await second_slave_acts(group)
            asked = in_pieces(monkeypatch, 0.1)
            for power in (False, True):
                await group.cluster.restart("c2")
                at = len(asked)
                await until(lambda at=at: len(asked) > at + 4, 30)  # type: ignore[misc]
                await group.cluster.kill("c2", power=power)
            await group.cluster.restart("c2")
            await until(lambda: acts(group.slave(1)), 60)
            assert content(group.slave(1)) == whole
            assert bodies(group.slave(1)) == bodies(group.slave(2))

    run(scenario)
