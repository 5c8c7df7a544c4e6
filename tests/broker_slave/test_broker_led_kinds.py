"""A slave that learns late that a topic has batch queues makes its queues anew beside its work, or before it leads."""

from __future__ import annotations

import random

import attrs
import pytest
import trio
from test_broker_led_replication import open_group

from understudy.store.batch_topics import QueueKinds
from understudy.testkit.sim.determinism import run_seed


@pytest.mark.parametrize("leads_meanwhile", [False, True])
def test_queues_of_the_other_kind_are_made_anew_before_the_slave_leads(
    leads_meanwhile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(kinds: QueueKinds) -> None:
        await trio.sleep_forever()

    async def scenario(source: random.Random) -> None:
        if leads_meanwhile:
            monkeypatch.setattr(QueueKinds, "run", never)
        async with open_group(source, {}) as group:
            assert await group.send(group.brokers[1], b"first") == 0
            await group.in_step()
            slave = group.brokers[2]
            # given a slave that learns of the attribute after messages
            row = attrs.evolve(slave.topics.rows["orders"], attributes={"queue.type": "BatchCQ"})
            slave.topics.take([row], overwrite=True)
            assert ([*slave.store.batch_topics], slave.store.changing_kinds) == ([], {"orders": True})
            assert group.bodies(slave) == [b"first"]
            if not leads_meanwhile:
                await trio.sleep(0.1)
                assert (slave.store.changing_kinds, group.bodies(slave)) == ({}, [b"first"])
            # when it is elected, then what it is sent goes to batch queues
            await group.elect(2)
            assert (slave.store.changing_kinds, [*slave.store.batch_topics]) == ({}, ["orders"])
            assert await group.send(slave, b"second") == 0
            assert group.bodies(slave) == [b"first", b"second"]

    run_seed(scenario, 3)
