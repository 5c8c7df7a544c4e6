"""What may go wrong while a slave takes what its log lacks from the one that acts, and what it does then."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from container_ring import cut_between, run
from test_container_lost_end import TOPIC, Group, content, copied, open_group
from test_container_slave_log_end import acts, in_pieces, second_slave_acts

from understudy.broker.admin.raw_log import RawLog
from understudy.broker.broker import Broker
from understudy.broker.log_history import LogHistory
from understudy.container.preonline import completion, holes
from understudy.container.preonline.handshake import Member
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.testkit.waiting import until


def test_a_master_that_died_without_a_word_is_not_waited_for() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            await copied(group, 1, 2)
            await trio.sleep(3)
            # given a slave that nobody reaches for so long that it was dropped; it has missed messages
            for other in ("c1", "n1", "c3"):
                cut_between(group, "c2", other)
            await group.send(20, b"missed")
            await copied(group, 2)
            whole = content(group.master)
            # and a master whose machine has died meanwhile, so that nothing ends the connection between them
            for other in ("n1", "c2", "c3"):
                cut_between(group, "c1", other)
            group.cluster.freeze("c1")
            await until(lambda: acts(group.slave(2)), 15)
            # when the slave is there again, and acts
            for other in ("n1", "c3"):
                slave, there = group.cluster.address("c2"), group.cluster.address(other)
                group.cluster.network.mend(slave, there)
                group.cluster.network.mend(there, slave)
            await until(lambda: acts(group.slave(1)), 30)
            # then it has all that the other one has
            assert content(group.slave(1)) == content(group.slave(2)) == whole

    run(scenario)


def test_one_time_out_after_a_long_time_is_no_reason_to_act_with_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, preOnlineMaxWaitMillis="5000") as group:
            whole = await second_slave_acts(group, 80)
            # given a slave that takes the log for longer than it is patient
            asked = in_pieces(monkeypatch, 0.5)
            slowly = completion.read_log

            async def silent_now_and_then(broker: Broker, member: Member, offset: int) -> Any:
                if len(asked) % 14 == 13:
                    asked.append(offset)
                    raise RemotingError("s2:1", "timed out")
                return await slowly(broker, member, offset)

            monkeypatch.setattr(completion, "read_log", silent_now_and_then)
            # when the other one does not answer at once each time
            await group.cluster.restart("c2")
            await until(lambda: acts(group.slave(1)), 300)
            # then it has everything all the same
            assert len(asked) > 28
            assert content(group.slave(1)) == whole

    run(scenario)


def test_a_slave_whose_disk_is_full_leaves_it_to_the_other_one_until_there_is_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, preOnlineMaxWaitMillis="5000") as group:
            whole = await second_slave_acts(group, 100)
            await group.commit(group.slave(2), 20)
            asked = in_pieces(monkeypatch, 0.1)
            await group.cluster.restart("c2")
            await until(lambda: len(asked) > 2, 30)
            group.cluster.disk_full("c2")
            await trio.sleep(60)
            # given a slave that cannot take what it lacks, the other one goes on
            assert not acts(group.slave(1))
            assert acts(group.slave(2))
            rules = group.slave(1).session.rules
            assert any("No space left" in each for each in rules.warnings)
            # and what it knows is known here
            assert group.slave(1).offsets.query("readers", TOPIC, 0) == 20
            # until there is space
            group.cluster.disk_full("c2", False)
            await until(lambda: acts(group.slave(1)), 30)
            store = group.slave(1).store
            begin, end = store.min_physical_offset, store.max_physical_offset
            assert end == len(whole)
            assert bytes(store.slice(begin, 1_000)) == whole[begin : begin + 1_000]
            await until(lambda: not acts(group.slave(2)), 10)

    run(scenario)


def test_a_slave_does_not_act_for_one_whose_log_begins_behind_its_own_end() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2, haTransferWholeLog="false", preOnlineMaxWaitMillis="5000") as group:
            await copied(group, 1, 2)
            await group.cluster.kill("c2")
            await group.send(100, b"missed")
            # given a slave that got a new disk while another one was away, and has the last file only
            await group.cluster.kill("c3")
            group.cluster.host("c3").disk.wipe()
            await group.cluster.restart("c3")
            await until(lambda: group.slave(2).store.max_physical_offset == group.end, 30)
            await trio.sleep(4)
            await group.cluster.kill("c1")
            await until(lambda: acts(group.slave(2)), 30)
            # when the other one is back, which cannot go on there
            await group.cluster.restart("c2")
            assert group.slave(1).store.max_physical_offset < group.slave(2).store.min_physical_offset
            await trio.sleep(60)
            # then it leaves it to that one
            assert acts(group.slave(2))
            assert not acts(group.slave(1))
            # as long as it is there
            await group.cluster.kill("c3")
            await until(lambda: acts(group.slave(1)), 90)

    run(scenario)


def test_a_slave_acts_where_the_one_that_has_more_does_not() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            whole = await second_slave_acts(group)
            # given a slave that has lost messages out of the middle of its log, behind what the other one has
            await group.cluster.kill("c3", power=True)
            at = (group.durable + len(whole)) // 2
            lose(group, "c3", "/data/g-2", at)
            await group.cluster.restart("c3")
            hole = group.slave(2).store.hole
            assert hole is not None
            assert group.durable < hole < len(whole)
            await trio.sleep(12)
            assert not acts(group.slave(2))
            # when the other one comes back
            await group.cluster.restart("c2")
            await until(lambda: acts(group.slave(1)), 30)
            # then it acts with what could be given
            assert content(group.slave(1)) == whole[:hole]

    run(scenario)


def lose(group: Group, host: str, folder: str, at: int) -> None:
    """Let a log that lies in its first file have lost bytes with the power."""
    disk = group.cluster.host(host).disk
    disk.damage(f"{folder}/commitlog/{0:020d}", lambda data: data[:at] + bytes(50) + data[at + 50 :])
    if disk.exists(f"{folder}/recovery.mark"):
        disk.remove(f"{folder}/recovery.mark")


def test_what_stands_before_a_hole_is_given() -> None:
    log, hole = bytes(range(100)), 40
    store = SimpleNamespace(
        hole=hole,
        min_physical_offset=0,
        max_physical_offset=len(log),
        slice=lambda offset, size: memoryview(log[offset : offset + size]),
    )
    raw = RawLog(cast(Any, store), cast(Any, SimpleNamespace(value=LogHistory())))
    answer = raw.read(cast(Any, None), request(RequestCode.READ_LOG, {"offset": "10"}))
    assert answer.body == log[10:hole]
    assert ((answer.ext or {})["maxOffset"], (answer.ext or {})["missingFrom"]) == ("100", "40")
    for offset in (hole, 99, 100):
        with pytest.raises(CommandError, match="missing in this log from 40 on"):
            raw.read(cast(Any, None), request(RequestCode.READ_LOG, {"offset": str(offset)}))
    # its slaves copy also what stands in its place
    answer = raw.read(cast(Any, None), request(RequestCode.READ_LOG, {"offset": "50", "standIns": "true"}))
    assert (answer.body, "missingFrom" in (answer.ext or {})) == (log[50:], False)


def test_a_hole_is_looked_at_once_by_each_slave_that_may_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    filled: list[int] = []

    async def fill(broker: Broker, member: Member, hole: int, end: int, until: float) -> str:
        filled.append(member.broker_id)
        return "it has it neither"

    async def scenario(source: random.Random) -> None:
        async with open_group(source, slaves=2) as group:
            whole = await second_slave_acts(group)
            # given a slave with a hole that nobody fills
            lose(group, "c2", "/data/g-1", group.durable // 2)
            monkeypatch.setattr(holes, "fill", fill)
            asked = in_pieces(monkeypatch, 1.0)
            await group.cluster.restart("c2")
            assert group.slave(1).store.hole is not None
            # when it takes what it lacks in several rounds
            await until(lambda: group.slave(1).store.max_physical_offset == len(whole), 60)
            # then it was looked for once
            assert len(asked) > 4
            assert filled == [2]

    run(scenario)
