"""The pure parts: signatures, which rule decides, what every request needs, and changes of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.heartbeat import parse_heartbeat
from understudy.format.json_dialect import dump_pieces, dumps, loads
from understudy.remoting.bodies import JSON, body_of, only, read_ahead
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.fields import CommandError
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.threads import InPlace
from understudy.security.authority import Authority, AuthorityError
from understudy.security.gate import Gate
from understudy.security.needs import NEEDS
from understudy.security.policies import Acl, Action, Entry, Kind, Need, PolicyType, acl_of, decide, pattern_of
from understudy.security.settings import SecuritySettings, read_security
from understudy.security.signature import Credentials
from understudy.security.users import User, UserType

# --- rules -------------------------------------------------------------------------------------------------------

NAMES = ("orders", "orders-eu", "ord", "x")
PATTERNS = ("*", "Topic:*", "Topic:ord*", "Topic:orders*", "Topic:orders", "Group:*", "Group:orders", "Cluster:*")


def model(entries: list[tuple[PolicyType, Entry]], need: Need, address: str) -> bool:
    """Return whether *need* is allowed, by looking at every entry in the order that the specification gives."""

    def order(entry: Entry) -> tuple[int, int, int, int]:
        key = entry.pattern.key
        name = key.partition(":")[2]
        loose = 2 if key == "*" or name == "*" else 1 if name.endswith("*") else 0
        return int(key == "*"), loose, -len(name.rstrip("*")), int(entry.allow)

    for kind in PolicyType:
        fitting = []
        for policy, entry in entries:
            key = entry.pattern.key
            word, _, name = key.partition(":")
            right = key == "*" or (
                word == need.kind.value
                and (name == "*" or need.name == name or (name.endswith("*") and need.name.startswith(name[:-1])))
            )
            acts = Action.ALL in entry.actions or entry.actions & need.actions
            if policy is kind and right and acts and (not entry.sources or address in entry.sources):
                fitting.append(entry)
        if fitting:
            return sorted(fitting, key=order)[0].allow
    return False


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PolicyType),
            st.sampled_from(PATTERNS),
            st.sets(st.sampled_from([Action.ALL, Action.PUB, Action.SUB]), min_size=1),
            st.booleans(),
            st.sampled_from([(), ("10.0.0.1",)]),
        ),
        max_size=8,
    ),
    st.sampled_from(NAMES),
    st.sampled_from([Kind.TOPIC, Kind.GROUP]),
    st.sampled_from([Action.PUB, Action.SUB]),
    st.sampled_from(["10.0.0.1", "10.0.0.2"]),
)
def test_the_rule_that_decides_is_the_one_that_a_plain_model_finds(
    rows: list[Any], name: str, kind: Kind, action: Action, address: str
) -> None:
    acl, listed = Acl(), {}
    for policy, pattern, actions, allow, sources in rows:
        entry = Entry(pattern_of(pattern), frozenset(actions), allow, sources)
        acl = acl.merged(policy, [entry])
        listed[policy, pattern] = (policy, entry)
    need = Need(kind, name, frozenset({action}))
    found = decide(acl, need, address)
    assert model(list(listed.values()), need, address) == (found is not None and found.allow)


def test_sources_are_addresses_and_networks_of_both_families() -> None:
    entry = Entry(pattern_of("*"), frozenset({Action.ALL}), True, ("10.1.0.0/16", "fd00::/8", "10.3.0.1"))
    acl = Acl().merged(PolicyType.CUSTOM, [entry])
    need = Need(Kind.TOPIC, "t", frozenset({Action.PUB}))
    addresses = ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "10.3.0.1", "10.3.0.2", "10.2.0.1", "host", ""]
    found = [decide(acl, need, each) is entry for each in addresses]
    assert [True, True, True, True, False, False, False, False] == found


@pytest.mark.parametrize("text", ["Topic", "Topic:", "Any:x", "Queue:x", ":x", ""])
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"resource .*: expected '\*'|is neither"):
        pattern_of(text)


# --- needs -------------------------------------------------------------------------------------------------------


def test_every_request_code_has_a_rule() -> None:
    assert {int(code) for code in RequestCode} == NEEDS.keys()


def needs(code: RequestCode, ext: Mapping[str, str] | None = None, body: Any = None) -> list[str]:
    command = request(code, dict(ext or {}), b"" if body is None else dumps(body))
    return [f"{need} {'|'.join(sorted(each.value for each in need.actions))}" for need in NEEDS[code](command, "C")]


def test_what_requests_of_clients_need() -> None:
    code = RequestCode
    assert ["Topic:t Pub"] == needs(code.SEND_MESSAGE, {"topic": "t"})
    assert ["Topic:t Pub"] == needs(code.SEND_MESSAGE_V2, {"b": "t"})
    assert ["Group:g Sub"] == needs(code.SEND_MESSAGE_V2, {"b": "%RETRY%g"})
    # whichever spelling the handler takes, both names need a permission
    assert ["Topic:mine Pub", "Topic:yours Pub"] == needs(code.SEND_MESSAGE, {"topic": "mine", "b": "yours"})
    assert ["Topic:t Sub", "Group:g Sub"] == needs(code.PULL_MESSAGE, {"topic": "t", "consumerGroup": "g"})
    # another group's retry and dead letter topics are that group's
    assert ["Group:yours Sub", "Group:g Sub"] == needs(
        code.PULL_MESSAGE, {"topic": "%RETRY%yours", "consumerGroup": "g"}
    )
    assert ["Group:yours Sub", "Group:g Sub"] == needs(code.POP_MESSAGE, {"topic": "%DLQ%yours", "consumerGroup": "g"})
    beat = {
        "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}, {"topic": "%RETRY%g"}]}],
        "producerDataSet": [{"groupName": "p"}],
    }
    # its own retry topic is the group itself
    assert ["Group:g Sub", "Topic:t Sub", "Group:g Sub"] == needs(code.HEART_BEAT, body=beat)
    batch = {"acks": [{"c": "g", "t": "t"}, {"consumerGroup": "h", "topic": "u"}]}
    assert ["Group:g Sub", "Topic:t Sub", "Group:h Sub", "Topic:u Sub"] == needs(code.BATCH_ACK_MESSAGE, body=batch)
    assert ["Topic:t Pub"] == needs(code.END_TRANSACTION, {"topic": "t", "producerGroup": "p"})
    assert ["Group:p Pub"] == needs(code.END_TRANSACTION, {"producerGroup": "p"})
    assert ["Group:g Sub", "Topic:t Sub"] == needs(
        code.LOCK_BATCH_MQ, body={"consumerGroup": "g", "mqSet": [{"topic": "t"}]}
    )


NEEDLESS = (34, 35, 101)  # a heartbeat of producers alone, a goodbye of nobody, where ordered topics are


@pytest.mark.parametrize("code", [code for code in RequestCode if code not in NEEDLESS])
def test_a_request_that_names_nothing_needs_something_all_the_same(code: RequestCode) -> None:
    assert needs(code)


def test_a_body_that_is_no_json_is_refused() -> None:
    with pytest.raises(CommandError, match="the body is no JSON"):
        list(NEEDS[RequestCode.HEART_BEAT](request(34, {}, b"{{{"), "C"))


# --- the table ---------------------------------------------------------------------------------------------------


def written(made: Authority) -> Any:
    """Return what the file of a table says."""
    return loads(b"".join(dump_pieces(made.to_json())))


def table() -> Authority:
    made = Authority()
    made.ensure_supers([Credentials("root", "12345678")])
    made.create_user("bob", {"password": "secret2"}, None)
    return made


def test_the_last_super_user_stays() -> None:
    made = table()
    root = made.users["root"]
    for change in (
        lambda: made.delete_user("root", root),
        lambda: made.update_user("root", {"userType": "Normal"}, root),
        lambda: made.update_user("root", {"userStatus": "disable"}, root),
    ):
        with pytest.raises(AuthorityError, match="the last super user"):
            change()
    made.create_user("second", {"password": "p", "userType": "super"}, root)
    made.delete_user("root", root)
    assert {"bob", "second"} == made.users.keys()


def test_a_normal_user_makes_and_changes_no_super_user() -> None:
    made = table()
    bob = made.users["bob"]
    for change in (
        lambda: made.create_user("eve", {"password": "p", "userType": "Super"}, bob),
        lambda: made.update_user("bob", {"userType": "Super"}, bob),
        lambda: made.update_user("root", {"password": "p"}, bob),
        lambda: made.delete_user("root", bob),
    ):
        with pytest.raises(AuthorityError, match="only be create by super user"):
            change()


def test_a_deleted_user_leaves_no_rules_and_a_change_counts_at_once() -> None:
    made = table()
    need = Need(Kind.TOPIC, "t", frozenset({Action.PUB}))
    entries = [{"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow"}]
    assert made.decide("bob", need, "10.0.0.1") is None
    made.merge_acl("User:bob", acl_of({"policies": [{"entries": entries}]}))
    found = made.decide("bob", need, "10.0.0.1")
    assert found is not None
    assert found.allow
    made.delete_user("bob", None)
    made.create_user("bob", {"password": "p"}, None)
    assert made.decide("bob", need, "10.0.0.1") is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"actions": ["Pub"], "decision": "Allow"}, "The resource is null."),
        ({"resource": "Topic:t", "actions": [], "decision": "Allow"}, "The actions is empty."),
        ({"resource": "Topic:t", "actions": ["Any"], "decision": "Allow"}, "The actions can not be Any."),
        ({"resource": "Topic:t", "actions": ["Pub"]}, "The decision is null or illegal."),
        (
            {"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow", "sourceIps": ["x"]},
            "The source ip is invalid.",
        ),
    ],
)
def test_what_is_no_rule_is_refused_in_the_words_of_the_reference(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        acl_of({"policies": [{"entries": [entry]}]})


def test_a_table_comes_back_from_its_file() -> None:
    made = table()
    entries = [
        {"resource": "Topic:t*", "actions": ["Pub", "Sub"], "decision": "Allow", "sourceIps": ["10.0.0.0/8"]},
        {"resource": "*", "actions": ["All"], "decision": "Deny"},
    ]
    made.merge_acl("User:bob", acl_of({"policies": [{"entries": entries, "policyType": "Default"}]}))
    again = Authority()
    again.take(written(made), [])
    assert (made.users, made.acls) == (again.users, again.acls)
    assert "12345678" not in repr(made.users)


# --- settings ----------------------------------------------------------------------------------------------------


def settings(text: str) -> SecuritySettings:
    return read_security(Properties(dict(line.split("=", 1) for line in text.splitlines()), "f"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aclEnable=true", "aclEnable=true closes nothing by itself: set authenticationEnabled=true"),
        ("authorizationEnabled=true", "authorizationEnabled=true needs authenticationEnabled=true"),
        ("initAuthenticationUser=rocketmq", "initAuthenticationUser is no JSON"),
        ('initAuthenticationUser={"username":"a"}', "initAuthenticationUser: expected"),
        ("authenticationProvider=com.example.Mine", "com.example.Mine is not here"),
        ("authenticationWhitelist=10,some", "expected request codes"),
    ],
)
def test_settings_that_would_leave_a_server_open_or_closed_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(text)


def test_a_code_without_a_rule_is_refused_to_everybody_but_super_users() -> None:
    on = SecuritySettings(authenticates=True, authorizes=True)
    gate = Gate(table(), on, "C", lambda: 0.0)
    command = Command(code=77777, ext={"AccessKey": "bob"})
    with pytest.raises(CommandError, match="no permission for requests of code 77777"):
        gate.authorize(command, "10.0.0.1")
    gate.authorize(Command(code=77777, ext={"AccessKey": "root"}), "10.0.0.1")
    assert User("a", "b", UserType.SUPER).is_super


def test_who_is_refused_again_and_again_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    gate = Gate(table(), SecuritySettings(authenticates=True), "C", lambda: now[0])
    # given a thousand unsigned requests of each of a hundred addresses in one second
    for number in range(100):
        for _ in range(1000):
            with pytest.raises(CommandError, match="username cannot be null"):
                gate.authenticate(Command(code=10), f"10.0.0.{number}")
    told = [record.getMessage() for record in caplog.records if "not authenticated" in record.getMessage()]
    assert 21 * 5 == len(told)
    # then the next second begins with how many were left out, and a name cannot begin a line of its own
    now[0] += 1
    with pytest.raises(CommandError):
        gate.authenticate(Command(code=10, ext={"AccessKey": "a\nforged line"}), "10.0.0.1")
    first, second = (record.getMessage() for record in caplog.records[len(told) :])
    assert f"left_out={100 * 1000 - 21 * 5}" in first
    assert "\n" not in second


async def test_needs_come_of_json_that_a_thread_has_read_and_of_nothing_read_otherwise() -> None:
    body = dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g"}]})
    command = request(RequestCode.HEART_BEAT, {}, body)
    await read_ahead(InPlace(), command, JSON.read)
    command.body = b"never read again"
    wanted = [Need(Kind.GROUP, "g", frozenset({Action.SUB}))]
    assert wanted == list(NEEDS[RequestCode.HEART_BEAT](command, "c"))
    command = request(RequestCode.HEART_BEAT, {}, body)
    await read_ahead(InPlace(), command, parse_heartbeat)
    command.body = b"never read again"  # what the thread needed is there, too, until it is let go
    assert wanted == list(NEEDS[RequestCode.HEART_BEAT](command, "c"))
    only(command, parse_heartbeat)
    assert "g" == body_of(command, parse_heartbeat).consumers[0].group
    with pytest.raises(CommandError, match="the body is no JSON"):
        list(NEEDS[RequestCode.HEART_BEAT](command, "c"))
