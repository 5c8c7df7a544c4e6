"""Histories of epochs: where two logs part, the file, and what no history is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.ha.switch.epoch_file import EpochFile, EpochFileError, from_text, to_text
from understudy.ha.switch.epochs import UNBOUNDED, EpochEntry, EpochError, Epochs, common_end, joined
from understudy.testkit.sim.disk import SimDisk

DATA = Path(__file__).parents[1] / "data" / "switch"


class Copy:
    """One replica of a log whose every byte is unlike all others, and the history it would keep."""

    def __init__(self) -> None:
        self.bytes: list[tuple[int, int]] = []
        self.epochs = Epochs()

    def lead(self, epoch: int, count: int) -> None:
        self.epochs = self.epochs.begun(epoch, len(self.bytes))
        self.bytes += [(epoch, number) for number in range(count)]

    def follow(self, master: Copy, count: int) -> None:
        """Cut what is not the master's, then copy at most *count* bytes."""
        end = common_end(self.epochs, len(self.bytes), master.epochs, len(master.bytes))
        end = 0 if end is None else end
        assert self.bytes[:end] == master.bytes[:end], "more was taken for common than is"
        del self.bytes[end:]
        self.bytes += master.bytes[end : end + count]
        self.epochs = master.epochs.cut_at(len(self.bytes))


def common_prefix(one: Copy, other: Copy) -> int:
    same = 0
    for left, right in zip(one.bytes, other.bytes, strict=False):
        if left != right:
            break
        same += 1
    return same


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "common"),
    [
        ([(0, 0)], 1000, [(0, 0), (1, 900)], 1100, 900),
        ([(0, 0), (1, 900)], 1200, [(0, 0), (1, 900)], 1300, 1200),
        ([(0, 0), (1, 800)], 1000, [(0, 0), (2, 900)], 950, 800),
        ([(1, 0), (2, 500), (3, 800)], 900, [(1, 0), (2, 500), (4, 850)], 900, 800),
        ([(5, 0)], 10, [(6, 0)], 10, None),
        ([(1, 0)], 0, [(1, 0), (3, 0)], 70, 0),
        ([(1, 0)], 50, [(1, 0), (3, 0)], 70, 0),
    ],
)
@pytest.mark.covers("R211")
def test_where_two_logs_part(
    ours: list[tuple[int, int]], our_end: int, theirs: list[tuple[int, int]], their_end: int, common: int | None
) -> None:
    assert common == common_end(Epochs.of(ours), our_end, Epochs.of(theirs), their_end)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 30))
def test_no_byte_is_common_that_is_not_and_followers_end_equal(seed: int) -> None:
    rng = random.Random(seed)
    copies = [Copy() for _ in range(3)]
    epoch = 0
    for _ in range(rng.randrange(1, 14)):
        epoch += rng.randrange(1, 3)
        master = rng.choice(copies)
        master.lead(epoch, rng.choice((0, 0, 1, 3, 9)))
        for copy in copies:
            if copy is not master and rng.random() < 0.7:
                before = common_prefix(copy, master)
                copy.follow(master, rng.choice((0, 1, 4, 99)))
                assert common_prefix(copy, master) >= before, "bytes that were the same were given up and not copied"
    for copy in copies:
        if copy is not master:
            copy.follow(master, 1000)
            assert copy.bytes == master.bytes
            assert copy.epochs == master.epochs.cut_at(len(master.bytes))


@pytest.mark.covers("HA-10")
def test_what_a_history_says() -> None:
    epochs = Epochs.of([(1, 0), (3, 40), (4, 40), (7, 90)])
    assert (7, -1) == (epochs.last_epoch, Epochs().last_epoch)
    assert [40, 40, 90, UNBOUNDED] == [epochs.end_of(entry) for entry in epochs]
    assert [1, 1, 4, 4, 7] == [getattr(epochs.at(offset), "epoch", None) for offset in (0, 39, 40, 89, 90)]
    assert epochs.from_offset(41).at(39) is None
    assert Epochs.of([(1, 0)]) == epochs.cut_at(40)
    assert Epochs.of([(1, 0), (3, 40), (4, 40)]) == epochs.within(40)
    assert Epochs.of([(4, 40), (7, 90)]) == epochs.from_offset(41)
    assert epochs == epochs.from_offset(40), "what ended where the log begins tells others where to cut"
    assert Epochs.of([(1, 0), (2, 0)]) == Epochs.of([(1, 0), (2, 0)]).from_offset(0)
    assert epochs == joined(Epochs.of([(3, 40), (7, 90)]), Epochs.of([(1, 0), (4, 40)]))
    assert Epochs.of([(3, 40)]) == joined(Epochs.of([(3, 40)]), Epochs.of([(1, 60)])), "that is no history"


