"""What a slave handed out gets to a returning master that does not ask for it, as one of the reference does not."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest
import trio
from container_ring import TOPIC, Ring, open_ring, records, run

from understudy.broker.admin.copied_tables import CopiedPops
from understudy.broker.inner import InnerMessage
from understudy.broker.pop.acting import ActingPops
from understudy.broker.pop.revive_log import Ack, CheckPoint, Entry, Key, message_of, read_entry
from understudy.broker.pop.stepped_clock import ClockSteps
from understudy.broker.replicated.acting_pops import HOME_AT_ONCE, Home, ReplicatedActingPops
from understudy.broker.replicated.table import Answer, Source
from understudy.format import names
from understudy.mqclient.errors import ClientError
from understudy.mqclient.message import Message
from understudy.mqclient.pop import ack, pop
from understudy.mqclient.popped import PoppedMessage, PopRequest
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.subscription import subscription
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.testkit.waiting import until

GROUP = "poppers"
COUNT = 16
INVISIBLE_MS = 40_000


async def unknown(self: CopiedPops, connection: Connection, command: Command) -> Command:
    return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 956 not supported")


async def pop_all(ring: Ring, count: int) -> list[PoppedMessage]:
    """Pop *count* messages of g0, wherever they are handed out now."""
    wanted = PopRequest(GROUP, subscription(TOPIC, "*", 1), "g0", invisible_ms=INVISIBLE_MS, hold_ms=0)
    found: list[PoppedMessage] = []
    with trio.fail_after(20):
        while len(found) < count:
            try:
                found += await pop(ring.producer.session, wanted)
            except ClientError:
                await trio.sleep(0.5)
                await ring.producer.session.renew_route(TOPIC)
    return found


@pytest.mark.covers("R53")
@pytest.mark.parametrize("popped_before", [0, 4])
def test_a_master_that_does_not_ask_gets_what_was_handed_out_for_it(
    popped_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the master has handed out some of it itself, and only the acknowledgement came to the slave."""
    monkeypatch.setattr(CopiedPops, "acting_pops", unknown)

    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            for number in range(COUNT):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "g0", 0))
                if number == popped_before - 1:
                    early = await pop_all(ring, popped_before)
            await trio.sleep(1.5)
            # given a slave that hands out, and takes some acknowledgements, for a dead master
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: "pop revive" in slave.services.running(), 20)
            late = await pop_all(ring, COUNT - popped_before)
            popped = [*early, *late] if popped_before else late
            for each in popped[::4]:
                await ack(ring.producer.session, each)
            # when the master is back, and further ones are acknowledged to it by the receipts of then
            await ring.cluster.restart("c1")
            await ring.online()
            await until(lambda: slave.acting_pops.empty, 20)
            await ring.producer.session.renew_route(TOPIC)
            await ring.producer.send(Message(TOPIC, b"new"), queue=MessageQueue(TOPIC, "g0", 0))
            (new,) = await pop_all(ring, 1)  # a group that began at the slave is new to the master
            for each in (new, *popped[1::4]):
                await ack(ring.producer.session, each)
            await trio.sleep(60)
            # then the master alone brings the others back, each once
            left = Counter(each.message.body.decode() for number, each in enumerate(popped) if number % 4 > 1)
            topic = names.pop_retry_topic(GROUP, TOPIC)
            masters = [ring.broker(group, 0) for group in ring.shape.groups]
            found = [Counter(each.body.decode() for each in records(broker, topic)) for broker in masters]
            assert found == [left, Counter(), Counter()]

    run(scenario)


