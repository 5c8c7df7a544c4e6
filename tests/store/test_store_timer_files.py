"""Wheel, timer log and check: the reference's bytes, and one truth after any crash."""

from __future__ import annotations

import errno
import random
import struct
from collections import defaultdict
from pathlib import Path
from typing import cast

import pytest
from golden_stores import manifest, unpack
from hypothesis import given, settings
from hypothesis import strategies as st
from store_fixtures import CountingDisk

from understudy.runtime.disk import RealDisk
from understudy.store.timer_check import TimerCheck, decode_check, load_check
from understudy.store.timer_files import TimerFiles
from understudy.store.timer_log import DELETE, ROLL
from understudy.store.timer_wheel import SLOT_BYTES, Slot
from understudy.testkit.sim.disk import SimDisk

NOW_MS = 1_795_245_656_000
FILE, ROUND = 1024, 1_000


def sim_disk(seed: int = 1) -> SimDisk:
    disk = SimDisk(random.Random(seed), now_ms=lambda: NOW_MS)
    disk.make_folder("/store/config")
    disk.sync_folder("/store")
    disk.sync_folder("/")
    return disk


def opened(disk: SimDisk, read_ms: int = NOW_MS) -> TimerFiles:
    files = TimerFiles(disk, "/store", FILE, 1000, ROUND)
    files.open(read_ms)
    return files


def flush(files: TimerFiles, queue_offset: int = 0) -> None:
    work = files.begin_flush(TimerCheck(NOW_MS, 0, queue_offset, queue_offset))
    files.flush(work)
    files.end_flush(work, True)


def content(files: TimerFiles, second: int) -> list[int]:
    """Return the places in the log of what is due in one second, oldest first."""
    slot = files.slot(NOW_MS + second * 1000)
    return [] if slot is None else [unit.physical for _, unit in files.chain(slot.last)][::-1]


def test_what_a_java_broker_left_is_read_unit_by_unit(tmp_path: Path) -> None:
    # Given the timer files of a Java broker, among them a unit that rolls and one that takes back
    golden = manifest("delayed")["timer"]
    root = unpack("delayed", tmp_path)
    files = TimerFiles(RealDisk(), str(root), FILE, 1000)

    # When they are opened as from before its first second
    check, exact = load_check(RealDisk(), str(root / "config" / "timercheck"))
    found = files.open(0)
    files.wheel.load(0)

    # Then check, units and slots are what the reference's classes see
    assert [*struct.unpack(">7q", check.encode())] == golden["timercheck"]
    assert (exact, found.anew) == (False, False)
    units = [
        [at, unit.previous, unit.magic, unit.write_ms, unit.due_ms, unit.physical, unit.size, unit.topic_hash]
        for at, unit in files.log.units(0)
    ]
    assert units == golden["units"]
    assert [list(slot) for slot in sorted(files.wheel.slots())] == golden["slots"]
    assert files.log.end == golden["timercheck"][1]
    assert {unit[2] for unit in units} == {1, 1 | ROLL, 1 | DELETE}
    files.close()


def test_ours_are_written_in_the_bytes_of_the_java_broker(tmp_path: Path) -> None:
    # Given its units, added one by one
    golden = manifest("delayed")["timer"]
    root = unpack("delayed", tmp_path)
    ours = tmp_path / "ours"
    ours.mkdir()
    files = TimerFiles(RealDisk(), str(ours), FILE, 1000)
    files.open(0)
    assert not list(ours.iterdir()), "nothing is made before it is needed"
    for _, _, magic, write_ms, due_ms, physical, size, topic_hash in golden["units"]:
        files.add(due_ms, write_ms, physical, size, topic_hash, rolls=bool(magic & ROLL), deletes=bool(magic & DELETE))
    fields = golden["timercheck"]
    work = files.begin_flush(TimerCheck(fields[0], 0, *fields[2:]))
    files.flush(work)
    files.end_flush(work, True)
    files.close()

    # Then files are equal byte for byte, and so are the 56 bytes of the check
    for path in ["timerwheel", *(f"timerlog/{each.name}" for each in (root / "timerlog").iterdir())]:
        assert (ours / path).read_bytes() == (root / path).read_bytes(), path
    check = (ours / "config" / "timercheck").read_bytes()
    assert (len(check), check[:56]) == (4096, (root / "config" / "timercheck").read_bytes()[:56])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 6)),
        st.just(("flush", 0)),
        st.just(("power", 0)),
        st.just(("kill", 0)),
        st.just(("no wheel", 0)),
        st.just(("flush torn", 0)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 1 << 30))
