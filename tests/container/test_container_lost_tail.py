"""Offsets count only in the log that they were made in: a master that lost the end of its log, and its slaves."""

from __future__ import annotations

import math
import random
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from understudy.broker.broker import Broker
from understudy.broker.log_history import LogHistory
from understudy.broker.merge import Reason
from understudy.broker.replicated.table import Source
from understudy.broker.replication import Replication
from understudy.broker.slave_sync import SyncError
from understudy.container.preonline.common_log import common_end
from understudy.container.preonline.handshake import Member
from understudy.ha.slave import HaSlave
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.errors import RemotingError
from understudy.runtime.network import ByteStream
from understudy.testkit.first_pull import first_pull
from understudy.testkit.waiting import until

sys.path.append(str(Path(__file__).parent.parent / "broker_slave"))
from slave_rig import Pair, open_pair, run

ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}
DURABLE_SECONDS = 12.0
"""Longer than ``flushCommitLogThoroughInterval``."""


async def send(pair: Pair, count: int, text: bytes) -> None:
    sent = 0
    while sent < count:
        message = Message("orders", text + b" %d" % sent)
        try:
            await pair.producer.send(message, queue=MessageQueue("orders", "broker-a", 0))
        except ClientError:  # the connection of a former life of the master
            await trio.sleep(1)
        else:
            sent += 1


async def refuse(source: Source) -> None:
    raise SyncError("not now")


async def back(pair: Pair, host: str) -> None:
    """Restart the broker of *host*; return when connections of its former life are gone."""
    await pair.cluster.restart(host)
    with suppress(RemotingError):
        await pair.ask(pair.cluster.brokers(host)["broker-a"], RequestCode.GET_BROKER_RUNTIME_INFO)


def at(broker: Broker) -> int:
    return broker.offsets.query("readers", "orders", 0)


def end(broker: Broker) -> int:
    return broker.store.max_queue_offset("orders", 0)


async def online(pair: Pair) -> None:
    await until(lambda: not pair.master.registration.isolated, 40)


async def lose_tail(pair: Pair) -> int:
    """Let the master lose messages, from 100 on at the earliest, which its slave has and a group has consumed to 105.

    The slave is away when the master goes on with ten others. Returns the first offset that was lost.
    """
    await pair.send(4)
    await send(pair, 100 - end(pair.master), b"durable")
    await pair.commit(90)
    await trio.sleep(DURABLE_SECONDS)
    await send(pair, 5, b"lost")
    await pair.commit(105)
    await until(lambda: end(pair.slave) == 105 and at(pair.slave) == 105, 5)
    await trio.sleep(1)  # both tables are saved
    await pair.cluster.kill("c1", power=True)
    await pair.cluster.kill("c2")
    await back(pair, "c1")
    await online(pair)
    lost_from = end(pair.master)
    assert 100 <= lost_from < 105
    await send(pair, 10, b"new")
    return lost_from


def test_a_slave_that_hears_of_offsets_before_it_has_the_messages_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    copy, held_up = HaSlave._exchange, list[HaSlave]()

    async def late(self: HaSlave, stream: ByteStream, address: str) -> str:
        if self in held_up:
            return await copy(self, stream, address)
        held_up.append(self)
        await trio.sleep(3)
        return "held up"

    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await send(pair, 5, b"known")
            await pair.commit(5)
            await until(lambda: end(pair.slave) == 5 and at(pair.slave) == 5, 5)
            await trio.sleep(DURABLE_SECONDS)
            # given a slave that was away while others came, and a master whose log has begun a new life since
            await pair.cluster.kill("c2")
            await send(pair, 5, b"more")
            await pair.commit(10)
            await trio.sleep(DURABLE_SECONDS)
            await pair.cluster.kill("c1", power=True)
            await back(pair, "c1")
            await online(pair)
            assert (len(pair.master.history.value.lives), at(pair.master)) == (2, 10)
            # when it comes back and learns the offsets before it gets the messages
            monkeypatch.setattr(HaSlave, "_exchange", late)
            await back(pair, "c2")
            await trio.sleep(2)
            assert end(pair.slave) == 5
            await until(lambda: end(pair.slave) == 10, 20)
            await trio.sleep(3)
            # then it knows them
            assert pair.slave.history.value == pair.master.history.value
            assert at(pair.slave) == 10

    run(scenario)


