"""The election policy and its explanation; liveness of brokers."""

from __future__ import annotations

import pytest

from understudy.controller.election import LOWEST_PRIORITY, Live, elect
from understudy.controller.explanation import explain
from understudy.controller.group import Group, Replica
from understudy.controller.liveness import BrokerKey, Heartbeat, Liveness


class TestPolicy:
    @pytest.mark.covers("R343")
    def test_epoch_then_offset_then_priority_then_id(self) -> None:
        newest_epoch = {1: Live(1, 999), 2: Live(2, 10)}
        longest_log = {1: Live(2, 10), 2: Live(2, 11)}
        best_priority = {1: Live(2, 10, 0, 5), 2: Live(2, 10, 0, 1)}
        equal = {1: Live(2, 10), 2: Live(2, 10)}
        assert [elect([1, 2], [1, 2], live, None, None, False).master_id for live in (newest_epoch, longest_log)] == [
            2,
            2,
        ]
        assert elect([1, 2], [1, 2], best_priority, None, None, False).master_id == 2
        assert elect([1, 2], [1, 2], equal, None, None, False).master_id == 1

    def test_offsets_further_apart_than_32_bits_compare_right(self) -> None:
        live = {1: Live(1, 5), 2: Live(1, 5 + (1 << 33))}
        assert elect([1, 2], [1, 2], live, None, None, False).master_id == 2

    def test_the_living_master_is_kept(self) -> None:
        assert elect([1, 2], [1, 2], {1: Live(), 2: Live(9, 9)}, 1, None, False).master_id == 1

    def test_somebody_asked_for_is_chosen_or_nobody(self) -> None:
        assert elect([1, 2], [1, 2], {1: Live(), 2: Live()}, 1, 2, False).master_id == 2
        assert elect([1], [1, 2], {1: Live(), 2: Live()}, 1, 2, False).master_id is None
        assert elect([1], [1, 2], {1: Live(), 2: Live()}, 1, 2, True).master_id == 2

    def test_every_replica_gets_a_verdict_with_its_rule(self) -> None:
        live = {1: Live(2, 10), 2: Live(2, 5), 3: Live(3, 99)}
        decision = elect([1, 2, 4], [1, 2, 3, 4], live, None, None, False)
        reasons = {verdict.broker_id: verdict.reason for verdict in decision.verdicts}
        assert decision.master_id == 1
        assert reasons[1].startswith("best log: epoch 2, max offset 10")
        assert reasons[2].startswith("shorter log: max offset 5 against 10")
        assert reasons[3].startswith("not in the sync state set")
        assert reasons[4].startswith("not alive: in the sync state set but no heartbeat")


def heartbeat(now: float, connection: str, facts: Live | None = None, timeout: float = 10.0) -> Heartbeat:
    return Heartbeat("10.0.0.1:10911", now, timeout, connection, facts or Live())


KEY = BrokerKey("C", "a", 1)


