"""A slave with a hole in its log gets it filled by a master that has all it has, and loses nothing to another one."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from ha_rig import FILE, Log, frame_of, master_of, played_master, slave_of
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.ha import wire
from understudy.ha.healing import Look, LookResult, Step, next_step
from understudy.runtime.network import ByteStream
from understudy.testkit.sim.network import SimListener, SimNetwork

MASTER = "m:10912"


def with_hole(data: bytes, hole: int, length: int, base: int = 0) -> Log:
    """Return a log that has *data*, but zeros for *length* bytes from physical offset *hole* on."""
    log = Log(data, base)
    log.data[hole - base : hole - base + length] = bytes(length)
    log.hole = hole
    log.missing = set(range(hole, hole + length))
    return log


@asynccontextmanager
async def slave_of_the_test(
    network: SimNetwork, missing: int
) -> AsyncIterator[tuple[bytes, Log, SimListener, ByteStream]]:
    """Run a slave that misses so many bytes from 3000 on, whose master is the test; yield what the master has, the
    slave's log, where the slave connects, and its first connection."""
    data = random.Random(1).randbytes(9000)
    theirs = with_hole(data, 3000, missing)
    async with slave_of(network, theirs):
        listener = await played_master(network)
        yield data, theirs, listener, await listener.accept()


# --- the decisions ---------------------------------------------------------------------------------------------


def test_a_log_without_a_hole_goes_on_at_its_end() -> None:
    assert Step.CONTINUE is next_step(None, 500, MASTER, None)
    assert Step.CONTINUE is next_step(500, 500, MASTER, None)


@pytest.mark.parametrize(
    ("result", "step"),
    [
        (None, Step.LOOK),
        (LookResult(MASTER, 100, 500), Step.HEAL),
        (LookResult(MASTER, 100, 500, "it begins at 4096"), Step.CONTINUE),
        (LookResult("other:10912", 100, 500), Step.LOOK),
        (LookResult(MASTER, 100, 400), Step.LOOK),
        (LookResult(MASTER, 90, 500), Step.LOOK),
    ],
)
def test_only_the_master_that_was_looked_at_just_now_is_copied_from(result: LookResult | None, step: Step) -> None:
    assert step is next_step(100, 500, MASTER, result)


@given(st.binary(min_size=64, max_size=600), st.data())
def test_a_look_ends_well_exactly_when_all_came_and_nothing_of_ours_differs(
    content: bytes, data: st.DataObject
) -> None:
    # given a master's log cut into frames anywhere, some way beyond our end
    end = 1000 + len(content)
    sent = content + data.draw(st.binary(max_size=50))
    cuts = sorted({*data.draw(st.sets(st.integers(1, len(sent)))), len(sent)})
    ours = with_hole(content, 1000, 20, 1000)
    same = data.draw(st.booleans())
    if not same:
        ours.data[data.draw(st.integers(20, len(content) - 1))] ^= 1
    look, at, found = Look(1000, end, ours.differs_at), 0, None
    for cut in cuts:
        if found is None:
            found = look.take(wire.Transfer(1000 + at, memoryview(sent)[at:cut]))
        at = cut
    assert (found == "") is same
    assert found is not None


@pytest.mark.parametrize("frame", [wire.Transfer(4096, b"x" * 900), wire.Transfer(100, b"")])
def test_a_master_that_begins_elsewhere_or_has_no_more_cannot_help(frame: wire.Transfer) -> None:
    assert Look(100, 500, lambda physical_offset, data: None).take(frame)


# --- on the wire -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, FILE])
async def test_a_hole_is_filled_and_counts_as_missing_until_then(
    network: SimNetwork, autojump_clock: MockClock, base: int
) -> None:
    data = random.Random(1).randbytes(20_000)
    ours, theirs = Log(data, base), with_hole(data[:15_000], base + 3000, 400, base)
    async with master_of(network, ours) as master:
        reports: list[int] = []
        master.acknowledged.append(lambda: reports.append(master.copied(2)))
        async with slave_of(network, theirs):
            await trio.sleep(0.5)
            assert (None, ours.data) == (theirs.hole, theirs.data)
            assert (base + 3000, base + 20_000) == (min(reports), master.copied(2))
            # nothing above the hole was claimed before it was there
            assert base + 3000 == reports[0] == reports[1]


