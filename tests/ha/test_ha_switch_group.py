"""A group in controller mode: elections, lost connections and lost answers, and what must hold whatever happens."""

from __future__ import annotations

import random

import pytest
import trio
from ha_rig import FILE, world_of
from switch_rig import PORT, Controller, Replica, SwitchValues, elect, greet
from trio.testing import MockClock

from understudy.ha.switch import frames
from understudy.ha.switch.epochs import Epochs
from understudy.ha.switch.keeper import EVERYBODY
from understudy.runtime.background import open_background
from understudy.testkit.sim.network import SimNetwork


def replicas_of(network: SimNetwork, count: int, values: SwitchValues, seed: int = 1) -> dict[int, Replica]:
    chance = random.Random(seed)
    return {number: Replica(network, number, values, chance) for number in range(1, count + 1)}


@pytest.mark.covers("R209", "R210", "R219", "R227", "HA-05")
async def test_slaves_copy_the_log_with_its_epochs_and_come_into_the_set(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 3, SwitchValues()), Controller()
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        master.log.append(b"first " * 1000)
        await trio.sleep(5)
        assert {1, 2, 3} == controller.members
        assert all(replica.log.data == master.log.data for replica in replicas.values())
        assert all(Epochs.of([(1, 0)]) == replica.history.epochs for replica in replicas.values())
        master = await elect(nursery, controller, replicas, 2)
        master.log.append(b"second " * 1000)
        await trio.sleep(5)
        assert all(replica.log.data == master.log.data for replica in replicas.values())
        assert all(Epochs.of([(1, 0), (2, 6000)]) == replica.history.epochs for replica in replicas.values())


@pytest.mark.covers("R212", "R213", "R214", "R215")
async def test_what_the_new_master_never_had_is_cut(network: SimNetwork, autojump_clock: MockClock) -> None:
    replicas, controller = replicas_of(network, 3, SwitchValues()), Controller()
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        master.log.append(b"a" * 900)
        await trio.sleep(3)
        for replica in replicas.values():
            await replica.stop()
        master.log.append(b"lost" * 25)
        assert [1000, 900, 900] == [replica.log.max_physical_offset for replica in replicas.values()]
        master = await elect(nursery, controller, replicas, 2)
        assert 900 == master.log.max_physical_offset
        await trio.sleep(0.5)
        assert [900, 900, 900] == [replica.log.max_physical_offset for replica in replicas.values()]
        master.log.append(b"b" * 70)
        await trio.sleep(3)
        assert [b"a" * 900 + b"b" * 70] * 3 == [bytes(replica.log.data) for replica in replicas.values()]
        assert all(Epochs.of([(1, 0), (2, 900)]) == replica.history.epochs for replica in replicas.values())


@pytest.mark.covers("R216")
async def test_a_log_without_a_common_epoch_is_left_as_it_is(network: SimNetwork, autojump_clock: MockClock) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    stranger = replicas[2]
    stranger.log.append(b"x" * 500)
    await stranger.history.save(Epochs.of([(7, 0)]))
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        master.log.append(b"y" * 900)
        await trio.sleep(10)
        assert stranger.slave is not None
        assert "no epoch in common" in stranger.slave.progress().refusal
        assert (b"x" * 500, Epochs.of([(7, 0)])) == (bytes(stranger.log.data), stranger.history.epochs)
        assert {1} == controller.members


async def test_equal_epochs_over_other_bytes_are_found_out(network: SimNetwork, autojump_clock: MockClock) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    liar = replicas[2]
    liar.log.append(b"x" * 500)
    await liar.history.save(Epochs.of([(1, 0)]))
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        master.log.append(b"y" * 900)
        await trio.sleep(10)
        assert liar.slave is not None
        assert "has other bytes at 1" in liar.slave.progress().refusal
        assert b"x" * 500 == bytes(liar.log.data)
        assert {1} == controller.members


