"""A group that waits for a member: its brokers ask again and again; each is answered, and why is told once."""

from __future__ import annotations

import pytest
import trio
from controller_desk import Desk
from test_controller_unheard import desk_with_master, elect, group_of
from trio.testing import MockClock

from understudy.controller.commands import ElectMaster, encode
from understudy.controller.election import Live
from understudy.remoting.codes import ResponseCode

GRACE = 11.0
FAILED = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
NOBODY = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE


def lose_master(desk: Desk) -> None:
    """Let the master be deposed, with nobody to follow it."""
    desk.metadata.apply(2, 0, 4, encode(ElectMaster("a", None, False, {2: Live(), 3: Live()}, False)))


async def headless(monkeypatch: pytest.MonkeyPatch) -> tuple[Desk, list[bytes]]:
    """Return a desk whose group has lost its master, the only one of its set, and what goes into its log from then."""
    desk = desk_with_master(1)
    await trio.sleep(GRACE)
    desk.alive("a", [2, 3])
    lose_master(desk)
    assert (group_of(desk).master_id, group_of(desk).master_epoch) == (None, 2)
    written, propose = list[bytes](), desk.quorum.propose

    async def noted(client: str, sequence: int, command: bytes, timeout_seconds: float = 5) -> bytes:
        written.append(command)
        return await propose(client, sequence, command, timeout_seconds)

    monkeypatch.setattr(desk.quorum, "propose", noted)
    return desk, written


@pytest.mark.parametrize(("asks", "code"), [(2, FAILED), (-1, NOBODY)], ids=["a slave", "nobody in particular"])
async def test_who_asks_in_vain_is_told_so_and_nothing_is_written(
    asks: int, code: ResponseCode, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, written = await headless(monkeypatch)
    for _ in range(3):
        answer = await elect(desk, asks)
        assert (answer.code, answer.remark) == (code, "Failed to elect a new master")
    assert (written, group_of(desk).master_epoch) == ([], 2)
    # and who comes back from its set leads
    desk.alive("a", [1])
    assert (await elect(desk, asks)).code == 0
    assert (group_of(desk).master_id, group_of(desk).master_epoch) == (1, 3)


async def test_why_nobody_leads_is_told_once_for_each_reason(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = await headless(monkeypatch)
    records = desk.failover.records

    async def asked() -> int:
        for _ in range(3):
            await elect(desk, 2)
        return len(records)

    before = await asked()
    assert await asked() == before
    # when it is for another reason, it is told again
    await trio.sleep(GRACE)
    desk.alive("a", [2])
    assert await asked() == before + 1
    # and so is the same one after somebody has led meanwhile
    desk.alive("a", [1])
    assert await asked() == before + 2
    await trio.sleep(GRACE)
    desk.alive("a", [2])
    lose_master(desk)
    assert await asked() == before + 3
    assert desk.failover.election_count == before + 3
