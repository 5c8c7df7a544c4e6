"""What the blocking and the asyncio client cost beside the trio client, in the same run."""

from __future__ import annotations

import pytest

from understudy.testkit.bench import doors

pytestmark = pytest.mark.slow
NOISE = 0.15
"""How much of a share a busy machine may take: the bounds themselves are held by ``understudy bench doors``."""


@pytest.mark.parametrize(
    ("name", "door", "tasks"), [("blocking", doors.blocking_round, 1), ("asyncio", doors.asyncio_round, 64)]
)
def test_a_send_through_a_door_costs_little_more_than_one_of_the_trio_client(
    name: str, door: doors.Round, tasks: int
) -> None:
    with doors.cluster_process() as namesrv:
        found = doors.compare(namesrv, name, door, tasks, 640, 3)
    assert found.processor_ratio >= doors.WANTED[name] - NOISE, found


@pytest.mark.parametrize(("wanted", "code", "says"), [(0.01, 0, ": ok;"), (50.0, 1, "TOO SLOW")])
def test_a_door_that_is_too_slow_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wanted: float, code: int, says: str
) -> None:
    monkeypatch.setattr(doors, "WANTED", {"blocking": 0.0, "asyncio": wanted})
    assert doors.main(["--messages", "128", "--rounds", "1"]) == code
    blocking, asyncio = capsys.readouterr().out.splitlines()
    assert says in asyncio and ": ok;" in blocking
