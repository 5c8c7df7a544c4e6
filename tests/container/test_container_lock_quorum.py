"""Strict locks: a majority grants, and an attempt that fails leaves nothing behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.lock_quorum import decide, quorum_of
from understudy.broker.locks import Queue

QUEUES = [("t", "g0", number) for number in range(4)]
queues = st.lists(st.sampled_from(QUEUES), unique=True)


def test_a_majority_of_the_configured_replicas_is_needed() -> None:
    assert [quorum_of(replicas) for replicas in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]


@given(queues, st.dictionaries(st.sampled_from("abc"), queues), st.integers(1, 3), queues, *[st.integers(0, 2)] * 2)
def test_a_queue_is_granted_by_enough_replicas_or_given_back(
    asked: list[Queue], grants: dict[str, list[Queue]], quorum: int, held: list[Queue], waiting: int, silent: int
) -> None:
    result = decide(asked, grants, quorum, held, waiting, silent)
    for queue in asked:
        votes = sum(queue in granted for granted in grants.values())
        assert (queue in result.granted) == (votes >= quorum)
        assert (queue in result.open) == (votes < quorum <= votes + waiting)
        assert (queue in result.refused) == (votes + waiting < quorum)
        assert (queue in result.unclear) == (
            queue in result.refused and queue in held and votes + waiting + silent >= quorum
        )
        assert (queue in result.returned) == (queue in result.refused and votes > 0 and queue not in held)


@given(queues, st.lists(queues, max_size=3), st.integers(1, 3), st.integers(0, 3))
def test_what_is_not_open_stays_as_it_is_whatever_comes(
    asked: list[Queue], grants: list[list[Queue]], quorum: int, known: int
) -> None:
    answered = {str(number): granted for number, granted in enumerate(grants)}
    early = decide(asked, dict(list(answered.items())[:known]), quorum, (), max(len(grants) - known, 0))
    late = decide(asked, answered, quorum)
    assert set(early.granted) <= set(late.granted)
    assert set(early.refused) <= set(late.refused)


@given(st.lists(st.sampled_from("abc"), min_size=3, max_size=3))
def test_two_clients_never_hold_one_queue(winner_at: list[str]) -> None:
    """Each replica grants one client; two majorities of three would share a replica."""
    queue = QUEUES[0]
    holders = [
        client
        for client in "abc"
        if queue in decide([queue], {str(n): [queue] for n, w in enumerate(winner_at) if w == client}, 2).granted
    ]
    assert len(holders) <= 1
