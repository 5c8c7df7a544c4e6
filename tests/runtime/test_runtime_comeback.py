"""When a server looks for the next bytes of a peer before it sleeps, and what that may cost."""

from __future__ import annotations

import pytest

from understudy.runtime.comeback import LONGEST_REST, Comeback

WINDOW_S = 0.0004
QUICK_S, ASLEEP_S, SLOW_S = 0.0001, 0.0006, 0.01


def waits(peer: Comeback, count: int, awake_s: float, asleep_s: float) -> list[bool]:
    """Let a peer come back *count* times; return at which of them somebody looked."""
    looked = []
    for _ in range(count):
        looked.append(peer.expected())
        peer.came(awake_s if looked[-1] else asleep_s, looked[-1])
    return looked


def test_a_peer_that_comes_back_soon_is_looked_for_from_the_second_time_on() -> None:
    assert [False, *[True] * 99] == waits(Comeback(WINDOW_S), 100, QUICK_S, ASLEEP_S)


@pytest.mark.parametrize("window_s", [0.0, WINDOW_S])
def test_nobody_looks_for_a_slow_peer_or_without_a_window(window_s: float) -> None:
    assert not any(waits(Comeback(window_s), 1000, SLOW_S if window_s else QUICK_S, SLOW_S if window_s else QUICK_S))


def test_where_looking_is_in_vain_it_becomes_rare() -> None:
    looked = waits(Comeback(WINDOW_S), 20_000, ASLEEP_S, ASLEEP_S)
    assert sum(looked[:100]) <= 20
    assert sum(looked[-10_000:]) <= 10_000 / LONGEST_REST * 5


def test_a_few_late_answers_do_not_end_it() -> None:
    peer = Comeback(WINDOW_S)
    waits(peer, 100, QUICK_S, ASLEEP_S)
    # when every tenth answer takes longer than the window
    looked = [waits(peer, 10, QUICK_S, ASLEEP_S) + waits(peer, 1, ASLEEP_S, ASLEEP_S) for _ in range(50)]
    assert all(map(all, looked))


def test_a_peer_that_became_quick_is_looked_for_again() -> None:
    peer = Comeback(WINDOW_S)
    waits(peer, 20_000, ASLEEP_S, ASLEEP_S)
    assert all(waits(peer, LONGEST_REST + 100, QUICK_S, ASLEEP_S)[LONGEST_REST:])
