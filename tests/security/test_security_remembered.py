"""Signatures, and that what a gate remembers of them and of rules is never too much."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.fields import CommandError
from understudy.security import signature
from understudy.security.authority import Authority, Content
from understudy.security.gate import PASSES, Gate
from understudy.security.needs import NEEDS, OfFields
from understudy.security.policies import acl_of
from understudy.security.settings import SecuritySettings
from understudy.security.signature import Credentials, Secret, Verifier, signed_text, signer


def signed(by: Credentials, ext: Mapping[str, str], body: bytes = b"") -> Command:
    command = request(RequestCode.SEND_MESSAGE_V2, dict(ext), body)
    signer(by)(command)
    return command


def fields_of(command: Command) -> dict[str, str]:
    assert command.ext is not None
    return command.ext


def test_a_signature_is_the_one_that_the_formula_gives() -> None:
    ext = {"topic": "T", "AccessKey": "alice", "b": "ü", "Signature": "old"}
    by_hand = "alice" + "ü" + "T"  # by ascending names: AccessKey, b, topic
    expected = base64.b64encode(hmac.new(b"secret1", by_hand.encode() + b"body", hashlib.sha1).digest()).decode()
    for _ in range(2):  # the second header comes in a known order
        assert fields_of(signed(Credentials("alice", "secret1"), ext, b"body"))["Signature"] == expected
        assert b"null" == signed_text({"a": None}, 493)
        assert b"xnull" == signed_text({"b": None, "a": "x"}, 493)
        assert b"xy" == signed_text({"b": "y", "a": "x"}, 493)
        assert b"x?" == signed_text({"b": "\ud800", "a": "x"}, 493)
        assert b"" == signed_text({}, 493)
        assert b"x" == signed_text({"_UNIQUE_KEY_QUERY": "true", "a": "x"}, 399)
        assert b"truex" == signed_text({"_UNIQUE_KEY_QUERY": "true", "a": "x"}, 400)
        # as Java orders texts: by their UTF-16 units, so that a character beyond them comes before U+FF5E
        assert b"12" == signed_text({"\uff5e": "2", "\U0001f600": "1"}, 493)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=100), st.binary(max_size=100), st.binary(max_size=100)
)
def test_a_secret_makes_the_digests_of_the_standard_library(secret: str, text: bytes, body: bytes) -> None:
    made = Secret(secret)
    for _ in range(2):  # the first one leaves nothing behind
        assert made.digest(text, body) == hmac.digest(secret.encode(), text + body, "sha1")


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=6), st.binary(max_size=20), st.text(min_size=1)
)
def test_what_is_signed_is_verified_and_a_change_is_noticed(ext: dict[str, str], body: bytes, secret: str) -> None:
    if any(not text.isprintable() for text in (secret, *ext, *ext.values())):
        return
    fields = fields_of(signed(Credentials("me", secret), ext, body))
    known = Secret(secret)
    assert known.has_signed(fields, body, 493)
    assert not known.has_signed(fields, body + b"!", 493)
    assert not Secret(secret + "!").has_signed(fields, body, 493)
    assert not known.has_signed({**fields, "zzz": "1"}, body, 493)
    assert not known.has_signed({**fields, "AccessKey": "you"}, body, 493)
    assert known.has_signed(dict(reversed(fields.items())), body, 493)


def test_no_more_orders_of_fields_are_remembered_than_are_named() -> None:
    later: dict[Any, Any] = signature._later
    for number in range(1_000):
        assert b"12" == signed_text({f"b{number}": "2", "a": "1"}, 493)
        assert len(later) <= 64
    for long in ({"x" * 2_000: "1"}, {f"{number:02}": "1" for number in range(65)}):
        signed_text(long, 493)
        assert tuple(long) not in later
    assert ("b999", "a") in later


@given(st.data())
def test_who_compares_by_the_last_header_comes_to_what_the_secret_does_of_any_other(data: st.DataObject) -> None:
    secret = Secret("secret")
    known = Verifier(secret)
    names = st.sampled_from(["a", "b", "é", "AccessKey", "Signature", "_UNIQUE_KEY_QUERY"])
    texts = st.one_of(st.none(), st.sampled_from(["", "x", "\ud800"]))
    for _ in range(data.draw(st.integers(1, 6))):
        ext = data.draw(st.dictionaries(names, texts, max_size=6))
        version, body = data.draw(st.sampled_from([399, 400])), data.draw(st.sampled_from([b"", b"x"]))
        if data.draw(st.booleans()):
            ext["Signature"] = secret.sign(ext, body, version)
        if data.draw(st.booleans()):
            ext = {**ext, data.draw(names): "x"}
        assert secret.has_signed(ext, body, version) == known.has_signed(ext, body, version)


def test_a_field_that_is_not_signed_is_noticed_whatever_headers_came_before() -> None:
    secret = Secret("secret")
    known = Verifier(secret)
    for version in (400, 399, 400):
        first = {"a": "1", "_UNIQUE_KEY_QUERY": "true"}
        first["Signature"] = secret.sign(first, b"", version)
        assert known.has_signed(first, b"", version)
        second = {"a": "1"}
        second["Signature"] = secret.sign(second, b"", version)
        for name in ("b", "", "AccessKey"):  # as many fields as the first one had
            assert not known.has_signed({**second, name: "x"}, b"", version)
        assert known.has_signed(second, b"", version)
        assert known.has_signed(first, b"", version)


@pytest.mark.parametrize("text", ["", "é", "%%%", "AAAA", Secret("other").sign({}, b"data", 493)])
def test_what_is_no_signature_is_refused(text: str) -> None:
    assert not Secret("secret").has_signed({"Signature": text}, b"data", 493)


# --- what a gate remembers -----------------------------------------------------------------------------------------

BOB = Credentials("bob", "secret2")
FIELDS = {"b": "t", "e": "1"}


@attrs.frozen
class Peer:
    """What a gate looks at of a connection."""

    source: str


def ask(gate: Gate, command: Command, address: str = "10.0.0.1") -> None:
    """Ask a handler behind the gate; one that raises nothing was reached, once."""
    reached = list[Command]()
    connection: Any = Peer(address)
    gate.guarded(command.code, lambda _, each: reached.append(each))(connection, command)
    assert [command] == reached


def rules(decision: str = "Allow", **more: Any) -> Any:
    entry = {"resource": "Topic:t", "actions": ["Pub"], "decision": decision, **more}
    return acl_of({"policies": [{"entries": [entry]}]})


def served() -> Gate:
    """Return a gate that has let two sends of a user pass, the second one by what it remembers."""
    made = Authority()
    made.ensure_supers([Credentials("root", "12345678")])
    made.create_user("bob", {"password": BOB.secret_key}, None)
    made.merge_acl("User:bob", rules())
    gate = Gate(made, SecuritySettings(authenticates=True, authorizes=True), "C", lambda: 0.0)
    for body in (b"one", b"two"):
        ask(gate, signed(BOB, FIELDS, body))
    assert 1 == len(gate._passed.verifiers)
    return gate


def test_a_header_that_was_right_is_wrong_with_another_body_or_text() -> None:
    gate, command = served(), signed(BOB, FIELDS, b"one")
    ask(gate, command)
    command.body = b"One"
    with pytest.raises(CommandError, match="check signature failed"):
        ask(gate, command)
    command = signed(BOB, FIELDS, b"one")
    fields_of(command)["e"] = "2"
    with pytest.raises(CommandError, match="check signature failed"):
        ask(gate, command)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made: made.delete_user("bob", None), "bob is not found"),
        (lambda made: made.update_user("bob", {"userStatus": "disable"}, None), "bob is disabled"),
        (lambda made: made.update_user("bob", {"password": "other"}, None), "check signature failed"),
        (lambda made: made.merge_acl("User:bob", rules("Deny")), "the decision is deny"),
        (lambda made: made.merge_acl("User:bob", rules(sourceIps=["10.0.0.9"])), "no matched policies"),
        (lambda made: made.merge_acl("User:bob", rules(actions=["Sub"])), "no matched policies"),
        (lambda made: made.delete_acl("User:bob", None, "Topic:t"), "no matched policies"),
        (lambda made: made.delete_acl("User:bob", None, None), "no matched policies"),
        (lambda made: made.adopt(Content(made.users, {}), []), "no matched policies"),
        (lambda made: made.adopt(Content({}, {}), []), "bob is not found"),
    ],
)
def test_a_change_of_a_user_or_a_rule_counts_for_the_next_request(
    change: Callable[[Authority], None], words: str
) -> None:
    gate = served()
    change(gate.authority)
    with pytest.raises(CommandError, match=words):
        ask(gate, signed(BOB, FIELDS, b"three"))


def test_a_wrong_signature_of_a_request_that_is_known_is_refused_and_told(caplog: pytest.LogCaptureFixture) -> None:
    gate = served()
    command = signed(Credentials("bob", "guessed"), FIELDS, b"three")
    with pytest.raises(CommandError, match="check signature failed"):
        ask(gate, command)
    (line,) = (record.getMessage() for record in caplog.records)
    assert ("not authenticated" in line, "user=bob" in line) == (True, True)
    fields_of(command).pop("Signature")
    with pytest.raises(CommandError, match="check signature failed"):
        ask(gate, command)


def test_codes_that_need_no_signature_are_asked_for_none() -> None:
    settings = SecuritySettings(authenticates=True, authorizes=True, unsigned=frozenset([310]))
    gate = Gate(served().authority, settings, "C", lambda: 0.0)
    for _ in range(2):
        ask(gate, Command(code=310, ext={"b": "t"}))
        ask(gate, Command(code=310, ext={"b": "t", "AccessKey": "bob"}))
        ask(gate, Command(code=310))
        with pytest.raises(CommandError, match="username cannot be null"):
            ask(gate, Command(code=320, ext={"b": "t"}))
    assert {} == gate._passed.verifiers


def test_a_user_deleted_and_made_again_has_nothing_of_what_it_had() -> None:
    gate = served()
    gate.authority.delete_user("bob", None)
    gate.authority.create_user("bob", {"password": BOB.secret_key}, None)
    with pytest.raises(CommandError, match="no matched policies"):
        ask(gate, signed(BOB, FIELDS, b"three"))


def test_a_new_secret_counts_at_once_and_the_old_one_no_more() -> None:
    gate = served()
    gate.authority.update_user("bob", {"password": "new"}, None)
    ask(gate, signed(Credentials("bob", "new"), FIELDS, b"three"))
    with pytest.raises(CommandError, match="check signature failed"):
        ask(gate, signed(BOB, FIELDS, b"three"))


def test_what_one_request_may_is_not_what_another_one_may() -> None:
    gate = served()
    gate.authority.create_user("eve", {"password": "secret2"}, None)
    gate.authority.merge_acl("User:bob", rules(sourceIps=["10.0.0.1"]))
    ask(gate, signed(BOB, FIELDS))
    for by, ext, address in (
        (Credentials("eve", "secret2"), FIELDS, "10.0.0.1"),
        (BOB, FIELDS, "10.0.0.2"),
        (BOB, {**FIELDS, "b": "u"}, "10.0.0.1"),
        (BOB, {**FIELDS, "topic": "u"}, "10.0.0.1"),
        (BOB, {"topic": "u", "e": "1"}, "10.0.0.1"),
    ):
        with pytest.raises(CommandError, match="no matched policies"):
            ask(gate, signed(by, ext), address)
    reading = request(RequestCode.PULL_MESSAGE, {"topic": "t", "b": "t", "consumerGroup": "g"})
    signer(BOB)(reading)
    with pytest.raises(CommandError, match="no matched policies"):
        ask(gate, reading)


def test_what_passed_is_remembered_in_bounds() -> None:
    gate = served()
    gate.authority.merge_acl("User:bob", acl_of({"policies": [{"entries": [ALL_TOPICS]}]}))
    kept = gate._passed.verifiers
    kept.clear()
    for number in range(PASSES + 10):
        ask(gate, signed(BOB, {"b": f"t{number}"}))
        assert len(kept) <= PASSES
    before = len(kept)
    assert before == 10
    ask(gate, signed(BOB, {"b": "t" * 300}))
    assert len(kept) == before


ALL_TOPICS = {"resource": "Topic:*", "actions": ["All"], "decision": "Allow"}


@pytest.mark.parametrize("code", [code for code, rule in NEEDS.items() if isinstance(rule, OfFields)])
def test_a_rule_whose_passes_are_remembered_sees_its_two_fields_alone(code: int) -> None:
    rule = NEEDS[code]
    assert isinstance(rule, OfFields)
    ext = {name: f"text of {name}" for name in (rule.first, rule.second) if name}
    alone = Command(code=code, ext=dict(ext))
    others = {
        name: "other" for name in ("topic", "b", "consumerGroup", "group", "producerGroup", "x") if name not in ext
    }
    assert list(rule(alone, "C")) == list(rule(Command(code=code, ext={**others, **ext}, body=b"{}"), "C"))
