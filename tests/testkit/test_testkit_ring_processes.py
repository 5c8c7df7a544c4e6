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
TWO = {"inSyncReplicas": "2"}


@pytest.mark.parametrize("of_all", [True, False], ids=["told to all", "told to each"])
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
    figures: dict[str, str], complete: bool, of_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client(real_world()) as client:
        layout = {name: [{**keys, **({} if of_all else TWO)} for keys in LAYOUT[name]] for name in LAYOUT}
        ring = ProcessRing(client, layout, TWO if of_all else None)
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
