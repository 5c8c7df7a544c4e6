"""The checker finds each kind of broken promise, and nothing in a right run."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.testkit.history import History, Verdict
from understudy.testkit.sim.determinism import run_seed

QUEUE = ("t", "b", 0)
OTHER = ("t", "b", 1)


def right_run(count: int) -> History:
    history = History()
    for number in range(count):
        history.sent(f"m{number}", "s", QUEUE, acknowledged=True)
    for number in range(count):
        history.delivered(f"m{number}", "g", QUEUE, number)
    return history


def test_a_right_run_has_no_violation() -> None:
    verdict = right_run(10).check(["g"], allow_repeats=False)
    assert verdict.ok
    assert "sent 10, delivered 10, repeated 0, lost 0, out of order 0: ok" == str(verdict)


def test_what_a_scenario_requires_names_its_seed_and_how_it_is_played_again() -> None:
    async def scenario(source: random.Random) -> Verdict:
        history = right_run(3)
        if source.randrange(1000) == random.Random(7).randrange(1000):
            history.deliveries.pop(1)
        return history.check(["g"]).require()

    assert run_seed(scenario, 8).delivered == 3
    with pytest.raises(AssertionError, match=r"delivered 2, repeated 0, lost 1.*VIOLATED\nlost: .*m1") as told:
        run_seed(scenario, 7)
    (note,) = told.value.__notes__
    assert note.startswith("seed 7; played again by: run_seed(") and note.endswith("scenario, 7)")


def test_an_unanswered_send_may_or_may_not_be_delivered() -> None:
    history = right_run(3)
    history.sent("maybe", "s", None, acknowledged=False)
    assert history.check(["g"]).ok
    history.delivered("maybe", "g", QUEUE, 3)
    assert history.check(["g"]).ok


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("lost", lambda history: history.deliveries.pop(4)),
        ("invented", lambda history: history.delivered("ghost", "g", QUEUE, 10)),
        ("repeated", lambda history: history.delivered("m3", "g", QUEUE, 3)),
        ("order", lambda history: history.deliveries.insert(1, history.deliveries.pop(7))),
        ("offset", lambda history: history.deliveries.append(attrs.evolve(history.deliveries.pop(), offset=8))),
        ("queue", lambda history: history.deliveries.append(attrs.evolve(history.deliveries.pop(), queue=OTHER))),
    ],
)
def test_each_broken_promise_is_found(rule: str, spoil: object) -> None:
    history = right_run(10)
    spoil(history)  # type: ignore[operator]
    verdict = history.check(["g"], allow_repeats=False)
    assert {rule} == {violation.rule for violation in verdict.violations}
    assert not verdict.ok


def test_a_group_that_saw_nothing_lost_everything() -> None:
    assert 5 == len(right_run(5).check(["g", "other"]).violations)


def test_keys_must_be_unique() -> None:
    history = right_run(1)
    history.sent("m0", "s", QUEUE, acknowledged=True)
    with pytest.raises(ValueError, match="m0"):
        history.check(["g"])


def test_a_group_must_be_named() -> None:
    with pytest.raises(ValueError, match="name the groups"):
        right_run(5).check([])


def test_one_offset_for_all_deliveries_and_offsets_that_descend_are_found() -> None:
    same, descending = right_run(5), right_run(0)
    same.deliveries = [attrs.evolve(each, offset=0) for each in same.deliveries]
    assert {"offset"} == {violation.rule for violation in same.check(["g"]).violations}
    for number in range(5):
        descending.sent(f"m{number}", f"s{number}", QUEUE, acknowledged=True)
        descending.delivered(f"m{number}", "g", QUEUE, 9 - number)
    assert ["order"] * 4 == [violation.rule for violation in descending.check(["g"]).violations]
    assert descending.check(["g"], ordered=False).ok


def test_what_escaped_or_was_lost_and_replaced_may_stand_elsewhere() -> None:
    history = right_run(3)
    history.sent("escaped", "s", QUEUE, acknowledged=True)
    history.delivered("escaped", "g", OTHER, 0)
    history.sent("lost", "s", QUEUE, acknowledged=True)
    history.delivered("lost", "g", QUEUE, 4)
    history.sent("instead", "s", QUEUE, acknowledged=True)
    history.delivered("instead", "g", QUEUE, 4)
    assert history.check(["g"], may_be_lost={"lost"}, may_move=True).ok
    assert {"offset", "queue"} == {violation.rule for violation in history.check(["g"]).violations}


@given(st.integers(1, 30), st.integers(0, 1000))
def test_random_repeats_alone_never_count_as_loss_or_disorder(count: int, seed: int) -> None:
    history, draw = right_run(count), random.Random(seed)
    for _ in range(draw.randrange(10)):
        number = draw.randrange(count)
        history.delivered(f"m{number}", "g", QUEUE, number)
    verdict = history.check(["g"])
    assert verdict.ok
    assert len(history.deliveries) - count == verdict.repeated
