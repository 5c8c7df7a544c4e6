"""The map of what servers answer: which container hosts which brokers, and who is in the SyncStateSet of a group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from console_looks import figures, roster, silent

from understudy.console.model import memory, sync_sets
from understudy.console.model.looks import BrokerLook, GroupAddresses, Look
from understudy.console.model.memory import Memory, observe, with_sync_sets
from understudy.console.model.sync_sets import SyncSetLook

ONE, TWO = "10.0.0.1:10811", "10.0.0.2:10811"
A0, A1, B0, B1 = "10.0.0.1:10911", "10.0.0.2:10921", "10.0.0.2:10911", "10.0.0.1:10921"
CONTROLLERS = ("10.0.0.7:9878", "10.0.0.8:9878")
LED = {"enableControllerMode": "true", "controllerAddr": " 10.0.0.7:9878;10.0.0.8:9878 ;"}


def told(at_ms: int, container: str | None = None, *, end: int = 500, **settings: str) -> BrokerLook:
    """Return the answer of a broker of ours in *container*; without one, of a broker that has no roster."""
    known = None if container is None else roster(container=container)
    return BrokerLook(at_ms, figures(1_000, 0, 0, end), known, settings=settings)


def seen(groups: Mapping[str, Mapping[int, str]], *looks: Mapping[str, BrokerLook]) -> Memory:
    """Return what is known after *looks*, a second apart, at *groups*: address by id."""
    listed = {name: GroupAddresses("C", members) for name, members in groups.items()}
    known = Memory()
    for number, each in enumerate(looks, 1):
        known = observe(known, Look(number * 1_000, listed, each))
    return known


def shown(known: Memory) -> dict[str, Any]:
    """Return the first screen as a browser gets it."""
    screen: dict[str, Any] = json.loads(json.dumps(memory.first_screen(known)))
    return screen


def places(known: Memory) -> list[tuple[str, str, list[tuple[str, int, str]]]]:
    return [
        (row["kind"], row["address"], [(each["group"], each["id"], each["part"]) for each in row["brokers"]])
        for row in shown(known)["containers"]
    ]


PAIR = {"a": {0: A0, 1: A1}, "b": {0: B0, 1: B1}}
WHOLE = {A0: told(900, ONE), B1: told(900, ONE), B0: told(900, TWO), A1: told(900, TWO)}


class TestContainers:
    def test_each_container_has_the_brokers_that_name_it_in_the_order_of_their_groups(self) -> None:
        known = seen(PAIR, WHOLE)
        assert [
            ("container", ONE, [("a", 0, "master"), ("b", 1, "slave")]),
            ("container", TWO, [("a", 1, "slave"), ("b", 0, "master")]),
        ] == places(known)
        (first, _) = shown(known)["groups"]
        assert [("container", ONE), ("container", TWO)] == [
            (each["place"], each["container"]) for each in first["members"]
        ]

    def test_one_of_which_no_broker_answers_comes_first_and_says_since_when(self) -> None:
        gone = {**WHOLE, B0: silent(1_900), A1: silent(1_950)}
        known = seen(PAIR, WHOLE, gone, gone)
        first, second = shown(known)["containers"]
        assert (TWO, False, 1_950) == tuple(first[name] for name in ("address", "answers", "silentSince"))
        assert (ONE, True, None) == tuple(second[name] for name in ("address", "answers", "silentSince"))
        # when one of its brokers answers, then the container lives
        back = seen(PAIR, WHOLE, gone, {**gone, A1: told(2_900, TWO)})
        assert [(ONE, True), (TWO, True)] == [(row["address"], row["answers"]) for row in shown(back)["containers"]]

    def test_brokers_that_are_no_longer_registered_stay_where_they_were(self) -> None:
        known = seen(PAIR, WHOLE)
        listed = {name: GroupAddresses("C", {1: members[1]}) for name, members in PAIR.items()}
        known = observe(known, Look(2_000, listed, {A0: silent(1_900), B0: silent(1_900)}))
        assert ("container", ONE, [("a", 0, "gone"), ("b", 1, "acting")]) in places(known)

    def test_what_a_container_has_of_a_group_alone_is_said(self) -> None:
        together = {A0: told(900, ONE), A1: told(900, ONE), B0: told(900, ONE), B1: told(900, TWO)}
        rows = shown(seen(PAIR | {"c": {0: "10.0.0.3:1"}}, together | {"10.0.0.3:1": told(900, ONE)}))["containers"]
        assert {ONE: ["a"], TWO: []} == {row["address"]: row["holdsAllOf"] for row in rows}

    def test_brokers_of_the_reference_are_shown_as_far_as_they_tell(self) -> None:
        looks = {
            A0: told(900, ONE),
            A1: told(900, isInBrokerContainer="true"),
            B0: told(900, isInBrokerContainer="false"),
            B1: told(900),
        }
        known = seen(PAIR | {"c": {0: "10.0.0.3:1"}, "d": {0: "10.0.0.4:1"}}, looks | {"10.0.0.3:1": told(900, "")})
        assert [
            ("container", ONE, [("a", 0, "master")]),
            ("own", "", [("b", 0, "master"), ("c", 0, "master")]),
            ("unnamed", "", [("a", 1, "slave")]),
            ("unknown", "", [("b", 1, "slave"), ("d", 0, "master")]),
        ] == places(known)


def entry(*in_set: int, master: int | None = 1, dead: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return what controllers answer of a group with replicas 1 to 3."""
    rows = [
        {"brokerId": number, "brokerAddress": f"10.0.0.{number}:10911", "alive": number not in dead, "brokerName": "a"}
        for number in (1, 2, 3)
    ]
    found: dict[str, Any] = {
        "inSyncReplicas": [row for row in rows if row["brokerId"] in in_set],
        "notInSyncReplicas": [row for row in rows if row["brokerId"] not in in_set],
        "masterEpoch": 4,
        "syncStateSetEpoch": 9,
    }
    return found if master is None else {**found, "masterBrokerId": master}


