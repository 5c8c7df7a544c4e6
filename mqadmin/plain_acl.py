"""From ``plain_acl.yml``, which brokers of the reference read before version 5.3, to users and rules.

Source: PlainAccessConfig.java, PlainPermissionManager.java, AuthMigrator.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from understudy.format.json_dialect import dumps, loads
from understudy.format.names import TRACE_TOPIC
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import flag, needed, value
from understudy.mqclient.errors import ClientError
from understudy.remoting.codes import RequestCode
from understudy.runtime.files import RealFiles

MOST_BYTES = 4 << 20
_ACTIONS = {"PUB": ["Pub"], "SUB": ["Sub"], "PUB|SUB": ["Pub", "Sub"], "SUB|PUB": ["Pub", "Sub"]}


class PlainAclError(Exception):
    """The file is not what it should be; the message is one line and names the place in it."""


@attrs.frozen
class Account:
    """One account of the file, as a user with rules.

    Attributes:
        name: of the user.
        password: of the user.
        is_super: may everything, and has no rules.
        policies: rules, as requests have them.
        left_out: what could not be taken over, one sentence each.
    """

    name: str
    password: str = attrs.field(repr=False)
    is_super: bool = False
    policies: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Of the user, as requests have it."""
        return "Super" if self.is_super else "Normal"


def accounts_of(content: Any) -> tuple[list[Account], list[str]]:
    """Return the accounts in the content of a file, and what of the rest could not be taken over.

    Raises:
        PlainAclError: something in it is not what it should be.
    """
    if not isinstance(content, dict):
        raise PlainAclError("it is no mapping with 'accounts'")
    rows = content.get("accounts") or []
    if not isinstance(rows, list):
        raise PlainAclError("'accounts' is no list")
    found: dict[str, Account] = {}
    for number, row in enumerate(rows, 1):
        place = f"account {number}"
        if not isinstance(row, dict):
            raise PlainAclError(f"{place} is no mapping")
        account = _account(row, place)
        if account.name in found:
            raise PlainAclError(f"{place}: the access key {account.name} is there twice")
        found[account.name] = account
    white = content.get("globalWhiteRemoteAddresses") or []
    addresses = ", ".join(each for each in (white if isinstance(white, list) else [white]) if isinstance(each, str))
    return list(found.values()), [f"globalWhiteRemoteAddresses: {addresses}"] if addresses else []


def _account(row: Mapping[str, Any], place: str) -> Account:
    name, password = row.get("accessKey"), row.get("secretKey")
    for key, text in (("accessKey", name), ("secretKey", password)):
        if not isinstance(text, str) or not text:
            raise PlainAclError(f"{place}: {key} is missing, or no text")
    assert isinstance(name, str)
    assert isinstance(password, str)
    white = row.get("whiteRemoteAddress")
    left_out = (f"whiteRemoteAddress: {white}",) if isinstance(white, str) and white else ()
    if row.get("admin") in ("true", "True", "TRUE"):
        return Account(name, password, True, (), left_out)
    custom = _entries(row, "topicPerms", "Topic", place) + _entries(row, "groupPerms", "Group", place)
    traces = f"Topic:{TRACE_TOPIC}"
    if all(entry["resource"] != traces for entry in custom):
        custom.append(_entry(traces, "PUB"))  # which every account might write to
    defaults = [
        _entry(f"{kind}:*", words)
        for key, kind in (("defaultTopicPerm", "Topic"), ("defaultGroupPerm", "Group"))
        if isinstance(words := row.get(key), str) and words
    ]
    policies = [{"policyType": "Custom", "entries": custom}]
    if defaults:
        policies.append({"policyType": "Default", "entries": defaults})
    return Account(name, password, False, tuple(policies), left_out)