@pytest.mark.covers("R226", "HA-05")
async def test_an_empty_slave_may_begin_with_the_last_file(network: SimNetwork, autojump_clock: MockClock) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues(last_file_only=True)), Controller()
    async with open_background() as nursery:
        replicas[1].log.append(bytes(range(250)) * 40)
        await elect(nursery, controller, replicas, 1)
        await trio.sleep(5)
        slave = replicas[2].log
        assert (2 * FILE, 10_000) == (slave.base, slave.max_physical_offset)
        assert {1, 2} == controller.members


@pytest.mark.covers("R218")
async def test_no_frame_holds_bytes_of_two_epochs(network: SimNetwork, autojump_clock: MockClock) -> None:
    replicas, controller = replicas_of(network, 1, SwitchValues()), Controller()
    master = replicas[1]
    async with open_background() as nursery:
        for number in range(6):
            controller.elect(1)
            await master.lead(nursery, controller)
            master.log.append(bytes([number]) * (333 * number))
            await trio.sleep(0.1)
        stream = await world_of(network, "r2").network.connect("r1", PORT, 1)
        reader, got = frames.MasterFrameReader(), bytearray()
        reader.feed(await greet(stream, 2))
        while len(got) < master.log.max_physical_offset:
            for frame in reader.feed(await stream.receive_some(10_000)):
                if isinstance(frame, frames.EpochTransfer) and frame.body:
                    entry = master.history.epochs.at(frame.offset)
                    assert entry is not None
                    assert (frame.epoch, frame.epoch_start) == (entry.epoch, entry.start)
                    assert frame.offset + len(frame.body) <= master.history.epochs.end_of(entry)
                    got += frame.body
        assert got == master.log.data
        assert 6 == len(master.history.epochs.entries)


@pytest.mark.covers("R234", "R235", "R236", "R241")
@pytest.mark.parametrize("seed", range(25))
async def test_what_was_acknowledged_or_seen_survives_every_election(
    network: SimNetwork, autojump_clock: MockClock, seed: int
) -> None:
    """Every member of the set has what was acknowledged, so whoever is elected from it has it; nothing seen is cut."""
    chance = random.Random(seed)
    replicas, controller = replicas_of(network, 3, SwitchValues(all_must_ack=True, patience_s=2.0), seed), Controller()
    acknowledged = b""
    seen: dict[int, bytes] = {}
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        for _ in range(12):
            for _ in range(chance.randrange(8)):
                master.log.append(chance.randbytes(chance.choice((10, 200, 1500))))
                await trio.sleep(chance.choice((0, 0.001, 0.3)))
                assert master.keeper is not None
                done = bytes(master.log.data[: master.keeper.copied(EVERYBODY)])
                acknowledged = max(acknowledged, done, key=len)
                for replica in replicas.values():
                    shown = bytes(replica.log.data[: replica.confirmed])
                    seen[len(shown)] = shown
            event = chance.random()
            if event < 0.4:
                new = chance.choice(sorted(controller.members))
                if chance.random() < 0.5:  # nobody copies any more, but the old master goes on writing
                    for replica in replicas.values():
                        if replica is not master:
                            await replica.stop()
                    master.log.append(b"never acknowledged " * 20)
                master = await elect(nursery, controller, replicas, new)
            elif event < 0.6:
                lone = chance.choice([replica for replica in replicas.values() if replica is not master])
                await lone.stop()
                await trio.sleep(chance.choice((0.1, 4.0)))
                await lone.follow(nursery, master.id)
            await trio.sleep(chance.choice((0.0, 0.1, 3.0)))
            assert acknowledged == master.log.data[: len(acknowledged)], "an acknowledged message is gone"
            for shown in seen.values():
                assert shown == master.log.data[: len(shown)], "a message that was seen is gone"
        await trio.sleep(20)
        assert controller.members == {1, 2, 3}
        assert all(replica.log.data == master.log.data for replica in replicas.values())
        assert all(replica.log_epoch() == master.log_epoch() for replica in replicas.values())


