"""Tables of users that are large: which rule decides is looked up, and tables are written and read in pieces."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.replicated.table import Answer, Source, Taken
from understudy.broker.replicated.users import ReplicatedUsers
from understudy.format.json_dialect import dump_pieces, loads
from understudy.remoting.bodies import JSON, read_ahead
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.server import RemotingServer
from understudy.runtime import pace
from understudy.runtime.threads import InPlace
from understudy.runtime.world import real_world
from understudy.security import authority as authority_module
from understudy.security import requests as security_requests
from understudy.security.authority import SOURCES_LIMIT, Authority, AuthorityError
from understudy.security.gate import Gate
from understudy.security.policies import Acl, Action, Entry, Kind, Need, PolicyType, acl_of, decide, pattern_of
from understudy.security.rule_index import Sources, host_of
from understudy.security.settings import SecuritySettings
from understudy.security.signature import Credentials
from understudy.testkit.turns import turns_beside

ROOT = Credentials("root", "secret")


def plain(acl: Acl, need: Need, address: str) -> Entry | None:
    """Return the entry that decides by a look at every one of them."""
    host = host_of(address)

    def applies(entry: Entry) -> bool:
        here = not entry.sources or (host is not None and any(host in ipaddress.ip_network(s) for s in entry.sources))
        acts = Action.ALL in entry.actions or bool(entry.actions & need.actions)
        return acts and here and entry.pattern.matches(need)

    for kind in PolicyType:
        found = [entry for entry in acl.policies.get(kind, {}).values() if applies(entry)]
        if found:
            return min(found, key=lambda entry: (*entry.pattern.order, entry.allow))
    return None


names = st.text("ab", min_size=1, max_size=5)
patterns = st.one_of(
    st.just("*"),
    st.tuples(st.sampled_from(["Topic", "Group", "Cluster"]), names, st.sampled_from(["", "*"])).map(
        lambda each: f"{each[0]}:{each[1]}{each[2]}"
    ),
    st.sampled_from(["Topic:*", "Group:*", "Topic:**", "Topic:%RETRY%ab", "Any:*"]),
)
networks = st.sampled_from(["10.0.0.1", "10.0.0.0/8", "10.0.0.2/32", "0.0.0.0/0", "fd00::/8", "::/0", "fd00::1"])
addresses = st.sampled_from(["10.0.0.1", "10.0.0.2", "11.0.0.1", "fd00::1", "::ffff:10.0.0.1", "fe80::1", "host", ""])
entries = st.builds(
    lambda pattern, actions, allow, sources: Entry(pattern_of(pattern), frozenset(actions), allow, tuple(sources)),
    patterns,
    st.sets(st.sampled_from([Action.ALL, Action.PUB, Action.SUB, Action.GET]), min_size=1),
    st.booleans(),
    st.lists(networks, max_size=2),
)
needs = st.builds(
    lambda kind, name, actions: Need(kind, name, frozenset(actions)),
    st.sampled_from([Kind.TOPIC, Kind.GROUP, Kind.CLUSTER]),
    st.one_of(names, st.sampled_from(["", "*", "**"])),
    st.sets(st.sampled_from([Action.PUB, Action.SUB]), min_size=1),
)


@given(st.lists(st.tuples(st.sampled_from(PolicyType), entries), max_size=12), st.lists(needs, max_size=6), addresses)
def test_the_index_answers_as_a_look_at_every_rule_does(
    rows: list[tuple[PolicyType, Entry]], asked: list[Need], address: str
) -> None:
    acl = Acl()
    for kind, entry in rows:
        acl = acl.merged(kind, [entry])
    for need in asked:
        assert decide(acl, need, address) is plain(acl, need, address)


@given(st.lists(networks, max_size=4), addresses)
def test_a_host_is_found_in_networks_as_the_library_finds_it(texts: list[str], address: str) -> None:
    host = host_of(address)
    expected = host is not None and any(host in ipaddress.ip_network(text) for text in texts)
    assert expected == Sources(texts).hold(host)


def rules(resources: list[str]) -> Acl:
    rows = [{"resource": each, "actions": ["Pub"], "decision": "Allow"} for each in resources]
    acl = Acl()
    for kind, found in acl_of({"policies": [{"entries": rows}]}):
        acl = acl.merged(kind, found)
    return acl


@pytest.mark.parametrize(
    ("resource", "name", "looked"),
    [
        ("Topic:{0}*", "asked", 0),
        ("Topic:{0}*", "999-and-more", 1),
        ("Topic:{0}", "500", 1),
        ("Group:{0}*", "999-and-more", 0),
    ],
)
def test_of_a_thousand_rules_those_are_looked_at_that_are_about_the_name(
    resource: str, name: str, looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acl = rules([resource.format(f"{number:03}") for number in range(1_000)])
    count = 0
    usual = Entry.acts_on

    def counted(self: Entry, need: Need) -> bool:
        nonlocal count
        count += 1
        return usual(self, need)

    monkeypatch.setattr(Entry, "acts_on", counted)
    found = decide(acl, Need(Kind.TOPIC, name, frozenset({Action.PUB})), "10.0.0.1")
    assert (looked, looked > 0) == (count, found is not None)


def test_a_change_of_rules_counts_at_once() -> None:
    made = Authority()
    made.create_user("bob", {"password": "p"}, None)
    need = Need(Kind.TOPIC, "t", frozenset({Action.PUB}))

    def allowed() -> bool:
        found = made.decide("bob", need, "10.0.0.1")
        return found is not None and found.allow

    for decision, resource in (("Allow", "*"), ("Deny", "Topic:*"), ("Allow", "Topic:t")):
        row = {"resource": resource, "actions": ["Pub"], "decision": decision}
        made.merge_acl("bob", acl_of({"policies": [{"entries": [row]}]}))
        assert (decision == "Allow") is allowed()
    made.delete_acl("bob", None, "Topic:t")
    assert not allowed()


def test_the_addresses_in_the_rules_of_a_user_are_bounded() -> None:
    made = Authority()
    made.create_user("bob", {"password": "p"}, None)
    row = {"resource": "*", "actions": ["Pub"], "decision": "Allow"}

    def with_sources(count: int) -> Any:
        sources = [f"10.0.{number // 256}.{number % 256}" for number in range(count)]
        return acl_of({"policies": [{"entries": [{**row, "sourceIps": sources}]}]})

    made.merge_acl("bob", with_sources(SOURCES_LIMIT))
    with pytest.raises(AuthorityError, match="name 1000 addresses at most"):
        made.merge_acl("bob", with_sources(SOURCES_LIMIT + 1))


# --- tables --------------------------------------------------------------------------------------------------------


def filled(users: int, rules_each: int) -> Authority:
    made = Authority()
    made.ensure_supers([ROOT])
    entries = [
        {"resource": f"Topic:{number}*", "actions": ["Pub"], "decision": "Allow"} for number in range(rules_each)
    ]
    policies = acl_of({"policies": [{"entries": entries}]})
    for number in range(users):
        made.create_user(f"user-{number}", {"password": "p"}, None)
        made.merge_acl(f"user-{number}", policies)
    return made


def test_a_table_is_written_rule_by_rule_and_as_it_was_when_it_was_asked_for() -> None:
    made = filled(20, 50)
    content = made.to_json()
    made.delete_user("user-3", None)
    made.create_user("later", {"password": "p"}, None)
    pieces = list(dump_pieces(content))
    assert len(pieces) > 20 * 50
    assert max(map(len, pieces)) < 200
    again = Authority()
    again.take(loads(b"".join(pieces)), [])
    before = filled(20, 50)
    assert (before.users, before.acls) == (again.users, again.acls)


LISTS: list[tuple[int, dict[str, str], Callable[[Any], int]]] = [
    (RequestCode.AUTH_LIST_USER, {}, len),
    (RequestCode.AUTH_LIST_ACL, {}, lambda found: len(found) + 1),
    (
        RequestCode.AUTH_LIST_ACL,
        {"resourceFilter": "Topic:7*", "subjectFilter": "user-1"},
        lambda found: len(found) + 190,
    ),
    (RequestCode.GET_ALL_USERS, {}, lambda found: len(found["users"])),
]


@pytest.mark.parametrize(("code", "ext", "users"), LISTS)
async def test_large_tables_are_told_in_pieces(
    code: int, ext: dict[str, str], users: Callable[[Any], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "PIECE_SECONDS", 0.0)
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    gate = Gate(filled(300, 10), SecuritySettings(), "C", trio.current_time)
    security_requests.register(server, gate, trio.lowlevel.checkpoint, world)
    async with trio.open_nursery() as nursery, open_client(world) as client:
        host, port = await server.bind()
        nursery.start_soon(server.run)

        async def ask() -> None:
            answer = await client.invoke(f"{host}:{port}", request(code, ext), 30_000)
            assert answer.code == 0
            assert users(json.loads(answer.body)) == 301

        turns = await turns_beside(ask)
        nursery.cancel_scope.cancel()
    assert turns >= 300


async def test_a_list_of_nothing_has_no_body() -> None:
    world = real_world()
    server = RemotingServer(world, "127.0.0.1", 0)
    gate = Gate(Authority(), SecuritySettings(), "C", trio.current_time)
    security_requests.register(server, gate, trio.lowlevel.checkpoint, world)
    async with trio.open_nursery() as nursery, open_client(world) as client:
        host, port = await server.bind()
        nursery.start_soon(server.run)
        for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL):
            assert (await client.invoke(f"{host}:{port}", request(code), 5_000)).body == b""
        nursery.cancel_scope.cancel()


async def test_what_a_large_body_needs_is_checked_step_by_step() -> None:
    gate = Gate(filled(1, 10), SecuritySettings(authenticates=True, authorizes=True), "C", lambda: 0.0)
    topics = [{"topic": f"3-{number}"} for number in range(5_000)]
    body = json.dumps({"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": topics}]}).encode()
    command = Command(RequestCode.HEART_BEAT, ext={"AccessKey": "user-0"}, body=body)
    row = {"resource": "*", "actions": ["Sub"], "decision": "Allow"}
    gate.authority.merge_acl("user-0", acl_of({"policies": [{"entries": [row]}]}))
    await read_ahead(InPlace(), command, JSON.read)  # as servers do with what is large
    assert sum(1 for _ in gate.authorize_in_steps(command, "10.0.0.1")) == 5_001


# --- copies --------------------------------------------------------------------------------------------------------


def test_a_copy_is_read_when_it_says_something_new(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    usual = authority_module.read

    def counted(content: Any) -> Any:
        nonlocal read
        read += 1
        return usual(content)

    monkeypatch.setattr(authority_module, "read", counted)
    master, own = filled(5, 2), Authority()
    changes: list[str] = []
    own.on_change.append(lambda: changes.append("changed"))
    copying = ReplicatedUsers(own, SecuritySettings()).copying(Source("master"))

    def look() -> None:
        answer = Answer({}, b"".join(dump_pieces(master.to_json())))
        # large answers are read in a thread first
        said = copying.read(answer)
        assert copying.take(Answer({}, answer.body, said)) is Taken.ALL
        assert (master.users, master.acls) == (own.users, own.acls)

    look()
    look()
    assert (read, len(changes)) == (1, 1)
    master.delete_user("user-1", None)
    look()
    look()
    assert (read, len(changes)) == (2, 2)
    # a change made here while this replica served, or after the thread has read, does not outlast the next look
    own.delete_user("user-2", None)
    look()
    answer = Answer({}, b"".join(dump_pieces(master.to_json())))
    said = copying.read(answer)
    own.delete_user("user-3", None)
    copying.take(Answer({}, answer.body, said))
    assert (master.users, master.acls) == (own.users, own.acls)
    assert cast(Any, said).content is None
