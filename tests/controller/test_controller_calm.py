"""A leader that a majority can follow stays: whatever happens to one follower at a time is no cause for another one."""

from __future__ import annotations

import pytest

from understudy.controller.raft import facts
from understudy.controller.raft.consensus import Consensus
from understudy.testkit.quorum.faults import CALM_FAULTS
from understudy.testkit.quorum.history import run_quorum_seed


@pytest.mark.covers("R276", "R278", "R282")
@pytest.mark.parametrize(("seed", "size"), [(0, 3), (1, 3), (2, 5)])
def test_trouble_with_one_follower_at_a_time_costs_no_leadership(seed: int, size: int) -> None:
    outcome = run_quorum_seed(seed, size, 5, CALM_FAULTS)

    assert outcome.violations == []
    assert outcome.counts["leaders"] == 1
    assert sum(count for name, count in outcome.counts.items() if name.startswith("fault ")) >= 2


def test_without_stickiness_a_healthy_leader_is_deposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consensus, "_hears_leader", lambda self: False)

    outcome = run_quorum_seed(0, 3, 5, CALM_FAULTS)

    assert outcome.counts["leaders without cause"] > 0
    assert any("without cause" in violation for violation in outcome.violations)


def test_without_pre_vote_a_member_that_was_cut_off_deposes_a_healthy_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_campaign(self: Consensus) -> bool:
        if not self.journal.voter:
            return False
        term = self.core.term() + 1
        self._candidacy.ask(term, self.now, self.journal.end(), self.now)
        for peer in self.peers:
            self._candidacy.answered(peer, term, facts.ACCEPT)
        return self._candidacy.stand()

    monkeypatch.setattr(Consensus, "may_campaign", may_campaign)

    outcome = run_quorum_seed(0, 3, 5, CALM_FAULTS)

    assert outcome.counts["leaders without cause"] > 0