@pytest.mark.parametrize("pairs", [[(1, 0), (1, 5)], [(2, 0), (1, 5)], [(1, 5), (2, 4)], [(-1, 0)], [(1, -1)]])
def test_what_is_no_history(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(EpochError):
        Epochs.of(pairs)


@pytest.mark.covers("R207")
@pytest.mark.parametrize("name", ["3-rejoined-r0-b1", "ctltun-5-rejoined-r2-b1"])
def test_the_file_of_the_real_system(name: str) -> None:
    text = (DATA / name).read_bytes()
    epochs = from_text(text)
    assert epochs and text == to_text(epochs)


@given(st.lists(st.tuples(st.integers(0, 1 << 31), st.integers(0, 1 << 62)), max_size=8))
def test_a_file_is_read_as_it_was_written(pairs: list[tuple[int, int]]) -> None:
    ascending = {
        epoch: start for (epoch, _), (_, start) in zip(sorted(pairs), sorted(pairs, key=lambda p: p[1]), strict=True)
    }
    epochs = Epochs.of(ascending.items())
    assert epochs == from_text(to_text(epochs))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "second line"),
        (b"1\n", "second line"),
        (b"x\n0\n", "line 1"),
        (b"2\n0\n1-0\n", "2 entries"),
        (b"1\n7\n1-0\n", "checksum"),
        (b"1\n0\n1 0\n", "line 3"),
        (b"1\n0\n1-\xff\n", "line 3"),
        (b"2\n0\n1-5\n2-4\n", "must grow"),
        (b"99999999999999999999\n0\n", "line 1"),
    ],
)
def test_a_damaged_file_is_told_with_its_place(text: bytes, says: str) -> None:
    with pytest.raises(EpochError, match=says):
        from_text(text)


def a_disk() -> SimDisk:
    disk = SimDisk(random.Random(3))
    disk.make_folder("/store")
    return disk


def put(disk: SimDisk, path: str, data: bytes) -> None:
    file = disk.open(path)
    file.truncate(0)
    file.write_at(0, data)
    file.close()


def loaded(disk: SimDisk) -> Epochs:
    file = EpochFile(disk, "/store/epochs")
    file.load()
    return file.epochs


async def test_a_damaged_file_gives_way_to_the_one_before_it_without_its_last_epoch() -> None:
    disk = a_disk()
    file = EpochFile(disk, "/store/epochs")
    for pairs in ([(1, 0)], [(1, 0), (2, 10)], [(1, 0), (2, 10), (3, 20)]):
        await file.save(Epochs.of(pairs))
    assert Epochs.of([(1, 0), (2, 10), (3, 20)]) == loaded(disk)
    put(disk, "/store/epochs", b"3\n1\n1-0\n2-10\n3-20\n")
    assert Epochs.of([(1, 0)]) == loaded(disk)
    disk.remove("/store/epochs")
    assert Epochs.of([(1, 0), (2, 10)]) == loaded(disk)
    put(disk, "/store/epochs.bak", b"rubbish")
    with pytest.raises(EpochFileError, match=r"/store/epochs\.bak"):
        loaded(disk)


async def test_an_empty_history_does_not_bring_the_one_before_it_back() -> None:
    disk = a_disk()
    file = EpochFile(disk, "/store/epochs")
    assert Epochs() == loaded(disk)
    await file.save(Epochs.of([(1, 0)]))
    await file.save(Epochs())
    assert Epochs() == loaded(disk)
    assert EpochEntry(1, 0) not in file.epochs.entries


@pytest.mark.covers("HA-10")
async def test_power_lost_while_the_file_is_written_leaves_what_was_or_what_is() -> None:
    for seed in range(60):
        disk = SimDisk(random.Random(seed))
        disk.make_folder("/store")
        disk.sync_folder("/")
        file = EpochFile(disk, "/store/epochs")
        await file.save(Epochs.of([(1, 0)]))
        await file.save(Epochs.of([(1, 0), (2, 10)]))
        put(disk, "/store/epochs.tmp", to_text(Epochs.of([(1, 0), (2, 10), (3, 20)])))
        if seed % 2:
            disk.replace("/store/epochs", "/store/epochs.bak")
        disk.lose_power()
        assert Epochs.of([(1, 0), (2, 10)]) == loaded(disk)


async def test_epochs_that_a_log_bears_out_no_more_are_gone_from_the_file_with_the_next_save() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_folder("/store")
    file = EpochFile(disk, "/store/epochs")
    await file.save(Epochs.of([(4, 200), (5, 300)]))
    # given a log that has lost its end, and a master that says nothing new
    opened = EpochFile(disk, "/store/epochs")
    opened.load()
    opened.epochs = opened.epochs.within(250)
    await opened.save(opened.epochs)
    # when the log has grown again, then its bytes count as of no epoch that it had in a former life
    again = EpochFile(disk, "/store/epochs")
    again.load()
    assert again.epochs.within(310) == Epochs.of([(4, 200)])


async def test_a_history_from_the_file_before_is_written_with_the_next_save() -> None:
    disk = SimDisk(random.Random(1))
    disk.make_folder("/store")
    file = EpochFile(disk, "/store/epochs")
    await file.save(Epochs.of([(4, 200)]))
    await file.save(Epochs.of([(4, 200), (5, 300)]))
    disk.remove("/store/epochs")
    opened = EpochFile(disk, "/store/epochs")
    opened.load()
    assert opened.epochs == Epochs.of([(4, 200)])
    await opened.save(opened.epochs)
    assert from_text(disk.read("/store/epochs")) == Epochs.of([(4, 200)])