def test_after_any_crash_slots_hold_what_was_durable_and_no_more(moves: list[tuple[str, int]], seed: int) -> None:
    disk = sim_disk(seed)
    files = opened(disk)
    topic: list[int] = []  # the second of each message
    durable = 0

    def check_against(count: int) -> None:
        wanted = defaultdict(list)
        for number, second in enumerate(topic[:count]):
            wanted[second].append(number)
        assert {second: content(files, second) for second in range(7)} == {n: wanted[n] for n in range(7)}
        assert files.waiting == count

    for move, second in moves:
        if move == "add":
            files.add(NOW_MS + second * 1000, NOW_MS, len(topic), 100, 7)
            topic.append(second)
        elif move in ("flush", "no wheel"):
            flush(files, len(topic))
            durable = len(topic)
        if move == "flush torn":
            work = files.begin_flush(TimerCheck(NOW_MS, 0, len(topic), len(topic)))
            files.log.sync(work.files, work.folders)
            files.wheel.write(work.slots)
        if move in ("power", "kill", "flush torn", "no wheel"):
            if move == "power":
                disk.lose_power()
            if move == "no wheel":
                disk.remove("/store/timerwheel")
            files = TimerFiles(disk, "/store", FILE, 1000, ROUND)
            found = files.open(NOW_MS)
            assert found.check.queue_offset == durable or (found.anew and not durable)
            check_against(durable)
            del topic[durable:]
    check_against(len(topic))


@pytest.mark.parametrize("second", [0, 1])
def test_a_start_after_a_torn_flush_can_lose_power_itself(second: int) -> None:
    # Given a flush that ended between the slots and the check
    disk = sim_disk()
    files = opened(disk)
    files.add(NOW_MS, NOW_MS, 1, 100, 7)
    flush(files, 1)
    files.add(NOW_MS + second * 1000, NOW_MS, 2, 100, 7)
    work = files.begin_flush(TimerCheck(NOW_MS, 0, 2, 2))
    files.log.sync(work.files, work.folders)
    files.wheel.write(work.slots)
    # When the start after it loses power, too, before it has written anything else
    opened(disk)
    disk.lose_power()
    # Then the next one finds what was durable
    files = opened(disk)
    assert (content(files, 0), content(files, 1), files.waiting) == ([1], [], 1)


def test_units_that_are_taken_back_from_the_end_leave_their_slots() -> None:
    files = opened(sim_disk())
    for number in range(50):
        files.add(NOW_MS + number % 3 * 1000, NOW_MS, number, 100, 7, deletes=number == 49)
    assert files.drop_tail(lambda unit: unit.physical < 20)
    files.cut(TimerCheck(NOW_MS, 0, 20, 20))
    assert [content(files, second) for second in range(3)] == [list(range(second, 20, 3)) for second in range(3)]
    assert (files.waiting, files.drop_tail(lambda unit: True)) == (20, False)
    files.add(NOW_MS, NOW_MS, 20, 100, 7)
    assert content(files, 0)[-1] == 20


