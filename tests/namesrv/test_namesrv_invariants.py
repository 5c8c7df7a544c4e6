"""Whatever happens in whatever order, the route table keeps its laws."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some
from namesrv_registrations import queues, registration

from understudy.namesrv.answers import RouteAnswers
from understudy.namesrv.key_values import KeyValueConfig
from understudy.namesrv.records import Member
from understudy.namesrv.route_table import RouteTable
from understudy.runtime.disk import RealDisk

names = some.sampled_from(["a", "b", "c"])
ids = some.integers(0, 3)
clusters = some.sampled_from(["C", "D"])
hosts = some.sampled_from(["h1", "h2", "h3", "h4"])
topics = some.dictionaries(some.sampled_from(["T1", "T2", "T3", "T4"]), some.sampled_from([2, 4, 6, 7]), max_size=3)
connections = some.sampled_from(["k1", "k2", "k3"])
registrations = some.builds(
    registration,
    names,
    ids,
    hosts,
    topics,
    cluster=clusters,
    acting=some.sampled_from([None, False, True]),
    counter=some.integers(0, 2),
    state_version=some.integers(0, 2),
    timeout_ms=some.sampled_from([None, 50, 100]),
)
events = some.one_of(
    some.tuples(some.just("register"), registrations, connections, some.booleans()),
    some.tuples(some.just("heartbeat"), clusters, hosts, connections),
    some.tuples(some.just("close"), connections),
    some.tuples(some.just("expire"), some.integers(0, 80)),
    some.tuples(some.just("queue"), clusters, hosts, names, ids, connections),
    some.tuples(some.just("drain")),
    some.tuples(some.just("topic"), names, some.sampled_from(["T1", "T9"])),
    some.tuples(some.just("delete"), some.sampled_from(["T1", "T2"]), some.sampled_from([None, "C", "D"])),
    some.tuples(some.just("wipe"), names),
)


def check_laws(table: RouteTable) -> None:
    members = [member for group in table.groups.values() for member in group.members.values()]
    assert sorted(map(id, members)) == sorted(map(id, table.live.values()))
    for key, member in table.live.items():
        assert key == member.key
        assert table.groups[member.name].members[member.broker_id] is member
        assert member.name in table.clusters[member.cluster]
    for group in table.groups.values():
        assert any(group.name in listed for listed in table.clusters.values())
        assert len(set(group.addresses().values())) == len(group.members)
    for listed in table.clusters.values():
        assert listed
        assert set(listed) <= set(table.groups)
    for by_group in table.topics.queues.values():
        assert by_group
        assert set(by_group) <= set(table.groups)
        assert all(name == item.broker_name for name, item in by_group.items())
    assert set(table.filter_servers) <= set(table.live)


@settings(max_examples=300)
@given(some.lists(events, max_size=40))
def test_the_laws_hold_after_every_event(steps: list[tuple]) -> None:  # type: ignore[type-arg]  # of many shapes
    table, now, queue = RouteTable(), 0, list[Member]()
    answers = RouteAnswers(table, KeyValueConfig(RealDisk(), "/nowhere"))
    for step in steps:
        kind, *of = step
        now += 7
        if kind == "register":
            event, connection, delete_missing = of
            result = table.register(event, connection, now, delete_missing_topics=delete_missing)
            known = table.live.get((event.cluster, event.address))
            assert result.refused or result.stale or (known is not None and known.seen_ms == now)
        elif kind == "heartbeat":
            table.heartbeat((of[0], of[1]), of[2], now)
        elif kind == "close":
            table.remove(table.lost_with(of[0]))
            assert not any(member.connection == of[0] for member in table.live.values())
        elif kind == "expire":
            now += of[0]
            table.remove(table.silent(now))
            assert table.silent(now) == []
        elif kind == "queue":
            member = table.to_unregister((of[0], of[1]), of[2], of[3], of[4])
            if member is not None:
                queue.append(member)
        elif kind == "drain":
            fresh = [member for member in table.live.values() if member not in queue]
            table.remove(queue)
            queue.clear()
            assert all(table.live[member.key] is member for member in fresh)
        elif kind == "topic":
            table.topics.register(of[1], [queues(of[0])], table.groups)
        elif kind == "delete":
            table.delete_topic(of[0], of[1])
        else:
            table.topics.wipe_write(of[0])
        check_laws(table)
        # a kept answer is the one that would be made now
        for topic in ("T1", "T2", "T9"):
            fresh_answers = RouteAnswers(table, KeyValueConfig(RealDisk(), "/nowhere"))
            options = {"standard": True, "acting_master": True, "with_order": False}
            assert answers.body(topic, **options) == fresh_answers.body(topic, **options)
