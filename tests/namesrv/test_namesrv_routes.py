"""Routes that name servers rewrite: a slave that stands in for its master, permissions taken and given back."""

from __future__ import annotations

import pytest
from namesrv_registrations import addresses, perms, queues, registration, remove

from understudy.namesrv.records import MappingInfo, MinBrokerIdNotice, QueueData
from understudy.namesrv.route_table import RouteTable
from understudy.namesrv.routes import pick_up
from understudy.namesrv.zone import within_zone


@pytest.mark.covers("NS-06", "R2")
def test_the_smallest_slave_stands_in_for_a_master_that_left() -> None:
    # given a group that allows acting
    table = RouteTable()
    for broker_id in (0, 2, 3):
        table.register(registration("a", broker_id, acting=True), None, 0)
    assert addresses(pick_up(table, "T1", acting_master=True)) == {"a": {0: "a0:1", 2: "a2:1", 3: "a3:1"}}
    # when the master leaves
    notices = remove(table, ("C", "a0:1"))
    # then the smallest slave is shown under the master's id, read only, and everybody left is to be told
    route = pick_up(table, "T1", acting_master=True)
    assert addresses(route) == {"a": {0: "a2:1", 3: "a3:1"}}
    assert perms(route) == {"a": 4}
    assert notices == (MinBrokerIdNotice("a", ("a2:1", "a3:1"), 2, "a2:1", "a0:1", None),)
    # and the topic by which brokers read their members shows real ids
    table.topics.put("rmq_sys_SYNC_BROKER_MEMBER_a", queues("a", 1))
    real = pick_up(table, "rmq_sys_SYNC_BROKER_MEMBER_a", acting_master=True)
    assert addresses(real) == {"a": {2: "a2:1", 3: "a3:1"}}
    # and the member list as well
    assert table.groups["a"].addresses() == {2: "a2:1", 3: "a3:1"}


def test_a_returning_master_gets_its_permissions_back_and_the_slaves_are_told() -> None:
    # given an acting slave
    table = RouteTable()
    table.register(registration("a", 0, topics={"T1": 7, "T2": 6}, acting=True), None, 0)
    table.register(registration("a", 1, topics={"T1": 7, "T2": 6}, acting=True), None, 0)
    remove(table, ("C", "a0:1"))
    assert perms(pick_up(table, "T1")) == {"a": 5}
    # when the slave registers as it did before, it stays read only
    table.register(registration("a", 1, topics={"T1": 7, "T2": 6}, acting=True, counter=9), None, 0)
    assert perms(pick_up(table, "T1")) == {"a": 5}
    # when the master registers again with the version it had
    result = table.register(registration("a", 0, topics={"T1": 7, "T2": 6}, acting=True), None, 0)
    # then the route is as before
    route = pick_up(table, "T1", acting_master=True)
    assert addresses(route) == {"a": {0: "a0:1", 1: "a1:1"}}
    assert perms(route) == {"a": 7}
    assert result.notices == (MinBrokerIdNotice("a", ("a1:1",), 0, "a0:1", None, "ha-a0:1"),)


@pytest.mark.covers("R29", "R93")
def test_nothing_is_rewritten_unless_name_server_and_brokers_allow_it() -> None:
    for acting, supported in ((True, False), (False, True), (None, True)):
        table = RouteTable()
        table.register(registration("a", 0, acting=acting), None, 0)
        table.register(registration("a", 1, acting=acting), None, 0)
        remove(table, ("C", "a0:1"))
        assert addresses(pick_up(table, "T1", acting_master=supported)) == {"a": {1: "a1:1"}}


@pytest.mark.covers("NS-13")
def test_only_the_group_without_a_master_is_rewritten() -> None:
    # given two groups of an ordered topic that allow acting
    table = RouteTable()
    for name in ("a", "b"):
        table.register(registration(name, 0, acting=True), None, 0)
        table.register(registration(name, 1, acting=True), None, 0)
    # when one master leaves
    remove(table, ("C", "a0:1"))
    # then its slave alone is id 0; the other group shows both
    route = pick_up(table, "T1", acting_master=True, order_config="a:8;b:8")
    assert addresses(route) == {"a": {0: "a1:1"}, "b": {0: "b0:1", 1: "b1:1"}}
    assert perms(route) == {"a": 4, "b": 6}
    assert route is not None
    assert route.order_config == "a:8;b:8"