@pytest.mark.covers("R50")
def test_check_points_and_acknowledgements_of_a_slave_all_go_to_one_master_and_each_pair_to_one_queue() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given messages of both queues, some popped at the master, the others at the slave that acts for it
            queues = [MessageQueue(TOPIC, "g0", number) for number in (0, 1)]
            for number in range(COUNT):
                await ring.producer.send(Message(TOPIC, b"%d" % number), queue=queues[number % 2])
            popped = await pop_all(ring, COUNT)
            for number in range(COUNT):
                await ring.producer.send(Message(TOPIC, b"later %d" % number), queue=queues[number % 2])
            await trio.sleep(1.5)
            await ring.cluster.kill("c1")
            await until(lambda: "pop revive" in ring.broker("g0", 1).services.running(), 20)
            popped += await pop_all(ring, COUNT)
            # when the slave takes some acknowledgements, and the master that is back some
            for each in popped[::4]:
                await ack(ring.producer.session, each)
            await ring.cluster.restart("c1")
            await ring.online()
            await ring.producer.session.renew_route(TOPIC)
            for each in popped[1::4]:
                await ack(ring.producer.session, each)
            await trio.sleep(60)
            # then the revive topic of that master has them all, and no other one has any
            places = dict[Key, set[int]]()
            kinds, acknowledged = Counter[str](), Counter[int]()
            for group in ring.shape.groups:
                revive = ring.broker(group, 0).pops.log.topic
                for record in records(ring.broker(group, 0), revive):
                    assert group == "g0"
                    kind = record.properties["TAGS"]
                    kinds[kind] += 1
                    entry = read_entry(kind, record.body, group)
                    places.setdefault(entry.key, set()).add(record.queue_id)
                    acknowledged.update(entry.offsets if isinstance(entry, Ack) else ())
            # and what belongs together is in the queue that its receipts name
            named = {
                (TOPIC, GROUP, each.queue_id, each.start_offset, each.pop_ms, "g0"): {each.revive_queue}
                for each in (one.receipt for one in popped)
            }
            assert {key: places.get(key) for key in named} == named
            assert kinds["ck"] == len(named)
            # where the acknowledgements are beside them, but of what the slave had done alone
            assert acknowledged == Counter(one.receipt.offset for one in [*popped[:COUNT:4], *popped[1::4]])

    run(scenario)


def table(own_id: int = 1) -> ActingPops:
    acting = ActingPops("g0", lambda: own_id, lambda: 1_000, ClockSteps())
    point = CheckPoint("T", "g", 0, 0, 500, 60_000, "g0", (0, 1))
    for start in range(0, 2 * HOME_AT_ONCE + 2, 2):
        moved = attrs.evolve(point, start_offset=start, offsets=(start, start + 1))
        acting.add(moved, 3, moved.revive_ms, logged=False)
    acting.add(Ack(attrs.evolve(point, queue_id=9).key, (5,)), 4, 60_500, logged=False)
    return acting


def home(acting: ActingPops, *, may: bool = True) -> ReplicatedActingPops:
    def message(entry: Entry, queue: int, deliver_ms: int) -> InnerMessage:
        return message_of(entry, "revive", queue, deliver_ms, 1_000, b"\x0a\0\0\x09\0\0\x1f\x90")

    return ReplicatedActingPops(
        acting, lambda: ActingPops("g0", lambda: 1, lambda: 1_000, ClockSteps()), Home(lambda: may, message)
    )


def test_entries_go_home_in_pieces_check_points_first() -> None:
    acting = table()
    copying = home(acting).copying(Source("master"))
    first = copying.otherwise()
    assert len(first) == HOME_AT_ONCE
    assert {each.code for each in first} == {RequestCode.SEND_MESSAGE_V2}
    assert (first[0].ext["b"], first[0].ext["e"]) == ("revive", "3")
    assert "TIMER_DELIVER_MS\x0159500\x02" in first[0].ext["i"]
    for each in first:
        each.told()
    (last,) = copying.otherwise()
    last.told()
    (acks,) = copying.otherwise()
    assert (acks.ext["e"], "TIMER_DELIVER_MS\x0160500\x02" in acks.ext["i"]) == ("4", True)
    acks.told()
    assert acting.empty
    assert not copying.otherwise()


def test_a_slave_knows_whether_its_master_asks_for_the_table() -> None:
    acting, slave, master = table(), Source("slave", leads=False), Source("master")
    home(acting).copying(slave).take(Answer({}, b"{}"))
    assert not acting.master_asks
    home(acting).copying(master).take(Answer({}, b"{}"))
    home(acting).copying(slave).otherwise()
    assert acting.master_asks
    home(acting).copying(master).otherwise()
    assert not acting.master_asks


def test_nothing_goes_home_from_who_may_be_wrong_or_to_who_refused() -> None:
    acting = table()
    assert not home(acting).copying(Source("slave", leads=False)).otherwise()
    assert not home(acting, may=False).copying(Source("master")).otherwise()
    copying = home(acting).copying(Source("master"))
    copying.otherwise()[0].refused("no such queue")
    assert not copying.otherwise()
    # another slave has acted since
    other = table(2)
    other.changes[1] = 0
    other.join(acting)
    other.changes = {1: 5, 2: 4}
    assert not home(other).copying(Source("master")).otherwise()
