"""The route table as a value: events in, state and notices out; no sockets, no clock."""

from __future__ import annotations

import pytest
from namesrv_registrations import addresses, perms, queues, registration, remove

from understudy.format.data_version import DataVersion
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.routes import pick_up


@pytest.mark.covers("NS-01")
def test_clusters_brokers_and_topics_are_listed() -> None:
    # given two clusters
    table = RouteTable()
    table.register(registration("a", topics={"T1": 6, "T2": 6}), None, 0)
    table.register(registration("b", cluster="D", topics={"T2": 6, "T3": 6}), None, 0)
    # then names, addresses and topics are all there
    assert {"C": ["a"], "D": ["b"]} == {cluster: list(names) for cluster, names in table.clusters.items()}
    assert {"a": {0: "a0:1"}, "b": {0: "b0:1"}} == {name: group.addresses() for name, group in table.groups.items()}
    assert ["T1", "T2", "T3"] == table.topics.names()
    assert ["T2", "T3"] == table.topics.of_groups(table.clusters["D"])


@pytest.mark.covers("NS-02")
def test_a_topic_deleted_in_one_cluster_stays_in_the_other() -> None:
    # given a topic on two brokers
    table = RouteTable()
    table.register(registration("a"), None, 0)
    table.register(registration("b", cluster="D"), None, 0)
    assert len(addresses(pick_up(table, "T1"))) == 2
    # when it is deleted for one cluster, then for all
    table.delete_topic("T1", "C")
    assert addresses(pick_up(table, "T1")) == {"b": {0: "b0:1"}}
    table.delete_topic("T1", "unknown cluster")
    assert addresses(pick_up(table, "T1")) == {"b": {0: "b0:1"}}
    table.delete_topic("T1", None)
    # then there is no route
    assert pick_up(table, "T1") is None
    assert pick_up(table, "T2") is not None


@pytest.mark.covers("NS-03")
def test_a_slave_learns_its_master_and_a_master_nothing() -> None:
    table = RouteTable()
    # when a master, then a slave registers
    master = table.register(registration("a", 0), None, 0)
    slave = table.register(registration("a", 1), None, 0)
    # then only the slave is told addresses, and both ids are in the route
    assert (master.master_address, master.ha_address) == (None, None)
    assert (slave.master_address, slave.ha_address) == ("a0:1", "ha-a0:1")
    assert addresses(pick_up(table, "T1")) == {"a": {0: "a0:1", 1: "a1:1"}}


@pytest.mark.covers("NS-04")
def test_brokers_that_leave_take_their_routes_along() -> None:
    # given a group of two and a group of one
    table = RouteTable()
    for event in (registration("a", 0), registration("a", 1), registration("b", topics={"T9": 6, "T8": 6})):
        table.register(event, None, 0)
    # when one slave leaves
    remove(table, ("C", "a1:1"))
    assert addresses(pick_up(table, "T1")) == {"a": {0: "a0:1"}}
    # when all the others leave in one batch
    remove(table, ("C", "a0:1"), ("C", "b0:1"))
    # then nothing is left
    assert pick_up(table, "T1") is None
    assert pick_up(table, "T9") is None
    assert (table.groups, table.clusters, table.live, table.topics.queues) == ({}, {}, {}, {})


@pytest.mark.covers("NS-08")
def test_a_version_is_unchanged_only_when_all_its_parts_are_equal() -> None:
    table = RouteTable()
    assert table.data_version(("C", "a0:1"), DataVersion(0, 1, 5), None, 0) == (True, None)
    table.register(registration("a"), None, 0)
    known = DataVersion(0, 1, 5)
    assert table.data_version(("C", "a0:1"), known, None, 0) == (False, known)
    for other in (DataVersion(0, 2, 5), DataVersion(1, 1, 5), DataVersion(0, 1, 6), None):
        assert table.data_version(("C", "a0:1"), other, None, 0) == (True, known)