def test_a_master_that_lost_messages_goes_on_before_the_new_ones() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            lost_from = await lose_tail(pair)
            # then the group reads all of the new ones
            assert at(pair.master) == lost_from
            # and a clean stop, or the end of the process alone, begins no new life of the log
            lives = pair.master.history.value
            assert len(lives.lives) == 2
            await pair.cluster.kill("c1")
            await back(pair, "c1")
            assert pair.master.history.value == lives

    run(scenario)


def test_a_consumer_that_remembers_more_than_the_master_skips_nothing() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            lost_from = await lose_tail(pair)
            # when a consumer that has gone on to 105 in its memory commits and asks there
            await pair.commit(105)
            assert at(pair.master) == lost_from
            pull = first_pull("orders") | {"queueOffset": "105"}
            moved = await pair.ask(pair.master, RequestCode.PULL_MESSAGE, pull)
            # then it is told where the messages begin that it does not know
            assert (moved.code, (moved.ext or {})["nextBeginOffset"]) == (
                ResponseCode.PULL_OFFSET_MOVED,
                str(lost_from),
            )
            # once: after that the group is believed
            found = await pair.ask(pair.master, RequestCode.PULL_MESSAGE, pull)
            assert found.code == ResponseCode.SUCCESS

    run(scenario)


async def lose_what_no_slave_has(pair: Pair) -> int:
    """Let the master lose messages that its slave never got, and go on with three others which that one gets.

    A group has consumed what was lost, to 105. Returns the first offset that was lost.
    """
    await pair.send(4)
    await send(pair, 100 - end(pair.master), b"durable")
    await pair.commit(90)
    await trio.sleep(DURABLE_SECONDS)
    await until(lambda: end(pair.slave) == 100, 5)
    await pair.cluster.kill("c2")
    await send(pair, 5, b"lost")
    await pair.commit(105)
    await pair.cluster.kill("c1", power=True)
    await back(pair, "c1")
    await back(pair, "c2")
    await online(pair)
    lost_from = end(pair.master)
    assert 100 <= lost_from < 105
    await send(pair, 3, b"new")
    await until(lambda: end(pair.slave) == end(pair.master) == lost_from + 3, 10)
    return lost_from


async def pulled(pair: Pair, broker: Broker, offset: int) -> tuple[int, str]:
    answer = await pair.ask(broker, RequestCode.PULL_MESSAGE, first_pull("orders") | {"queueOffset": str(offset)})
    return answer.code, (answer.ext or {})["nextBeginOffset"]


def test_a_consumer_that_reads_at_the_slave_first_is_not_sent_back_by_the_master() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            lost_from = await lose_what_no_slave_has(pair)
            # when the group goes on at the slave, where it stood when the master died, and then at the master
            assert await pulled(pair, pair.slave, lost_from) == (ResponseCode.SUCCESS, str(lost_from + 3))
            await send(pair, 1, b"newer")
            # then it gets what it has not got yet
            assert await pulled(pair, pair.master, lost_from + 3) == (ResponseCode.SUCCESS, str(lost_from + 4))

    run(scenario)


def test_a_consumer_that_remembers_more_than_the_master_skips_nothing_at_the_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            lost_from = await lose_what_no_slave_has(pair)
            moved = ResponseCode.PULL_OFFSET_MOVED, str(lost_from)
            # when a consumer that has read what was lost asks the slave, then it is told where to go on
            assert await pulled(pair, pair.slave, lost_from + 1) == moved
            # and believed from now on, here and there
            for broker in (pair.slave, pair.master):
                assert await pulled(pair, broker, lost_from + 1) == (ResponseCode.SUCCESS, str(lost_from + 3))

    run(scenario)


def test_a_slave_asks_no_more_once_its_master_doubts_nobody() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(10, 3)
            assert pair.slave.first_reads.active
            assert (await pulled(pair, pair.slave, 0))[0] == ResponseCode.SUCCESS
            assert not pair.slave.first_reads.active

    run(scenario)


