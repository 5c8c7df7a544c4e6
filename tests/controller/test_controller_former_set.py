"""Who may be elected until a new master confirms that it leads: those of the former set."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from understudy.controller.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    Outcome,
    decode_outcome,
    encode,
)
from understudy.controller.election import Live
from understudy.controller.metadata import FORMER_SET, LIVING_FORMER_SET, Metadata
from understudy.remoting.codes import ResponseCode

SHORT, LONG = Live(1, 100, confirms=True), Live(1, 200, confirms=True)


def run(metadata: Metadata, command: Command, features: int = LIVING_FORMER_SET) -> Outcome:
    return decode_outcome.decode(metadata.apply(1, 0, features, encode(command)))


def lose(metadata: Metadata, live: dict[int, Live], features: int = LIVING_FORMER_SET) -> Outcome:
    """Have a successor elected from those who live."""
    return run(metadata, ElectMaster("a", None, False, live, False), features)


def alter(metadata: Metadata, master: int, members: Iterable[int], features: int = LIVING_FORMER_SET) -> Outcome:
    group = metadata.groups["a"]
    command = AlterSyncStateSet("a", master, group.master_epoch, group.set_epoch, sorted(members), [1, 2, 3])
    return run(metadata, command, features)


@pytest.fixture
def three() -> Metadata:
    """Three members of one set, broker 1 the master."""
    metadata = Metadata()
    for broker_id in (1, 2, 3):
        run(metadata, ApplyBrokerId("C", "a", broker_id, f"10.0.0.{broker_id}:10911;{broker_id}"))
    run(metadata, ElectMaster("a", 1, False, {1: SHORT}, False))
    assert alter(metadata, 1, (1, 2, 3)).code == 0
    return metadata


def test_who_was_elected_and_is_gone_before_it_confirms_is_followed_by_another_of_the_former_set(
    three: Metadata,
) -> None:
    assert lose(three, {2: LONG, 3: SHORT}).master_id == 2
    assert three.groups["a"].sync_state_set == [2]
    assert three.needs_election("a", {3: SHORT}, lambda broker_id: False, unclean_allowed=False)
    assert lose(three, {3: SHORT}).master_id == 3


def test_who_was_away_when_its_successor_was_elected_may_have_lost_its_memory(three: Metadata) -> None:
    lose(three, {2: LONG, 3: SHORT})
    assert three.groups["a"].former_set == [2, 3]
    assert lose(three, {1: SHORT}).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert lose(three, {1: LONG, 3: SHORT}).master_id == 3
    # and so on: the first two are back, but were away
    assert three.groups["a"].former_set == [3]
    assert lose(three, {1: LONG, 2: LONG}).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert lose(three, {1: LONG, 2: LONG, 3: SHORT}).master_id == 3


def test_members_of_the_version_before_compute_the_same_former_set(three: Metadata) -> None:
    lose(three, {2: LONG, 3: SHORT}, FORMER_SET)
    assert three.groups["a"].former_set == [1, 2, 3]


def test_a_master_that_has_confirmed_is_the_only_one_who_may_be_elected(three: Metadata) -> None:
    elected = lose(three, {2: LONG, 3: SHORT})
    confirmed = alter(three, 2, (2,))
    assert (confirmed.code, confirmed.sync_state_set, confirmed.set_epoch) == (0, [2], elected.set_epoch)
    assert lose(three, {1: LONG, 3: LONG}).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert not three.needs_election("a", {1: LONG, 3: LONG}, lambda broker_id: False, unclean_allowed=False)
    assert lose(three, {1: LONG, 2: SHORT}).master_id == 2


def test_a_larger_set_confirms_as_well(three: Metadata) -> None:
    lose(three, {2: LONG, 3: SHORT})
    assert alter(three, 2, (2, 3)).code == 0
    assert lose(three, {1: LONG}).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE


def test_nobody_but_the_master_of_the_epoch_confirms(three: Metadata) -> None:
    lose(three, {2: LONG, 3: SHORT})
    late = AlterSyncStateSet("a", 2, three.groups["a"].master_epoch, three.groups["a"].set_epoch, [2], [1, 2, 3])
    run(three, ElectMaster("a", 3, True, {2: LONG, 3: SHORT}, False))
    run(three, ElectMaster("a", 2, True, {2: LONG, 3: SHORT}, False))
    assert run(three, late).code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert lose(three, {3: SHORT}).master_id == 3


@pytest.mark.parametrize(
    ("facts", "features"),
    [(Live(1, 200), FORMER_SET), (LONG, FORMER_SET - 1)],
    ids=["it does not say that it confirms", "not all members know of it"],
)
def test_any_other_master_is_the_only_one_at_once(three: Metadata, facts: Live, features: int) -> None:
    lose(three, {2: facts, 3: SHORT}, features)
    assert lose(three, {3: SHORT}, features).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    lose(three, {2: facts}, features)
    said = alter(three, 2, (2,), features)
    assert said.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED  # it is the set


def test_a_broker_that_was_cleaned_is_none_of_the_former_set(three: Metadata) -> None:
    lose(three, {2: LONG, 3: SHORT})
    run(three, CleanBrokerData("a", [3], True, []))
    assert three.groups["a"].former_set == [2]


def test_snapshots_are_read_by_the_version_before_and_those_of_it_here(three: Metadata) -> None:
    lose(three, {2: LONG, 3: SHORT})
    again = Metadata()
    again.restore(three.snapshot())
    assert again.groups == three.groups
    # given what the version before writes: everything but the last two fields
    rows = msgspec.msgpack.decode(three.snapshot(), strict=False, type=dict[str, list[object]])
    again.restore(msgspec.msgpack.encode({name: row[:8] for name, row in rows.items()}))
    assert (again.groups["a"].sync_state_set, again.groups["a"].former_set) == ([2], [])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([1, 2, 3, 4]), type=Live) == Live(1, 2, 3, 4)
