"""A ring of processes: when it counts as complete."""

from __future__ import annotations

import pytest

from understudy.remoting.client import open_client
from understudy.runtime.world import real_world
from understudy.testkit.drills.ring_processes import ProcessRing

LAYOUT = {
    "c1": [{"brokerName": "broker-a", "brokerId": "0", "brokerRole": "SYNC_MASTER"}],
    "c2": [{"brokerName": "broker-a", "brokerId": "1", "brokerRole": "SLAVE"}],
}


@pytest.mark.parametrize(
    ("figures", "complete"),
    [
        ({"brokerActive": "true", "copiesNeeded": "2"}, True),
        ({"brokerActive": "true", "copiesNeeded": "1"}, False),  # its slave is listed, but copies nothing yet
        ({"brokerActive": "true", "copiesNeeded": "refused"}, False),
        ({"brokerActive": "false", "copiesNeeded": "2"}, False),
        ({"brokerActive": "true"}, True),  # of the real system, which does not tell
        ({}, False),
    ],
)
async def test_a_ring_is_complete_when_sends_wait_for_their_copies(
    figures: dict[str, str], complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(real_world()) as client:
        ring = ProcessRing(client, LAYOUT, {"inSyncReplicas": "2"})
        try:

            async def members(group: str) -> dict[int, str]:
                return {0: ring.address(group, 0), 1: ring.address(group, 1)}

            async def runtime(group: str, broker_id: int) -> dict[str, str]:
                return figures

            monkeypatch.setattr(ring, "members", members)
            monkeypatch.setattr(ring, "runtime", runtime)

            assert complete == await ring.complete()
        finally:
            ring.close()