class TestLiveness:
    @pytest.mark.covers("CC-15", "R200", "R305")
    def test_silence_ends_a_broker_once(self) -> None:
        liveness = Liveness(0.0)
        assert liveness.heartbeat(KEY, heartbeat(1.0, "c1", timeout=2.0))
        assert not liveness.heartbeat(KEY, heartbeat(2.0, "c1", timeout=2.0))
        assert liveness.expire(3.9) == []
        assert liveness.next_expiry(2.0) == 4.0
        assert liveness.expire(4.1) == [KEY]
        assert liveness.expire(5.0) == []
        assert liveness.alive("a", 5.0) == {}
        assert liveness.heartbeat(KEY, heartbeat(6.0, "c1", timeout=2.0))

    def test_closing_an_old_connection_harms_nobody(self) -> None:
        liveness = Liveness(0.0)
        liveness.heartbeat(KEY, heartbeat(1.0, "old"))
        liveness.heartbeat(KEY, heartbeat(2.0, "new"))
        assert liveness.connection_closed("old") == []
        assert list(liveness.alive("a", 2.0)) == [1]

    @pytest.mark.covers("R165")
    def test_closing_the_current_connection_ends_every_broker_on_it(self) -> None:
        liveness = Liveness(0.0)
        others = [BrokerKey("C", "a", 1), BrokerKey("C", "b", 2)]
        for key in others:
            liveness.heartbeat(key, heartbeat(1.0, "container"))
        assert liveness.connection_closed("container") == others
        assert liveness.count() == 0
        assert "connection closed" in getattr(liveness.record("b", 2), "end_reason", "")

    def test_values_follow_a_truncation_downwards(self) -> None:
        liveness = Liveness(0.0)
        liveness.heartbeat(KEY, heartbeat(1.0, "c", Live(2, 500)))
        liveness.heartbeat(KEY, heartbeat(2.0, "c", Live(2, 300)))
        assert liveness.alive("a", 2.0)[1].max_offset_bytes == 300

    @pytest.mark.covers("R338")
    def test_brokers_never_heard_of_are_not_dead_at_once(self) -> None:
        liveness = Liveness(100.0, unknown_grace_seconds=10.0)
        assert liveness.maybe_alive("a", 1, 105.0)
        assert not liveness.maybe_alive("a", 1, 111.0)

    def test_a_broker_that_just_asked_is_given_time_for_its_first_heartbeat(self) -> None:
        liveness = Liveness(0.0, unknown_grace_seconds=10.0)
        assert not liveness.maybe_alive("a", 1, 50.0)
        liveness.expect("a", 1, 50.0)
        assert liveness.maybe_alive("a", 1, 55.0)
        assert not liveness.maybe_alive("a", 1, 61.0)
        liveness.heartbeat(KEY, heartbeat(62.0, "c", timeout=2.0))
        assert not liveness.maybe_alive("a", 1, 65.0)

    def test_forgotten_brokers_leave_no_trace(self) -> None:
        liveness = Liveness(0.0)
        liveness.heartbeat(KEY, heartbeat(1.0, "c"))
        liveness.forget("a", None)
        assert liveness.record("a", 1) is None
        assert liveness.connection_closed("c") == []


class TestExplanation:
    def group(self) -> Group:
        replicas = {i: Replica(f"10.0.0.{i}:10911", "") for i in (1, 2)}
        return Group("C", "a", replicas, 2, 1, 3, [1], 4)

    def test_a_dead_master_without_successor_names_the_safe_step(self) -> None:
        liveness = Liveness(0.0)
        liveness.heartbeat(BrokerKey("C", "a", 1), heartbeat(1.0, "c1"))
        liveness.heartbeat(BrokerKey("C", "a", 2), heartbeat(20.0, "c2", Live(3, 70)))
        liveness.connection_closed("c1")
        text = explain(self.group(), liveness, 21.0, False)
        assert "#Master\t1 at 10.0.0.1:10911 (not alive)" in text
        assert "#Candidate\t2\t10.0.0.2:10911\texcluded\tnot in the sync state set" in text
        assert "start broker 1: only 1 (10.0.0.1:10911) surely holds every acknowledged message" in text
        assert "Only if it is lost for good: set enableElectUncleanMaster=true and broker 2" in text

    def test_a_healthy_group_needs_nothing(self) -> None:
        liveness = Liveness(0.0)
        for broker_id in (1, 2):
            liveness.heartbeat(BrokerKey("C", "a", broker_id), heartbeat(1.0, f"c{broker_id}"))
        group = self.group()
        group.sync_state_set = [1, 2]
        assert (
            "nothing is wrong; to move the role safely: mqadmin electMaster -a CONTROLLER -c C -bn a -b 2"
            in explain(group, liveness, 2.0, False)
        )

    def test_unset_priority_is_the_lowest(self) -> None:
        assert Live().priority == LOWEST_PRIORITY
