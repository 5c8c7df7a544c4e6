"""Half messages that a loss of power took, while what their op messages say of them is left."""

from __future__ import annotations

import trio
from transaction_rig import COMMIT, FOLDER, HALF, OPS, open_producer
from trio.testing import MockClock

from understudy.broker.transactions.ledger import HalfLedger
from understudy.format import names
from understudy.format.record import Record
from understudy.testkit.sim.disk import SimDisk


def lose(disk: SimDisk, lost: Record) -> None:
    """Take power, and one record of the log with it."""
    disk.lose_power()
    at, end = lost.physical_offset, lost.physical_offset + lost.size_bytes
    disk.damage(f"{FOLDER}/commitlog/{0:020d}", lambda data: data[:at] + bytes(end - at) + data[end:])
    if disk.exists(f"{FOLDER}/recovery.mark"):
        disk.remove(f"{FOLDER}/recovery.mark")


async def test_a_half_message_that_gets_the_place_of_a_lost_one_is_not_decided(
    disk: SimDisk, autojump_clock: MockClock
) -> None:
    # Given a committed half message, the last one of its queue, which alone is lost with the power
    async with open_producer(disk) as producer:
        _, half = producer.prepare("older"), producer.prepare("lost", body=b"H" * 900)
        assert producer.decide(half, COMMIT).code == 0
        await trio.sleep(15)
        assert len(producer.rig.stored(OPS)) == 1
    lose(disk, half)
    async with open_producer(disk) as producer:
        before = producer.delivered()
        # When two others come, of which the first gets its queue offset
        new, other = producer.prepare("new"), producer.prepare("other")
        assert new.queue_offset == half.queue_offset
        # Then both are open: what is committed is delivered, what is not is asked about
        assert producer.decide(other, COMMIT).code == 0
        await trio.sleep(40)
        asked = {(each.ext or {})["msgId"] for each in producer.checks()}
        assert asked == {"new", "older"}
        assert producer.decide(new, COMMIT).code == 0
        await trio.sleep(15)
        assert sorted(producer.delivered()) == sorted([*before, "other", "new"])
    async with open_producer(disk) as producer:
        await trio.sleep(40)
        assert {(each.ext or {})["msgId"] for each in producer.checks()} <= {"older"}
        assert [each.queue_offset for each in producer.rig.stored(HALF)][:2] == [0, 1]


async def test_progress_beyond_the_end_of_the_half_queue_passes_no_new_half_message(
    disk: SimDisk, autojump_clock: MockClock
) -> None:
    # Given a queue that is done, and loses its last message while the broker is stopped
    async with open_producer(disk) as producer:
        half = producer.prepare("lost", body=b"H" * 900)
        assert producer.decide(half, COMMIT).code == 0
        await trio.sleep(60)
        assert producer.rig.broker.offsets.query(names.TRANSACTION_GROUP, HALF, 0) == 1
    lose(disk, half)
    async with open_producer(disk) as producer:
        # When another one gets its queue offset, then its commit is carried out
        new = producer.prepare("new")
        assert new.queue_offset == half.queue_offset
        await trio.sleep(15)
        assert producer.decide(new, COMMIT).code == 0
        assert producer.delivered() == ["lost", "new"]


def half_at(offset: int, position: int) -> Record:
    return Record(topic=HALF, queue_id=0, queue_offset=offset, physical_offset=position, body=b"", properties_text="")


def test_what_was_passed_and_comes_back_into_its_place_is_done() -> None:
    ledger = HalfLedger(3, 0, (5, 1000))
    found = {each: ledger.has_decided(half_at(*each)) for each in ((3, 900), (4, 1000), (5, 900))}
    assert found == {(3, 900): True, (4, 1000): False, (5, 900): False}


def test_an_op_message_speaks_of_what_lies_before_it() -> None:
    # Given a ledger that is read: two op messages name the same offset, one names several, one an offset beyond the end
    ledger = HalfLedger(0, 0)
    ledger.claim(0, 1000, [0, 2, 7])
    ledger.claim(1, 3000, [1])
    ledger.claim(2, 5000, [2, 1])
    seen = {0: 900, 1: 4000, 2: 6000, 3: 6100}
    found = {offset: ledger.has_decided(half_at(offset, position)) for offset, position in seen.items()}
    # Then a half message behind the last of those that name it is open
    assert found == {0: True, 1: True, 2: False, 3: False}
    # and one that is not there keeps its op message until something is seen in its place, or that is passed
    ledger.believe(4)
    ledger.advance(1)
    assert ledger.op_done == 0
    assert not ledger.has_decided(half_at(7, 7000))
    assert ledger.op_done == 2
    again = HalfLedger(0, 0)
    again.claim(0, 1000, [0, 7])
    again.believe(4)
    assert again.is_decided(0)
    assert again.has_decided(half_at(7, 990))