@pytest.mark.covers("NS-12")
def test_a_broker_is_silent_one_moment_after_its_own_timeout() -> None:
    # given one broker with a timeout of its own and an old one without
    table = RouteTable()
    table.register(registration("a", timeout_ms=1000, acting=True), None, 100)
    table.register(registration("old", acting=None), None, 100)
    assert table.next_deadline_ms() == 1100
    assert table.silent(1100) == []
    # when it is heard again, its deadline moves
    assert table.heartbeat(("C", "a0:1"), None, 600)
    assert table.silent(1101) == []
    # then both go when their time is up, and not before
    assert [member.name for member in table.silent(1601)] == ["a"]
    table.remove(table.silent(1601))
    assert pick_up(table, "T1") is not None
    assert table.next_deadline_ms() == 120_100
    table.remove(table.silent(120_101))
    assert pick_up(table, "T1") is None
    assert table.next_deadline_ms() is None


@pytest.mark.covers("NS-16")
def test_a_slave_that_takes_id_zero_is_the_master_under_one_id_only() -> None:
    table = RouteTable()
    table.register(registration("a", 0), None, 0)
    table.register(registration("a", 1), None, 0)
    remove(table, ("C", "a0:1"))
    # when the slave registers as master from the same address
    table.register(registration("a", 0, address="a1:1", state_version=2), None, 0)
    # then its old id is gone
    assert addresses(pick_up(table, "T1")) == {"a": {0: "a1:1"}}
    # and the former master, with an older state version, cannot take the id back
    result = table.register(registration("a", 0, address="a0:1", state_version=1), None, 0)
    assert result.stale
    assert (result.master_address, result.refused) == (None, False)
    assert addresses(pick_up(table, "T1")) == {"a": {0: "a1:1"}}
    assert ("C", "a0:1") not in table.live


def test_an_equal_state_version_takes_the_id_over() -> None:
    table = RouteTable()
    table.register(registration("a", 0), None, 0)
    result = table.register(registration("a", 0, address="elsewhere:1"), None, 0)
    assert result.displaced == "a0:1"
    assert addresses(pick_up(table, "T1")) == {"a": {0: "elsewhere:1"}}
    assert list(table.live) == [("C", "elsewhere:1")]


def test_a_single_topic_does_not_make_a_first_registration() -> None:
    # given an unknown broker
    table = RouteTable()
    # when it registers one changed topic before its table
    result = table.register(registration("a", topics={"T1": 6}), None, 0)
    # then it is refused, and known without an address, as the reference shows it
    assert result.refused
    assert table.groups["a"].addresses() == {}
    assert pick_up(table, "T1") is None
    # and once the table came, single topics are welcome
    assert not table.register(registration("a"), None, 0).refused
    assert not table.register(registration("a", topics={"T3": 6}, counter=2), None, 0).refused
    assert table.topics.names() == ["T1", "T2", "T3"]


def test_a_refused_role_change_leaves_the_slave_where_it_was() -> None:
    table = RouteTable()
    table.register(registration("a", 1), None, 0)
    assert table.register(registration("a", 0, address="a1:1", topics={"T1": 6}), None, 0).refused
    assert table.groups["a"].addresses() == {1: "a1:1"}


def test_slaves_of_old_brokers_and_larger_slaves_contribute_no_topics() -> None:
    table = RouteTable()
    table.register(registration("old", 1, acting=None), None, 0)
    assert pick_up(table, "T1") is None
    table.register(registration("a", 1, acting=True), None, 0)
    assert perms(pick_up(table, "T1")) == {"a": 4}
    table.register(registration("a", 2, topics={"T8": 6, "T9": 6}, acting=True), None, 0)
    assert pick_up(table, "T8") is None


def test_an_old_expiry_does_not_touch_a_fresh_registration() -> None:
    # given a timer, a closing connection and a queued unregistration that all mean a member's first registration
    table = RouteTable()
    table.register(registration("a", timeout_ms=10), "old connection", 0)
    silent = table.silent(100)
    queued = table.to_unregister(("C", "a0:1"), "a", 0, "old connection")
    assert queued is not None
    # when the broker registers again before they are carried out
    table.register(registration("a", timeout_ms=10), "new connection", 100)
    # then none of them removes it
    assert table.lost_with("old connection") == []
    table.remove(silent)
    table.remove([queued])
    assert addresses(pick_up(table, "T1")) == {"a": {0: "a0:1"}}


