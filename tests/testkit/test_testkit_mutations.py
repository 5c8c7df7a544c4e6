"""Planted faults: each can be planted in today's product, and a hunt tells which seed notices one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.testkit.drills import acting_seeds
from understudy.testkit.led import history as led_history
from understudy.testkit.sim import mutations
from understudy.testkit.sim.mutations import PRODUCT, Mutation, MutationError, hunt, hunt_listed, read_mutations
from understudy.testkit.sim.seeds import SeedResult

BENCH = Path(__file__).parents[2] / "bench"
LED_LISTED = read_mutations(BENCH / "led_mutations.toml")
LISTED = [each for name in ("acting", "controller") for each in read_mutations(BENCH / f"{name}_mutations.toml")]
LISTED += LED_LISTED
GAME = """
import collections
from types import SimpleNamespace

def limit():
    return 5

def play(seed):
    broken = [f"seed {seed} is too large"] if seed > limit() or seed == 1 else []
    return SimpleNamespace(seed=seed, violations=broken, counts=collections.Counter())
"""
LOWER = Mutation("a lower limit", "game.py", "return 5", "return 3")


@pytest.mark.parametrize("mutation", LISTED, ids=[each.name for each in LISTED])
def test_each_listed_mutation_can_be_planted_once(mutation: Mutation) -> None:
    text = (PRODUCT / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1
    compile(text.replace(mutation.old, mutation.new), mutation.file, "exec")


def test_names_of_mutations_tell_them_apart() -> None:
    assert len({each.name for each in LISTED}) == len(LISTED)


# A few that are noticed soon, by different checks; `./understudy bench sim-acting --mutations` plays them all.
QUICK = [
    each
    for each in LISTED
    if each.name
    in (
        "every slave acts, not only the one with the smallest id",
        "a name server drops one broker of a closed connection",
        "routes do not show the acting slave in the place of its master",
        "a master that was dropped only registers again",
    )
]
FAR = ("a master gives way though nobody else of its set lives", "elections go by heartbeats alone")
"""Their seeds are not among those of a fresh hunt; docs/controller.md and the file say so."""
LED = [
    each
    for each in LISTED
    if each.name
    in ("a send is acknowledged before the sync-state set has it", "readers see what not all of the sync-state set has")
]


@pytest.mark.parametrize("mutation", QUICK, ids=[each.name for each in QUICK])
def test_the_judge_of_failovers_still_notices_what_it_has_noticed(mutation: Mutation) -> None:
    assert mutation.seed is not None
    found = hunt(mutation, acting_seeds.play, [mutation.seed], 1)
    assert found is not None, "a simulated failover no longer looks at this, or plays it no longer"


@pytest.mark.parametrize("mutation", LED, ids=[each.name for each in LED])
def test_the_judge_of_led_brokers_still_notices_what_it_has_noticed(mutation: Mutation) -> None:
    assert mutation.seed is not None
    found = hunt(mutation, led_history.play_led, [mutation.seed], 1)
    assert found is not None, "a simulated group no longer looks at this, or plays it no longer"


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], SeedResult]:
    package = tmp_path / "toy_product"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "game.py").write_text(GAME)
    monkeypatch.setattr(mutations, "PRODUCT", package)
    monkeypatch.syspath_prepend(str(tmp_path))
    found: Callable[[int], SeedResult] = importlib.import_module("toy_product.game").play
    return found


def test_a_seed_that_fails_only_with_the_mutation_notices_it(play: Callable[[int], SeedResult]) -> None:
    # seed 1 fails with and without
    assert hunt(LOWER, play, range(10), 2) == (4, "seed 4 is too large")


def test_a_mutation_that_no_seed_notices_is_not_found(play: Callable[[int], SeedResult]) -> None:
    assert hunt(LOWER, play, range(3), 1) is None


@pytest.mark.parametrize("old", ["return 6", "seed"])
def test_a_text_that_does_not_stand_there_once_is_refused(old: str, play: Callable[[int], SeedResult]) -> None:
    with pytest.raises(MutationError, match="holds the text to be replaced"):
        hunt(Mutation("wrong", "game.py", old, ""), play, range(3), 1)


LIST = """
[[mutation]]
name = "what is gone"
file = "game.py"
old = "return 6"
new = "return 3"

