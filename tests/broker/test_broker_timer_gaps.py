"""Messages that are missing in the timer topic: whatever part of it is read, each of the others comes once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st
from timer_rig import START_MS, Rig, rig
from trio.testing import MockClock

from understudy.broker.timer.done import Again, Read
from understudy.format.names import TIMER_TOPIC
from understudy.testkit.sim.determinism import run_seed


def lose(own: Rig, lost: Collection[int]) -> None:
    """Have units of the topic point to the message after them, as a start does where the log has lost theirs."""
    queues = own.store._core.consume_queues
    queue = queues.by_key[TIMER_TOPIC, 0]
    for offset in sorted(lost, reverse=True):
        unit = queues.unit(queue, offset + 1)
        assert unit is not None
        queues._write(queue, offset, *unit)


@given(st.sets(st.integers(0, 10)), st.lists(st.integers(1, 5), min_size=12, max_size=12))
def test_however_the_topic_is_read_each_message_that_is_there_comes_once(lost: set[int], counts: list[int]) -> None:
    async def scenario(source: object) -> None:
        own = await rig()
        own.keep(*range(1, 13))
        lose(own, lost)
        at, found = 0, list[int]()
        for count in counts:
            end = min(at + count, 12)
            records, following = own.timer.topic.read(at, count)
            assert all(at <= each.queue_offset < end for each in records)
            assert at <= following <= end
            found += [each.queue_offset for each in records]
            at = end
        assert found == [offset for offset in range(at) if offset not in lost]

    run_seed(scenario, 1)


async def test_what_is_entered_again_does_not_take_along_what_was_never_entered(autojump_clock: MockClock) -> None:
    # given five messages of which the third is lost, and a take over that leaves the first three to be done again
    own = await rig()
    own.keep(1, 2, 3, 4, 30)
    lose(own, {2})
    own.hears(10, 3)
    own.timer._again = (Again(0, 3, Read(START_MS)),)
    own.timer.begin(True)
    own.enqueue()
    # then each of the others waits once: nobody had the fourth
    assert own.waiting() == Counter({10: 1, 11: 2, 30: 1})
    assert own.timer.progress.enqueued == 5