@pytest.mark.parametrize("knows_history", [True, False])
def test_a_slave_whose_log_has_parted_does_not_move_the_group_beyond_the_common_point(knows_history: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            lost_from = await lose_tail(pair)
            # given a slave with the other log that acts when the master has died again
            await trio.sleep(1)
            await pair.cluster.kill("c1")
            await back(pair, "c2")
            await until(lambda: "schedule" in pair.slave.services.running(), 20)
            if not knows_history:  # as one of the reference
                pair.slave.history.value = LogHistory()
            assert at(pair.slave) == 105
            pair.slave.slave_sync.round = refuse  # type: ignore[method-assign]  # it is asked before it can look itself
            # when the master is back
            await back(pair, "c1")
            await online(pair)
            # then the group has not moved, and the report says why
            assert at(pair.master) == lost_from
            report = await pair.ask(pair.master, RequestCode.GET_PRE_ONLINE_REPORT)
            assert Reason.OTHER_HISTORY.value in report.body.decode()

    run(scenario)


def test_a_slave_whose_log_has_parted_forgets_what_was_made_in_the_lost_messages() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            lost_from = await lose_tail(pair)
            await back(pair, "c2")
            assert at(pair.slave) == 105
            await until(lambda: at(pair.slave) == lost_from, 10)
            # it goes on with what its master says, under the history that it had, for its log is still another one
            here = first_pull("orders") | {"queueOffset": str(lost_from)}
            await pair.ask(pair.master, RequestCode.PULL_MESSAGE, here)
            await pair.commit(lost_from + 3)
            await until(lambda: at(pair.slave) == lost_from + 3, 5)
            assert len(pair.slave.history.value.lives) == 1
            # and when it acts for a while, the master takes nothing back but what both logs have
            await trio.sleep(3)
            await pair.cluster.kill("c1")
            await until(lambda: "schedule" in pair.slave.services.running(), 10)
            await pair.commit(lost_from + 5, broker=pair.slave)
            await back(pair, "c1")
            await online(pair)
            assert at(pair.master) == lost_from + 3

    run(scenario)


def test_a_slave_whose_log_continues_takes_over_the_history_durably() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(10, 3)
            await until(lambda: pair.slave.history.value == pair.master.history.value != LogHistory(), 5)
            await trio.sleep(DURABLE_SECONDS)
            # when the master loses its power, but nothing of its log
            await pair.cluster.kill("c1", power=True)
            await back(pair, "c1")
            await online(pair)
            assert at(pair.master) == 3
            await until(lambda: pair.slave.history.value == pair.master.history.value, 10)
            assert len(pair.slave.history.value.lives) == 2
            value = pair.slave.history.value
            await trio.sleep(1)
            await pair.cluster.kill("c2", power=True)
            await back(pair, "c2")
            assert pair.slave.history.value == value

    run(scenario)


def test_a_slave_whose_log_is_seen_to_continue_late_knows_what_the_group_has_consumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, continued_since = False, Replication.continued_since

    def late(self: Replication, moment: float) -> bool:
        return seen and continued_since(self, moment)

    async def scenario(source: random.Random) -> None:
        nonlocal seen
        async with open_pair(source, ACTING, ACTING) as pair:
            await pair.in_step(10, 3)
            await trio.sleep(DURABLE_SECONDS)
            # given a master that has begun another life of its log, and a slave that has not seen it go on with its own
            monkeypatch.setattr(Replication, "continued_since", late)
            await pair.cluster.kill("c1", power=True)
            await back(pair, "c1")
            await online(pair)
            await send(pair, 5, b"new")
            await until(lambda: end(pair.slave) == end(pair.master), 10)
            here = first_pull("orders") | {"queueOffset": str(end(pair.master) - 5)}
            await pair.ask(pair.master, RequestCode.PULL_MESSAGE, here)
            await pair.commit(end(pair.master))
            await until(lambda: pair.slave.slave_sync.parted, 10)
            await trio.sleep(3)
            assert at(pair.slave) < at(pair.master)
            # when it sees that, and the group consumes nothing more
            seen = True
            await until(lambda: pair.slave.history.value == pair.master.history.value, 10)
            # then it knows all the same where the group is
            await until(lambda: at(pair.slave) == at(pair.master), 2)

    run(scenario)


@pytest.mark.parametrize("lost", [0, 1, 5])
def test_where_two_logs_part_is_found_by_their_bytes(lost: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await send(pair, 30, b"both")
            await until(lambda: end(pair.slave) == 30, 5)
            await trio.sleep(DURABLE_SECONDS)
            common = pair.master.store.max_physical_offset
            await send(pair, lost, b"lost")
            await until(lambda: end(pair.slave) == 30 + lost, 5)
            await pair.cluster.kill("c1", power=True)
            await back(pair, "c1")
            await trio.sleep(1)
            slave = Member(1, pair.slave.identity.address)
            # a log that is only longer or shorter has not parted
            assert await common_end(pair.master, slave) == math.inf
            kept = pair.master.store.max_physical_offset
            assert common <= kept
            await send(pair, 12, b"new")
            await trio.sleep(20)
            parted = pair.slave.store.max_physical_offset > kept and end(pair.slave) == 30 + lost
            assert parted is (lost > 0)
            assert await common_end(pair.master, slave) == (kept if parted else math.inf)

    run(scenario)
