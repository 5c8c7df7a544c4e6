"""The merge rules, as laws over arbitrary replicas and as the named cases they were made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.data_version import DataVersion
from understudy.spark_tools import rules
from understudy.spark_tools.rules import Context, Replica, Reset, classify

OLD = DataVersion(0, 0, 1_000)
NEW = DataVersion(0, 1, 2_000)

versions = st.builds(DataVersion, st.integers(0, 1), st.integers(0, 3), st.integers(0, 3))
offsets = st.integers(0, 30)
contexts = st.builds(Context, diverged_at=st.none() | offsets)


@st.composite
def replica_lists(draw: st.DrawFn, previous: bool = True) -> list[Replica]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        low = draw(st.integers(0, 10))
        has_queue = draw(st.booleans()) or number == 0
        held = draw(offsets) if number == 0 else draw(st.none() | offsets)
        before = draw(st.none() | offsets) if previous else None
        high = low + draw(st.integers(0, 20))
        queue = (low, high) if has_queue else (None, None)
        found.append(Replica(f"r{number}", held, draw(versions), before, draw(versions), *queue))
    return found


@given(replica_lists(), contexts, st.randoms())
def test_the_order_of_the_replicas_does_not_matter(replicas: list[Replica], context: Context, random: object) -> None:
    shuffled = list(replicas)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    one, other = classify(replicas, context), classify(shuffled, context)

    assert (one.kind, one.proposed, one.repeated, one.skipped) == (
        other.kind,
        other.proposed,
        other.repeated,
        other.skipped,
    )


@given(replica_lists(), contexts)
def test_what_is_proposed_can_be_served_by_some_log(replicas: list[Replica], context: Context) -> None:
    verdict = classify(replicas, context)

    if verdict.proposed is not None:
        highest = max((r.max_offset for r in replicas if r.max_offset is not None), default=0)
        lowest = min((r.min_offset for r in replicas if r.min_offset is not None), default=0)
        assert lowest <= verdict.proposed <= highest or verdict.proposed == 0


@given(replica_lists(), offsets)
def test_nothing_is_proposed_above_the_divergence(replicas: list[Replica], diverged_at: int) -> None:
    verdict = classify(replicas, Context(diverged_at=diverged_at))

    assert verdict.proposed is None or verdict.proposed <= diverged_at


@given(replica_lists(previous=False), contexts)
def test_no_acknowledgement_a_log_can_serve_is_given_up_without_a_reset(
    replicas: list[Replica], context: Context
) -> None:
    verdict = classify(replicas, context)

    if verdict.proposed is not None:
        served = max((r.max_offset for r in replicas if r.max_offset is not None), default=0)
        furthest = max(r.offset for r in replicas if r.offset is not None)
        assert verdict.proposed >= min(furthest, served)
        assert verdict.repeated == 0


@given(replica_lists(), contexts)
def test_following_a_proposal_ends_the_difference(replicas: list[Replica], context: Context) -> None:
    verdict = classify(replicas, context)

    if verdict.proposed is not None:
        after = [
            replace(r, offset=verdict.proposed, previous_offset=verdict.proposed, version=NEW, previous_version=NEW)
            for r in replicas
        ]
        again = classify(after, context)
        assert again.kind in (rules.EQUAL, rules.AHEAD_OF_REPLICA)
        assert again.proposed in (None, verdict.proposed)


@given(replica_lists(), contexts)
def test_costs_are_never_negative_and_agreement_costs_nothing(replicas: list[Replica], context: Context) -> None:
    verdict = classify(replicas, context)

    assert min(verdict.repeated, verdict.skipped, verdict.saved) >= 0
    assert verdict.kind in rules.WORST_FIRST
    if verdict.kind == rules.EQUAL:
        assert (verdict.repeated, verdict.skipped, verdict.saved) == (0, 0, 0)


@given(replica_lists(), st.lists(st.builds(Reset, offsets, st.integers(0, 4)), min_size=1, max_size=3))
def test_a_recorded_reset_is_never_overruled_by_an_older_larger_offset(
    replicas: list[Replica], resets: list[Reset]
) -> None:
    verdict = classify(replicas, Context(resets=resets))

    latest = max(resets, key=lambda item: item.time_ms)
    if verdict.kind == rules.RESET and verdict.proposed is not None:
        later = [r.offset for r in replicas if r.offset is not None and r.version.timestamp >= latest.time_ms]
        assert verdict.proposed == max([v for v in later if v >= latest.offset], default=latest.offset)


def two(left: int | None, right: int | None, **more: object) -> list[Replica]:
    base: dict[str, object] = {"min_offset": 0, "max_offset": 100} | more
    return [Replica("a", left, **base), Replica("b", right, **base)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "proposed", "replicas", "context"),
    [
        (rules.EQUAL, 50, two(50, 50), Context()),
        (
            rules.BEHIND,
            50,
            [Replica("a", 50, NEW, min_offset=0, max_offset=100), Replica("b", 20, OLD, min_offset=0, max_offset=100)],
            Context(),
        ),
        (rules.BEHIND, 50, two(50, None), Context()),
        (
            rules.LOST,
            50,
            [Replica("a", 50, OLD, min_offset=0, max_offset=100), Replica("b", 20, NEW, min_offset=0, max_offset=100)],
            Context(),
        ),
        (rules.LOST, 50, two(50, 20), Context()),
        (
            rules.LOST,
            70,
            [
                Replica("a", 10, NEW, 70, OLD, min_offset=0, max_offset=100),
                Replica("b", 10, NEW, min_offset=0, max_offset=100),
            ],
            Context(),
        ),
        (
            rules.RESET,
            10,
            [
                Replica("a", 10, NEW, 70, OLD, min_offset=0, max_offset=100),
                Replica("b", 70, OLD, min_offset=0, max_offset=100),
            ],
            Context(),
        ),
        (rules.AHEAD, 100, two(150, 150), Context()),
        (rules.GAP, 30, two(10, 10, min_offset=30), Context()),
        (rules.ORPHAN_GROUP, None, two(5, 5), Context(group_known=False)),
        (rules.ORPHAN_TOPIC, None, two(5, 5), Context(topic_known=False)),
        (rules.NO_QUEUE, None, two(5, 5, min_offset=None, max_offset=None), Context()),
        (rules.DIVERGED, None, two(50, 20), Context(diverged_at=30)),
        (rules.BEHIND, 20, two(20, None), Context(diverged_at=30)),
        (rules.DIVERGED, None, two(50, 50), Context(diverged_at=30)),
        (rules.EQUAL, 30, two(30, 30), Context(diverged_at=30)),
        (rules.DIVERGED, None, two(5, 5, min_offset=20, max_offset=30), Context(diverged_at=10)),
        (rules.GAP, 20, two(5, 5, min_offset=20, max_offset=30), Context(diverged_at=20)),
        (rules.INVALID, None, two(-3, 5), Context()),
        (
            rules.AHEAD_OF_REPLICA,
            None,
            [Replica("a", 50, min_offset=0, max_offset=100), Replica("b", 50, min_offset=0, max_offset=40)],
            Context(),
        ),
        (rules.EQUAL, 0, two(0, 0, min_offset=None, max_offset=None), Context()),
    ],
)
def test_each_class(kind: str, proposed: int | None, replicas: list[Replica], context: Context) -> None:
    verdict = classify(replicas, context)

    assert (verdict.kind, verdict.proposed) == (kind, proposed)
    assert verdict.reason


def test_what_retention_removed_is_counted_as_skipped() -> None:
    assert classify(two(10, 10, min_offset=30), Context()).skipped == 20


def test_offsets_above_the_log_never_existed_and_are_not_counted_as_repeated() -> None:
    assert classify(two(150, 150), Context()).repeated == 0


def test_no_entry_anywhere_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no replica"):
        classify([Replica("a", None)], Context())
