"""Who may speak for a registered broker: itself and its host, and others when it is gone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from namesrv_wire import Peer, config_in, connected, running

from understudy.format.data_version import DataVersion
from understudy.namesrv.records import FORMER_MEMBERS, MappingInfo, QueueData, Registration
from understudy.namesrv.route_table import MOST_OF_ONE_HOST, RouteTable
from understudy.namesrv.server import NameServer
from understudy.namesrv.topic_table import QUEUES_MAX
from understudy.namesrv.trust import MOST_ELECTIONS, SILENCE_MS

KEY = ("c", "10.0.0.1:10911")
OWN, OTHER = object(), object()


def said(
    broker_id: int = 0, name: str = "a", address: str = KEY[1], state: int = 0, cluster: str = "c"
) -> Registration:
    topics = {"T": QueueData(name, 6, 4, 0, 4), "U": QueueData(name, 6, 4, 0, 4)}
    return Registration(cluster, name, broker_id, address, version=DataVersion(state, 1, 1), topics=topics)


def table(state: int = 0) -> RouteTable:
    made = RouteTable()
    made.register(said(state=state), OWN, 0, host="h1")
    return made


HOSTILE = {
    "the name with another address": said(address="6.6.6.6:1"),
    "the address under another name": said(name="b"),
    "the address under another id": said(broker_id=3),
    "the address in another cluster": said(cluster="d"),
    "the name in another cluster": said(broker_id=3, cluster="d", address="6.6.6.6:1"),
    "the same broker": said(),
    "a state version nobody gave": said(address="6.6.6.6:1", state=2**62),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_another_host_takes_nothing_from_a_living_broker(what: str) -> None:
    routes = table()
    before = (routes.revision, routes.live[KEY], dict(routes.groups["a"].members))
    result = routes.register(HOSTILE[what], OTHER, 1000, host="h2")
    assert result.owner is routes.live[KEY]
    assert before == (routes.revision, routes.live[KEY], dict(routes.groups["a"].members))


@pytest.mark.parametrize("event", [said(), said(address="10.0.0.1:20911"), said(broker_id=3), said(name="b")])
@pytest.mark.parametrize(
    ("connection", "host", "now_ms"), [(OWN, "h1", 1), (OTHER, "h1", 1), (OTHER, "h2", SILENCE_MS + 1)]
)
def test_what_legitimate_brokers_do_goes_on(event: Registration, connection: object, host: str, now_ms: int) -> None:
    routes = table()
    assert routes.register(event, connection, now_ms, host=host).owner is None
    assert routes.live[("c", event.address)].name == event.name


def test_a_broker_that_left_or_whose_connection_ended_may_come_back_anywhere() -> None:
    routes = table()
    routes.remove(routes.lost_with(OWN))
    assert routes.register(said(address="10.0.0.2:10911"), OTHER, 1, host="h2").owner is None


def test_another_member_of_the_group_comes_from_any_host() -> None:
    routes = table()
    result = routes.register(said(broker_id=1, address="10.0.0.2:10911"), OTHER, 1, host="h2")
    assert (result.owner, result.master_address) == (None, KEY[1])


def stranger(broker_id: int, perm: int = 0, **changes: object) -> Registration:
    """Return what a peer on another host says that takes a free id."""
    topics = {topic: QueueData("a", 6, perm, 0, 4) for topic in ("T", "U")}
    event = said(broker_id, address="6.6.6.6:1")
    return attrs.evolve(event, acting=True, version=DataVersion(0, 9, 9), topics=topics, **changes)


def shown(routes: RouteTable) -> tuple[bool, str | None, dict[str, QueueData], dict[str, dict[str, None]]]:
    group = routes.groups["a"]
    return group.acting, group.zone, {topic: routes.topics.queues[topic]["a"] for topic in "TU"}, dict(routes.clusters)


@pytest.mark.parametrize("broker_id", [-5, 1, 7])
@pytest.mark.parametrize("acting", [False, True])
def test_who_takes_a_free_id_changes_nothing_for_the_group_while_its_master_lives(broker_id: int, acting: bool) -> None:
    # given a group whose slaves may act
    routes = RouteTable()
    routes.register(attrs.evolve(said(), acting=True, zone="z"), OWN, 0, host="h1")
    before = shown(routes)
    # when another host registers a member that has other topics and says something else of the group
    result = routes.register(attrs.evolve(stranger(broker_id, zone="y"), acting=acting), OTHER, 1, host="h2")
    # then it is a member, as a new slave is
    assert (result.owner, broker_id in routes.groups["a"].members) == (None, True)
    assert shown(routes) == before
    # and nothing stays of it
    routes.remove(routes.lost_with(OTHER))
    assert shown(routes) == before


def test_topics_of_a_slave_that_is_gone_are_asked_for_and_taken_again() -> None:
    # given a group without master, of which slave 2 has told the topics
    routes = RouteTable()
    own = attrs.evolve(said(2), acting=True)
    routes.register(own, OWN, 0, host="h1")
    before = shown(routes)
    assert routes.data_version(KEY, own.version, OWN, 1, host="h1")[0] is False
    # when one of a smaller id comes, has others, and goes
    routes.register(stranger(1), OTHER, 2, host="h2")
    assert shown(routes) != before
    assert routes.data_version(KEY, own.version, OWN, 3, host="h1")[0] is False  # it has no say
    routes.remove(routes.lost_with(OTHER))
    # then slave 2 is asked for its topics, though its version did not change, and they count
    assert routes.data_version(KEY, own.version, OWN, 4, host="h1")[0] is True
    routes.register(own, OWN, 5, host="h1")
    assert shown(routes) == before
    assert routes.data_version(KEY, own.version, OWN, 6, host="h1")[0] is False


def test_slaves_of_old_brokers_are_not_asked_for_topics_that_would_not_count() -> None:
    routes = RouteTable()
    old = said(2)
    routes.register(old, OWN, 0, host="h1")
    routes.register(stranger(1), OTHER, 1, host="h2")
    routes.remove(routes.lost_with(OTHER))
    assert routes.data_version(KEY, old.version, OWN, 2, host="h1")[0] is False


def test_one_host_takes_so_many_ids_of_a_group_and_others_still_come() -> None:
    routes = table()
    for broker_id in range(1, MOST_OF_ONE_HOST + 1):
        address = f"6.6.6.6:{broker_id}"
        assert routes.full_for("c", "a", address, "h2") is False
        routes.register(said(broker_id, address=address), OTHER, 1, host="h2")
    assert routes.full_for("c", "a", "6.6.6.6:999", "h2") is True
    assert routes.full_for("c", "a", "6.6.6.6:1", "h2") is False  # it is registered
    assert routes.full_for("c", "b", "6.6.6.6:999", "h2") is False
    assert routes.full_for("c", "a", "10.0.0.2:1", "h3") is False


ELECTED = "10.0.0.2:1"


@pytest.mark.parametrize("gone", [False, True], ids=["there", "just restarted"])
def test_an_elected_member_takes_the_id_in_a_group_that_a_controller_leads(gone: bool) -> None:
    # given a group with a slave on another host
    routes = table(state=1)
    assert routes.register(said(1, address=ELECTED, state=1), OTHER, 1, host="h2").owner is None
    if gone:
        routes.remove(routes.lost_with(OTHER))
    # when it says that it is the master, then it has to have been elected
    assert routes.register(said(address=ELECTED, state=1), OTHER, 2, host="h2").owner is not None
    result = routes.register(said(address=ELECTED, state=2), OTHER, 3, host="h2")
    assert (result.owner, result.displaced) == (None, KEY[1])
    assert routes.groups["a"].addresses() == {0: ELECTED}
    # and the former master does not come back as it was, nor with what it copied as a slave, but when it is elected
    assert routes.register(said(state=1), OWN, 4, host="h1").owner is not None
    assert routes.register(said(2, state=2), OWN, 5, host="h1").owner is None
    assert routes.register(said(state=2), OWN, 6, host="h1").owner is not None
    assert routes.register(said(state=3), OWN, 7, host="h1").displaced == ELECTED


@pytest.mark.parametrize("state", [4, 2**40, 2**62])
def test_who_was_no_member_is_not_elected(state: int) -> None:
    # given a led group of two, and a stranger that says it is one of them
    routes = table(state=3)
    later_ms = SILENCE_MS + 1
    routes.register(said(state=3), OWN, later_ms, host="h1")
    routes.register(said(1, address=ELECTED, state=3), OTHER, later_ms, host="h2")
    for address in ("6.6.6.6:1", ELECTED):
        assert routes.register(said(address=address, state=state), object(), later_ms, host="h3").owner is not None
    # nor is it believed of any other id
    stranger = said(1, address="6.6.6.6:1", state=state)
    assert routes.register(stranger, object(), later_ms, host="h3").owner is not None
    assert routes.groups["a"].addresses() == {0: KEY[1], 1: ELECTED}


def test_a_name_server_that_begins_believes_who_was_elected_before_whoever_comes_first() -> None:
    # given a name server that has just begun, and a former master that comes to it before its successor
    routes = table(state=3)
    result = routes.register(said(address=ELECTED, state=4), OTHER, 1, host="h2")
    assert (result.owner, result.displaced) == (None, KEY[1])
    assert routes.register(said(state=3), OWN, 2, host="h1").owner is not None
    assert routes.groups["a"].addresses() == {0: ELECTED}


def test_a_slave_that_had_nothing_of_its_master_yet_was_a_member() -> None:
    routes = table(state=3)
    later_ms = SILENCE_MS + 1
    routes.register(said(state=3), OWN, later_ms, host="h1")
    routes.register(said(1, address=ELECTED, state=0), OTHER, later_ms, host="h2")
    routes.remove(routes.lost_with(OTHER))
    assert routes.register(said(address=ELECTED, state=4), object(), later_ms, host="h2").displaced == KEY[1]


def test_a_master_has_its_id_back_from_one_that_nobody_elected() -> None:
    # given a stranger that came as a slave
    routes = table(state=3)
    connection, address = object(), "6.6.6.6:1"
    routes.register(said(7, address=address, state=3), connection, 1, host="h3")
    # then it may not claim what no election can have given
    assert routes.register(said(address=address, state=2**40), connection, 2, host="h3").owner is not None
    # and when it claims less, the master is back when it has been elected again
    claimed = 3 + MOST_ELECTIONS
    assert routes.register(said(address=address, state=claimed), connection, 3, host="h3").displaced == KEY[1]
    assert routes.register(said(state=3), OWN, 4, host="h1").owner is not None
    result = routes.register(said(state=4), OWN, 5, host="h1")
    assert (result.stale, result.displaced) == (False, address)
    assert routes.register(said(address=address, state=claimed + 2), connection, 6, host="h3").owner is not None
    assert routes.groups["a"].addresses() == {0: KEY[1]}


def test_of_former_members_some_are_remembered() -> None:
    routes = table(state=1)
    for number in range(FORMER_MEMBERS + 5):
        routes.register(said(1, address=f"10.0.1.1:{number}", state=1), OTHER, 1, host="h2")
        routes.remove(routes.lost_with(OTHER))
    assert list(routes.groups["a"].former) == [f"10.0.1.1:{number}" for number in range(5, FORMER_MEMBERS + 5)]
    routes = table()
    routes.register(said(1, address=ELECTED), OTHER, 1, host="h2")
    routes.remove(routes.lost_with(OTHER))
    assert routes.groups["a"].former == {}  # nobody is elected in a group without controllers


def test_heartbeats_and_goodbyes_of_another_host_do_not_count() -> None:
    routes = table()
    member = routes.live[KEY]
    assert routes.heartbeat(KEY, OTHER, 500, host="h2") is False
    routes.data_version(KEY, None, OTHER, 500, host="h2")
    assert (member.seen_ms, member.heartbeat_connection) == (0, None)
    assert routes.to_unregister(KEY, "a", 0, OTHER, 500, host="h2") is None
    assert routes.to_unregister(KEY, "a", 0, OTHER, 500, host="h1") is member
    assert routes.heartbeat(KEY, OTHER, 500, host="h1") is True


@asynccontextmanager
async def connected_from(source: str, server: NameServer) -> AsyncIterator[Peer]:
    async with await trio.open_tcp_stream(*server.address, local_address=source) as stream:
        yield Peer(stream)


async def test_a_peer_on_another_host_is_told_why_and_the_route_stays(tmp_path: Path) -> None:
    async with (
        running(config_in(tmp_path)) as server,
        connected(server) as broker,
        connected_from("127.0.0.2", server) as stranger,
    ):
        assert (await broker.register("a", 0, "10.0.0.1:10911", {"T": 6, "U": 6})).code == 0
        before = await broker.route("T")

        taken = await stranger.register("a", 0, "6.6.6.6:10911", {"T": 6, "U": 6})
        moved = await stranger.register("b", 0, "10.0.0.1:10911", {"T": 6, "U": 6})
        off = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
        signed_off = await stranger.ask(104, off)
        queues = b'{"queueDatas":[{"brokerName":"a","perm":0,"readQueueNums":0,"writeQueueNums":0}]}'
        emptied = await stranger.ask(217, {"topic": "T"}, queues)

        below = await stranger.register("a", -5, "6.6.6.6:10911", {"T": 0, "U": 0}, enableActingMaster="true")
        assert [1, 1, 0, 16, 1] == [taken.code, moved.code, signed_off.code, emptied.code, below.code]
        assert "brokerId=-5" in (below.remark or "")
        assert "a with id 0 is registered at 10.0.0.1:10911" in (taken.remark or "")
        assert "from another host" in (emptied.remark or "")
        assert before == await broker.route("T")
        # and the broker itself goes on as ever, over another connection too
        async with connected(server) as again:
            assert (await again.register("a", 0, "10.0.0.1:20911", {"T": 6, "U": 6})).code == 0
            assert (await again.ask(104, {**off, "brokerAddr": "10.0.0.1:20911"})).code == 0


async def changed(broker: Peer, address: str, counter: int = 5) -> str:
    """Ask whether topics should be registered again."""
    ext = {"clusterName": "C", "brokerAddr": address, "brokerName": "any", "brokerId": "0"}
    body = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    return ((await broker.ask(322, ext, json.dumps(body).encode())).ext or {})["changed"]


async def test_topics_take_no_more_memory_than_is_free_for_all_others(tmp_path: Path) -> None:
    async with running(config_in(tmp_path)) as server, connected(server) as broker:
        kept = server.table.topics.kept
        kept.limit = 1 << 20
        assert (await broker.register("a", 0, "10.0.0.1:10911", {"T": 6, "U": 6})).code == 0
        assert (await broker.register("b", 0, "10.0.0.2:10911", {"T": 6, "U": 6})).code == 0
        queues = b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
        # given a peer that has single topics registered, more and more of them
        codes = [(await broker.ask(217, {"topic": f"topic {number}"}, queues)).code for number in range(1_500)]
        assert (codes[0], codes[-1]) == (0, 2)
        assert codes == sorted(codes)
        held = kept.held_by("a")
        assert (1 << 19) * 0.99 < held <= 1 << 19
        # then a registration brings it no more either, but is one: what it had stays, and it is found
        more = await broker.register("a", 0, "10.0.0.1:10911", {"T": 6, "U": 6, "another": 6}, version=(0, 5, 5))
        assert (0, held) == (more.code, kept.held_by("a"))
        assert "1 topics are left out" in (more.remark or "") and "keptForPeersBytes" in (more.remark or "")
        assert server.table.topics.has("U", "a") and not server.table.topics.has("another", "a")
        # so is that of a group that comes with too many at once, as after a restart of the name server
        many = {f"many {number}": 6 for number in range(3_000)}
        first = await broker.register("c", 0, "10.0.0.3:10911", many)
        assert (0, True) == (first.code, "topics are left out" in (first.remark or ""))
        assert 100 < sum(server.table.topics.has(topic, "c") for topic in many) < 3_000
        # and both are asked for their topics again, until they have room
        assert ["true", "false"] == [
            await changed(broker, "10.0.0.1:10911"),
            await changed(broker, "10.0.0.2:10911", 1),
        ]
        assert (
            await broker.register("a", 0, "10.0.0.1:10911", {"T": 6, "U": 6, "topic 1": 6}, version=(0, 6, 5))
        ).code == 0
        assert "false" == await changed(broker, "10.0.0.1:10911", 6)
        # and others have room
        assert (
            await broker.register("b", 0, "10.0.0.2:10911", {"T": 6, "U": 6, "another": 6}, version=(0, 5, 5))
        ).code == 0
        # until its topics go
        for number in range(codes.count(0)):
            assert (await broker.ask(216, {"topic": f"topic {number}"})).code == 0
        assert kept.held_by("a") < 2_000
        assert (
            await broker.register("a", 0, "10.0.0.1:10911", {"T": 6, "U": 6, "another": 6}, version=(0, 7, 5))
        ).code == 0


def test_a_mapping_that_grows_counts_as_a_new_one_does() -> None:
    topics = RouteTable().topics
    topics.kept.limit = 1 << 20
    small, large, huge = (
        MappingInfo("T", "a", "", 1, count, False, tuple((each, each) for each in range(count)))
        for count in (4, 999, 99_999)
    )
    for mapping, expected in ((small, small), (huge, small), (large, large), (huge, large), (small, small)):
        _, fitting = topics.fitting("a", {}, [mapping])
        assert [mapping] * (mapping is expected) == list(fitting)
        for each in fitting:
            topics.put_mapping(each)
        assert {"a": expected} == topics.mappings["T"]
    assert topics.lacking == set()
    # and gives its room back when its topic is deleted
    topics.delete("T", ["b"])
    assert (topics.mappings["T"], topics.kept.held_by("a") > 0) == ({"a": small}, True)
    topics.delete("T")
    assert (topics.mappings, topics.kept.used) == ({}, 0)


@pytest.mark.parametrize(("ids", "total"), [(4, (1 << 31) - 1), (QUEUES_MAX + 1, 4)])
def test_a_mapping_that_no_client_could_hold_is_told_to_none(ids: int, total: int) -> None:
    topics = RouteTable().topics
    mapping = MappingInfo("T", "a", "", 1, total, False, tuple((each, each) for each in range(ids)))
    assert topics.fitting("a", {}, [mapping]) == ({}, [])
    assert topics.lacking == {"a"}
