"""A slave that gives its log slowly keeps no hole of its master open that another one can fill."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from container_ring import run
from test_container_live_holes import NOBODY_ACTS
from test_container_master_holes import Pair, open_filled_pair

from understudy.broker.broker import Broker
from understudy.container.master_holes import PATIENCE_SECONDS
from understudy.container.preonline import holes
from understudy.container.preonline.handshake import Member
from understudy.testkit.waiting import until


def slow_down(monkeypatch: pytest.MonkeyPatch, pair: Pair, hosts: Sequence[str]) -> None:
    """Have slaves on *hosts* give 100 bytes in two seconds."""
    read = holes.read_log
    slow = tuple(pair.cluster.address(host) + ":" for host in hosts)

    async def slowly(broker: Broker, member: Member, offset: int, **named: Any) -> Any:
        part, end, told = await read(broker, member, offset, **named)
        if member.address.startswith(slow):
            await trio.sleep(2)
            part = part[:100]
        return part, end, told

    monkeypatch.setattr(holes, "read_log", slowly)


@pytest.mark.parametrize("together", [False, True])
def test_a_slow_slave_does_not_keep_others_from_filling_a_hole(monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            await pair.add_third(**NOBODY_ACTS)
            if not together:
                await pair.cluster.kill("c2")
                await pair.cluster.kill("c3")
            await pair.lose([pair.starts[1] + 2_000])
            slow_down(monkeypatch, pair, ["c2"])
            began = trio.current_time()
            await pair.cluster.restart("c1")
            await pair.online()
            if together:  # then it is filled before another message could get the place of a lost one
                await until(lambda: pair.master.store.hole is None, 6)
                assert trio.current_time() - began < PATIENCE_SECONDS
                return
            await pair.cluster.restart("c2")
            await trio.sleep(10)
            await pair.cluster.restart("c3")
            await until(lambda: pair.master.store.hole is None, 60)

    run(scenario)


def test_a_slave_that_comes_when_a_slow_one_was_asked_for_long_is_asked_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_filled_pair(source, **NOBODY_ACTS) as pair:
            await pair.add_third(**NOBODY_ACTS)
            await pair.cluster.kill("c3")
            await pair.lose([pair.starts[1] + 2_000])
            slow_down(monkeypatch, pair, ["c2"])
            await pair.cluster.restart("c1")
            await pair.online()
            await trio.sleep(300)
            assert pair.master.store.hole is not None
            await pair.cluster.restart("c3")
            await until(lambda: pair.master.store.hole is None, 400)

    run(scenario)