def _entries(row: Mapping[str, Any], key: str, kind: str, place: str) -> list[dict[str, Any]]:
    permissions = row.get(key) or []
    if not isinstance(permissions, list):
        raise PlainAclError(f"{place}: {key} is no list")
    found = []
    for text in permissions:
        name, separator, words = text.partition("=") if isinstance(text, str) else ("", "", "")
        if not separator or not name.strip() or "*" in name:
            shown = repr(text[:64]) if isinstance(text, str) else "what is no text"
            raise PlainAclError(f"{place}: {key} has {shown}; it should be NAME=PUB|SUB, PUB, SUB or DENY")
        found.append(_entry(f"{kind}:{name.strip()}", words))
    return found


def _entry(resource: str, words: str) -> dict[str, Any]:
    """Return a rule; what is no permission is a refusal, as it was to the brokers that read the file."""
    actions = _ACTIONS.get(words.strip())
    return {"resource": resource, "actions": actions or ["All"], "decision": "Allow" if actions else "Deny"}


def _read(path: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise CommandFailedError(f"{path} cannot be read without PyYAML: pip install PyYAML") from None
    files = RealFiles()
    try:
        if files.size(path) > MOST_BYTES:
            raise CommandFailedError(f"{path} has more than {MOST_BYTES} bytes")
        return yaml.load(files.read(path), Loader=yaml.BaseLoader)  # every scalar is a text, as it stands there
    except OSError as error:
        raise CommandFailedError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandFailedError(f"{path} is no YAML: {' '.join(str(error).split())[:500]}") from None


@command(
    "importPlainAcl",
    "Make users and rules of the accounts in a plain_acl.yml (servers with authenticationEnabled=true).",
    needed("f", "file", "the file"),
    value("b", "brokerAddr", "on this broker"),
    value("c", "clusterName", "on all masters of this cluster"),
    flag("yes", "yes", "do it; without it is only said what would be done"),
    one_of=("b", "c"),
)
async def import_plain_acl(context: Context) -> Any:
    path = context.values["f"]
    try:
        accounts, left_out = accounts_of(_read(path))
    except PlainAclError as error:
        raise CommandFailedError(f"{path}: {error}") from None
    line = context.output.line
    for account in accounts:
        line(f"user {account.name}, {account.kind}")
        for policy in account.policies:
            for entry in policy["entries"]:
                words = ", ".join(entry["actions"])
                line(f"    {policy['policyType']}  {entry['decision']}  {words}  {entry['resource']}")
    for each in [*left_out, *(f"{account.name}, {each}" for account in accounts for each in account.left_out)]:
        line(f"left out, as an address alone lets nobody in any more: {each}")
    done: dict[str, list[str]] = {}
    if "yes" in context.values:
        for address in await context.masters():
            done[address] = await _make(context, address, accounts)
    else:
        line("nothing was changed; --yes does it")
    return {
        "users": [{"username": each.name, "userType": each.kind, "policies": list(each.policies)} for each in accounts],
        "made": done,
    }


async def _make(context: Context, address: str, accounts: list[Account]) -> list[str]:
    """Make the users that a broker does not have; return their names. One that it has stays as it is."""
    answer = await context.session.call(address, RequestCode.AUTH_LIST_USER, {})
    existing = {row.get("username") for row in (loads(answer.body) if answer.body else None) or []}
    made = []
    for account in accounts:
        if account.name in existing:
            context.output.line(f"{address} has a user {account.name}, which stays as it is")
            continue
        user = {"username": account.name, "password": account.password, "userType": account.kind}
        await context.session.call(address, RequestCode.AUTH_CREATE_USER, {"username": account.name}, dumps(user))
        if account.policies:
            subject = f"User:{account.name}"
            rules = {"subject": subject, "policies": list(account.policies)}
            try:
                await context.session.call(address, RequestCode.AUTH_CREATE_ACL, {"subject": subject}, dumps(rules))
            except ClientError as error:
                advice = f"it may nothing yet: mqadmin deleteUser -b {address} -u {account.name}, and again"
                raise CommandFailedError(f"{account.name} has no rules: {error}; {advice}") from None
        context.output.line(f"create user {account.name} to {address} success.")
        made.append(account.name)
    return made
