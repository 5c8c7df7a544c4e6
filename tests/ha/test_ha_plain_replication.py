"""Master and slave over an in-memory network on virtual time: catch up, keep up, fall behind, disagree."""

from __future__ import annotations

import random

import pytest
import trio
from ha_rig import FILE, EmptyFile, HaSettings, Log, master_of, played_master, slave_of, world_of
from trio.testing import MockClock

from understudy.ha import master as ha_master
from understudy.ha import wire
from understudy.ha.following import HaState
from understudy.ha.master import HaMaster
from understudy.runtime.background import open_background
from understudy.testkit.sim.connection import LinkQuality
from understudy.testkit.sim.network import SimNetwork


async def test_a_slave_with_part_of_the_log_gets_the_rest_and_then_each_append_at_once(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    data = random.Random(1).randbytes(300_000)
    ours, theirs = Log(data), Log(data[:100_000])
    async with master_of(network, ours) as master, slave_of(network, theirs) as slave:
        await trio.sleep(1)
        assert data == theirs.data
        assert (1, 2, 2) == (master.connection_count, master.in_sync_count(), master.copies_of(len(data)))

        start = trio.current_time()
        acknowledged = trio.Event()
        master.acknowledged.append(acknowledged.set)
        ours.append(b"more")
        await acknowledged.wait()
        assert trio.current_time() - start < 0.01
        assert 2 == master.copies_of(len(data) + 4)
        assert HaState.TRANSFER is slave.state


@pytest.mark.parametrize(("whole_log", "base"), [(False, 8192), (True, 0)])
async def test_an_empty_slave_gets_the_last_file_or_the_whole_log(
    network: SimNetwork, autojump_clock: MockClock, whole_log: bool, base: int
) -> None:
    ours, theirs = Log(b"x" * 10_000), Log()
    async with (
        master_of(network, ours, HaSettings(file_bytes=FILE, whole_log=whole_log)),
        slave_of(network, theirs),
    ):
        await trio.sleep(1)
        assert (base, 10_000) == (theirs.base, theirs.max_physical_offset)


@pytest.mark.parametrize(("offset", "closed"), [(4_999, True), (5_000, False)])
async def test_who_is_being_sent_other_bytes_than_those_that_stand_there_now_is_disconnected(
    network: SimNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, offset: int, closed: bool
) -> None:
    # given a link over which the last of some bytes have not left yet
    sending = trio.Event()

    async def slow(*args: object) -> None:
        sending.set()
        await trio.sleep_forever()

    monkeypatch.setattr(ha_master, "_send", slow)
    async with master_of(network, Log(b"x" * 5_000)) as master, slave_of(network, Log()):
        await sending.wait()
        master.disconnect_from(offset)
        await trio.sleep(0.1)
        assert master.connection_count == (0 if closed else 1)


async def test_a_slave_ahead_is_refused_by_the_master_and_counts_for_nothing(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = Log(b"y" * 400), Log(b"y" * 3500)
    async with master_of(network, ours) as master, slave_of(network, theirs) as slave:
        await trio.sleep(0.5)
        assert (0, 1, 1) == (master.connection_count, master.in_sync_count(), master.copies_of(2))
        assert "3100 bytes after the master's" in caplog.text
        assert "a slave whose log ends at 3500" in slave.progress().refusal
        assert b"y" * 3500 == theirs.data
        # and once it continues the master's log it is refused no longer
        ours.append(b"y" * 3200)
        await trio.sleep(30)
        assert (b"y" * 3600, "") == (theirs.data, slave.progress().refusal)


async def test_a_hostile_slave_moves_nothing(network: SimNetwork, autojump_clock: MockClock) -> None:
    async with master_of(network, Log(b"x" * 400)) as master:
        told = trio.Event()
        master.acknowledged.append(told.set)
        for claim in (1 << 40, -1):
            stream = await network.host("h").connect("m", 10912, 1)
            await stream.send_all(wire.report(claim))
            assert b"" == await stream.receive_some(100)
        assert (0, False) == (master.connection_count, told.is_set())


async def test_a_diverged_slave_writes_nothing_and_says_what_to_do(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = Log(b"y" * 100)
    async with slave_of(network, theirs) as slave:
        listener = await played_master(network)
        stream = await listener.accept()
        await stream.send_all(wire.header(90, 20) + b"z" * 20)
        assert wire.report(1) == await stream.receive_some(8)
        assert b"" == await stream.receive_some(8)

        assert b"y" * 100 == theirs.data
        assert "our log ends at 100, the master was asked from 1 on and sends from 90" in slave.progress().refusal
        assert "move this store away" in caplog.text


async def test_silence_ends_a_connection_and_the_slave_comes_back(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    ours, theirs = Log(b"x" * 100), Log()
    async with master_of(network, ours) as master, slave_of(network, theirs) as slave:
        await trio.sleep(60)
        assert 1 == network.connections  # heartbeats keep it alive
        network.cut("m", "s")
        network.cut("s", "m")
        await trio.sleep(30)
        assert (0, HaState.READY) == (master.connection_count, slave.state)

        ours.append(b"y" * 50)
        network.heal()
        await trio.sleep(15)
        assert b"x" * 100 + b"y" * 50 == theirs.data
        assert 2 == master.in_sync_count()


async def test_a_slave_that_needs_deleted_files_is_refused_with_the_way_out(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = Log(b"x" * 100, base=FILE), Log(b"y" * 50)
    async with master_of(network, ours) as master, slave_of(network, theirs):
        await trio.sleep(1)
        assert 0 == master.connection_count
        assert "older files were deleted" in caplog.text


async def test_a_slow_slave_costs_the_master_nothing_but_its_own_backlog(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    network.set_link("m", "s", LinkQuality(bytes_per_second=100_000))
    ours, theirs = Log(b"x" * 2_000_000), Log(b"x" * 1000)
    async with master_of(network, ours) as master, slave_of(network, theirs):
        await trio.sleep(5)
        assert len(theirs.data) < 1_000_000
        ours.append(b"y")  # never blocks
        (slave,) = master.status()
        assert 1000 <= slave.acknowledged <= slave.transfer_from
        await trio.sleep(30)
        assert len(ours.data) == len(theirs.data)


@pytest.mark.covers("HA-16")
async def test_flow_control_bounds_the_bytes_of_a_second(network: SimNetwork, autojump_clock: MockClock) -> None:
    ours, theirs = Log(b"x" * 1_000_000), Log(b"x")
    settings = HaSettings(file_bytes=FILE, bytes_per_second=100_000)
    async with master_of(network, ours, settings), slave_of(network, theirs):
        await trio.sleep(5)
        assert 400_000 <= len(theirs.data) <= 600_000
        await trio.sleep(7)
        assert 1_000_000 == len(theirs.data)


@pytest.mark.covers("HA-16")
async def test_a_change_of_master_moves_the_slave(network: SimNetwork, autojump_clock: MockClock) -> None:
    theirs = Log()
    async with slave_of(network, theirs) as slave, master_of(network, Log(b"a" * 100)):
        await trio.sleep(6)
        slave.set_master(None)  # called dead; it may still have something to give
        await trio.sleep(1)
        assert HaState.TRANSFER is slave.state
        other = Log(b"a" * 100 + b"b" * 100)
        master = HaMaster(world_of(network, "n"), other, HaSettings(), "0.0.0.0", 10912)
        async with open_background() as nursery:
            await master.bind()
            nursery.start_soon(master.run)
            slave.set_master("n:10912")
            await trio.sleep(1)
            assert other.data == theirs.data


@pytest.mark.parametrize("whole_log", [False, True])
@pytest.mark.parametrize("base", [0, 1000, 2 * FILE, 2 * FILE + 1000])
async def test_an_empty_slave_is_always_accepted(
    network: SimNetwork, autojump_clock: MockClock, base: int, whole_log: bool
) -> None:
    # given a master whose first byte lies anywhere in its last file
    ours, theirs = Log(b"x" * 50, base=base), Log()
    async with (
        master_of(network, ours, HaSettings(file_bytes=FILE, whole_log=whole_log)) as master,
        slave_of(network, theirs),
    ):
        await trio.sleep(1)
        assert (base, base + 50, 2) == (theirs.base, theirs.max_physical_offset, master.in_sync_count())


async def test_a_slave_whose_only_file_lost_its_bytes_begins_anew_when_they_are_deleted_at_the_master(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    # given a slave that would go on with the second file, and a master that has deleted that file
    ours, theirs = Log(b"x" * 50, base=5 * FILE), EmptyFile(FILE)
    async with master_of(network, ours) as master, slave_of(network, theirs):
        await trio.sleep(20)
        assert "asking as an empty slave from now on" in caplog.text
        assert (5 * FILE, ours.data, 2) == (theirs.base, theirs.data, master.in_sync_count())


async def test_a_master_that_dies_before_its_first_word_is_not_said_to_refuse_an_empty_slave(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    # given an empty slave that asks again as soon as it may
    theirs = Log()
    listener = await played_master(network)
    async with slave_of(network, theirs, HaSettings(file_bytes=FILE, retry_ms=1000)) as slave:
        for _ in range(4):
            stream = await listener.accept()
            await stream.aclose()
        await trio.sleep(0.5)
        await listener.aclose()
        # then nothing is called a refusal and the pauses do not grow
        assert "refuses" not in caplog.text
        assert 1 == caplog.text.count("it stops or has just stopped")
        assert "" == slave.progress().refusal
        async with master_of(network, Log(b"x" * 50)):
            await trio.sleep(1.5)
            assert b"x" * 50 == theirs.data
