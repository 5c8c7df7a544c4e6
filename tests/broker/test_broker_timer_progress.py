"""How a timer goes on when its log was cut, or when another replica has delivered meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.replicated.table import Answer, FilePlan, Source
from understudy.broker.replicated.timer import LEFT, PARTS, READ_PHYSICAL, ReplicatedTimer, told
from understudy.broker.timer.done import Again, Done, Read
from understudy.broker.timer.service import TimerService
from understudy.broker.timer.timer import Timer
from understudy.format.data_version import DataVersion
from understudy.format.names import TIMER_TOPIC
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.timer_check import TimerCheck, load_check
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

KEYS = MessageStoreConfig(store_path_root_dir="/store", mapped_file_size_timer_log=4096)
START_MS = 1_700_000_000_000


class Rig:
    """A timer over a store of its own, without services."""

    def __init__(self, world: World, store: MessageStore) -> None:
        self.world = world
        self.store = store
        self.timer = Timer(world, store, KEYS)
        self.timer.open()
        self.table = ReplicatedTimer(self.timer, FilePlan("timerProgress.json"))

    def keep(self, *seconds: int) -> None:
        """Store a message for each of *seconds* from the start on."""
        for second in seconds:
            text = f"TIMER_OUT_MS\x01{START_MS + second * 1000}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02".encode()
            self.store.append(TIMER_TOPIC, 0, b"x", text, 1, b"\0" * 8)

    def enqueue(self) -> None:
        while self.timer.enqueue():
            pass

    def flush(self) -> None:
        work = self.timer.begin_flush()
        assert work is not None
        self.timer.flush(work)
        self.timer.end_flush(work, True)

    def tells(self) -> Answer:
        """Return what another replica is told."""
        check = self.timer.check(resting=False)
        return Answer(told(self.timer, check), check.encode())

    def asks(self, other: Rig) -> None:
        """Take over the progress of *other*."""
        self.table.put(self.table.merge(other.tells(), lambda key, queue_id: None))

    def hears(self, second: int, settled: int, physical: int = 0) -> None:
        """Take over the progress of another replica."""
        check = TimerCheck(START_MS + second * 1000, 0, settled, settled)
        answer = Answer({READ_PHYSICAL: str(physical)}, check.encode())
        self.table.put(self.table.merge(answer, lambda key, queue_id: None))

    def waiting(self) -> Counter[int]:
        """Return how many messages wait for each second from the start on."""
        seconds = {second: self.timer.waiting_at(START_MS + second * 1000) for second in range(60)}
        first = (self.timer.progress.read.second_ms - START_MS) // 1000
        return Counter({second: count for second, count in seconds.items() if count and second >= first})


async def rig() -> Rig:
    clock = VirtualClock(START_MS)
    disk = SimDisk(random.Random(1), now_ms=clock.wall_ms)
    world = World(clock, TcpNetwork(), disk, random.Random(1))
    config = StoreConfig("/store", mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)
    return Rig(world, await MessageStore.open(world, config, ("127.0.0.1", 10911)))


async def test_what_another_replica_had_and_delivered_is_not_put_into_slots_any_more(autojump_clock: MockClock) -> None:
    # Given messages that were not in slots yet when this master died
    own = await rig()
    own.keep(1, 2, 3, 20, 4)
    # When a replica that had the first four has delivered up to the tenth second
    own.hears(10, 4)
    own.timer.begin(True)
    own.enqueue()
    # Then the later one waits for its second, and the one that nobody had comes next
    assert own.waiting() == Counter({10: 1, 20: 1})


@pytest.mark.parametrize("follows", [False, True])
async def test_a_replica_tells_of_what_it_knows_to_be_done_before_it_has_put_it_into_slots(
    follows: bool, autojump_clock: MockClock
) -> None:
    # Given a slave that has just taken over, or follows, a replica that delivered three of four messages
    slave = await rig()
    slave.keep(1, 2, 3, 20)
    if follows:
        slave.table.copying(Source("acting")).take(Answer({}, TimerCheck(START_MS + 10_000, 0, 4, 4).encode()))
    else:
        slave.hears(10, 4)
    assert slave.timer.progress.enqueued == 0
    # When the master, who asks that slave only, or another slave that follows it, delivers after it
    own = await rig()
    own.keep(1, 2, 3, 20)
    if follows:
        own.table.copying(Source("acting")).take(slave.tells())
    else:
        own.asks(slave)
    own.timer.begin(True)
    own.enqueue()
    # Then none of them comes again
    assert own.waiting() == Counter({20: 1})


async def test_what_only_this_log_has_is_delivered_after_a_take_over(autojump_clock: MockClock) -> None:
    own = await rig()
    own.keep(1, 2, 3, 20, 4, 30)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    # When the other replica had three messages only
    own.hears(10, 3)
    assert own.timer.progress.todo == (Again(3, 6, Read(START_MS + 3_000)),)
    own.timer.begin(True)
    own.enqueue()
    # Then the fifth, which nobody delivered, comes next, though its second is passed over
    assert own.waiting() == Counter({11: 1, 20: 1, 30: 1})
    # and it is noted as done only when it is durable
    own.flush()
    assert own.timer.progress.todo == ()
    assert own.timer.check(resting=False).master_queue_offset == 4  # not promised before it is delivered
    own.timer.move(Read(START_MS + 12_000))
    assert own.timer.check(resting=False).master_queue_offset == 6


async def test_two_take_overs_in_a_row_leave_what_neither_replica_had(autojump_clock: MockClock) -> None:
    # Given messages in slots that died with a master, of which its slaves had three
    own = await rig()
    own.keep(1, 2, 3, 12, 4, 30, 15)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    # When one slave after the other is heard, the second further than the first
    own.hears(10, 3)
    own.hears(20, 3)
    own.timer.begin(True)
    own.enqueue()
    # Then all that neither had comes next, whichever of them passed its second over
    assert own.waiting() == Counter({21: 3, 30: 1})


async def test_what_a_second_replica_had_and_delivered_is_not_left_to_do(autojump_clock: MockClock) -> None:
    # Given a master whose last messages only one of its slaves had
    own = await rig()
    own.keep(1, 2, 3, 12, 4, 30, 15)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    # When the slave without them is heard first, which follows the other one and is as far as that one
    own.hears(20, 3)
    own.hears(14, 7)
    own.timer.begin(True)
    own.enqueue()
    # Then what the other one has delivered does not come again, and the rest does
    assert own.waiting() == Counter({21: 1, 30: 1})


async def test_of_each_message_a_master_knows_who_of_its_slaves_came_furthest(autojump_clock: MockClock) -> None:
    """The slaves had shorter logs than the master; the first one acted, and then the second one with the shortest."""
    # Given a master that had delivered up to the third second
    own = await rig()
    own.keep(1, 2, 3, 12, 7, 30, 15)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    # When a slave with five of its messages has come to the tenth second, and one with three to the twentieth
    own.hears(10, 5)
    own.hears(20, 3)
    # Then of the fourth and the fifth message only what fell due after the tenth second is left to do
    tenth = Read(START_MS + 10_000)
    assert own.timer.progress.todo == (Again(3, 5, tenth), Again(5, 7, Read(START_MS + 3_000)))
    # and another replica, and the next start, know it as well
    other, again = await rig(), await rig()
    other.asks(own)
    again.timer.progress.merge_json(own.table.snapshot())
    assert other.timer.done == own.timer.done
    # (one of a former version, which knows no parts, that all of them are left to do)
    words = own.tells()
    earlier, all_of_it = await rig(), Again(3, 7, Read(START_MS + 3_000))
    earlier.table.copying(Source("acting")).take(Answer({LEFT: words.ext[LEFT]}, words.body))
    assert earlier.timer.done == Done(Read(START_MS + 20_000), 7, (all_of_it,))
    assert again.timer.progress.todo == own.timer.progress.todo
    own.timer.begin(True)
    own.enqueue()
    assert own.waiting() == Counter({21: 2, 30: 1})


async def test_what_was_late_when_another_replica_took_over_is_not_lost(autojump_clock: MockClock) -> None:
    own = await rig()
    own.keep(1, 2, 3, 12, 4, 30)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    # Given a master that has begun to deliver what was left to do, in a later second than its own
    own.hears(10, 3)
    own.timer.begin(True)
    own.enqueue()
    own.flush()
    assert own.waiting() == Counter({11: 1, 12: 1, 30: 1})
    # When it is lost before that second is over, and a slave without those messages acts until the twentieth
    own.timer.begin(False)
    own.hears(20, 3)
    own.timer.begin(True)
    own.enqueue()
    # Then they come all the same
    assert own.waiting() == Counter({21: 2, 30: 1})


async def test_what_was_left_to_do_is_done_as_soon_as_it_is_delivered(autojump_clock: MockClock) -> None:
    """Whether files say so already or not: as with all other progress, others are told at once."""
    # Given a slave that has taken over, delivers what was left to do, and gives back before its files are written
    slave = await rig()
    slave.keep(1, 2, 3, 4, 30)
    slave.hears(3, 5)
    slave.hears(10, 2)
    slave.timer.begin(True)
    slave.enqueue()
    assert slave.waiting() == Counter({11: 2, 30: 1})
    slave.timer.move(Read(START_MS + 12_000))
    slave.timer.begin(False)
    assert slave.timer.progress.todo != ()
    # When its master takes over
    own = await rig()
    own.keep(1, 2, 3, 4, 30)
    own.hears(3, 5)
    own.asks(slave)
    own.timer.begin(True)
    own.enqueue()
    # Then none of it comes again
    assert own.waiting() == Counter({30: 1})


@pytest.mark.parametrize("durable", [False, True])
async def test_what_waits_in_a_later_slot_is_not_put_there_twice(durable: bool, autojump_clock: MockClock) -> None:
    own = await rig()
    own.keep(1, 2, 3, 4)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    own.hears(10, 3)
    own.timer.begin(True)
    own.enqueue()
    if durable:
        own.flush()
    # When another replica is heard that has not passed that slot
    own.timer.begin(False)
    own.hears(11, 3)
    # Then it is left to a later start if it is not there durably
    (left,) = own.timer.progress.todo
    assert (left.was == Read(START_MS + 10_000)) == durable
    own.timer.begin(True)
    own.enqueue()
    assert own.waiting() == Counter({11: 1})


async def _with_a_shorter_log() -> Rig:
    """Return a slave that acts, and lacks two of four messages that another slave had delivered up to second 10."""
    short = await rig()
    short.timer.lacks = True
    short.keep(1, 20)
    short.hears(10, 4)
    short.timer.begin(True)
    short.enqueue()
    return short


@pytest.mark.parametrize(("reached", "waiting"), [(10, {12: 1, 20: 1}), (15, {16: 1, 20: 1})])
async def test_a_slave_with_a_shorter_log_tells_what_others_did_and_what_it_could_not_do(
    reached: int, waiting: dict[int, int], autojump_clock: MockClock
) -> None:
    short = await _with_a_shorter_log()
    short.timer.move(Read(START_MS + reached * 1000))
    short.timer.begin(False)
    # When the master, which had stored all of them, comes back and hears that slave only
    own = await rig()
    own.keep(1, 20, 3, 12)
    own.timer.begin(True)
    own.enqueue()
    own.timer.begin(False)
    own.asks(short)
    own.timer.begin(True)
    own.enqueue()
    # Then what was delivered does not come again, and what fell due while nobody could deliver it does
    assert own.waiting() == Counter(waiting)


async def test_what_a_slave_could_not_deliver_is_delivered_when_it_is_there(autojump_clock: MockClock) -> None:
    short = await _with_a_shorter_log()
    short.timer.move(Read(START_MS + 15_000))
    short.enqueue()
    # When its log is complete
    short.keep(3, 12)
    short.enqueue()
    assert short.waiting() == Counter({16: 1, 20: 1})


async def test_a_slave_that_follows_knows_what_is_left_to_do(autojump_clock: MockClock) -> None:
    short = await _with_a_shorter_log()
    short.timer.move(Read(START_MS + 15_000))
    # When a slave with all of it follows the one that acts, and acts after it
    own = await rig()
    own.timer.lacks = True
    own.keep(1, 20, 3, 12)
    own.table.copying(Source("acting")).take(short.tells())
    own.enqueue()
    own.timer.begin(True)
    own.enqueue()
    assert own.waiting() == Counter({16: 1, 20: 1})


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
