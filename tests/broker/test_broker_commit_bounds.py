"""A consumer commits offsets of its queue and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import open_rig

from understudy.broker.commit_bounds import commit_refusal
from understudy.broker.groups import GroupConfig


@pytest.mark.parametrize(
    ("offset", "end", "is_slave", "allowed"),
    [
        (0, -1, False, True),
        (0, 0, False, True),
        (5, 5, False, True),
        (6, 5, False, False),
        (6, 5, True, True),
        (1, -1, False, False),
        (1_000_000, 5, False, False),
        (-1, 5, False, False),
        (10**30, 5, True, False),
        (2**63 - 1, 5, True, True),
    ],
)
def test_which_offsets_may_be_committed(offset: int, end: int, is_slave: bool, allowed: bool) -> None:
    assert (commit_refusal(offset, end, is_slave=is_slave) is None) is allowed


async def test_commits_beyond_the_queue_are_refused_or_ignored(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        rig.send("T")
        rig.broker.groups.update([GroupConfig("cg")])
        commit = {"consumerGroup": "cg", "topic": "T", "queueId": "0", "commitOffset": "1"}
        assert rig.ask(15, commit).code == 0
        for text in ("2", "2000000", "-1", str(2**62)):
            refused = rig.ask(15, {**commit, "commitOffset": text})
            assert refused.code == 29
            assert "queue 0 of topic T, group cg" in (refused.remark or "")
        for text in ("2", "2000000", str(10**30), "-5"):
            assert rig.pull("T", offset=0, sysFlag="5", commitOffset=text).code == 0
        assert rig.broker.offsets.query("cg", "T", 0) == 1
        assert rig.pull("T", offset=0, sysFlag="5", commitOffset="0").code == 0
        assert rig.broker.offsets.query("cg", "T", 0) == 0
