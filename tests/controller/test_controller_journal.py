"""The journal: what was synced is there again or the member stops; what was not may go, never change."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.controller.raft.errors import DamagedFileError, FatalError
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.records import Entry
from understudy.testkit.sim.disk import PowerCut, SimDisk

PATH = "/controller/raft.log"


def make_disk(seed: int = 1) -> SimDisk:
    disk = SimDisk(random.Random(seed))
    disk.make_folder("/controller")
    disk.sync_folder("/")
    return disk


def open_journal(disk: SimDisk, member: str = "n0", cluster: str = "group") -> Journal:
    return Journal(disk, PATH, cluster, member, "incarnation-1")


def filled(disk: SimDisk, groups: int = 40, source: random.Random | None = None) -> tuple[Journal, list[Entry]]:
    """Return a journal with *groups* synced groups of five entries, a few term changes among them."""
    source = source or random.Random(3)
    journal = open_journal(disk)
    index = 1
    for group in range(groups):
        journal.setCurrentTerm(1 + group // 10, "n0" if group % 10 == 0 else journal.voted_for)
        for _ in range(5):
            index += 1
            journal.add(source.randbytes(source.randint(5, 120)), index, journal.term)
        journal.sync()
    return journal, list(journal.entries)


def test_everything_synced_is_there_after_power_loss() -> None:
    disk = make_disk()
    journal, entries = filled(disk)
    journal.set_peer("n1", "other-disk")
    journal.set_voter()
    journal.sync()

    disk.lose_power()
    again = open_journal(disk)

    assert again.entries == entries
    assert (again.term, again.voted_for) == (journal.term, journal.voted_for)
    assert again.peers == {"n1": "other-disk"}
    assert again.voter
    assert again.incarnation == "incarnation-1"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_power_lost_in_a_write_leaves_every_synced_entry_and_nothing_altered(seed: int) -> None:
    source = random.Random(seed)
    disk = make_disk(seed)
    journal, synced = filled(disk, groups=source.randint(1, 8), source=source)
    for extra in range(source.randint(1, 30)):
        journal.add(source.randbytes(source.randint(1, 300)), synced[-1][1] + 1 + extra, journal.term)
    written = list(journal.entries)
    disk.syncs_left = 0
    with pytest.raises(PowerCut):
        journal.sync()

    disk.lose_power()
    again = open_journal(disk)

    assert again.entries[: len(synced)] == synced
    assert again.entries == written[: len(again.entries)]


def test_a_flipped_bit_in_a_synced_group_stops_the_member() -> None:
    source = random.Random(7)
    outcomes = set()
    for _ in range(120):
        disk = make_disk()
        journal, entries = filled(disk, groups=6)
        position = source.randrange(8, journal.end_bytes - 900)

        def flip(data: bytes, position: int = position) -> bytes:
            changed = data[position] ^ (1 << source.randrange(8))
            return data[:position] + bytes([changed]) + data[position + 1 :]

        disk.damage(PATH, flip)
        try:
            again = open_journal(disk)
        except DamagedFileError as error:
            outcomes.add("stopped")
            assert PATH in str(error)
            assert "to rejoin" in str(error) or "belongs to" in str(error)
        else:
            outcomes.add("kept" if again.entries == entries else "ALTERED")
    assert outcomes == {"stopped"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: b"", "first bytes"),
        (lambda data: b"\0" * len(data), "first bytes"),
        (lambda data: b"garbage!" * 100, "first bytes"),
        (lambda data: data[:60], "inside the part that was synced"),
        (lambda data: data[:200] + b"\0" * 50 + data[250:], "intact later group"),
    ],
)
def test_garbage_is_refused_with_the_way_back(change: Callable[[bytes], bytes], what: str) -> None:
    disk = make_disk()
    filled(disk, groups=10)
    disk.damage(PATH, change)

    with pytest.raises(DamagedFileError, match=what) as raised:
        open_journal(disk)

    assert "controllerForgetMember -v n0" in str(raised.value)


def test_a_zeroed_tail_of_the_newest_group_is_cut() -> None:
    disk = make_disk()
    journal, entries = filled(disk, groups=10)
    end = journal.end_bytes
    disk.damage(PATH, lambda data: data[: end - 10] + bytes(len(data) - end + 10))

    again = open_journal(disk)

    assert again.entries == entries[:-5]
    assert again.cut_bytes > 0


def test_the_file_grows_ahead_of_what_is_written_and_the_room_is_no_damage() -> None:
    disk = make_disk()
    journal, entries = filled(disk, groups=3)
    size = disk.size(PATH)
    for number in range(20):
        journal.add(bytes(100), entries[-1][1] + 1 + number, journal.term)
        journal.sync()
    assert disk.size(PATH) == size

    again = open_journal(disk)
    assert (again.entries, again.cut_bytes, again.end_bytes) == (journal.entries, 0, journal.end_bytes)

    again.add(bytes(2 * size), again.last_index() + 1, again.term)
    again.sync()
    assert disk.size(PATH) > 2 * size
    assert open_journal(disk).entries == again.entries


def test_entries_that_are_cut_before_the_sync_do_not_come_back() -> None:
    journal, entries = filled(disk := make_disk(), groups=2)
    last = entries[-1][1]
    journal.add(b"first", last + 1, journal.term)
    journal.add(b"second", last + 2, journal.term)
    journal.deleteEntriesFrom(len(entries) + 1)
    journal.add(b"other", last + 2, journal.term)
    journal.sync()

    assert [entry[0] for entry in open_journal(disk).entries[-2:]] == [b"first", b"other"]


def test_compaction_replaces_the_file_and_seals_it() -> None:
    disk = make_disk()
    journal, entries = filled(disk)
    journal.deleteEntriesTo(100)
    journal.sync()

    assert open_journal(disk).entries == entries[100:]

    disk.damage(PATH, lambda data: data[: journal.end_bytes // 2])
    with pytest.raises(DamagedFileError, match="inside the part that was synced"):
        open_journal(disk)


def test_power_lost_during_compaction_leaves_the_old_or_the_new_log() -> None:
    seen = set()
    for seed in range(60):
        source = random.Random(seed)
        disk = make_disk(seed)
        journal, entries = filled(disk, groups=10)
        journal.deleteEntriesTo(25)
        disk.syncs_left = 0 if source.random() < 0.5 else None
        try:
            journal.sync()
        except PowerCut:
            seen.add("failed in the write")
        disk.lose_power()
        again = open_journal(disk)
        assert again.entries in (entries, entries[25:])
        seen.add(len(again.entries))
    assert {len(entries), len(entries) - 25} <= seen


def test_another_members_file_is_refused() -> None:
    disk = make_disk()
    open_journal(disk, member="n1")

    with pytest.raises(DamagedFileError, match="belongs to member n1 of group group, this is n0"):
        open_journal(disk)


def test_term_and_vote_never_go_back() -> None:
    journal = open_journal(make_disk())
    journal.setCurrentTerm(5, "n1")

    with pytest.raises(FatalError, match="would go back"):
        journal.setCurrentTerm(4, None)
    with pytest.raises(FatalError, match="would go back"):
        journal.setCurrentTerm(5, "n2")


def test_entries_must_be_contiguous() -> None:
    journal = open_journal(make_disk())

    with pytest.raises(FatalError, match="does not follow"):
        journal.add(b"x", 7, 1)


def test_the_commit_index_never_exceeds_the_log() -> None:
    journal = open_journal(make_disk())
    journal.add(b"x", 2, 1)
    journal.setRaftCommitIndex(900)

    assert journal.getRaftCommitIndex() == 2