@pytest.mark.covers("R211", "R220")
async def test_epochs_that_nobody_else_had_are_cut_with_their_bytes(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    old, new = replicas.values()
    for replica in (old, new):
        replica.log.append(b"c" * 850)
        await replica.history.save(Epochs.of([(1, 0), (2, 500)]))
    old.log.append(b"lost" * 30)
    await old.history.save(Epochs.of([(1, 0), (2, 500), (3, 870), (4, 900)]))
    controller.epoch = 5
    async with open_background() as nursery:
        await elect(nursery, controller, replicas, 2)
        await trio.sleep(0.5)
        assert old.log.max_physical_offset == 850
        # the new master's epoch is noted before its first byte
        assert new.history.epochs == old.history.epochs == Epochs.of([(1, 0), (2, 500), (6, 850)])


@pytest.mark.covers("R211", "R220")
async def test_a_log_that_lost_its_end_keeps_no_epoch_that_began_there(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    short, new = replicas.values()
    for replica in (short, new):
        replica.log.append(b"c" * 500)
    # given a log that was cut at a hole, and a process that was stopped before it had noted that
    await short.history.save(Epochs.of([(1, 0), (3, 870)]))
    await new.history.save(Epochs.of([(1, 0), (2, 500)]))
    new.log.append(b"d" * 100)
    controller.epoch = 3
    async with open_background() as nursery:
        await elect(nursery, controller, replicas, 2)
        new.log.append(b"e" * 10)
        await trio.sleep(0.5)
        assert short.log.data == new.log.data
        assert short.history.epochs == new.history.epochs == Epochs.of([(1, 0), (2, 500), (4, 600)])


async def test_an_epoch_that_the_master_never_had_counts_for_nothing_that_it_sends(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    slave, new = replicas.values()
    for replica in (slave, new):
        replica.log.append(b"c" * 500)
        await replica.history.save(Epochs.of([(1, 0)]))
    # given a slave that has heard of the epoch of a master that wrote nothing, or of one of the future
    await slave.history.save(Epochs.of([(1, 0), (9, 500)]))
    controller.epoch = 1
    async with open_background() as nursery:
        await elect(nursery, controller, replicas, 2)
        new.log.append(b"d" * 100)
        await trio.sleep(0.5)
        assert slave.log.data == new.log.data
        assert slave.history.epochs == new.history.epochs == Epochs.of([(1, 0), (2, 500)])


async def test_nothing_is_cut_for_a_master_of_an_epoch_that_no_controller_has_named(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    slave, hostile = replicas.values()
    slave.log.append(b"c" * 600)
    await slave.history.save(Epochs.of([(1, 0)]))
    slave.log.confirmed_before = 600
    # given one that has a part of it, and claims to lead in an epoch of the future
    hostile.log.append(b"c" * 100)
    await hostile.history.save(Epochs.of([(1, 0)]))
    controller.epoch, claimed, named = 98, list[int](), list[int]()
    async with open_background() as nursery:
        await elect(nursery, controller, replicas, 2)
        assert slave.slave is not None

        def is_named(epoch: int) -> bool:
            claimed.append(epoch)
            return epoch in named

        slave.slave.is_named = is_named
        await trio.sleep(5)
        assert slave.log.max_physical_offset == 600
        assert set(claimed) == {99}
        assert "no controller has said anything" in slave.slave.progress().refusal
        # when they have named it
        named.append(99)
        slave.slave.try_now()
        await trio.sleep(1)
        assert slave.log.data == hostile.log.data


@pytest.mark.parametrize("confirmed", [True, False], ids=["confirmed", "only copied"])
async def test_nothing_confirmed_is_cut_for_a_second_life_of_the_newest_epoch(
    confirmed: bool, network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    slave, again = replicas.values()
    for replica in (slave, again):
        replica.log.append(b"c" * 500)
    slave.log.append(b"of epoch 2" * 10)
    await slave.history.save(Epochs.of([(1, 0), (2, 500)]))
    slave.log.confirmed_before = 600 if confirmed else 500
    # given the master of epoch 2, which has lost what it wrote in it, and leads in it once more
    await again.history.save(Epochs.of([(1, 0)]))
    controller.epoch = 1
    async with open_background() as nursery:
        await elect(nursery, controller, replicas, 2)
        await trio.sleep(0.5)
        assert again.history.epochs == Epochs.of([(1, 0), (2, 500)])
        assert slave.slave is not None
        if confirmed:
            assert slave.log.max_physical_offset == 600
            assert "leads once more" in slave.slave.progress().refusal
        else:
            assert slave.log.data == again.log.data
        # when it is elected anew
        await elect(nursery, controller, replicas, 2)
        again.log.append(b"another")
        await trio.sleep(5)
        assert slave.log.data == again.log.data


async def test_a_slave_counts_once_however_often_it_is_connected(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 1, SwitchValues()), Controller()
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        master.log.append(b"x" * 300)
        first, second = [await world_of(network, f"r{n}").network.connect("r1", PORT, 1) for n in (2, 3)]
        await greet(first, 2)
        await trio.sleep(0.1)
        await greet(second, 2)
        await trio.sleep(0.1)
        await first.send_all(frames.Report(300).to_bytes())
        await trio.sleep(0.1)
        assert master.keeper is not None
        assert (frozenset({1}), 300) == (master.keeper.state.everybody, master.keeper.copied(1))
        await second.send_all(frames.Report(300).to_bytes())
        await trio.sleep(0.1)
        assert frozenset({1, 2}) == master.keeper.state.everybody
        await first.aclose()
        await trio.sleep(0.1)
        assert frozenset({1, 2}) == master.keeper.state.everybody, "a former connection says nothing"


async def test_nobody_is_served_by_a_master_that_may_be_none(network: SimNetwork, autojump_clock: MockClock) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        assert master.keeper is not None
        master.keeper.fenced = True
        master.log.append(b"x" * 300)
        await trio.sleep(5)
        assert 0 == replicas[2].log.max_physical_offset
        master.keeper.fenced = False
        await trio.sleep(5)
        assert master.log.data == replicas[2].log.data


@pytest.mark.parametrize("together", [True, False], ids=["in one read", "later"])
async def test_a_report_before_the_answer_to_the_greeting_counts_for_nothing(
    together: bool, network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 1, SwitchValues()), Controller()
    async with open_background() as nursery:
        master = await elect(nursery, controller, replicas, 1)
        master.log.append(b"x" * 300)
        stream = await world_of(network, "r2").network.connect("r1", PORT, 1)
        hello = frames.SlaveHandshake(2).to_bytes()
        # as a real one does that has greeted twice before it was answered, or not
        await stream.send_all(hello * 2 if not together else hello + frames.Report(300).to_bytes())
        assert await stream.receive_some(1) == b"" if together else await stream.receive_some(10_000)
        assert master.keeper is not None
        assert frozenset({1}) == master.keeper.state.everybody
        if not together:
            await stream.send_all(hello + frames.Report(300).to_bytes())
            await trio.sleep(0.1)
            assert frozenset({1, 2}) == master.keeper.state.everybody


async def test_a_slave_says_nothing_of_what_it_has_before_its_master_has_answered(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    replicas, controller = replicas_of(network, 2, SwitchValues()), Controller()
    slave = replicas[2]
    listener = await world_of(network, "r1").network.listen("0.0.0.0", PORT)
    async with open_background() as nursery:
        slave.log.append(b"never had by the next master" * 10)
        await slave.history.save(Epochs.of([(1, 0)]))
        await slave.follow(nursery, 1)
        # given a master that takes the connection and is slower to answer than a slave is to say something
        stream = await listener.accept()
        said = b""
        with trio.move_on_after(2.5 * slave.settings.heartbeat_ms / 1000):
            while data := await stream.receive_some(10_000):
                said += data
        assert said == frames.SlaveHandshake(2).to_bytes()
        await stream.aclose()
        await listener.aclose()
    assert controller.members == set()