def led(ends: tuple[int, int, int] = (500, 500, 500), **learner: str) -> Memory:
    """Return what is known of a group with replicas 1 to 3 whose first one is master, before controllers were asked."""
    members = {0: "10.0.0.1:10911", 2: "10.0.0.2:10911", 3: "10.0.0.3:10911"}
    looks = {
        address: told(900, "", end=end, **LED, **(learner if number else {}))
        for number, (address, end) in enumerate(zip(members.values(), ends, strict=True))
    }
    return seen({"a": members}, looks)


def set_of(known: Memory, said: dict[str, Any]) -> dict[str, Any]:
    look = sync_sets.look_of(said, 5_000, CONTROLLERS, CONTROLLERS[0])
    found: dict[str, Any] = shown(with_sync_sets(known, {"a": look}))["groups"][0]["syncSet"]
    return found


def out(found: dict[str, Any]) -> dict[int, str]:
    return {row["id"]: row["why"] for row in found["replicas"] if not row["inSet"]}


class TestSyncStateSet:
    def test_who_leads_a_group_stands_in_the_settings_of_its_brokers(self) -> None:
        known = led()
        assert {CONTROLLERS: ["a"]} == sync_sets.led(known.groups)
        assert {} == sync_sets.led(seen(PAIR, WHOLE).groups)
        assert {} == sync_sets.led(seen({"a": {0: A0}}, {A0: told(900, **{**LED, "controllerAddr": " ; "})}).groups)
        assert None is shown(known)["groups"][0]["syncSet"]

    def test_the_set_is_shown_with_its_epochs_and_its_master(self) -> None:
        found = set_of(led(), entry(1, 2, 3))
        assert (4, 9, 3, [], CONTROLLERS[0]) == tuple(
            found[name] for name in ("masterEpoch", "setEpoch", "inSet", "notes", "leader")
        )
        assert [(1, True, True, ""), (2, True, False, ""), (3, True, False, "")] == [
            (row["id"], row["inSet"], row["master"], row["why"]) for row in found["replicas"]
        ]

    def test_of_a_replica_that_is_out_of_it_the_reason_is_said(self) -> None:
        found = set_of(led((500, 420, 500)), entry(1))
        assert {
            2: "it lives, and has not caught up with its master",
            3: "it lives and has everything: its master lets it in with one of the next looks",
        } == out(found)
        assert [None, 80, 0] == [row["behindBytes"] for row in found["replicas"]]
        assert {3: "the controllers hear nothing from it"} == out(set_of(led(), entry(1, 2, dead=(3,))))
        learners = out(set_of(led(asyncLearner="true"), entry(1, 2)))
        assert {3: "a learner (asyncLearner=true) copies and is never counted"} == learners

    def test_a_dead_one_that_is_in_it_still_is_said_too(self) -> None:
        found = set_of(led(), entry(1, 2, 3, dead=(2,)))
        assert ["", "the controllers hear nothing from it, and it counts still", ""] == [
            row["why"] for row in found["replicas"]
        ]

    def test_without_a_master_it_says_where_to_look(self) -> None:
        found = set_of(led(), entry(1, 2, master=None))
        assert {3: "it lives; without a master nobody is let in"} == out(found)
        (note,) = found["notes"]
        assert "mqadmin whyNoMaster -a 10.0.0.7:9878 -b a says which rule" in note

    def test_name_servers_that_list_another_master_are_said(self) -> None:
        (note,) = set_of(led(), entry(1, 2, master=2))["notes"]
        assert "the controllers have elected 10.0.0.2:10911, name servers list 10.0.0.1:10911 still" == note

    def test_what_was_known_stays_while_no_controller_answers_and_a_group_that_is_led_no_longer_has_none(self) -> None:
        look = sync_sets.look_of(entry(1, 2), 5_000, CONTROLLERS, CONTROLLERS[0])
        failed = SyncSetLook(9_000, CONTROLLERS, error="no controller is active")
        known = with_sync_sets(led(), {"a": look})
        found = shown(with_sync_sets(known, {"a": failed}))["groups"][0]["syncSet"]
        assert (5_000, 2, "no controller is active") == tuple(found[name] for name in ("at", "inSet", "error"))
        never = shown(with_sync_sets(led(), {"a": failed}))["groups"][0]["syncSet"]
        assert ([], [], 0) == (never["replicas"], never["notes"], never["inSet"])
        # when its brokers are started without controllers
        group = known.groups["a"]
        unled = {address: told(2_900, "", enableControllerMode="false") for address in group.members}
        listed = {"a": GroupAddresses("C", {each.broker_id: each.address for each in group.members.values()})}
        assert {} == observe(known, Look(3_000, listed, unled)).sync_sets

    @pytest.mark.parametrize(
        "said",
        [{}, {"masterEpoch": None, "syncStateSetEpoch": 1}, {**entry(1), "inSyncReplicas": [{"brokerId": "x"}]},
         {**entry(1), "notInSyncReplicas": {"a": 1}}, {**entry(1), "inSyncReplicas": [1]}],
    )  # fmt: skip
    def test_an_answer_that_cannot_be_read_is_refused(self, said: dict[str, Any]) -> None:
        with pytest.raises((TypeError, ValueError, KeyError)):
            sync_sets.look_of(said, 0, CONTROLLERS, CONTROLLERS[0])
