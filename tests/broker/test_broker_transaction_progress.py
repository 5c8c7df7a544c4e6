"""How far transactions are done moves while decisions come, so that who takes over has little to learn."""

from __future__ import annotations

import pytest
import trio
from transaction_rig import COMMIT, HALF, OPS, decision, open_producer
from trio.testing import MockClock

from understudy.testkit.sim.disk import SimDisk


@pytest.mark.parametrize("most", ["4", "4096"])
async def test_the_progress_moves_with_op_messages_and_the_next_life_reads_no_more(
    most: str, disk: SimDisk, autojump_clock: MockClock
) -> None:
    # Given one op message of all decisions, or one for each few of them, and no check
    keys = {"transactionOpMsgMaxSize": most, "transactionCheckInterval": "3600000"}
    async with open_producer(disk, keys) as producer:
        offsets = producer.rig.broker.offsets
        for number in range(40):
            producer.rig.tell(37, decision(producer.prepare(str(number)), COMMIT), flag=2)
            await trio.sleep(0.25)
            assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) >= number - 2 * 14
        open_half = producer.prepare("open")
        producer.rig.tell(37, decision(producer.prepare("behind it"), COMMIT), flag=2)
        await trio.sleep(4)
        assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == open_half.queue_offset
        # What an undecided one stands before is not passed, nor its op message
        assert offsets.query("CID_RMQ_SYS_TRANS", OPS, 0) == len(producer.rig.stored(OPS)) - 1
    async with open_producer(disk, keys) as producer:
        (queue,) = producer.rig.broker.transactions._halves.queues.values()
        assert (queue.ledger.done, queue.ledger.undone) == (open_half.queue_offset, 1)
        assert producer.decide(open_half, COMMIT).code == 0
        assert len(producer.delivered()) == 42