async def test_nothing_is_written_while_the_master_lacks_any_of_our_bytes(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data = random.Random(1).randbytes(9000)
    theirs = with_hole(data, 3000, 400)
    before = bytes(theirs.data)
    async with master_of(network, Log(data[:8000])) as master, slave_of(network, theirs) as slave:
        await trio.sleep(60)
        assert (3000, before) == (theirs.hole, theirs.data)
        assert "bytes after the master's" in caplog.text
        assert 1 == master.copies_of(3001)
        assert "refuses a slave whose log ends at 9000" in slave.progress().refusal


async def test_a_master_of_another_history_fills_nothing(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data = random.Random(1).randbytes(9000)
    theirs = with_hole(data, 3000, 400)
    before = bytes(theirs.data)
    ours = Log(random.Random(2).randbytes(9000))
    async with master_of(network, ours), slave_of(network, theirs) as slave:
        await trio.sleep(20)
        # nor does it continue our log
        ours.append(b"after")
        await trio.sleep(40)
        assert (3000, before) == (theirs.hole, theirs.data)
        assert "it has other bytes at 3400" in caplog.text
        assert "or has another history" in slave.progress().refusal


class LacksMore(Log):
    """A log that the master's bytes do not make whole: they are void there as well."""

    async def finish(self, end: int) -> None:
        self.hole = 5000


async def test_what_the_master_lacks_as_well_stays_noted_and_the_slave_copies_on(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    data = random.Random(1).randbytes(9000)
    ours, theirs = Log(data), LacksMore(data)
    theirs.hole = 3000
    caplog.set_level("INFO", "understudy.ha.slave")
    async with master_of(network, ours), slave_of(network, theirs):
        await trio.sleep(1)
        ours.append(b"after")
        await trio.sleep(60)
        assert (5000, ours.data) == (theirs.hole, theirs.data)
        # on one connection, after the one that looked
        assert 1 == caplog.text.count("connection to the master ended")


@pytest.mark.parametrize("speaks_java", [False, True])
async def test_a_master_without_that_part_leaves_the_slave_as_it_is_with_one_line(
    network: SimNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, speaks_java: bool
) -> None:
    # given a master that has deleted the file of the hole; the reference's says only heartbeats then
    data = random.Random(1).randbytes(3 * FILE)
    theirs = with_hole(data, 1000, 400)
    if speaks_java:
        async with slave_of(network, theirs) as slave:
            listener = await played_master(network)
            for asked in (1, 2):
                stream = await listener.accept()
                assert wire.report(1000) == await stream.receive_some(8)
                assert slave.messages_missing
                await stream.send_all(wire.header(1000, 0))
                assert b"" == await stream.receive_some(8)
                # then the slave goes on at its end, whose bytes it compares, and asks once more
                stream = await listener.accept()
                assert wire.report(2 * FILE) == await stream.receive_some(8)
                await stream.send_all(frame_of(data, 2 * FILE, 3 * FILE) + wire.header(3 * FILE, 0))
                assert wire.report(3 * FILE) == await stream.receive_some(8)
                assert asked == 2 or b"" == await stream.receive_some(8)
            await stream.send_all(wire.header(3 * FILE, 5) + b"after")
            assert wire.report(3 * FILE + 5) == await stream.receive_some(8)
            assert not slave.messages_missing
    else:
        ours = Log(data[FILE:], base=FILE)
        async with master_of(network, ours) as master, slave_of(network, theirs) as slave:
            await trio.sleep(1)
            ours.append(b"after")
            await trio.sleep(1)
            assert 2 == master.copies_of(3 * FILE + 5)
            assert not slave.messages_missing
    assert data[1400:] + b"after" == theirs.data[1400:]
    assert 1000 == theirs.hole
    (line,) = [each.getMessage() for each in caplog.records if "messages are missing in the log" in each.getMessage()]
    assert "1000" in line and "move its store away" in line


@pytest.mark.parametrize("size", [FILE - 10, 2 * FILE])
async def test_a_hole_at_the_beginning_of_the_log_is_filled(
    network: SimNetwork, autojump_clock: MockClock, size: int
) -> None:
    # given an offset of 0, which asks for the last file
    data = b"\0" + random.Random(1).randbytes(size - 1)
    theirs = with_hole(data, 0, 400)
    async with master_of(network, Log(data)) as master, slave_of(network, theirs) as slave:
        assert slave.messages_missing
        await trio.sleep(2)
        assert (None, data, size) == (theirs.hole, theirs.data, master.copied(2))


async def test_a_connection_that_ends_while_it_is_looked_at_costs_nothing(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    async with slave_of_the_test(network, 400) as (data, theirs, listener, stream):
        before = bytes(theirs.data)
        await stream.send_all(frame_of(data, 3000, 5000))
        assert wire.report(3000) == await stream.receive_some(8)
        await stream.aclose()
        await listener.aclose()
        assert (3000, before) == (theirs.hole, theirs.data)
        async with master_of(network, Log(data)):
            await trio.sleep(10)
            assert (None, data) == (theirs.hole, theirs.data)


async def test_a_master_that_has_lost_it_meanwhile_costs_nothing(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    # given a master that had everything a moment ago and lost it
    async with slave_of_the_test(network, 400) as (data, theirs, listener, stream):
        before = bytes(theirs.data)
        await stream.send_all(frame_of(data, 3000, 9000))
        stream = await listener.accept()
        assert wire.report(3000) == await stream.receive_some(8)
        await stream.send_all(wire.header(3000, 0))
        assert b"" == await stream.receive_some(8)
        assert (3000, before) == (theirs.hole, theirs.data)


async def test_a_master_that_dies_while_it_heals_leaves_more_than_there_was(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    # given a master that dies when half of what is missing was written, and another one with other bytes after it
    async with slave_of_the_test(network, 4000) as (data, theirs, listener, stream):
        await stream.send_all(frame_of(data, 3000, 9000))
        stream = await listener.accept()
        await stream.send_all(frame_of(data, 3000, 5000))
        assert wire.report(3000) == await stream.receive_some(8)
        await trio.sleep(0.1)
        assert (3000, data[:5000] + bytes(2000) + data[7000:]) == (theirs.hole, theirs.data)
        await stream.send_all(wire.header(5000, 4000) + data[5000:8000] + bytes(1000))
        assert b"" == await stream.receive_some(8)
        await listener.aclose()
        await stream.aclose()
        # then it begins anew with the next one
        assert 3000 == theirs.hole
        async with master_of(network, Log(data + b"more")):
            await trio.sleep(30)
            assert (None, data + b"more") == (theirs.hole, theirs.data)


class OldLog(Log):
    """A log whose first file, the one with the hole, grows too old after some questions about it."""

    def __init__(self, data: bytes, hole: int, questions: int) -> None:
        self.questions = 10**9
        self.at = hole
        super().__init__(data)
        self.questions = questions
        self.missing = set(range(hole, hole + 400))

    @property
    def hole(self) -> int | None:  # type: ignore[override]
        self.questions -= 1
        return self.at if self.questions >= 0 else None

    @hole.setter
    def hole(self, value: int | None) -> None:
        pass


@pytest.mark.parametrize("questions", range(6))
async def test_the_file_with_the_hole_may_be_deleted_at_any_moment(
    network: SimNetwork, autojump_clock: MockClock, questions: int
) -> None:
    data = random.Random(1).randbytes(9000)
    theirs = OldLog(data, 3000, questions)
    async with master_of(network, Log(data + b"more")), slave_of(network, theirs):
        await trio.sleep(30)
        assert data + b"more" == theirs.data


class LosesItsFirstFile(Log):
    """A log whose first file, the one with the hole, grows too old while it is compared."""

    def differs_at(self, physical_offset: int, data: bytes | memoryview) -> int | None:
        if self.hole is None:
            return super().differs_at(physical_offset, data)
        self.hole = None
        del self.data[:FILE]
        self.base = FILE
        raise ValueError("the file was deleted meanwhile")


async def test_retention_in_the_middle_of_a_look_does_not_end_the_slave(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    data = random.Random(1).randbytes(3 * FILE)
    theirs = LosesItsFirstFile(data)
    theirs.hole, theirs.missing = 1000, set(range(1000, 1400))
    ours = Log(data)
    async with master_of(network, ours), slave_of(network, theirs):
        await trio.sleep(1)
        ours.append(b"after")
        await trio.sleep(10)
        assert data[FILE:] + b"after" == theirs.data


async def test_a_master_that_gives_nothing_yet_may_have_what_is_missing(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    # given a master that gives nobody what follows its own first hole, until it has asked others
    data = random.Random(1).randbytes(9000)
    theirs = with_hole(data, 3000, 400)
    async with master_of(network, Log(data)) as master, slave_of(network, theirs) as slave:
        master.withhold(1000)
        await trio.sleep(100)
        assert slave.messages_missing
        assert theirs.hole == 3000
        # then it fills the hole as soon as it may
        master.withhold(None)
        await trio.sleep(60)
        assert (None, data) == (theirs.hole, theirs.data)


async def test_a_master_that_stops_while_it_is_asked_may_have_what_is_missing(
    network: SimNetwork, autojump_clock: MockClock
) -> None:
    data = random.Random(1).randbytes(9000)
    theirs = with_hole(data, 3000, 400)
    async with slave_of(network, theirs) as slave:
        listener = await played_master(network)
        stream = await listener.accept()
        assert wire.report(3000) == await stream.receive_some(8)
        await stream.aclose()
        await listener.aclose()
        await trio.sleep(60)
        assert slave.messages_missing


async def test_what_the_master_was_seen_to_lack_holds_up_nobody(network: SimNetwork, autojump_clock: MockClock) -> None:
    data = random.Random(1).randbytes(9000)
    theirs = with_hole(data, 3000, 400)
    async with master_of(network, Log(data[:5000] + b"?" + data[5001:])), slave_of(network, theirs) as slave:
        await trio.sleep(1)
        assert (3000, False) == (theirs.hole, slave.messages_missing)
