"""Batches of very many messages are stored in pieces: others have their turn meanwhile, nothing else differs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import trio
from broker_rig import code_and_remark, open_rig, properties, send_header

from understudy.broker.processors.send_batches import LARGE_BATCH_BYTES, PIECE_MESSAGES
from understudy.format.batch import BatchError, cut_batch, encode_batch, holds_more_than, iter_batch
from understudy.remoting.fields import CommandError
from understudy.runtime import pace
from understudy.runtime.pace import run_steps

COUNT = 5 * PIECE_MESSAGES + 7


@pytest.fixture(autouse=True)
def every_breath_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)


def large(count: int = COUNT, bad_at: int | None = None) -> bytes:
    body = bytearray(encode_batch([(0, b"%d" % number, b"TAGS\x01a\x02") for number in range(count)]))
    if bad_at is not None:
        at = [end for _, _, _, end in iter_batch(bytes(body))][bad_at]
        body[at : at + 4] = b"\x00\x00\x00\x01"
    return bytes(body)


def test_a_batch_is_cut_between_its_items() -> None:
    body = large(25)
    ends = run_steps(cut_batch(body, 10))
    assert [10, 10, 5] == [len(list(iter_batch(body[begin:end]))) for begin, end in pairwise([0, *ends])]
    assert [len(body)] == run_steps(cut_batch(body, 25))
    assert (True, False) == (holds_more_than(body, 24), holds_more_than(body, 25))
    with pytest.raises(BatchError):
        run_steps(cut_batch(body[:-1], 10))
    assert not holds_more_than(b"\xff" * 50, 10) and not holds_more_than(bytes(50), 10)


async def test_others_have_their_turn_while_a_large_batch_is_stored(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
        body, seen = large(), [1]
        assert len(body) > LARGE_BATCH_BYTES
        command = rig.tell(320, send_header("T", properties(UNIQ_KEY="u"), m="true"), body)
        while not rig.peer.replies:
            await trio.lowlevel.checkpoint()
            seen.append(rig.broker.store.max_queue_offset("T", 0))
        answer = await rig.wait(command)
        # Who looks in each turn may come first in one and last in the next.
        assert 2 * PIECE_MESSAGES >= max(later - sooner for sooner, later in pairwise(seen))
        ext, records = answer.ext or {}, rig.stored("T")[1:]
        assert [b"%d" % number for number in range(COUNT)] == [record.body for record in records]
        assert ext["msgId"] == ",".join(record.message_id for record in records)
        assert (0, "1", "u", "0") == (answer.code, ext["queueOffset"], ext["transactionId"], ext["queueId"])
        assert COUNT + 1 == rig.broker.stats.put_total


async def test_a_large_batch_that_is_wrong_anywhere_stores_nothing(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
        command = rig.tell(320, send_header("T", m="true"), large(bad_at=COUNT - 2))
        refused = await rig.wait(command)
        assert 13 == refused.code and "the message is illegal" in (refused.remark or "")
        assert 1 == len(rig.stored("T"))


async def test_one_way_and_any_queue(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
        rig.tell(320, send_header("T", queue_id=-1, m="true"), large(), flag=2)
        with trio.fail_after(30):
            while rig.broker.stats.put_total < COUNT + 1:
                await trio.lowlevel.checkpoint()
        assert {} == rig.peer.replies
        assert COUNT in [len(rig.stored("T", each)) - (each == 0) for each in range(4)]


async def test_a_broker_that_closes_or_loses_the_topic_meanwhile_refuses_the_rest(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
        command = rig.tell(320, send_header("T", m="true"), large())
        while rig.broker.store.max_queue_offset("T", 0) < PIECE_MESSAGES:
            await trio.lowlevel.checkpoint()
        rig.broker.send.admission.closed = CommandError(14, "it is stopping")
        refused = await rig.wait(command)
        assert 0 != refused.code and "it is stopping" in (refused.remark or ""), code_and_remark(refused)
        assert 0 < rig.broker.store.max_queue_offset("T", 0) < COUNT


async def test_a_large_batch_waits_for_the_disk_like_any_other(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"flushDiskType": "SYNC_FLUSH"}) as rig:
        await rig.wait(rig.tell(310, send_header("T"), b"x"))
        answer = await rig.wait(rig.tell(320, send_header("T", m="true"), large()))
        assert 0 == answer.code
        assert rig.broker.store.flushed_offset > int((answer.ext or {})["msgId"].rsplit(",", 1)[1][16:], 16)