def test_an_unregistration_must_mean_the_member_that_is_there() -> None:
    table = RouteTable()
    table.register(registration("a", 0), "c1", 0)
    key = ("C", "a0:1")
    assert table.to_unregister(("D", "a0:1"), "a", 0, "c1") is None
    assert table.to_unregister(key, "b", 0, "c1") is None
    assert table.to_unregister(key, "a", 1, "another connection") is None
    assert table.to_unregister(key, "a", 0, "another connection") is table.live[key]
    assert table.to_unregister(key, "a", 1, "c1") is table.live[key]


def test_every_broker_of_a_lost_connection_is_lost() -> None:
    # given a container with three brokers on one connection, one of which has since moved its heartbeats
    table = RouteTable()
    for name in ("a", "b", "c"):
        table.register(registration(name), "container", 0)
    table.register(registration("d"), "other", 0)
    table.heartbeat(("C", "c0:1"), "newer", 10)
    # when the connection ends
    lost = table.lost_with("container")
    # then all of them are lost but the one that lives on elsewhere
    assert [member.name for member in lost] == ["a", "b"]
    table.remove(lost)
    assert sorted(table.groups) == ["c", "d"]
    assert [member.name for member in table.lost_with("newer")] == ["c"]


def test_a_heartbeat_connection_that_ends_harms_nobody() -> None:
    table = RouteTable()
    table.register(registration("a"), "main", 0)
    table.heartbeat(("C", "a0:1"), "short", 1)
    assert table.lost_with("short") == []
    assert [member.name for member in table.lost_with("main")] == ["a"]


def test_a_broker_under_a_new_name_or_cluster_leaves_no_ghost() -> None:
    table = RouteTable()
    table.register(registration("a", address="x:1"), None, 0)
    table.register(registration("b", address="x:1"), None, 0)
    assert list(table.groups) == ["b"]
    table.register(registration("b", address="x:1", cluster="D"), None, 0)
    assert list(table.live) == [("D", "x:1")]
    remove(table, ("D", "x:1"))
    assert (table.groups, table.clusters, table.topics.queues) == ({}, {}, {})


def test_unchanged_registrations_and_heartbeats_leave_kept_answers_alone() -> None:
    table = RouteTable()
    table.register(registration("a"), None, 0)
    revision = table.revision
    table.register(registration("a"), None, 10)
    table.heartbeat(("C", "a0:1"), None, 20)
    table.data_version(("C", "a0:1"), None, None, 20)
    assert table.revision == revision
    table.register(registration("a", zone="z"), None, 10)
    assert table.revision > revision


def test_topics_a_registration_does_not_name_go_only_when_asked_to() -> None:
    table = RouteTable()
    table.register(registration("a"), None, 0)
    table.register(registration("b"), None, 0)
    table.register(registration("a", topics={"T2": 6, "T3": 6}, counter=2), None, 0)
    assert sorted(addresses(pick_up(table, "T1"))) == ["a", "b"]
    table.register(registration("a", topics={"T2": 6, "T3": 6}, counter=3), None, 0, delete_missing_topics=True)
    assert sorted(addresses(pick_up(table, "T1"))) == ["b"]
    assert sorted(addresses(pick_up(table, "T2"))) == ["a", "b"]


def test_a_single_topic_registration_ends_at_the_first_unknown_group() -> None:
    table = RouteTable()
    table.register(registration("a"), None, 0)
    mixed = [queues("a", 4), queues("nobody")]
    table.topics.register("new", mixed, table.groups)
    assert pick_up(table, "new") is None
    table.topics.register("T1", mixed, table.groups)
    assert perms(pick_up(table, "T1")) == {"a": 4}


@pytest.mark.covers("R89")
def test_a_broker_that_says_nothing_new_is_served_as_of_old() -> None:
    table = RouteTable()
    table.register(registration("a", 0, acting=None), None, 0)
    table.register(registration("a", 1, acting=None), None, 0)
    assert [member.timeout_ms for member in table.live.values()] == [120_000, 120_000]
    remove(table, ("C", "a0:1"))
    route = pick_up(table, "T1", acting_master=True)
    assert addresses(route) == {"a": {1: "a1:1"}}
    assert perms(route) == {"a": 6}
