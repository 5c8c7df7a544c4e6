"""What is left to do when one replica's timer takes over from others, which had other logs."""

from __future__ import annotations

from collections import Counter

import pytest
from timer_rig import START_MS, Rig, rig
from trio.testing import MockClock

from understudy.broker.replicated.table import Answer, Source
from understudy.broker.replicated.timer import LEFT
from understudy.broker.timer.done import Again, Done, Read
from understudy.broker.timer.lateness import late_ones_wait
from understudy.store.timer_check import TimerCheck


async def delivered_three_seconds(*due: int) -> Rig:
    """Return a replica with messages due in these seconds that had delivered up to the third one when it was lost."""
    own = await rig()
    own.keep(*due)
    own.timer.begin(True)
    own.enqueue()
    own.timer.move(Read(START_MS + 3_000))
    own.timer.begin(False)
    return own


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
    own = await delivered_three_seconds(1, 2, 3, 20, 4, 30)
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
    own = await delivered_three_seconds(1, 2, 3, 12, 4, 30, 15)
    # When one slave after the other is heard, the second further than the first
    own.hears(10, 3)
    own.hears(20, 3)
    own.timer.begin(True)
    own.enqueue()
    # Then all that neither had comes next, whichever of them passed its second over
    assert own.waiting() == Counter({21: 3, 30: 1})


async def test_what_a_second_replica_had_and_delivered_is_not_left_to_do(autojump_clock: MockClock) -> None:
    # Given a master whose last messages only one of its slaves had
    own = await delivered_three_seconds(1, 2, 3, 12, 4, 30, 15)
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
    own = await delivered_three_seconds(1, 2, 3, 12, 7, 30, 15)
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
    own = await delivered_three_seconds(1, 2, 3, 12, 4, 30)
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
    own = await delivered_three_seconds(1, 2, 3, 4)
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
    short.timer.lacks = lambda: True
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


async def test_what_a_slave_lacks_is_no_reason_to_wait_and_what_it_puts_into_a_later_second_is(
    autojump_clock: MockClock,
) -> None:
    short = await _with_a_shorter_log()
    timer, fifteenth_ms = short.timer, START_MS + 15_000
    timer.move(Read(fifteenth_ms))
    # Given a slave that lacks messages, then nothing in its timer waits, whatever is left to do for others
    assert timer.done.left
    assert not timer.holds(fifteenth_ms)
    assert not late_ones_wait(timer, fifteenth_ms, timer.topic.end)
    # When one comes whose second is over, then it waits in a later one, for who asks with all that there is
    short.keep(12)
    assert timer.holds(fifteenth_ms)
    short.enqueue()
    end = timer.topic.end
    assert not timer.holds(fifteenth_ms)
    assert [late_ones_wait(timer, START_MS + second * 1000, end) for second in (11, 12, 14)] == [False, True, True]
    assert not late_ones_wait(timer, fifteenth_ms, end - 1)
    timer.move(Read(START_MS + 17_000))
    assert not late_ones_wait(timer, fifteenth_ms, end)


async def test_a_slave_that_follows_knows_what_is_left_to_do(autojump_clock: MockClock) -> None:
    short = await _with_a_shorter_log()
    short.timer.move(Read(START_MS + 15_000))
    # When a slave with all of it follows the one that acts, and acts after it
    own = await rig()
    own.timer.lacks = lambda: True
    own.keep(1, 20, 3, 12)
    own.table.copying(Source("acting")).take(short.tells())
    own.enqueue()
    own.timer.begin(True)
    own.enqueue()
    assert own.waiting() == Counter({16: 1, 20: 1})
