"""Which consumers a slave may answer when its master is back."""

from __future__ import annotations

from understudy.broker.doubts import DOUBT_MS, Doubts
from understudy.broker.first_reads import ANSWER_MS, FirstRead, FirstReads, settle


class Slave:
    """A slave whose log and its master's are the same up to byte 1000, which is offset 10 of queue 0."""

    def __init__(self) -> None:
        self.now_ms = 5_000.0
        self.end = 12
        self.doubts = Doubts(lambda: int(self.now_ms))
        self.reads = FirstReads(lambda: self.now_ms, self.doubts, lambda *place: 10, lambda *queue: self.end)
        self.reads.begin(1_000)

    def waits(self, offset: int, group: str = "g") -> bool:
        return self.reads.must_wait(group, "T", 0, offset)


def test_a_question_is_put_once_and_then_settled() -> None:
    slave = Slave()
    assert slave.waits(10)
    assert slave.waits(10)
    asked = slave.reads.take(5)
    assert asked == [FirstRead("T@g", 0, 10, True)]
    assert slave.reads.take(5) == []
    slave.reads.answered(asked, {})
    assert not slave.waits(10)
    assert not slave.waits(12)
    # each group for itself
    assert slave.waits(11, "other")
    assert slave.reads.take(5) == [FirstRead("T@other", 0, 11, False)]


def test_who_gets_nothing_new_is_not_asked_about() -> None:
    slave = Slave()
    slave.end = 10
    assert not slave.waits(7)
    assert not slave.waits(10)
    # who asks for more than both have is
    assert slave.waits(11)
    # and who was not, is when there is something new
    slave.end = 11
    assert slave.waits(7, "other")


def test_a_correction_is_a_doubt_here() -> None:
    slave = Slave()
    assert slave.waits(12)
    slave.reads.answered(slave.reads.take(5), {("T@g", 0): 9})
    assert not slave.waits(12)
    assert slave.doubts.settle("T@g", 0, 12) == 9


def test_without_an_answer_a_consumer_is_believed() -> None:
    slave = Slave()
    assert slave.waits(12)
    slave.now_ms += ANSWER_MS - 1
    assert slave.waits(12)
    slave.now_ms += 1
    assert not slave.waits(12)
    # an answer that comes later than that changes nothing
    slave.reads.answered(slave.reads.take(5), {("T@g", 0): 9})
    assert not slave.doubts.ends


def test_questions_end_with_time_and_begin_with_each_connection() -> None:
    slave = Slave()
    slave.now_ms += DOUBT_MS + 1
    assert not slave.waits(12)
    assert not slave.reads.active
    slave.reads.begin(1_000)
    assert slave.waits(12)


def test_a_master_believes_whoever_asked_once() -> None:
    doubts = Doubts(lambda: 0)
    doubts.begin({"T@g": {0: 1, 1: 1, 2: 1}}, lambda topic, queue_id: 6)
    reads = [FirstRead("T@g", 0, 9, True), FirstRead("T@g", 1, 9, False), FirstRead("T@g", 2, 6, False)]
    # what a slave vouches for counts, other offsets behind what the master has do not
    assert settle(doubts, reads) == {("T@g", 1): 6}
    assert not doubts.ends
    assert settle(doubts, reads) == {}
