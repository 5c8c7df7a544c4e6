"""Who was away when a master was elected: it may be elected if its store still has all that it had in step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.controller.answers import incarnation_of
from understudy.controller.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    Outcome,
    decode_outcome,
    encode,
    read_command,
)
from understudy.controller.election import Live
from understudy.controller.explanation import explain
from understudy.controller.liveness import BrokerKey, Heartbeat, Liveness
from understudy.controller.metadata import INCARNATIONS, LIVING_FORMER_SET, Metadata
from understudy.controller.raft.errors import CommandRefusedError
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request

IDS = (1, 2, 3)
IN_STEP = {1: "one", 2: "two", 3: "three"}
NOBODY = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE


def run(metadata: Metadata, command: Command, features: int = INCARNATIONS) -> Outcome:
    return decode_outcome.decode(metadata.apply(1, 0, features, encode(command)))


def lives(incarnation: str = "", end: int = 100) -> Live:
    return Live(1, end, confirms=True, incarnation=incarnation)


def lose(metadata: Metadata, live: dict[int, Live], features: int = INCARNATIONS) -> Outcome:
    """Have a successor elected from those who live."""
    return run(metadata, ElectMaster("a", None, False, live, False), features)


def alter(
    metadata: Metadata, master: int, members: list[int], told: dict[int, str], features: int = INCARNATIONS
) -> Outcome:
    group = metadata.groups["a"]
    command = AlterSyncStateSet("a", master, group.master_epoch, group.set_epoch, members, list(IDS), told)
    return run(metadata, command, features)


def make_three(told: dict[int, str], features: int = INCARNATIONS) -> Metadata:
    """Three members of one set, broker 1 the master."""
    metadata = Metadata()
    for broker_id in IDS:
        run(metadata, ApplyBrokerId("C", "a", broker_id, f"10.0.0.{broker_id}:10911;{broker_id}"), features)
    run(metadata, ElectMaster("a", 1, False, {1: lives()}, False), features)
    assert alter(metadata, 1, list(IDS), told, features).code == 0
    return metadata


@pytest.fixture
def three() -> Metadata:
    return make_three(IN_STEP)


def test_who_was_away_and_comes_back_as_it_was_may_be_elected(three: Metadata) -> None:
    assert lose(three, {3: lives("three")}).master_id == 3
    assert three.groups["a"].former_set == [1, 2, 3]
    # the only one who was heard is gone, before it confirms
    assert three.needs_election("a", {1: lives("one")}, lambda _: False, unclean_allowed=False)
    assert lose(three, {1: lives("one"), 2: lives("two", 200)}).master_id == 2
    assert three.groups["a"].former_set == [1, 2, 3]


def test_who_comes_back_with_another_store_is_not_elected_while_one_may_have_kept_its_own(three: Metadata) -> None:
    lose(three, {3: lives("three")})
    back = {1: lives("new", 300), 3: lives("newer", 300)}
    assert lose(three, {}).code == NOBODY
    assert not three.needs_election("a", {1: back[1]}, lambda _: False, unclean_allowed=False)
    refused = lose(three, back)
    assert refused.code == NOBODY
    assert [verdict.reason.partition(":")[0] for verdict in refused.verdicts if verdict.broker_id != 2] == (
        ["its memory is lost"] * 2
    )
    # then one comes back that has kept it, and another one afterwards
    assert lose(three, {**back, 2: lives("two")}).master_id == 2
    lose(three, {})
    # but when all have lost theirs, the longest log is as good as any
    assert lose(three, {1: lives("new", 300), 2: lives("newest"), 3: lives("newer", 200)}).master_id == 1


def test_a_master_that_lost_its_memory_before_it_confirmed_is_replaced(three: Metadata) -> None:
    lose(three, {2: lives("two"), 3: lives("three")})
    live = {2: lives("another", 900), 3: lives("three")}
    assert three.needs_election("a", live, lambda _: True, unclean_allowed=False)
    assert lose(three, live).master_id == 3


def test_of_the_set_of_a_master_that_has_confirmed_those_wait_that_came_back_with_another_store(
    three: Metadata,
) -> None:
    back = {1: lives("new", 100), 2: lives("newer", 50)}
    assert three.needs_election("a", back, lambda _: True, unclean_allowed=False)
    assert lose(three, {2: back[2]}).code == NOBODY
    assert lose(three, back).code == NOBODY
    assert lose(three, {**back, 3: lives("newest", 200)}).master_id == 3


def test_what_the_chosen_one_has_is_what_counts_from_then_on() -> None:
    # given one of the set that did not say what it had, when it came to be in it
    three = make_three({1: "one", 3: "three"})
    assert lose(three, {2: lives("again", 200), 3: lives("three")}).master_id == 2
    assert three.groups["a"].incarnations == {1: "one", 2: "again", 3: "three"}
    assert not three.needs_election("a", {2: lives("again")}, lambda _: True, unclean_allowed=False)
    # who was not chosen is in step as it was, or not at all
    assert lose(three, {3: lives("anew")}).code == NOBODY


def test_each_set_that_is_accepted_notes_its_members_anew(three: Metadata) -> None:
    assert alter(three, 1, [1, 2], {1: "one", 2: "again"}).code == 0
    assert three.groups["a"].incarnations == {1: "one", 2: "again"}
    lose(three, {2: lives("again")})
    alter(three, 2, [2], {2: "again", 3: "nobody asked"})
    assert (three.groups["a"].former_set, three.groups["a"].incarnations) == ([], {2: "again"})
    # a master that has confirmed is the only one, whatever its host went through
    assert lose(three, {1: lives("one")}).code == NOBODY
    assert lose(three, {2: lives("once more")}).master_id == 2


def test_who_says_nothing_of_its_store_is_in_step_as_long_as_it_lives() -> None:
    three = make_three({2: "two"})
    lose(three, {3: lives()})
    assert (three.groups["a"].former_set, three.groups["a"].incarnations) == ([2, 3], {2: "two"})
    assert lose(three, {1: lives("one")}).code == NOBODY
    assert lose(three, {3: lives("any")}).master_id == 3
    lose(three, {2: lives("two")})
    assert three.groups["a"].former_set == [2, 3]  # it has said so when it was elected


def test_a_master_of_which_nobody_knows_that_it_confirms_is_the_only_one(three: Metadata) -> None:
    lose(three, {2: Live(1, 200, incarnation="two"), 3: lives("three")})
    group = three.groups["a"]
    assert (group.sync_state_set, group.former_set, group.incarnations) == ([2], [], {})


def test_a_broker_that_was_cleaned_is_not_waited_for(three: Metadata) -> None:
    lose(three, {3: lives("three")})
    live = {2: lives("new"), 3: lives("newer", 200)}
    assert lose(three, live).code == NOBODY
    run(three, CleanBrokerData("a", [1], True, []))
    assert three.groups["a"].incarnations == {2: "two", 3: "three"}
    assert lose(three, live).master_id == 3


def test_it_is_said_who_is_waited_for_and_that_the_controllers_may_be_cut_off(three: Metadata) -> None:
    lose(three, {3: lives("three")})
    lose(three, {})
    group, liveness = three.groups["a"], Liveness(0.0)
    assert "look whether this controller is cut off from them" in explain(group, liveness, 1.0, False)
    for broker_id, incarnation in ((1, "new"), (3, "newer")):
        heartbeat = Heartbeat("10.0.0.1:1", 1.0, 10.0, broker_id, lives(incarnation), 1.0)
        liveness.heartbeat(BrokerKey("C", "a", broker_id), heartbeat)
    said = explain(group, liveness, 1.0, False)
    assert said.count("\texcluded\tits memory is lost:") == 2
    assert "#NextStep\tstart broker 2 (10.0.0.2:10911): who has lost its memory waits for the others" in said
    assert "Only if it is lost for good: mqadmin cleanBrokerMetadata -a CONTROLLER -bn a -b '2':" in said
    assert "cut off" not in said


@pytest.mark.parametrize(("told", "taken"), [("0123456789ab", True), ("", False), ("x" * 17, False), ("\xe9", False)])
def test_what_cannot_be_an_incarnation_is_none(told: str, taken: bool) -> None:
    command = request(RequestCode.BROKER_HEARTBEAT, {"storeIncarnation": told})
    assert incarnation_of(command) == (told if taken else "")
    assert incarnation_of(request(RequestCode.BROKER_HEARTBEAT)) == ""


# --- versions beside each other -----------------------------------------------------------------------------------


def test_an_upgrade_in_the_middle_of_a_change_keeps_the_former_set_that_the_version_before_made() -> None:
    three = make_three(IN_STEP, LIVING_FORMER_SET)
    assert three.groups["a"].incarnations == {}
    lose(three, {2: lives("two"), 3: lives("three")}, LIVING_FORMER_SET)
    assert lose(three, {3: lives("three")}).master_id == 3
    assert (three.groups["a"].former_set, three.groups["a"].incarnations) == ([3], {3: "three"})


def test_snapshots_of_the_versions_before_are_read(three: Metadata) -> None:
    lose(three, {3: lives("three")})
    again = Metadata()
    again.restore(three.snapshot())
    assert again.groups == three.groups
    rows = msgspec.msgpack.decode(three.snapshot(), type=dict[str, list[Any]], strict=False)
    again.restore(msgspec.msgpack.encode({name: row[:9] for name, row in rows.items()}))
    assert (again.groups["a"].former_set, again.groups["a"].incarnations) == ([1, 2, 3], {})


def without_incarnations(command: Command) -> Command:
    """The command as the version before reads it."""
    if isinstance(command, ElectMaster):
        live = {one: msgspec.structs.replace(facts, incarnation="") for one, facts in command.live.items()}
        return msgspec.structs.replace(command, live=live)
    return msgspec.structs.replace(command, incarnations={}) if isinstance(command, AlterSyncStateSet) else command


_ids, _told = st.sampled_from(IDS), st.sampled_from(["", "x", "y"])
_live = st.dictionaries(_ids, st.builds(lives, _told, st.integers(0, 3)), max_size=3)
_commands = st.one_of(
    st.builds(ElectMaster, st.just("a"), st.none() | _ids, st.booleans(), _live, st.booleans()),
    st.builds(CleanBrokerData, st.just("a"), st.lists(_ids, max_size=1), st.just(True), st.just([])),
    st.tuples(st.lists(_ids, min_size=1, max_size=3, unique=True), st.dictionaries(_ids, _told, max_size=3)),
)


@settings(max_examples=150)
@given(st.lists(_commands, max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_all_members_come_to_the_same_state(history: list[Any], upgraded_at: int, restored_at: int) -> None:
    first, second = make_three(IN_STEP, LIVING_FORMER_SET), make_three({}, LIVING_FORMER_SET)
    for number, step in enumerate(history):
        features = INCARNATIONS if number >= upgraded_at else LIVING_FORMER_SET
        group = first.groups.get("a")
        if isinstance(step, tuple):
            if group is None:
                continue
            members, told = step
            step = AlterSyncStateSet(
                "a", group.master_id or 0, group.master_epoch, group.set_epoch, sorted(members), list(IDS), told
            )
        if number == restored_at:
            snapshot = second.snapshot()
            second = Metadata()
            second.restore(snapshot)
        command = read_command(encode(step))
        # until all know of it, it makes no difference to those who do
        seen = command if features >= INCARNATIONS else without_incarnations(command)
        answers = []
        for metadata, each in ((first, command), (second, seen)):
            try:
                answers.append(metadata.apply(number, 0, features, encode(each)))
            except CommandRefusedError as error:
                answers.append(str(error).encode())
        assert answers[0] == answers[1]
        assert first.groups == second.groups
        group = first.groups.get("a")
        if group is not None:
            assert group.incarnations.keys() <= set(group.in_step)
            assert group.master_id is None or not group.former_set or group.master_id in group.former_set
