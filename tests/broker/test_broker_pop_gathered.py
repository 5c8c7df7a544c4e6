"""Acknowledgements that come in one receive: those of one pop are one entry of the log, and each is answered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from broker_rig import Rig
from pop_rig import ACK, POP, ack_header, bodies, open_virtual, pop_header, prepare, receipts, until_something
from trio.testing import MockClock

from understudy.format.names import TIMER_TOPIC
from understudy.format.receipts import Receipt
from understudy.remoting.command import Command
from understudy.store.status import PutRejected, PutStatus


def entries(rig: Rig) -> list[tuple[str | None, bytes]]:
    """Return tag and body of everything that was written about pops."""
    return [(record.properties.get("TAGS"), record.body) for record in rig.stored(TIMER_TOPIC)]


def acknowledge(rig: Rig, taken: Sequence[Receipt], **more: str) -> list[Command]:
    """Acknowledge in one receive; return the answers."""
    told = [rig.tell(ACK, ack_header(receipt, **more), more_follow=True) for receipt in taken]
    assert not any(command.opaque in rig.peer.replies for command in told)
    rig.end_receive()
    return [rig.peer.replies.pop(command.opaque or 0) for command in told]


async def test_those_of_one_pop_are_one_entry_and_nothing_comes_back(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig, queues=1)
        for number in range(6):
            rig.send("T", b"%d" % number)
        first = receipts(rig.ask(POP, pop_header(maxMsgNums="4")))
        await rig.broker.world.clock.sleep(0.1)
        second = receipts(rig.ask(POP, pop_header(maxMsgNums="1")))
        assert bodies(rig.ask(POP, pop_header(maxMsgNums="1"))) == [b"5"]
        taken = [receipt for _, receipt in (*first[:3], *second)]
        assert [answer.code for answer in acknowledge(rig, taken)] == [0, 0, 0, 0]
        written = [(tag, body) for tag, body in entries(rig) if tag != "ck"]
        assert [tag for tag, _ in written] == ["bAck", "ack"]
        assert b'"aol":[0,1,2]' in written[0][1].replace(b" ", b"")
        assert b'"ao":4' in written[1][1]
        await rig.broker.world.clock.sleep(10)
        assert sorted(bodies(rig.ask(POP, pop_header()))) == [b"3", b"5"]


async def test_each_is_answered_for_itself(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig, queues=1)
        for number in range(3):
            rig.send("T", b"%d" % number)
        taken = [receipt for _, receipt in receipts(rig.ask(POP, pop_header()))]
        told = [rig.tell(ACK, ack_header(receipt), more_follow=True) for receipt in taken[:2]]
        stranger = rig.ask(ACK, ack_header(taken[2], offset="77"), more_follow=True)
        assert stranger.code == 208
        oneway = rig.tell(ACK, ack_header(taken[2]), more_follow=True, flag=2)
        rig.end_receive()
        assert [rig.peer.replies.pop(command.opaque or 0).code for command in told] == [0, 0]
        assert oneway.opaque not in rig.peer.replies
        await rig.broker.world.clock.sleep(20)
        assert rig.ask(POP, pop_header()).code == 210


async def test_what_cannot_be_stored_is_refused_to_all_of_them(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_virtual() as rig:
        prepare(rig, queues=1)
        for number in range(3):
            rig.send("T", b"%d" % number)
        taken = [receipt for _, receipt in receipts(rig.ask(POP, pop_header()))]

        def refuse(*entry: object) -> int:
            raise PutRejected(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(rig.broker.pops.moving, "acked", refuse)
            answers = acknowledge(rig, taken)
        assert [(answer.code, "the disk is full" in (answer.remark or "")) for answer in answers] == [(1, True)] * 3
        assert sorted(bodies(await until_something(rig))) == [b"0", b"1", b"2"]


async def test_a_receive_with_more_than_a_pop_holds_is_several_entries(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        prepare(rig, queues=1)
        rig.send("T", b"0")
        (taken,) = [receipt for _, receipt in receipts(rig.ask(POP, pop_header()))]
        told = [rig.tell(ACK, ack_header(taken), more_follow=True) for _ in range(70)]
        rig.end_receive()
        assert all(rig.peer.replies[command.opaque or 0].code == 0 for command in told)
        assert [tag for tag, _ in entries(rig)] == ["ck", "bAck", "bAck", "bAck"]
