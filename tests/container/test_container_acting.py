"""Who acts: in every view at most one, never beside its master, and the reason is told."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.services import STORED, Service
from understudy.container.acting import Situation, acts, services, told

SLAVE = Situation(broker_id=1, is_slave=True, acting_enabled=True, members={1: "s1", 2: "s2"})


def changed(**changes: object) -> Situation:
    import attrs

    return attrs.evolve(SLAVE, **changes)  # type: ignore[arg-type]  # fields of Situation


@pytest.mark.parametrize(
    ("situation", "expected", "reason"),
    [
        (SLAVE, True, "smallest id"),
        (changed(members={0: "m", 1: "s1"}), False, "the master m is there"),
        (changed(broker_id=2), False, "slave 1 has a smaller id"),
        (changed(acting_enabled=False), False, "enableSlaveActingMaster=false"),
        (changed(isolated=True), False, "isolated"),
        (changed(members=None), False, "no name server"),
        (changed(members={}), False, "sees no member"),
        (changed(members={2: "s2"}), False, "does not see this broker"),
        (changed(metadata_synced=False), False, "not copied yet"),
        (changed(messages_missing=True), False, "the master may have them"),
        (changed(broker_id=0, is_slave=False), False, "a master does not act"),
    ],
)
def test_a_slave_acts_only_when_all_rules_allow_it(situation: Situation, expected: bool, reason: str) -> None:
    decision = acts(situation)
    assert expected == decision.run
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("contact_lost", "slaves_silent", "runs"),
    [(False, False, True), (True, False, True), (False, True, True), (True, True, False)],
)
def test_a_master_leaves_what_is_stored_to_its_slave_only_when_it_hears_nobody(
    contact_lost: bool, slaves_silent: bool, runs: bool
) -> None:
    master = Situation(0, False, True, members={0: "m", 1: "s"}, contact_lost=contact_lost, slaves_silent=slaves_silent)
    decided = services(master)
    assert [decided[each].run for each in (Service.SCHEDULE, Service.HEARTBEAT)] == [runs, runs]
    assert runs or "cut off" in decided[Service.SCHEDULE].reason
    # copies and sends go on in any case
    assert decided[Service.REPLICATION_SERVER].run


def test_a_master_that_asks_for_what_its_log_lacks_does_not_pass_what_is_stored_meanwhile() -> None:
    decided = services(Situation(0, False, messages_missing=True, asks_first=True))
    assert not any(decided[each].run for each in STORED)
    assert "its slaves are asked for them first" in decided[Service.SCHEDULE].reason
    for service in (Service.REPLICATION_SERVER, Service.MASTER_HOLES):
        assert decided[service].run


situations = st.builds(
    Situation,
    broker_id=st.integers(0, 3),
    is_slave=st.booleans(),
    acting_enabled=st.booleans(),
    isolated=st.booleans(),
    members=st.none() | st.dictionaries(st.integers(0, 3), st.just("address"), max_size=4),
    metadata_synced=st.booleans(),
    messages_missing=st.booleans(),
    asks_first=st.booleans(),
)


@given(situations)
def test_every_service_has_a_decision_and_a_reason(situation: Situation) -> None:
    decided = services(situation)
    assert set(Service) == set(decided)
    assert all(decision.reason for decision in decided.values())


@pytest.mark.covers("R20")
@given(situations)
def test_whatever_looks_after_stored_messages_switches_together(situation: Situation) -> None:
    decided = services(situation)
    assert Service.SCHEDULE in STORED
    assert len({decided[service] for service in STORED}) == 1


@given(st.dictionaries(st.integers(0, 4), st.just("address"), max_size=5), st.booleans())
def test_in_one_view_at_most_one_broker_acts_and_none_beside_a_master(members: dict[int, str], enabled: bool) -> None:
    acting = [
        broker_id for broker_id in range(5) if acts(Situation(broker_id, broker_id > 0, enabled, False, members)).run
    ]
    assert len(acting) <= 1
    assert not (0 in members and acting)


@given(situations)
def test_an_isolated_broker_runs_nothing_that_another_could_run(situation: Situation) -> None:
    if situation.isolated:
        decided = services(situation)
        assert not told(situation).run
        for service in (Service.SCHEDULE, Service.HEARTBEAT):
            assert not decided[service].run


@given(situations)
def test_an_acting_slave_is_the_only_slave_that_runs_the_schedule_and_does_not_copy(situation: Situation) -> None:
    if situation.is_slave:
        decided = services(situation)
        assert acts(situation).run == decided[Service.SCHEDULE].run
        for copying in (Service.REPLICATION_CLIENT, Service.METADATA_SYNC):
            assert decided[copying].run != acts(situation).run


def test_the_page_for_operators_has_every_reason_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "failover.md").read_text(encoding="utf-8")
    table = page.split("| reason | what to do |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    shown = [text for row in table for text in re.findall("`(.+?)`", row.split(" | ")[0])]
    patterns = [re.escape(text).replace("ADDRESS", r"\S+").replace("N\\ ", r"\d+\ ") for text in shown]
    flags = (
        "acting_enabled",
        "isolated",
        "contact_lost",
        "slaves_silent",
        "master_returning",
        "master_declines",
        "metadata_synced",
        "messages_missing",
        "asks_first",
    )
    views = (None, {}, {0: "m:1"}, {1: "s:1"}, {2: "s:1"}, {3: "s:1"})
    reasons = {
        services(
            Situation(
                broker_id,
                broker_id > 0,
                members=view,
                successor=successor if broker_id else None,
                **dict(zip(flags, values, strict=True)),
            )
        )[Service.SCHEDULE].reason
        for broker_id in (0, 2)
        for view in views
        for successor in (None, 1)
        for values in product((False, True), repeat=len(flags))
    }
    assert [reason for reason in sorted(reasons) if not any(re.fullmatch(each, reason) for each in patterns)] == []
    assert [each for each in patterns if not any(re.fullmatch(each, reason) for reason in reasons)] == []
