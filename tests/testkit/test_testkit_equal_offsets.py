"""Replicas whose offsets differ at the end of a drill are told, with what each of them has."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock

from understudy.broker.replicated import offsets as replicated_offsets
from understudy.broker.replicated.rules import OffsetsAnswer, ReplicaTableError, read_offsets
from understudy.format.json_dialect import dumps
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import real_world
from understudy.testkit.drills import migrate
from understudy.testkit.drills.equal_offsets import (
    DIFFERENT_OFFSETS,
    EQUAL_SECONDS,
    differing,
    offsets_in,
    told,
    with_offsets,
)
from understudy.testkit.drills.led import LedDrill
from understudy.testkit.drills.led_replicas import KINDS, PORTS
from understudy.testkit.drills.led_runs import tell
from understudy.testkit.drills.process_traffic import OurTraffic
from understudy.testkit.history import Verdict
from understudy.testkit.sim.determinism import run_seed

RIGHT = Verdict(1, 1, 0, ())


def body_of(table: object) -> bytes:
    return dumps({"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 0}, "offsetTable": table})


@attrs.define
class Replica:
    """Answers with its offsets: those of later answers once it was asked *until* times; none where *mute*."""

    consumers: dict[str, dict[str, int]]
    levels: dict[str, int] = attrs.field(factory=dict)
    later: dict[str, dict[str, int]] | None = None
    until: int = 0
    mute: bool = False
    asked: int = 0

    async def ask(self, code: RequestCode) -> Command:
        if self.mute:
            raise RemotingError("127.0.0.1:1", "nobody is there")
        if code is RequestCode.GET_ALL_DELAY_OFFSET:
            return response(request(code), body=body_of(self.levels))
        self.asked += 1
        table = self.later if self.later is not None and self.asked > self.until else self.consumers
        return response(request(code), body=body_of(table))


AT_7 = {"orders@readers": {"0": 7, "1": 3}}
AT_5 = {"orders@readers": {"0": 5, "1": 3}}


def test_offsets_of_groups_and_levels_are_read_as_real_brokers_write_them() -> None:
    real = b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},"offsetTable":{"orders@readers":{0:7,1:3}}}'
    levels = b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},"offsetTable":{2:9,3:0}}'
    assert {
        ("readers", "orders, queue 0"): 7,
        ("readers", "orders, queue 1"): 3,
        ("delayed messages", "level 2"): 9,
    } == offsets_in(real, levels)
    with pytest.raises(ReplicaTableError):
        offsets_in(b"{", levels)


def test_a_difference_names_group_queue_and_what_each_has() -> None:
    tables = {
        "a": offsets_in(body_of(AT_7), body_of({"2": 9})),
        "b": offsets_in(body_of(AT_5), body_of({"2": 8})),
        "c": offsets_in(body_of({}), body_of({"2": 9})),
    }
    found = differing(tables)
    assert [
        "delayed messages in level 2: a 9, b 8, c 9",
        "readers in orders, queue 0: a 7, b 5, c none",
        "readers in orders, queue 1: a 3, b 3, c none",
    ] == [each.detail for each in found]
    assert {DIFFERENT_OFFSETS} == {each.rule for each in found}
    assert [] == differing({"a": tables["a"], "b": tables["a"]})
    (silent,) = differing({"a": tables["a"], "b": None})
    assert "b did not say" in silent.detail


async def test_slaves_have_time_to_copy_but_not_for_ever(autojump_clock: MockClock) -> None:
    master, slave = Replica(AT_7), Replica(AT_5, later=AT_7, until=20)
    began = autojump_clock.current_time()
    assert (await with_offsets(RIGHT, {"master": master.ask, "slave": slave.ask})).ok
    assert 0 < autojump_clock.current_time() - began < EQUAL_SECONDS
    # when it never copies, or does not answer, then that is a violation beside the others
    for stays in (Replica(AT_5), Replica(AT_7, mute=True)):
        began = autojump_clock.current_time()
        verdict = await with_offsets(RIGHT, {"master": master.ask, "slave": stays.ask})
        assert autojump_clock.current_time() - began == pytest.approx(EQUAL_SECONDS, abs=1)
        (found,) = verdict.violations
        assert "slave" in found.detail
        assert "offsets of all replicas: different in 1 places" == told(verdict)


class Brokers:
    """Stands in for connections to replicas, by their ports."""

    def __init__(self, replicas: dict[int, Replica]) -> None:
        self._replicas = replicas

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        return await self._replicas[int(address.rpartition(":")[2])].ask(RequestCode(command.code))


@pytest.mark.parametrize("slave", [AT_7, AT_5], ids=["equal", "behind"])
async def test_the_drill_of_a_led_group_compares_them(
    tmp_path: Path, autojump_clock: MockClock, slave: dict[str, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    replicas: dict[int, Replica] = {}
    client = cast(RemotingClient, Brokers(replicas))
    drill = LedDrill(tmp_path, range(1, PORTS + 1), client, None, real_world(), KINDS["mixed"])
    drill.traffic = OurTraffic()
    replicas |= zip(drill.broker_ports, (Replica(AT_7), Replica(AT_7), Replica(slave)), strict=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(drill.world.clock, "sleep", trio.sleep)
        monkeypatch.setattr(drill.traffic, "stop_sending", nothing)
        verdict = await drill.end(drill.traffic)
    assert tell(drill, verdict) is (slave is AT_7)
    printed = capsys.readouterr().out
    line = "offsets: readers in orders, queue 0: replica 0 (ours) 7, replica 1 (ours) 7, replica 2 (java) 5\n"
    assert (line in printed) is (slave is AT_5)


async def nothing() -> None: ...


def forgetful(body: bytes) -> OffsetsAnswer:
    """Read another replica's offsets, but not that of queue 0."""
    answer = read_offsets(body)
    table = {key: {queue: offset for queue, offset in rows.items() if queue} for key, rows in answer.table.items()}
    return attrs.evolve(answer, table=table)


def test_a_migration_whose_slaves_do_not_copy_offsets_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated_offsets, "read_offsets", forgetful)
    said: list[str] = []

    async def play(source: random.Random) -> Verdict:
        return await migrate.migrate(source, acting=False, say=said.append)

    verdict = run_seed(play, 1)
    found = [each.detail for each in verdict.violations if each.rule == DIFFERENT_OFFSETS]
    (orders,) = [each for each in found if each.startswith("readers in orders, queue 0: b1 ")]
    assert re.search(r"b1 (\d+|none), b2 (\d+|none), b3 (\d+|none)$", orders), orders
    assert f"offsets of all replicas: different in {len(found)} places" == said[-1]
