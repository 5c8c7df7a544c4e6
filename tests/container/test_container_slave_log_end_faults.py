"""What may go wrong while a slave takes what its log lacks from the one that acts, and what it does then."""

from __future__ import annotations

import random

import trio
from container_ring import cut_between, run
from test_container_lost_end import content, copied, open_group
from test_container_slave_log_end import acts

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