def test_a_writable_group_without_a_master_is_not_rewritten() -> None:
    # given a slave whose topic an operator made writable
    table = RouteTable()
    table.register(registration("a", 0, acting=True), None, 0)
    table.register(registration("a", 1, acting=True), None, 0)
    remove(table, ("C", "a0:1"))
    table.topics.add_write("a")
    # then it is not shown as a master
    assert addresses(pick_up(table, "T1", acting_master=True)) == {"a": {1: "a1:1"}}


@pytest.mark.covers("NS-09")
def test_write_permission_is_wiped_and_given_back() -> None:
    table = RouteTable()
    table.register(registration("a", topics={"T1": 6, "T2": 7}), None, 0)
    table.register(registration("b", topics={"T3": 6, "T4": 6}), None, 0)
    assert table.topics.wipe_write("a") == 2
    assert (perms(pick_up(table, "T1")), perms(pick_up(table, "T2"))) == ({"a": 4}, {"a": 5})
    assert table.topics.wipe_write("a") == 2  # counted although nothing is left to wipe
    assert table.topics.add_write("a") == 2
    assert (perms(pick_up(table, "T1")), perms(pick_up(table, "T2"))) == ({"a": 6}, {"a": 6})
    assert perms(pick_up(table, "T3")) == {"b": 6}
    assert table.topics.wipe_write("nobody") == 0
    # an unchanged registration keeps what the operator did, a changed one ends it
    table.topics.wipe_write("a")
    table.register(registration("a", topics={"T1": 6, "T2": 7}), None, 0)
    assert perms(pick_up(table, "T2")) == {"a": 4}
    table.register(registration("a", topics={"T1": 6, "T2": 7}, counter=2), None, 0)
    assert perms(pick_up(table, "T2")) == {"a": 7}


@pytest.mark.covers("NS-10")
def test_a_route_holds_every_broker_of_the_topic() -> None:
    table = RouteTable()
    table.register(registration("a"), None, 0)
    route = pick_up(table, "T1")
    assert route is not None
    assert route.queues == (QueueData("a", 6, 8, 0, 8),)
    table.register(registration("b"), None, 0)
    route = pick_up(table, "T1")
    assert addresses(route) == {"a": {0: "a0:1"}, "b": {0: "b0:1"}}
    assert perms(route) == {"a": 6, "b": 6}


def test_unit_topics_are_told_by_the_first_group() -> None:
    table = RouteTable()
    table.register(registration("a"), None, 0)
    for flags in range(4):
        table.topics.put(f"U{flags}", queues("a", flags=flags))
    assert table.topics.of_units() == ["U1", "U3"]
    assert table.topics.with_unit_subscription() == ["U2", "U3"]
    assert table.topics.with_unit_subscription_only() == ["U2"]


def test_a_static_topic_keeps_its_mapping_while_a_group_is_away() -> None:
    mapping = MappingInfo("T1", "a", "__global__", 7, 4, False, ((0, 0), (1, 1)))
    table = RouteTable()
    table.register(registration("a", mappings=(mapping,)), None, 0)
    table.register(registration("b"), None, 0)
    remove(table, ("C", "a0:1"))
    route = pick_up(table, "T1")
    assert route is not None
    assert route.mappings == {"a": mapping}


def test_a_static_topic_that_is_deleted_takes_its_mapping_along() -> None:
    table = RouteTable()
    for name in ("a", "b"):
        mapping = MappingInfo("T1", name, "__global__", 7, 4, False, ((0, 0), (1, 1)))
        table.register(registration(name, mappings=(mapping,)), None, 0)
    table.topics.delete("T1", ["a", "unknown"])
    assert table.topics.mappings["T1"].keys() == {"b"}
    table.topics.delete("T1")
    assert "T1" not in table.topics.mappings


def test_a_zone_keeps_its_own_masters_and_every_slave() -> None:
    # given masters in two zones and a group without a master in the other zone
    table = RouteTable()
    table.register(registration("a", zone="Z1"), None, 0)
    table.register(registration("b", zone="z2"), None, 0)
    table.register(registration("c", 1, zone="z2"), None, 0)
    route = pick_up(table, "T1")
    assert route is not None
    # then a client of one zone sees its own master and the slave
    seen = within_zone(route, "z1")
    assert addresses(seen) == {"a": {0: "a0:1"}, "c": {1: "c1:1"}}
    assert sorted(perms(seen)) == ["a", "c"]
