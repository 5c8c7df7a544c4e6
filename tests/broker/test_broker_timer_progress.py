"""How a timer goes on when its log was cut, after a start, and behind a replica that it follows."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import pytest
import trio
from timer_rig import KEYS, START_MS, rig
from trio.testing import MockClock

from understudy.broker.replicated.table import Answer, Source
from understudy.broker.replicated.timer import LEFT, PARTS, READ_PHYSICAL
from understudy.broker.timer.done import Again, Done, Read
from understudy.broker.timer.service import TimerService
from understudy.broker.timer.timer import Timer
from understudy.format.data_version import DataVersion
from understudy.store.timer_check import TimerCheck, load_check


async def test_what_is_left_to_do_is_noted_before_files_say_that_its_seconds_are_over(
    autojump_clock: MockClock,
) -> None:
    # Given a service whose timer takes a replica's progress over that lacked messages
    own = await rig()
    own.keep(1, 12, 13)
    service = TimerService(own.world, own.store, KEYS, cast("Any", None), lambda *_: None)
    await service.open()
    service.timer.begin(True)
    while service.timer.enqueue():
        pass
    await service.flush()
    service.timer.begin(False)
    service.timer.take_over(Done(Read(START_MS + 20_000), 1))
    said: list[tuple[int, object]] = []

    async def keep() -> None:
        await trio.lowlevel.checkpoint()
        said.append((load_check(own.world.disk, "/store/config/timercheck")[0].read_ms, service.timer.progress.todo))

    # When it makes its files durable
    service.keep = keep
    await service.flush()
    # Then they did not tell of the take-over before its rest was saved
    ((read_ms, todo),) = said
    assert read_ms < START_MS + 20_000
    assert todo == (Again(1, 3, Read(START_MS)),)
    assert load_check(own.world.disk, "/store/config/timercheck")[0].read_ms == START_MS + 20_000


async def test_files_whose_messages_are_gone_are_removed_in_threads(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await rig()
    own.keep(*range(1, 100))
    for _ in range(3):
        own.store.append("Orders", 0, bytes(500_000), b"", 1, b"\0" * 8)
    own.keep(100)
    service = TimerService(own.world, own.store, KEYS, cast("Any", None), lambda *_: None)
    await service.open()
    service.timer.begin(True)
    while service.timer.enqueue():
        pass
    # Given a log that has lost the messages of the first file of the timer log
    assert await own.store.flush()
    assert await own.store._retention.delete_files(1 << 60, True) == 1
    first = "/store/timerlog/00000000000000000000"
    assert own.world.disk.exists(first)
    on_loop, running = list[str](), [0]
    in_thread, remove = own.world.disk.in_thread, own.world.disk.remove

    async def thread(function: Any, **more: Any) -> Any:
        def counted() -> Any:
            running[0] += 1
            try:
                return function()
            finally:
                running[0] -= 1

        return await in_thread(counted, **more)

    def removing(path: str) -> None:
        if not running[0]:
            on_loop.append(path)
        remove(path)

    monkeypatch.setattr(own.world.disk, "in_thread", thread)
    monkeypatch.setattr(own.world.disk, "remove", removing)
    # When the timer makes its files durable
    assert await service.flush()
    # Then that file is gone, and the event loop has not waited for the disk
    assert not own.world.disk.exists(first)
    assert on_loop == []


async def test_what_is_left_while_files_are_written_is_not_taken_for_what_they_hold(
    autojump_clock: MockClock,
) -> None:
    own = await rig()
    own.keep(1, 12, 13)
    own.timer.begin(True)
    own.enqueue()
    own.timer.begin(False)
    # Given files that are being written
    work = own.timer.begin_flush()
    assert work is not None
    own.timer.flush(work)
    # When this replica takes over from one with fewer messages before that has ended
    own.hears(20, 1)
    own.timer.end_flush(work, True)
    # Then the next start knows what is left to do
    assert own.timer.progress.todo == (Again(1, 3, Read(START_MS)),)


async def test_a_start_after_a_saved_take_over_with_older_files_delivers_once(autojump_clock: MockClock) -> None:
    # Given files from before the last message, and a take-over that was saved after it
    own = await rig()
    own.keep(1, 12)
    own.timer.begin(True)
    own.enqueue()
    own.flush()
    own.keep(13)
    own.enqueue()
    own.timer.begin(False)
    own.hears(20, 1)
    saved = own.table.snapshot()
    # When the process dies there
    own.timer = Timer(own.world, own.store, KEYS)
    own.timer.progress.merge_json(saved)
    own.timer.open()
    own.timer.begin(True)
    own.enqueue()
    # Then each message that was left comes once
    assert own.waiting() == Counter({21: 2})


async def test_a_replica_that_is_behind_changes_nothing(autojump_clock: MockClock) -> None:
    own = await rig()
    own.keep(1, 20)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 5_000))
    own.timer.begin(False)
    own.hears(3, 2)
    own.timer.follow(Done(Read(START_MS + 2_000), 1), DataVersion())
    assert (own.timer.progress.read, own.timer.master_enqueued) == (Read(START_MS + 5_000), 2)


async def test_a_slave_goes_back_with_a_master_whose_clock_was_set_back(autojump_clock: MockClock) -> None:
    """Otherwise the master would take its own former future back from the slave, and hold everything up until then."""

    def told(second: int, settled: int) -> Answer:
        check = TimerCheck(START_MS + second * 1000, 0, settled, settled)
        return Answer({READ_PHYSICAL: "0"}, check.encode())

    own = await rig()
    own.keep(30)
    # Given a master whose clock was far ahead while nothing waited
    copying = own.table.copying(Source("master"))
    copying.take(told(84, 0))
    # When it is set back, and something waits
    copying.take(told(25, 1))
    own.enqueue()
    # Then that has its own second here, too, and nothing of the future is given back
    assert own.timer.progress.read == Read(START_MS + 25_000)
    assert own.waiting() == Counter({30: 1})
    # and the first word of a source that was away takes nothing back
    own.table.copying(Source("another")).take(told(3, 1))
    assert own.timer.progress.read == Read(START_MS + 25_000)


async def test_a_log_that_was_cut_is_read_again(autojump_clock: MockClock) -> None:
    # Given slots that are durable, and a log that loses its end and gets another one
    own = await rig()
    own.keep(1, 20, 21)
    common = own.store.max_physical_offset
    own.keep(30, 31, 32)
    own.timer.begin(True)
    own.enqueue()
    own.flush()
    own.timer.begin(False)
    await own.store.truncate(common)
    own.keep(40, 41, 42, 43)
    # When the timer delivers again
    own.timer.begin(True)
    own.enqueue()
    # Then what waits is what the log has
    expected = Counter({1: 1, 20: 1, 21: 1, 40: 1, 41: 1, 42: 1, 43: 1})
    assert own.waiting() == expected
    # and so it is after a start from what was durable at that moment
    again = Timer(own.world, own.store, KEYS)
    again.open()
    again.begin(True)
    while again.enqueue():
        pass
    own.timer = again
    assert own.waiting() == expected


async def test_messages_in_the_place_of_lost_ones_are_not_taken_for_delivered(autojump_clock: MockClock) -> None:
    # Given delivered messages, the last of which the log loses
    own = await rig()
    own.keep(1, 2)
    common = own.store.max_physical_offset
    own.keep(3, 4, 30)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 10_000))
    own.timer.begin(False)
    await own.store.truncate(common)
    # When another one stands in their place, for a second that is passed over
    own.keep(5)
    own.timer.begin(True)
    own.enqueue()
    # Then it comes next
    assert own.waiting() == Counter({10: 1})


async def test_a_slave_puts_into_slots_what_its_master_has(autojump_clock: MockClock) -> None:
    own = await rig()
    own.keep(1, 2, 20, 21)
    own.enqueue()
    assert own.waiting() == Counter()
    looks: list[None] = []
    own.timer.look = lambda: looks.append(None)
    own.timer.follow(Done(Read(START_MS + 2_000), 3), DataVersion())
    own.enqueue()
    assert (own.waiting(), len(looks)) == (Counter({2: 1, 20: 1}), 1)
    # When it acts, it delivers all
    own.timer.begin(True)
    own.enqueue()
    assert own.waiting() == Counter({2: 1, 20: 1, 21: 1})


@pytest.mark.parametrize(
    ("ext", "body"),
    [
        ({}, b""),
        ({}, b"x" * 31),
        ({READ_PHYSICAL: "x"}, TimerCheck().encode()),
        ({READ_PHYSICAL: "-1"}, TimerCheck().encode()),
        ({LEFT: "1 2 3 4"}, TimerCheck().encode()),
        ({LEFT: "1 2 3 4 x"}, TimerCheck().encode()),
        ({LEFT: "1 2 3 4 5", PARTS: "1 2 3 4 5"}, TimerCheck().encode()),
        ({}, TimerCheck(read_ms=-1).encode()),
        ({}, TimerCheck(read_ms=1 << 60).encode()),
        ({}, TimerCheck(queue_offset=-9).encode()),
    ],
)
async def test_an_answer_that_is_none_changes_nothing(
    ext: dict[str, str], body: bytes, autojump_clock: MockClock
) -> None:
    own = await rig()
    before = own.timer.progress.read
    with pytest.raises(ValueError, match="timer"):
        own.table.merge(Answer(ext, body), lambda key, queue_id: None)
    with pytest.raises(ValueError, match="timer"):
        own.table.copying(cast(Any, None)).take(Answer(ext, body))
    assert own.timer.progress.read == before
    await trio.lowlevel.checkpoint()


async def test_a_whole_message_that_stands_where_a_timer_message_was_cut_off_is_not_taken_for_damage(
    autojump_clock: MockClock,
) -> None:
    # Given a timer message in its slot, whose place in the log another one of its size has got meanwhile
    own = await rig()
    own.timer.begin(True)
    own.keep(1)
    own.enqueue()
    _, unit = own.timer.files.log.last() or (0, None)
    assert unit is not None
    await own.store.truncate(0)
    short = own.store.append("T", 0, b"", b"", 1, b"\0" * 8)
    size = own.store.max_physical_offset - short.physical_offset
    await own.store.truncate(0)
    put = own.store.append("T", 0, bytes(unit.size - size), b"", 1, b"\0" * 8)
    assert (put.physical_offset, own.store.max_physical_offset) == (unit.physical, unit.physical + unit.size)
    assert own.timer.topic.record(unit) is None
    # When the timer does not find its message
    own.timer.topic.note_rotten(unit)
    # Then nothing is missing in the log
    assert not own.store.holes.behind