[[mutation]]
name = "what is no Python"
file = "game.py"
old = "return 5"
new = "return ("

[[mutation]]
name = "a lower limit"
seed = 5
file = "game.py"
old = "return 5"
new = "return 3"
"""


def test_what_cannot_be_planted_or_played_is_not_found_and_the_others_are_still_hunted(
    play: Callable[[int], SeedResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.toml"
    path.write_text(LIST)
    assert hunt_listed(path, [], play, range(10), 1) == 1
    gone, broken, lower, total = capsys.readouterr().out.splitlines()
    assert "NOT PLANTED: what is gone: game.py holds the text to be replaced 0 times" in gone
    assert "NOT PLAYED" in broken
    assert lower.endswith("seed 5: seed 5 is too large")
    assert total == "3 mutations, 2 not found"


@pytest.mark.parametrize(("fresh", "first"), [(False, 5), (True, 4)])
def test_a_fresh_hunt_does_not_begin_with_the_seed_that_noticed_it_before(
    fresh: bool, first: int, play: Callable[[int], SeedResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.toml"
    path.write_text(LIST)
    assert hunt_listed(path, ["a lower limit"], play, range(10), 1, fresh=fresh) == 0
    assert f"seed {first}: seed {first} is too large" in capsys.readouterr().out


@pytest.mark.parametrize(("seeds", "found"), [(range(3), None), (range(4), 4), (range(2, 10), 4)])
def test_a_hunt_begins_where_the_histories_begin_that_have_what_it_takes(
    seeds: range,
    found: int | None,
    play: Callable[[int], SeedResult],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "list.toml"
    path.write_text(LIST.replace("seed = 5", "first = 1"))
    assert hunt_listed(path, ["a lower limit"], play, seeds, 1) == int(found is None)
    told = f"NOT FOUND within {len(seeds)} seeds" if found is None else f"seed {found}: seed {found} is too large"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("kept", LISTED, ids=[each.name for each in LISTED])
def test_a_mutation_is_hunted_among_the_histories_of_the_seed_that_has_noticed_it(kept: Mutation) -> None:
    from bench import sim_controller

    begins = [first for first, _ in led_history.FAULTS_FROM]
    if kept in LED_LISTED and kept.seed is not None:
        assert kept.first == max((first for first in begins if first <= kept.seed), default=0)
        assert (kept.seed - kept.first < sim_controller.SEEDS_PER_MUTATION) is (kept.name not in FAR)
    else:
        assert kept.first == 0


@pytest.mark.parametrize("module", ["sim_acting", "sim_controller"])
def test_fresh_seeds_are_for_mutations_only(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        importlib.import_module(f"bench.{module}").main(["--fresh"])
    assert "--fresh is for --mutations" in capsys.readouterr().err


def test_the_seeds_of_led_brokers_are_hunted_fresh_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import sim_controller

    asked: list[tuple[object, ...]] = []

    def hunted(path: Path, names: list[str], play: object, seeds: range, processes: int, *, fresh: bool) -> int:
        asked.append((path.name, play, seeds, fresh))
        return 0

    monkeypatch.setattr(sim_controller, "hunt_listed", hunted)
    assert sim_controller.main(["--brokers", "--mutations", "--fresh"]) == 0
    assert sim_controller.main(["--of", "brokers", "--mutations", "--first", "7"]) == 0
    path, play = "led_mutations.toml", led_history.play_led
    assert asked == [(path, play, range(200), True), (path, play, range(7, 207), False)]
