"""A slave that copied what stands in for lost messages gets them when its master has them back."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from container_ring import run
from test_container_master_holes import KEYS, content, open_filled_pair

from understudy.container import master_holes
from understudy.container.preonline.handshake import Member
from understudy.testkit.waiting import until

NOBODY_ACTS = {"enableSlaveActingMaster": "false"}


def test_a_slave_that_was_started_again_since_it_copied_a_stand_in_gets_the_messages() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            # given a third member, the only one that has the message
            whole, cluster = content(pair.master), pair.cluster
            keys = {**KEYS, **NOBODY_ACTS, "brokerId": "2", "brokerRole": "SLAVE"}
            await cluster.start_container("c3", [keys])
            await until(lambda: cluster.brokers("c3")["g"].store.max_physical_offset == len(whole), 30)
            await trio.sleep(15)
            await cluster.kill("c3")
            await cluster.kill("c2")
            cluster.host("c2").disk.wipe()
            await pair.lose([pair.starts[1] + 2000])
            await cluster.restart("c1")
            await pair.online()
            await cluster.restart("c2")
            await until(lambda: pair.slave.store.max_physical_offset == len(whole), 30)
            await trio.sleep(15)
            # when the slave that copied the stand-in is started again, before the master gets the message back
            await cluster.stop("c2")
            await cluster.restart("c2")
            await trio.sleep(5)
            assert pair.slave.store.stand_in == pair.starts[1]
            await cluster.restart("c3")
            await until(lambda: pair.master.store.hole is None, 60)
            # then the slave has it in the end
            await until(lambda: content(pair.slave) == whole, 700)
            assert pair.slave.store.stand_in is None

    run(scenario)


@pytest.mark.parametrize(("theirs", "compared"), [(b"v" * 128 + b"more", []), (b"v" * 127 + b"!", [100])])
async def test_a_led_slave_compares_all_that_follows_only_when_its_master_has_something_else(
    monkeypatch: pytest.MonkeyPatch, theirs: bytes, compared: list[int]
) -> None:
    filled: list[int] = []

    async def read_log(
        broker: Any, member: Member, offset: int, **named: bool
    ) -> tuple[memoryview, int, dict[str, str]]:
        return memoryview(theirs), 500, {}

    async def fill(broker: Any, member: Member, hole: int, end: int, *, stand_ins: bool) -> str:
        filled.append(hole if stand_ins else -1)
        return ""

    monkeypatch.setattr(master_holes, "read_log", read_log)
    monkeypatch.setattr(master_holes, "fill", fill)
    store = SimpleNamespace(slice=lambda offset, most: memoryview(b"v" * most), max_physical_offset=500)
    broker: Any = SimpleNamespace(store=store, replication=SimpleNamespace(master_address="m:1"))
    await master_holes.heal(broker, 100)
    assert filled == compared
