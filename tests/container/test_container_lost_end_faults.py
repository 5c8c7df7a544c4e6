"""A master takes the end of its log back while something goes wrong, and what else depended on the lost messages."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from container_ring import run
from test_container_lost_end import DURABLE_SECONDS, TOPIC, Group, bodies, content, copied, fail, lose_end, open_group

from understudy.broker.broker import Broker
from understudy.broker.history_keeper import HistoryKeeper
from understudy.broker.persistence import Persistence
from understudy.container.preonline import completion, holes
from understudy.container.preonline.handshake import Member
from understudy.container.role_services import RoleServices
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.errors import RemotingError
from understudy.testkit.topic_fields import topic_fields
from understudy.testkit.waiting import until


async def make_topic(group: Group, topic: str) -> None:
    assert (await group.ask(group.master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))).code == 0


def test_a_master_whose_disk_refuses_when_it_goes_on_takes_sends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    save, go_on, refused = Persistence.save, HistoryKeeper.go_on, list[str]()

    async def refuse_once(self: Persistence, name: str) -> None:
        if not refused:
            refused.append(name)
            raise OSError(28, "no space")
        await save(self, name)

    async def on_a_full_disk(self: HistoryKeeper) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Persistence, "save", refuse_once)
            await go_on(self)

    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            whole = await lose_end(group)
            monkeypatch.setattr(HistoryKeeper, "go_on", on_a_full_disk)
            await group.cluster.restart("c1")
            await group.online()
            assert refused == ["log history"]
            assert group.master.history.value.lives[-1].start == len(whole)
            async with open_producer(group.cluster.client_world("later"), group.cluster.name_servers, "w") as producer:
                await producer.send(Message(TOPIC, b"after"))
            await copied(group, 1)

    run(scenario)


def test_what_came_back_before_an_operator_ended_the_return_is_found_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, asked = completion.read_log, list[int]()

    async def little(broker: Broker, member: Member, offset: int) -> Any:
        asked.append(offset)
        if len(asked) == 12:
            await trio.sleep_forever()
        part, end, header = await read(broker, member, offset)
        return part[:1_000], end, header

    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            monkeypatch.setattr(completion, "read_log", little)
            # given a topic that the master knows from the lost messages only
            await make_topic(group, "fresh")
            for number in range(3):
                await group.producer.send(Message("fresh", b"%d" % number))
            await lose_end(group, 40)
            disk, path = group.cluster.host("c1").disk, "/data/g-0/config/topics.json"
            disk.damage(path, lambda data: data.replace(b'"fresh"', b'"other"'))
            await group.cluster.restart("c1")
            await until(lambda: len(asked) == 12, 30)
            rules = group.master.session.rules
            assert isinstance(rules, RoleServices)
            assert rules.finish_pre_online()
            await group.online()
            assert "fresh" in group.master.topics.rows
            assert len(bodies(group.master)) > 5
            store = group.master.store
            assert store.flushed_offset == store.max_physical_offset

    run(scenario)


def test_a_deleted_topic_does_not_come_back_with_its_messages() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            await make_topic(group, "gone")
            await trio.sleep(DURABLE_SECONDS)
            # given messages of a topic, and its deletion, behind what is on the disk
            for number in range(3):
                await group.producer.send(Message("gone", b"%d" % number))
            deleted = await group.ask(group.master, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})
            assert deleted.code == 0
            whole = await lose_end(group)
            await group.cluster.restart("c1")
            assert len(content(group.master)) < len(whole)
            await group.online()
            assert content(group.master) == whole
            assert "gone" not in {topic for topic, _ in group.master.store.queues()} | group.master.topics.rows.keys()
            # and whoever makes it anew has what is sent from then on
            world = group.cluster.client_world("later")
            async with (
                open_client(world) as group.client,
                open_producer(world, group.cluster.name_servers, "w") as producer,
            ):
                await make_topic(group, "gone")
                await producer.send(Message("gone", b"new"))
            assert bodies(group.master, "gone") == [b"new"]
            # the slave hears of the deletion with its next look at the topics
            await until(lambda: bodies(group.slave(), "gone") == [b"new"], 20)

    run(scenario)


@pytest.mark.parametrize("broken", [1, 2])
@pytest.mark.parametrize("fault", ["its end is not understood", "it does not say its end", "it stops giving"])
def test_a_slave_that_cannot_be_asked_does_not_keep_another_one_from_giving(
    broken: int, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_of_log, read_log = completion.end_of_log, completion.read_log

    async def end_of(broker: Broker, member: Member) -> int:
        if member.broker_id == broken and fault == "its end is not understood":
            raise ValueError("no JSON")
        if member.broker_id == broken and fault == "it does not say its end":
            raise completion.RefusedError("not you")
        return await end_of_log(broker, member)

    async def little(broker: Broker, member: Member, offset: int) -> Any:
        if member.broker_id == broken and fault == "it stops giving":
            raise RemotingError(member.address, "no answer")
        part, end, header = await read_log(broker, member, offset)
        return part[:500], end, header

    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, preOnlineMaxWaitMillis="15000") as group:
            await copied(group, 1, 2)
            await group.send(10, b"lost")
            await copied(group, 1, 2)
            whole = content(group.slave(1))
            await fail(group)
            monkeypatch.setattr(completion, "end_of_log", end_of)
            monkeypatch.setattr(completion, "read_log", little)
            await group.cluster.restart("c1")
            await group.online()
            assert content(group.master) == whole

    run(scenario)


def test_a_slave_that_never_comes_to_its_end_does_not_keep_the_master_away(monkeypatch: pytest.MonkeyPatch) -> None:
    read_log = completion.read_log

    async def endless(broker: Broker, member: Member, offset: int) -> Any:
        part, end, header = await read_log(broker, member, min(offset, len(whole)))
        await trio.sleep(0.5)
        return (part or bytes(64)), max(offset + 64, end), header

    whole = b""

    async def scenario(source: random.Random) -> None:
        nonlocal whole
        async with open_group(source, preOnlineMaxWaitMillis="15000") as group:
            whole = await lose_end(group)
            monkeypatch.setattr(completion, "read_log", endless)
            await group.cluster.restart("c1")
            await group.online()
            assert content(group.master) == whole

    run(scenario)


def test_a_slave_that_gives_what_it_says_it_does_not_have_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = holes.ask

    async def answer(broker: Broker, member: Member, code: RequestCode, ext: dict[str, str] | None = None) -> Command:
        found = await asking(broker, member, code, ext)
        if code == RequestCode.READ_LOG:
            found.ext = {**(found.ext or {}), "maxOffset": str(broker.store.max_physical_offset)}
        return found

    async def scenario(source: random.Random) -> None:
        async with open_group(source) as group:
            await lose_end(group)
            monkeypatch.setattr(holes, "ask", answer)
            await group.cluster.restart("c1")
            await group.online()
            assert group.end == group.durable
            assert "more than" in (await group.report())["trouble"]

    run(scenario)
