"""Log and snapshot are two files: what a crash between writing the one and the other leaves, and what no crash does."""

from __future__ import annotations

import random

import pytest
from controller_consensus import FOLDER, LOG, SNAPSHOT, Member, append, chunk, entry, snapshot_file

from understudy.controller.raft.durability import Durability
from understudy.controller.raft.errors import CannotWriteError, DamagedFileError
from understudy.controller.raft.records import Entry
from understudy.controller.raft.settings import QuorumSettings
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import PowerCut, SimDisk
from understudy.testkit.sim.network import SimNetwork

START = (1, 0)
"""Index and term of the entry that every log begins with."""


def a_disk() -> SimDisk:
    return SimDisk(random.Random(7))


def uncommitted(member: Member, term: int, count: int) -> None:
    """Give *member* entries of a leader that lost its majority."""
    entries: list[Entry] = [entry(index, term, "lost") for index in range(2, 2 + count)]
    member.turn(0.0, ("n1", append(term, START, entries)))


@pytest.mark.parametrize("syncs", range(5))
def test_power_lost_while_a_snapshot_replaces_uncommitted_entries_stops_nobody(syncs: int) -> None:
    disk = a_disk()
    member = Member(disk)
    uncommitted(member, 3, 20)
    last, before = entry(15, 5), entry(14, 5)
    data = snapshot_file(last, before, {"x": 13})
    # the log (its new term), the file, its folder, the log: power goes instead of one of these syncs, or after them
    disk.syncs_left = syncs
    try:
        member.turn(0.1, ("n2", chunk(5, last, data)))
        assert syncs == 4
    except PowerCut:
        assert syncs < 4
    disk.lose_power()

    again = Member(disk)
    facts = again.consensus.facts(0.2)
    if again.snapshots.index == 15:
        assert (facts.last_index, facts.last_term, facts.commit_index) == (15, 5, 15)
        assert again.machine.counters == {"x": 13}
    else:
        assert syncs < 3
        assert (facts.last_index, facts.last_term, facts.applied_index) == (21, 3, 1)
    again.turn(0.3, ("n2", chunk(5, last, data)))
    assert again.machine.counters == {"x": 13}
    assert Member(disk).machine.counters == {"x": 13}


def test_a_snapshot_against_committed_entries_is_refused_with_the_way_back() -> None:
    disk = a_disk()
    member = Member(disk)
    entries = [entry(index, 3) for index in range(2, 22)]
    member.turn(0.0, ("n1", append(3, START, entries, commit=21)))
    member.turn(2.0, ("n1", append(3, (21, 3), [entry(22, 3)], commit=22)))  # the commit index rides along
    member.journal.close()
    file = disk.open(SNAPSHOT)
    file.write_at(0, snapshot_file(entry(15, 5), entry(14, 5), {"x": 99}))
    with pytest.raises(DamagedFileError) as refused:
        Member(disk)
    assert str(refused.value).startswith(f"{LOG} and its snapshot, which ends at index 15, do not belong together")
    assert "to rejoin: stop this controller" in str(refused.value)


@pytest.mark.parametrize("size", [1, 3])
def test_a_snapshot_without_its_log_is_refused_at_every_start(size: int) -> None:
    disk = a_disk()
    member = Member(disk)
    member.turn(0.1, ("n2", chunk(5, entry(15, 5), snapshot_file(entry(15, 5), entry(14, 5), {"x": 13}))))
    member.journal.close()
    disk.remove(LOG)
    for _ in range(2):
        with pytest.raises(DamagedFileError) as refused:
            Member(disk, size)
        assert str(refused.value).startswith(f"{LOG}: the log is missing although its snapshot {SNAPSHOT} is there")
        assert "to rejoin: stop this controller" in str(refused.value)


def test_a_log_without_the_snapshot_it_was_cut_to_is_refused_with_the_way_back() -> None:
    disk = a_disk()
    member = Member(disk)
    member.turn(0.1, ("n2", chunk(5, entry(15, 5), snapshot_file(entry(15, 5), entry(14, 5), {"x": 13}))))
    member.journal.close()
    disk.remove(SNAPSHOT)
    with pytest.raises(DamagedFileError) as refused:
        Member(disk)
    assert str(refused.value).startswith(f"{SNAPSHOT} is missing although {LOG} was cut to it")
    assert "to rejoin: stop this controller" in str(refused.value)


async def test_a_disk_that_is_full_when_a_snapshot_arrives_is_one_clear_line() -> None:
    disk, source = a_disk(), random.Random(7)
    member = Member(disk)
    world = World(VirtualClock(), SimNetwork(source).host("n0"), disk, source)
    settings = QuorumSettings("sim", "n0", {}, FOLDER)
    member.snapshots.install(snapshot_file(entry(15, 5), entry(14, 5), {"x": 13}))
    disk.sync_error = OSError(28, "No space left on device")
    with pytest.raises(CannotWriteError, match=f"cannot write to {FOLDER}: No space left on device; make room"):
        await Durability(world, settings, member.journal, member.snapshots).make_durable()