def test_a_timer_log_that_is_gone_begins_anew() -> None:
    # Given durable units
    disk = sim_disk()
    files = opened(disk)
    for number in range(40):
        files.add(NOW_MS, NOW_MS, number, 100, 7)
    flush(files, 40)
    # When a file of the log is lost, then all of it is, and the wheel with it
    disk.remove("/store/timerlog/00000000000000001024")
    files = TimerFiles(disk, "/store", FILE, 1000, ROUND)
    found = files.open(NOW_MS)
    assert (found.anew, found.check.queue_offset, found.check.master_queue_offset) == (True, 0, 40)
    assert (content(files, 0), files.waiting) == ([], 0)
    files.add(NOW_MS, NOW_MS, 7, 100, 7)
    assert content(files, 0) == [7]


def test_a_wheel_of_another_length_is_made_anew_from_the_log() -> None:
    disk = sim_disk()
    files = opened(disk)
    files.add(NOW_MS, NOW_MS, 1, 100, 7)
    flush(files, 1)
    file = disk.open("/store/timerwheel")
    file.truncate(17)
    files = opened(disk)
    assert (content(files, 0), disk.exists("/store/timerwheel")) == ([1], False)
    flush(files, 1)
    files.add(NOW_MS, NOW_MS, 2, 100, 7)
    flush(files, 2)
    assert disk.size("/store/timerwheel") == ROUND * SLOT_BYTES


def test_a_flush_that_the_disk_refuses_is_done_again() -> None:
    disk = sim_disk()
    files = opened(disk)
    files.add(NOW_MS, NOW_MS, 1, 100, 7)
    work = files.begin_flush(TimerCheck(NOW_MS, 0, 1, 1))
    files.add(NOW_MS + 1000, NOW_MS, 2, 100, 7)
    files.end_flush(work, False)
    flush(files, 2)
    files = opened(disk)
    assert (content(files, 0), content(files, 1)) == ([1], [2])


def test_the_wheel_turns_over_its_end() -> None:
    # Given seconds on both sides of the place where the wheel begins anew
    start = (NOW_MS // 1000 // ROUND + 1) * ROUND
    wheel = opened(sim_disk()).wheel
    for tick in (start - 3, start - 1, start, start + 5):
        wheel.put(Slot(tick, 0, 0, 1))
    found, tick = [], start - 4
    while (tick := wheel.next_occupied(tick + 1, start + 100)) is not None:
        found.append(tick)
    assert found == [start - 3, start - 1, start, start + 5]
    # and a slot of another round is not taken for one of this round
    assert wheel.get(start + ROUND) is None
    assert wheel.next_occupied(start + 6, start + 6 + ROUND) is None


def sixty_units(disk: SimDisk) -> TimerFiles:
    """Return timer files whose log has several files; the messages of the first one end before byte 205."""
    files = opened(disk)
    for number in range(60):
        files.add(NOW_MS, NOW_MS, number * 10, 100, 7)
    flush(files, 60)
    return files


async def test_log_files_go_when_their_messages_are_gone(autojump_clock: object) -> None:
    counting = CountingDisk(sim_disk())
    files = sixty_units(cast(SimDisk, counting))
    before = len(counting.sim.listdir("/store/timerlog"))
    counting.on_loop.clear()
    await files.log.delete_before(205)
    assert len(counting.sim.listdir("/store/timerlog")) == before - 1
    # and it takes the event loop no time to remove them
    assert counting.on_loop["remove"] == 0
    assert content(files, 0)[0] == 190
    files = opened(counting.sim)
    assert content(files, 0)[0] == 190


async def test_a_log_file_that_cannot_be_removed_stays_in_the_log(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = sim_disk()
    files = sixty_units(disk)

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove", refuse)
        await files.log.delete_before(400)
    # it is the first that would have gone, and those behind it stay: a start finds no gap
    assert content(files, 0)[0] == 0
    await files.log.delete_before(205)
    assert content(files, 0)[0] == 190


@pytest.mark.parametrize("raw", [b"", b"x" * 31, struct.pack(">4q", 1, 2, 3, -9)])
def test_a_check_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="timer checkpoint"):
        decode_check(raw)


def test_a_check_of_an_older_peer_has_no_version() -> None:
    assert decode_check(struct.pack(">4q", 1, 2, 3, 4)) == TimerCheck(1, 2, 3, 4)
