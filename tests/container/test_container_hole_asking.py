"""Who is asked for lost messages of a master, how often and for how long, and who is told of those that came back."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from container_ring import records, run, send_raw
from test_container_live_holes import NOBODY_ACTS
from test_container_master_holes import FILE_BYTES, TOPIC, content, lose_for_all, open_filled_pair

from understudy.broker.broker import Broker
from understudy.broker.history_keeper import HistoryKeeper
from understudy.container import master_holes
from understudy.container.master_holes import Fruitless, MasterHoles
from understudy.container.preonline import holes
from understudy.container.preonline.handshake import Member
from understudy.mqclient.message import Message
from understudy.remoting.client import open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.errors import RemotingError
from understudy.testkit.waiting import until


def give_slowly(monkeypatch: pytest.MonkeyPatch, seconds: float, most_bytes: int) -> None:
    """Have slaves give their logs in parts of *most_bytes*, each after so many *seconds*."""
    read = holes.read_log

    async def slow(broker: Broker, member: Member, offset: int, **named: Any) -> Any:
        await trio.sleep(seconds)
        part, end, header = await read(broker, member, offset, **named)
        return part[:most_bytes], end, header

    monkeypatch.setattr(holes, "read_log", slow)


def test_a_slave_is_told_of_what_came_back_though_other_messages_are_still_missing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            whole = content(pair.master)
            await pair.add_third(**NOBODY_ACTS)
            # given a slave that lacks the newest messages, and a master that loses one of them and one before
            await pair.cluster.kill("c3")
            newest = []
            for _ in range(3):
                newest.append(pair.master.store.max_physical_offset)
                await pair.producer.send(Message(TOPIC, source.randbytes(3_000)))
            await trio.sleep(15)
            await pair.cluster.kill("c2")
            pair.cluster.host("c2").disk.wipe()
            await pair.lose([pair.starts[1] + 2_000, newest[1] + 500])
            await pair.cluster.restart("c1")
            await pair.online()
            # and another one that has copied what stands in for both
            await pair.cluster.restart("c2")
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 30)
            await trio.sleep(5)
            # when the first one gives the message that it has
            await pair.cluster.restart("c3")
            await until(lambda: pair.master.store.hole == newest[1], 60)
            # then the other one has it, too
            await until(lambda: content(pair.slave)[: len(whole)] == whole, 30)
            assert content(pair.master)[: len(whole)] == whole

    run(scenario)


def test_slaves_are_told_of_what_came_back_before_the_master_is_online(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreached(*args: Any) -> str:
        raise RemotingError("c3", "not reached")

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            await pair.add_third()
            whole = content(pair.master)
            # given a slave that has copied what stands in for a lost message, and one that has it
            await pair.cluster.kill("c3")
            await pair.cluster.kill("c2")
            pair.cluster.host("c2").disk.wipe()
            await pair.lose([pair.starts[1] + 2_000])
            await pair.cluster.restart("c1")
            await pair.online()
            await pair.cluster.restart("c2")
            await until(lambda: pair.slave.store.max_physical_offset >= len(whole), 60)
            await trio.sleep(15)
            monkeypatch.setattr(master_holes, "fill", unreached)  # it does not get it beside its work
            await pair.cluster.restart("c3")
            await trio.sleep(15)
            assert pair.master.store.hole == pair.starts[1]
            # when the master was away for a moment and gets it back
            pair.cluster.freeze("c1")
            await trio.sleep(9)
            pair.cluster.unfreeze("c1")
            await until(lambda: pair.master.store.hole is None, 60)
            assert pair.master.registration.isolated
            await pair.online()
            # then both have it
            await until(lambda: content(pair.slave)[: len(whole)] == whole, 30)
            assert content(pair.master)[: len(whole)] == whole

    run(scenario)


def test_who_knocks_at_the_replication_port_does_not_make_it_read_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    read = holes.read_log

    async def count(broker: Broker, member: Member, offset: int, **named: Any) -> Any:
        asked.append(trio.current_time())
        return await read(broker, member, offset, **named)

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given a message that nobody has any more
            await lose_for_all(pair)
            # when somebody looks each second whether the port is open
            monkeypatch.setattr(holes, "read_log", count)
            host, port = pair.master.identity.ha_address.split(":")
            world = pair.cluster.client_world("checker")
            for _ in range(60):
                stream = await world.network.connect(host, int(port), 3)
                await stream.aclose()
                await trio.sleep(1)
            # then the slave's log is compared once or twice
            once = (pair.master.store.max_physical_offset - pair.starts[1]) // FILE_BYTES + 2
            assert len(asked) <= 2 * once
            # and at once when it comes again, but not each time
            asked.clear()
            for _ in range(12):
                assert pair.slave.replication.slave is not None
                pair.slave.replication.slave.hang_up()
                await trio.sleep(5)
            assert once <= len(asked) <= 4 * once

    run(scenario)


def test_slaves_do_not_wait_for_one_that_gives_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given a master that has lost a message, whose slave takes a minute to give it
            await pair.lose([pair.starts[1] + 2_000])
            give_slowly(monkeypatch, 2.5, 16_000)
            await pair.cluster.restart("c1")
            await pair.online()
            began = trio.current_time()
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                await until(lambda: pair.master.store.writable, 10)
                await send_raw(pair, pair.master, b"new", "")
            # then what is sent is copied soon
            end = pair.master.store.max_physical_offset
            await until(lambda: pair.slave.store.max_physical_offset >= end, 120)
            assert trio.current_time() - began < 10
            assert pair.master.store.hole is not None
            # and the lost one comes later
            await until(lambda: pair.master.store.hole is None, 300)

    run(scenario)


def test_a_slave_that_gives_slowly_does_not_hide_the_master_for_longer_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, preOnlineMaxWaitMillis="5000") as pair:
            whole = content(pair.master)
            # given a slave that takes minutes to give a lost message
            await pair.lose([pair.starts[1] + 2_000])
            give_slowly(monkeypatch, 2, 4_000)
            # when the master comes back
            began = trio.current_time()
            await pair.cluster.restart("c1")
            await until(lambda: not pair.master.registration.isolated, 600)
            # then it is found in time
            assert trio.current_time() - began < 10
            assert pair.master.store.hole is not None
            # and gets the message beside its work
            await until(lambda: pair.master.store.hole is None, 600)
            assert content(pair.master)[: len(whole)] == whole

    run(scenario)


def test_nothing_takes_the_place_of_a_lost_message_that_a_slave_has() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given a master that loses the last message of a queue, whose slave is there all the time
            queue, other = (await pair.producer.queues(TOPIC))[:2]
            lost, hole = b"lost" * 200, pair.master.store.max_physical_offset
            await pair.producer.send(Message(TOPIC, lost), queue=queue)
            await pair.producer.send(Message(TOPIC, b"kept"), queue=other)
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            await pair.lose([hole])
            await pair.cluster.restart("c1")
            # when somebody sends to that queue meanwhile
            refused, sent = [], list[bytes]()
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                while len(sent) < 3:
                    body = b"new %d" % len(sent)
                    code = await send_raw(pair, pair.master, body, "", queue_id=queue.queue_id)
                    if code == ResponseCode.SUCCESS:
                        sent.append(body)
                    else:
                        refused.append(code)
                        await trio.sleep(0.01)
            # then the lost one comes first, and clients try elsewhere until then
            assert set(refused) == {ResponseCode.SERVICE_NOT_AVAILABLE}
            assert pair.master.store.hole is None
            await until(lambda: content(pair.slave) == content(pair.master), 30)
            for broker in (pair.master, pair.slave):
                found = [record.body for record in records(broker) if record.queue_id == queue.queue_id]
                assert found[-4:] == [lost, *sent]

    run(scenario)


@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["at once", "soon"])
def test_a_delayed_message_that_a_slave_has_is_not_passed_while_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    give_slowly(monkeypatch, seconds, 1 << 20)

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given a master that loses the first of two delayed messages, and starts again when both are due
            hole, bodies = pair.master.store.max_physical_offset, [b"first" * 100, b"second" * 100]
            for body in bodies:
                await pair.producer.send(Message(TOPIC, body, properties={"DELAY": "5"}))
            await until(lambda: pair.slave.store.max_physical_offset == pair.master.store.max_physical_offset, 10)
            await trio.sleep(15)
            await pair.lose([hole])
            await trio.sleep(60)
            await pair.cluster.restart("c1")
            await pair.online()
            # when its slave, which is there all the time, gives it back
            reason = (await pair.info(pair.master))["brokerActiveReason"]
            assert reason == "messages are missing in its log, and its slaves are asked for them first"
            await until(lambda: pair.master.store.hole is None, 30)
            # then both are delivered
            await until(lambda: "schedule" in pair.master.services.running(), 5)
            await trio.sleep(30)
            assert sorted(each.body for each in records(pair.master) if each.body in bodies) == bodies

    run(scenario)


def test_a_master_that_nobody_can_help_takes_messages_after_a_second() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            await pair.cluster.kill("c2")
            await pair.lose([pair.starts[1] + 2_000])
            await pair.cluster.restart("c1")
            await pair.online()
            began = trio.current_time()
            assert not pair.master.store.writable
            await until(lambda: pair.master.store.writable, 10)
            assert trio.current_time() - began < 2
            assert pair.master.store.hole is not None

    run(scenario)


def test_what_stands_in_for_lost_messages_in_an_end_that_came_back_is_missing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source) as pair:
            await pair.add_third()
            whole, lost = content(pair.master), pair.starts[7]
            # given a slave that has copied what stands in for a lost message, while the one that has it is away
            await pair.cluster.kill("c3")
            await pair.cluster.kill("c2")
            pair.cluster.host("c2").disk.wipe()
            await pair.lose([lost + 2_000])
            await pair.cluster.restart("c1")
            await pair.online()
            await pair.cluster.restart("c2")
            await until(lambda: pair.slave.store.max_physical_offset == len(whole), 60)
            await trio.sleep(15)
            # when the power takes the end of the master's log from there on, and it gets that back from this slave
            await pair.lose([lost], length=FILE_BYTES - lost % FILE_BYTES)
            disk = pair.cluster.host("c1").disk
            for name in disk.listdir("/data/g-0/commitlog"):
                if int(name) > lost:
                    disk.remove(f"/data/g-0/commitlog/{name}")
            await pair.cluster.restart("c1")
            assert pair.master.store.max_physical_offset == lost
            await pair.online()
            assert pair.master.store.max_physical_offset == len(whole)
            # then it knows what it lacks, and all have it when the other one is back
            assert pair.master.store.hole == lost
            await pair.cluster.restart("c3")
            for broker in (pair.master, pair.third, pair.slave):
                await until(lambda broker=broker: content(broker)[: len(whole)] == whole, 60)  # type: ignore[misc]

    run(scenario)


def test_what_much_follows_comes_back_before_messages_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_holes, "MENDED_AT_ONCE_BYTES", 20_000)

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            whole = content(pair.master)
            # given a hole that more follows than is mended beside the work, and a slave that comes too late
            await pair.cluster.kill("c2")
            await pair.lose([pair.starts[1] + 2_000])
            await pair.cluster.restart("c1")
            await pair.online()
            await until(lambda: pair.master.store.writable, 10)
            await pair.cluster.restart("c2")
            await trio.sleep(60)
            assert pair.master.store.hole == pair.starts[1]
            # when the master starts again
            await pair.cluster.stop("c1")
            await pair.cluster.restart("c1")
            await until(lambda: pair.master.store.writable, 10)
            # then it has everything
            assert pair.master.store.hole is None
            assert content(pair.master) == whole

    run(scenario)


def test_what_too_much_follows_is_left_out_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = holes.read_log, list[float]()
    monkeypatch.setattr(master_holes, "MENDED_AT_ONCE_BYTES", 20_000)

    async def slow(broker: Broker, member: Member, offset: int, **named: Any) -> Any:
        asked.append(trio.current_time())
        await trio.sleep(2)
        return await read(broker, member, offset, **named)

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            await pair.lose([pair.starts[1] + 2_000])
            monkeypatch.setattr(holes, "read_log", slow)
            await pair.cluster.restart("c1")
            began = trio.current_time()
            await until(lambda: pair.master.store.writable, 20)
            assert trio.current_time() - began < 6
            await trio.sleep(1_000)
            assert max(asked) - began < 10
            assert pair.master.store.hole == pair.starts[1]

    run(scenario)


def test_a_disk_that_refuses_what_is_known_of_them_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    believe, refused = HistoryKeeper.believe_what_came_back, list[OSError]()

    async def refuse_once(self: HistoryKeeper) -> None:
        await believe(self)
        if not refused:
            refused.append(OSError("the disk is full"))
            raise refused[0]

    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            monkeypatch.setattr(HistoryKeeper, "believe_what_came_back", refuse_once)
            await pair.lose([pair.starts[1] + 2_000])
            await pair.cluster.restart("c1")
            await until(lambda: bool(refused), 30)
            await until(lambda: pair.master.store.writable, 10)
            async with open_client(pair.cluster.client_world("later")) as pair.client:
                assert await send_raw(pair, pair.master, b"new", "") == ResponseCode.SUCCESS
            await until(lambda: content(pair.slave) == content(pair.master), 30)

    run(scenario)
    assert "service failed" not in caplog.text


def test_what_is_refused_is_tried_again_and_not_without_a_pause() -> None:
    broker: Any = SimpleNamespace(
        store=SimpleNamespace(hole=None), world=SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: 100.0))
    )
    asked = MasterHoles(broker)
    # given a slave that could not fill a hole that another one has filled since
    asked._fruitless[Member(1, "10.0.0.3:10911")] = Fruitless(hole=500, asked_at=90.0, pause=5.0, due=95.0)
    assert asked._wait(600.0) == 600.0
