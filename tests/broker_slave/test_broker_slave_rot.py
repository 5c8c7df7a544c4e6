"""Bytes that rot on the disk of a master or slave: found by a scrub or a reader, and given again by the other one."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from slave_rig import Pair, open_pair, run
from test_broker_slave_holes import STORE, content, filled, same

from understudy.broker.broker import Broker
from understudy.mqclient.admin import cluster
from understudy.mqclient.session import open_session
from understudy.testkit.waiting import until

FILE_BYTES = 64 * 1024
SMALL = {"mappedFileSizeCommitLog": str(FILE_BYTES)}


#: Bytes of a record: of its queue id, queue offset, topic and body.
PARTS = {"queue id": 15, "queue offset": 27, "body": 200, "topic": 88 + 12_000 + 3}


async def rot_while_stopped(pair: Pair, place: int, part: str) -> None:
    """Stop the slave cleanly and change a byte of a record."""
    await pair.cluster.stop("c2")
    start = place - place % FILE_BYTES
    at = place - start + PARTS[part]
    pair.cluster.host("c2").disk.damage(
        f"{STORE}/commitlog/{start:020d}", lambda data: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
    )


async def scrubbed(pair: Pair, broker: Broker) -> dict[str, Any]:
    """Have the log of *broker* compared and return the report."""
    async with open_session(pair.cluster.client_world(), pair.cluster.name_servers) as session:
        report = await cluster.scrub(session, broker.identity.address, start=True)
        while report["running"]:
            await trio.sleep(0.1)
            report = await cluster.scrub(session, broker.identity.address, start=False)
        return report


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("finder", ["reader", "scrub"])
def test_a_slave_gets_what_rotted_from_its_master(finder: str, part: str) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source, SMALL, SMALL) as pair:
            starts = await filled(pair, source)
            whole = content(pair.master)
            # given a slave that was stopped, and one of whose messages rotted since
            await rot_while_stopped(pair, starts[3], part)
            await pair.cluster.restart("c2")
            await until(lambda: same(pair), 10)
            store = pair.slave.store
            assert (store.hole, content(pair.slave) == whole) == (None, False)
            # when a reader or an operator comes upon it
            if finder == "scrub":
                report = await scrubbed(pair, pair.slave)
                assert [starts[3]] == [first for first, _ in report["damaged"]]
                assert len(starts) - 1 == report["records"]
            else:
                for topic, queue_id in store.queues():
                    store.get(topic, queue_id, 0, 32, 1 << 20)
            # then it gets it from its master, and has everything again
            await until(lambda: content(pair.slave) == whole, 30)
            await until(lambda: store.hole is None, 10)
            assert [] == (await scrubbed(pair, pair.slave))["damaged"]

    run(scenario)
