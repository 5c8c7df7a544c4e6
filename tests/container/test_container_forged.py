"""What a slave is told by anyone who reaches its port: it believes a returning master only where others agree."""

from __future__ import annotations

import random

import pytest
import trio
from container_ring import TOPIC, acting, open_ring, run

from understudy.broker.announcement import STAND_BACK_SECONDS, Claim, Patience, contradiction
from understudy.broker.member_events import AskSettings
from understudy.mqclient.message import Message
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until


@pytest.mark.parametrize("forged", ["another master", "another log", "no address"])
def test_a_forged_return_of_the_master_does_not_touch_replication(forged: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            sender = master.replication.master
            assert sender is not None
            # given a group in which everyone copies
            ext = {"masterAddress": master.identity.address, "masterHaAddress": "10.9.9.9:10912"}
            if forged == "another master":
                ext["masterAddress"] = "10.9.9.9:10911"
            elif forged == "no address":
                del ext["masterAddress"]
            assert sender.connection_count == 2
            # when somebody tells its slave that a master comes back elsewhere
            answer = await ring.ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, {**ext, "masterFlushOffset": "0"})
            # then it is refused, with the reason
            assert (answer.code, "not believed" in str(answer.remark)) == (1, True)
            # and the slave follows its master as before: no connection ends, no send waits
            for _ in range(30):
                began = trio.current_time()
                await ring.producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "g0", 0))
                assert trio.current_time() - began < 0.5
                assert sender.connection_count == 2
                assert slave.replication.master_address == master.identity.address
                await trio.sleep(0.2)

    run(scenario)


def test_a_forged_return_does_not_end_the_acting_of_a_slave() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            address = ring.broker("g0", 0).identity.address
            await ring.cluster.kill("c1")
            slave = ring.broker("g0", 1)
            await until(lambda: slave in acting(ring), 5)
            # when somebody says that the dead master, or another broker in its place, comes back
            for claimed in (address, ring.broker("g1", 0).identity.address):
                ext = {"masterAddress": claimed, "masterHaAddress": "10.9.9.9:10912", "masterFlushOffset": "0"}
                answer = await ring.ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
                assert answer.code == 1
            # then the slave goes on
            await trio.sleep(1)
            assert slave in acting(ring)

    run(scenario)


def test_a_forged_notice_that_the_master_is_gone_is_only_a_reason_to_ask() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            sender = master.replication.master
            assert sender is not None
            asked, look = list[float](), slave.member_group._round

            async def noted() -> list[AskSettings]:
                asked.append(trio.current_time())
                return await look()

            slave.member_group._round = noted  # type: ignore[method-assign]
            # when somebody who is no name server says that the master has left
            ext = {
                "minBrokerId": "1",
                "minBrokerAddr": slave.identity.address,
                "offlineBrokerAddr": master.identity.address,
            }
            assert (await ring.ask(slave, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext)).code == 0
            # then the slave neither acts nor leaves its master, not even for a moment
            for _ in range(500):
                assert slave not in acting(ring)
                assert slave.replication.master_address == master.identity.address
                await trio.sleep(0.001)
            assert sender.connection_count == 2
            assert asked

    run(scenario)


def test_what_name_servers_show_is_looked_at_first() -> None:
    claim = Claim("m:1", "m:2")
    assert contradiction(claim, None) == contradiction(claim, {1: "s:1"}) == contradiction(claim, {0: "m:1"}) == ""
    assert "at o:1" in contradiction(claim, {0: "o:1"})
    assert "missing" in contradiction(Claim(None, "m:2"), None)


def test_a_forged_successor_does_not_keep_a_slave_from_acting() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            # given the last slave of a group, which acts
            for host in ("c1", "c2"):
                await ring.cluster.kill(host)
            slave = ring.broker("g0", 2)
            await until(lambda: slave in acting(ring), 15)
            # when somebody says that a slave comes, who is not there, or is another broker
            for address in (None, "10.9.9.9:10911", ring.broker("g2", 0).identity.address, slave.identity.address):
                ext = {"successorId": "1"} | ({"successorAddress": address} if address else {})
                answer = await ring.ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
                assert (answer.code, "not believed" in str(answer.remark)) == (1, True)
                # then it acts on
                assert "schedule" in slave.services.running()

    run(scenario)


def test_slaves_that_say_they_come_are_waited_for_half_of_the_time_at_most() -> None:
    patience, step = Patience(), STAND_BACK_SECONDS / 10
    believed = [patience.lasts(number * step) for number in range(60)]
    assert believed == ([True] * 10 + [False] * 10) * 3
