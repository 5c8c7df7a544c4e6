"""The replicated metadata: every rule of ids, sync state sets and elections, as a pure state machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.controller.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    Outcome,
    RegisterBroker,
    decode_outcome,
    encode,
)
from understudy.controller.election import Live
from understudy.controller.metadata import INCARNATIONS, OWN_IDS, Metadata
from understudy.remoting.codes import ResponseCode

ALL = {1: Live(1, 100), 2: Live(1, 100), 3: Live(1, 100)}


def run(metadata: Metadata, command: Command) -> Outcome:
    return decode_outcome.decode(metadata.apply(1, 0, 1, encode(command)))


def apply_id(metadata: Metadata, broker_id: int, code: str | None = None, cluster: str = "C") -> Outcome:
    return run(metadata, ApplyBrokerId(cluster, "a", broker_id, code or f"10.0.0.{broker_id}:10911;{broker_id}"))


def ask(
    metadata: Metadata,
    broker_id: int | None,
    live: dict[int, Live],
    *,
    designate: bool = False,
    unclean: bool = False,
) -> Outcome:
    return run(metadata, ElectMaster("a", broker_id, designate, live, unclean))


def alter(metadata: Metadata, master: int, epoch: int, set_epoch: int, new: list[int], alive: list[int]) -> Outcome:
    return run(metadata, AlterSyncStateSet("a", master, epoch, set_epoch, new, alive))


@pytest.fixture
def three() -> Metadata:
    """Three registered brokers, broker 1 the first master."""
    metadata = Metadata()
    for broker_id in (1, 2, 3):
        assert apply_id(metadata, broker_id).code == 0
    assert ask(metadata, 1, ALL).code == 0
    return metadata


@pytest.fixture
def in_sync(three: Metadata) -> Metadata:
    """The same with all three in the sync state set."""
    assert alter(three, 1, 1, 1, [1, 2, 3], [1, 2, 3]).code == 0
    return three


class TestIds:
    @pytest.mark.covers("R243", "R197", "CC-07")
    def test_ids_are_given_from_one_upwards(self) -> None:
        metadata = Metadata()
        assert metadata.next_broker_id("a") == 1
        for broker_id in (1, 2, 3):
            assert apply_id(metadata, broker_id).code == 0
            assert metadata.next_broker_id("a") == broker_id + 1

    @pytest.mark.covers("R199", "R248", "R256")
    def test_the_same_broker_may_apply_again(self) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        again = apply_id(metadata, 1)
        assert (again.code, again.changed, metadata.next_broker_id("a")) == (0, False, 2)

    @pytest.mark.covers("R247")
    def test_an_id_in_use_is_refused_to_another_code(self) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        assert apply_id(metadata, 1, "10.9.9.9:1;7").code == 2014

    def test_an_unknown_group_begins_with_id_one(self) -> None:
        assert apply_id(Metadata(), 2).code == 2014

    def test_an_id_beyond_the_next_never_collides_later(self) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        assert apply_id(metadata, 5).code == 0
        assert metadata.next_broker_id("a") == 6

    def test_a_name_in_use_by_another_cluster_is_refused(self) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        refused = apply_id(metadata, 2, cluster="OTHER")
        assert refused.code == 2014
        assert "belongs to cluster C" in refused.remark


class TestRegistration:
    @pytest.mark.covers("R242", "R252", "R259")
    def test_a_new_address_replaces_the_old_one_and_keeps_the_code(self, three: Metadata) -> None:
        code = three.groups["a"].replicas[2].check_code
        outcome = run(three, RegisterBroker("C", "a", 2, "10.0.0.99:10911", [1, 2]))
        replica = three.groups["a"].replicas[2]
        assert (outcome.code, outcome.changed) == (0, True)
        assert (replica.address, replica.check_code) == ("10.0.0.99:10911", code)

    @pytest.mark.covers("R253", "R333", "CC-07")
    def test_the_answer_names_a_living_master_only(self, three: Metadata) -> None:
        with_master = three.registration("a", 3, [1, 3])
        assert (with_master.master_id, with_master.master_address, with_master.master_epoch) == (1, "10.0.0.1:10911", 1)
        assert three.registration("a", 3, [3]).master_id is None

    def test_unknown_group_and_unknown_id_must_apply_first(self, three: Metadata) -> None:
        assert three.registration("zz", 1, []).code == 2010
        assert three.registration("a", 9, []).code == 2010


class TestSyncStateSet:
    @pytest.mark.covers("R181", "CC-07")
    def test_an_accepted_set_raises_its_epoch(self, three: Metadata) -> None:
        outcome = alter(three, 1, 1, 1, [1, 3], [1, 2, 3])
        assert (outcome.code, outcome.set_epoch, outcome.sync_state_set) == (0, 2, [1, 3])

    @pytest.mark.parametrize(
        ("master", "epoch", "set_epoch", "new", "alive", "code"),
        [
            pytest.param(2, 1, 1, [1, 2], [1, 2], 2002, marks=pytest.mark.covers("R160", "R176")),
            pytest.param(1, 0, 1, [1, 2], [1, 2], 2000, marks=pytest.mark.covers("R178")),
            pytest.param(1, 1, 0, [1, 2], [1, 2], 2001, marks=pytest.mark.covers("R177")),
            pytest.param(1, 1, 1, [1, 9], [1, 9], 2003),
            pytest.param(1, 1, 1, [1, 2], [1], 2006, marks=pytest.mark.covers("R179")),
            pytest.param(1, 1, 1, [2, 3], [1, 2, 3], 2013, marks=pytest.mark.covers("R180")),
            pytest.param(1, 1, 1, [1], [1], 2013),
        ],
    )
    def test_a_refused_set_changes_nothing(
        self, three: Metadata, master: int, epoch: int, set_epoch: int, new: list[int], alive: list[int], code: int
    ) -> None:
        before = three.snapshot()
        assert alter(three, master, epoch, set_epoch, new, alive).code == code
        assert three.snapshot() == before

    def test_the_checks_come_in_the_order_of_the_reference(self, three: Metadata) -> None:
        assert alter(three, 2, 0, 0, [1], []).code == 2013  # equal set before wrong master
        assert alter(three, 2, 0, 0, [9], []).code == 2002  # wrong master before its epoch
        assert alter(three, 1, 0, 0, [9], []).code == 2000  # master epoch before the set's
        assert alter(three, 1, 1, 0, [9], []).code == 2001  # set epoch before its members
        assert run(three, AlterSyncStateSet("zz", 1, 1, 1, [1], [1])).code == 2013


class TestElection:
    @pytest.mark.covers("R191", "R192", "CC-01")
    def test_the_first_to_ask_becomes_the_first_master(self) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        apply_id(metadata, 2)
        first = ask(metadata, 2, {})
        assert (first.code, first.master_id, first.master_epoch, first.set_epoch) == (0, 2, 1, 1)
        assert (first.sync_state_set, first.members) == ([2], {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"})
        second = ask(metadata, 1, {1: Live(), 2: Live()})
        assert (second.code, second.master_id, second.master_epoch) == (2011, 2, 1)

    def test_a_first_election_takes_registered_ids_only(self) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        assert ask(metadata, 7, {7: Live()}).code == 2012
        assert ask(metadata, 1, {}, designate=True).code == 2012
        assert metadata.groups["a"].master_id is None

    @pytest.mark.covers("R183", "R184", "R159", "R308", "R309", "CC-02")
    @pytest.mark.parametrize(
        ("features", "known", "first"),
        [(2, 7, 1008), (2, 0, 1), (2, -1, 1), (2, (1 << 30) + 1, 1), (1, 7, 1)],
        ids=[
            "logs with epochs",
            "no master yet",
            "empty logs",
            "an epoch that cannot be",
            "before all members know it",
        ],
    )
    def test_a_group_whose_logs_have_epochs_begins_above_them(self, features: int, known: int, first: int) -> None:
        metadata = Metadata()
        apply_id(metadata, 1)
        command = ElectMaster("a", 1, False, {1: Live(known, 100)}, False)
        outcome = decode_outcome.decode(metadata.apply(1, 0, features, encode(command)))
        assert (outcome.code, outcome.master_epoch) == (0, first)

    def test_a_dead_master_is_followed_by_a_member_of_the_set(self, in_sync: Metadata) -> None:
        outcome = ask(in_sync, None, {2: Live(1, 100), 3: Live(1, 200)})
        assert (outcome.code, outcome.master_id, outcome.master_epoch, outcome.set_epoch) == (0, 3, 2, 3)
        assert outcome.sync_state_set == [3]

    @pytest.mark.covers("CC-08")
    def test_the_only_living_one_gets_the_role(self, in_sync: Metadata) -> None:
        outcome = ask(in_sync, 3, {3: Live(1, 1)})
        assert (outcome.code, outcome.master_id, outcome.master_epoch, outcome.set_epoch) == (0, 3, 2, 3)
        assert outcome.sync_state_set == [3]

    @pytest.mark.covers("CC-09")
    def test_a_living_master_stays(self, in_sync: Metadata) -> None:
        outcome = ask(in_sync, 2, ALL)
        assert (outcome.code, outcome.master_id, outcome.changed) == (2011, 1, False)

    @pytest.mark.covers("CC-11", "R166")
    def test_an_operator_moves_the_role_to_a_living_member_only(self, in_sync: Metadata) -> None:
        in_sync.groups["a"].master_epoch = 2
        alive = {1: Live(), 3: Live()}
        assert ask(in_sync, 2, alive, designate=True).code == 2012
        assert ask(in_sync, 1, alive, designate=True).code == 2011
        moved = ask(in_sync, 3, alive, designate=True)
        assert (moved.code, moved.master_id, moved.master_epoch) == (0, 3, 3)

    @pytest.mark.covers("CC-04", "R186", "R185", "R311")
    def test_without_a_candidate_the_group_has_no_master_until_one_returns(self, three: Metadata) -> None:
        gone = ask(three, None, {})
        assert (gone.code, gone.master_epoch, three.groups["a"].master_id) == (2004, 2, None)
        assert ask(three, 2, {2: Live(9, 999)}).code == 2012
        back = ask(three, 1, {1: Live(), 2: Live(9, 999)})
        assert (back.code, back.master_id, back.master_epoch) == (0, 1, 3)

    @pytest.mark.covers("CC-12")
    def test_losing_the_master_happens_once(self, three: Metadata) -> None:
        outcomes = [ask(three, None, {}) for _ in range(3)]
        assert [outcome.changed for outcome in outcomes] == [True, False, False]
        assert three.groups["a"].master_epoch == 2
        assert three.groups["a"].sync_state_set == [1]

    @pytest.mark.covers("R185", "R310")
    def test_unclean_election_only_with_the_switch(self, three: Metadata) -> None:
        assert ask(three, None, {2: Live()}).code == 2004
        outcome = ask(three, None, {2: Live()}, unclean=True)
        assert (outcome.code, outcome.master_id, outcome.unclean) == (0, 2, True)

    def test_an_unknown_group_must_register_first(self) -> None:
        assert ask(Metadata(), 1, {}).code == 2010


class TestCleaning:
    @pytest.mark.covers("R345")
    def test_living_brokers_are_kept_unless_asked_for(self, in_sync: Metadata) -> None:
        assert run(in_sync, CleanBrokerData("a", [2], False, [1, 2])).code == 2009
        assert run(in_sync, CleanBrokerData("a", None, False, [1])).code == 2009
        assert run(in_sync, CleanBrokerData("zz", None, True, [])).code == 2009
        assert sorted(in_sync.groups["a"].replicas) == [1, 2, 3]

    @pytest.mark.covers("R345", "R347")
    def test_a_removed_replica_is_in_no_list(self, in_sync: Metadata) -> None:
        assert run(in_sync, CleanBrokerData("a", [2], False, [1])).code == 0
        group = in_sync.groups["a"]
        assert (sorted(group.replicas), group.sync_state_set, group.master_id) == ([1, 3], [1, 3], 1)

    @pytest.mark.covers("R346")
    def test_a_removed_master_is_master_no_longer(self, in_sync: Metadata) -> None:
        assert run(in_sync, CleanBrokerData("a", [1], True, [1])).code == 0
        group = in_sync.groups["a"]
        assert (group.master_id, group.master_epoch) == (None, 2)
        assert in_sync.needs_election("a", {2: Live(), 3: Live()}, lambda _id: True, False)

    def test_removing_all_removes_the_group(self, in_sync: Metadata) -> None:
        assert run(in_sync, CleanBrokerData("a", None, True, [1, 2, 3])).code == 0
        assert in_sync.groups == {}


@pytest.mark.covers("CC-14", "R204")
def test_a_snapshot_restores_every_value(in_sync: Metadata) -> None:
    restored = Metadata()
    restored.restore(in_sync.snapshot())
    assert restored.groups == in_sync.groups
    assert restored.groups["a"].replicas[2] == in_sync.groups["a"].replicas[2]


_ids = st.integers(1, 4)
_live = st.dictionaries(_ids, st.builds(Live, st.integers(0, 3), st.integers(0, 9)))
_commands = st.one_of(
    st.builds(ApplyBrokerId, st.just("C"), st.just("a"), _ids, st.sampled_from(["h:1;1", "h:2;2"])),
    st.builds(ElectMaster, st.just("a"), st.none() | _ids, st.booleans(), _live, st.just(False)),
    st.builds(
        AlterSyncStateSet,
        st.just("a"),
        _ids,
        st.integers(0, 5),
        st.integers(0, 5),
        st.lists(_ids, max_size=4),
        st.lists(_ids, max_size=4),
    ),
    st.builds(CleanBrokerData, st.just("a"), st.none() | st.lists(_ids), st.booleans(), st.lists(_ids)),
)


@pytest.mark.covers("R184", "R312")
@given(st.lists(_commands, max_size=40))
def test_epochs_never_go_back_and_masters_come_from_the_set(commands: list[Command]) -> None:
    metadata, twin = Metadata(), Metadata()
    for command in commands:
        before = metadata.groups.get("a")
        former = (
            (before.master_id, before.master_epoch, before.set_epoch, list(before.sync_state_set)) if before else None
        )
        outcome = run(metadata, command)
        assert run(twin, command) == outcome  # equal on every member
        group = metadata.groups.get("a")
        if group is None or former is None:
            continue
        assert group.master_epoch >= former[1]
        assert group.set_epoch >= former[2]
        if group.master_id != former[0]:
            assert group.master_epoch > former[1]
        if isinstance(command, ElectMaster) and outcome.code == 0 and former[1] > 0:
            assert group.master_id in former[3]
            assert group.master_id in command.live
        if group.master_id is not None:
            assert group.master_id in group.replicas
            assert group.master_id in group.sync_state_set
    assert metadata.snapshot() == twin.snapshot()


def test_the_first_broker_of_a_group_that_is_not_known_has_the_id_that_it_had() -> None:
    def first(broker_id: int, features: int) -> tuple[int, list[int], int]:
        metadata, command = Metadata(), ApplyBrokerId("C", "a", broker_id, "10.0.0.1:10911;1")
        code = decode_outcome.decode(metadata.apply(1, 0, features, encode(command))).code
        return code, [*metadata.groups], metadata.next_broker_id("a")

    refused = (ResponseCode.CONTROLLER_BROKER_ID_INVALID, [], 1)
    assert first(7, OWN_IDS) == (0, ["a"], 8)
    assert first(7, INCARNATIONS) == refused
    assert first(0, OWN_IDS) == refused
    assert first(-1, OWN_IDS) == refused
    assert first(1, INCARNATIONS) == (0, ["a"], 2)
