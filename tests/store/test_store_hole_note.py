"""What ``recovery.hole`` keeps over starts, and until when."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from understudy.runtime.durable import write_durably
from understudy.store.holes import Holes
from understudy.testkit.sim.disk import SimDisk

NOTE = "/store/recovery.hole"


def notes_on(disk: SimDisk) -> Callable[[], Holes]:
    """Return what reads the note of the store on *disk* anew."""
    disk.make_folder("/store")

    def opened() -> Holes:
        holes = Holes(disk, "/store", 100, lambda: 0)
        holes.load()
        return holes

    return opened


@given(st.lists(st.integers(0, 1000)), st.integers(0, 1000))
def test_whatever_files_retention_deletes_the_first_hole_that_is_left_is_known(found: list[int], low: int) -> None:
    disk, low = SimDisk(random.Random(1)), low - low % 100
    disk.make_folder("/store")
    holes = Holes(disk, "/store", 100, lambda: 0)
    holes.keep(found)
    again = Holes(disk, "/store", 100, lambda: low)
    again.load()
    assert again.first == min((each for each in found if each >= low), default=None)


async def test_what_comes_back_is_known_until_it_has_its_places(autojump_clock: object) -> None:
    disk = SimDisk(random.Random(1))
    opened = notes_on(disk)
    holes = opened()
    holes.keep([10])
    await holes.note_back([(10, 40), (60, 90)])
    # given a start before it is known to be entered: all of it is entered again
    holes = opened()
    assert (holes.first, holes.again, holes.back, holes.entered) == (10, 10, ((10, 40), (60, 90)), ())
    await holes.begin_again(10)
    await holes.note_back([(90, 95)])
    await holes.end_again(lambda noted: ())
    holes = opened()  # what was about to be written meanwhile is not taken for entered
    assert (holes.first, holes.again, holes.back, holes.entered) == (None, 90, ((90, 95),), ((10, 40), (60, 90)))
    await holes.placed(holes.entered, [(70, 90)])
    assert opened().entered == ((70, 90),)
    holes.forget_from(80)
    await holes.save()
    assert (opened().back, opened().entered) == ((), ((70, 80),))


async def test_what_a_start_has_entered_waits_for_its_places(autojump_clock: object) -> None:
    disk = SimDisk(random.Random(1))
    disk.make_folder("/store")
    holes = Holes(disk, "/store", 100, lambda: 0)
    await holes.note_back([(10, 40)])
    holes = Holes(disk, "/store", 100, lambda: 0)
    holes.load()
    # when a start has entered all, and makes that durable
    await holes.end_again(lambda noted: noted)
    assert (holes.again, holes.back, holes.entered) == (None, (), ((10, 40),))


async def test_what_was_passed_is_known_as_long_as_something_is_missing_or_waits(autojump_clock: object) -> None:
    disk = SimDisk(random.Random(1))
    opened = notes_on(disk)
    holes, passed = opened(), ((0, 5, 7, 0), (1, 0, 2, 9))
    holes.keep([10])
    await holes.note_passed(lambda before: passed)
    await holes.note_back([(10, 40)])
    await holes.begin_again(10)
    await holes.end_again(lambda noted: ())
    await holes.begin_putting(200)
    await holes.begin_putting(300)
    holes = opened()
    assert (holes.passed, holes.putting, holes.is_put_known) == (passed, 200, False)
    await holes.placed(holes.entered)
    assert (opened().passed, opened().putting) == ((), None)
    assert not disk.exists(NOTE)


async def test_a_line_that_means_nothing_does_not_take_the_others_with_it(autojump_clock: object) -> None:
    disk = SimDisk(random.Random(1))
    disk.make_folder("/store")
    holes = Holes(disk, "/store", 100, lambda: 0)
    holes.keep([10])
    await holes.note_back([(10, 40)])
    path = "/store/recovery.hole"
    # given a line of another version, and a damaged one
    disk.damage(path, lambda data: b"of a later version 5 6\n" + data.replace(b"\n", b"\nback 1x\n", 1))
    holes = Holes(disk, "/store", 100, lambda: 0)
    holes.load()
    assert (holes.first, holes.again, holes.back) == (10, 10, ((10, 40),))


async def test_what_is_passed_while_the_note_is_written_is_known(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimDisk(random.Random(1))
    holes = notes_on(disk)()
    holes.keep([10])
    written = write_durably

    def write(*given: Any, **more: Any) -> None:
        written(*given, **more)
        holes.pass_over(0, 5, 8, 9)  # as others do on the event loop while a thread waits for the disk

    holes.pass_over(0, 5, 7, 8)
    with monkeypatch.context() as patched:
        patched.setattr("understudy.store.holes.write_durably", write)
        await holes.change(lambda noted: [*noted, 250])
    assert holes.passed == ((0, 5, 7, 8), (0, 5, 8, 9))
    await holes.save()
    assert notes_on(disk)().passed == ((0, 5, 7, 8), (0, 5, 8, 9))


async def test_what_is_passed_while_the_note_waits_for_its_turn_is_known(autojump_clock: object) -> None:
    disk = SimDisk(random.Random(1))
    holes = notes_on(disk)()
    holes.keep([10])
    disk.answers = trio.Event()
    async with trio.open_nursery() as nursery:
        # given a disk that takes its time, and a second note that waits for the first
        nursery.start_soon(holes.change, lambda noted: [*noted, 250])
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(holes.note_passed, lambda passed: (*passed, (1, 0, 3, 0)))
        await trio.testing.wait_all_tasks_blocked()
        holes.pass_over(0, 5, 7, 8)
        disk.answers.set()
    assert holes.passed == ((0, 5, 7, 8), (1, 0, 3, 0))
    assert notes_on(disk)().passed == holes.passed


async def test_a_note_of_what_is_passed_keeps_what_was_passed_since_the_last_one(autojump_clock: object) -> None:
    disk = SimDisk(random.Random(1))
    holes = notes_on(disk)()
    holes.keep([10])
    holes.pass_over(0, 5, 7, 8)
    await holes.note_passed(lambda passed: (*passed, (1, 0, 3, 0)))
    assert holes.passed == notes_on(disk)().passed == ((0, 5, 7, 8), (1, 0, 3, 0))


def test_lines_that_are_no_note_are_left_out() -> None:
    disk = SimDisk(random.Random(1))
    opened = notes_on(disk)
    content = b"12\n" + b"7" * 5_000 + b"\nback 5\nlost 3\n\xff\xfe\nentered 1 99999999999999999999\nback 5 9\n"
    disk.open(NOTE, create=True).write_at(0, content)
    holes = opened()
    assert (holes.noted, holes.back, holes.entered) == ((12,), ((5, 9),), ())
