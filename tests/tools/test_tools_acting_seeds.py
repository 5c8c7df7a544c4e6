"""The list of seeds that once broke a promise is what the bench plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from understudy.testkit.sim.seeds import Summary

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_seeds_that_once_broke_a_promise_are_played_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import sim_acting

    played: list[int] = []

    def note(play: object, seeds: list[int], processes: int, replay: object) -> Summary:
        played.extend(seeds)
        return Summary(len(seeds), failing=cast(Any, ["a result"]))

    monkeypatch.setattr(sim_acting, "play_seeds", note)
    assert sim_acting.main(["--broken"]) == 1  # as a seed of it fails
    assert played == sorted(set(played)) == sim_acting.broken()
    assert {208, 20071, 300001} <= set(played)
