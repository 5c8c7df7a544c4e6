"""A group that a master has never heard of may have read, at its slave, what the master has lost."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import trio
from test_container_lost_tail import DURABLE_SECONDS, at, back, end, pulled, send

from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.testkit.first_pull import first_pull
from understudy.testkit.waiting import until

sys.path.append(str(Path(__file__).parent.parent / "broker_slave"))
from slave_rig import Pair, open_pair, run


async def read_at_the_slave_alone(pair: Pair) -> int:
    """Let a group read, at the slave, what its master loses; return the first offset that was lost.

    The master goes on with ten others.
    """
    await pair.send(4)
    await send(pair, 100 - end(pair.master), b"durable")
    await trio.sleep(DURABLE_SECONDS)
    await send(pair, 5, b"lost")
    await until(lambda: end(pair.slave) == 105, 5)
    await trio.sleep(1)
    await pair.cluster.kill("c1", power=True)
    # given a group that begins while the master is away
    assert await pulled(pair, pair.slave, 95) == (ResponseCode.SUCCESS, "105")
    await pair.commit(105, broker=pair.slave)
    await back(pair, "c1")
    await trio.sleep(3)
    lost_from = end(pair.master)
    assert 100 <= lost_from < 105
    await send(pair, 10, b"new")
    return lost_from


def test_it_skips_nothing_of_what_the_master_has_stored_since() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            lost_from = await read_at_the_slave_alone(pair)
            assert pair.master.offsets.committed == {}
            # when it commits and asks at the master what it remembers
            await pair.commit(105)
            assert at(pair.master) == -1
            # then it is told where the messages begin that it does not know, and believed from now on
            assert await pulled(pair, pair.master, 105) == (ResponseCode.PULL_OFFSET_MOVED, str(lost_from))
            assert await pulled(pair, pair.master, lost_from) == (ResponseCode.SUCCESS, str(lost_from + 10))
            await pair.commit(lost_from + 10)
            assert at(pair.master) == lost_from + 10

    run(scenario)


def test_a_group_that_begins_after_the_loss_and_a_tool_read_where_they_want_to() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            lost_from = await read_at_the_slave_alone(pair)
            # when a consumer asks where its group stands before it asks for messages
            where = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "setZeroIfNotFound": "false"}
            assert (await pair.ask(pair.master, RequestCode.QUERY_CONSUMER_OFFSET, where)).code == 22
            # then it gets them from where it wants to begin
            wanted = first_pull("orders") | {"queueOffset": str(lost_from + 7)}
            found = await pair.ask(pair.master, RequestCode.PULL_MESSAGE, wanted)
            assert (found.ext or {})["nextBeginOffset"] == str(lost_from + 10)
            await pair.commit(lost_from + 8)
            assert at(pair.master) == lost_from + 8
            # and so does a tool, which asks for a single message
            shown = first_pull("orders", group="TOOLS_CONSUMER") | {"queueOffset": str(lost_from + 9)}
            found = await pair.ask(pair.master, RequestCode.PULL_MESSAGE, shown)
            assert found.code == ResponseCode.SUCCESS

    run(scenario)
