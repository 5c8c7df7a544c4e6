"""Commands about users and what they may do."""

from __future__ import annotations

from typing import Any

from understudy.format.json_dialect import JsonError, dumps, loads
from understudy.mqadmin.command import CommandFailedError, Context, command
from understudy.mqadmin.options import Option, UsageError, needed, value
from understudy.mqclient.errors import ClientError
from understudy.remoting.codes import RequestCode

_USER_ROW = "%-16s  %-22s  %-22s  %-22s"
_RULE_ROW = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"
_BROKER = value("b", "brokerAddr", "on this broker")
_CLUSTER = value("c", "clusterName", "on all masters of this cluster")
_CODES = {
    "user": (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER),
    "acl": (RequestCode.AUTH_LIST_ACL, RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL),
}
"""What lists, creates and changes rows of a kind."""
_SUBJECT = needed("s", "subject", "whom it is about, for example User:alice")


async def _ask(context: Context, address: str, code: RequestCode, ext: dict[str, Any] | None = None) -> Any:
    """Return the JSON value that the broker at *address* answers, ``None`` when it answers nothing."""
    answer = await context.session.call(address, code, ext or {})
    if not answer.body:
        return None
    try:
        return loads(answer.body)
    except JsonError as error:
        raise ClientError(f"the answer of {address} cannot be read: {error}") from error


async def _change(
    context: Context, code: RequestCode, ext: dict[str, Any], body: dict[str, Any] | None, done: str
) -> list[str]:
    addresses = await context.masters()
    for address in addresses:
        await context.session.call(address, code, ext, dumps(body) if body is not None else b"")
        context.output.line(f"{done} to {address} success.")
    return addresses


async def _first(context: Context, code: RequestCode, ext: dict[str, Any]) -> Any:
    """Return what the first broker that knows anything answers."""
    for address in await context.masters():
        found = await _ask(context, address, code, ext)
        if found:
            return found
    return None


def _words(text: str | None) -> list[str] | None:
    return [part.strip() for part in text.split(",") if part.strip()] if text else None


def _given(**fields: Any) -> dict[str, Any]:
    return {name: content for name, content in sorted(fields.items()) if content is not None}


async def _copy(context: Context, kind: str, key: str, wanted: list[str] | None) -> list[str]:
    """Copy users or rules from one broker to another; return the names that they have.

    Args:
        context: with both addresses.
        kind: ``user`` or ``acl``.
        key: the field that names a row.
        wanted: only these; ``None``: all.

    Raises:
        CommandFailedError: the source does not have one of those, and what it has was copied; or it does not tell
            passwords, and nothing was.
    """
    source, target = context.values["f"], context.values["t"]
    listing, create, update = _CODES[kind]
    rows = await _ask(context, source, listing) or []
    if any(row.get("password") == "" for row in rows):
        raise CommandFailedError(f"{source} tells passwords to super users only: sign as one to copy users")
    existing = {row[key] for row in await _ask(context, target, listing) or []}
    copied = []
    for row in rows:
        name = row[key]
        if wanted is not None and name not in wanted:
            continue
        await context.session.call(target, update if name in existing else create, {key: name}, dumps(row))
        context.output.line(f"copy {kind} of {name} from {source} to {target} success.")
        copied.append(name)
    missing = sorted(set(wanted or ()) - set(copied))
    if missing:
        raise CommandFailedError(f"{source} knows nothing of {', '.join(missing)}; {len(copied)} were copied")
    return copied


# --- users -----------------------------------------------------------------------------------------------------


def _user_options(*more: Option) -> tuple[Option, ...]:
    return (_BROKER, _CLUSTER, needed("u", "username", "the user"), *more)


def _user_body(context: Context) -> dict[str, Any]:
    values = context.values
    return _given(username=values["u"], password=values.get("p"), userType=values.get("t"), userStatus=values.get("s"))


@command(
    "createUser",
    "Create a user (servers with authenticationEnabled=true).",
    *_user_options(needed("p", "password", "its password"), value("t", "userType", "Super or Normal (default)")),
    one_of=("b", "c"),
)
async def create_user(context: Context) -> Any:
    body, ext = _user_body(context), {"username": context.values["u"]}
    return await _change(context, RequestCode.AUTH_CREATE_USER, ext, body, "create user")


@command(
    "updateUser",
    "Change a user (servers with authenticationEnabled=true).",
    *_user_options(
        value("p", "password", "its new password"),
        value("t", "userType", "Super or Normal"),
        value("s", "userStatus", "enable or disable"),
    ),
    one_of=("b", "c"),
)
async def update_user(context: Context) -> Any:
    body = _user_body(context)
    if len(body) == 1:
        raise UsageError("nothing to change: give -p, -t or -s")
    ext = {"username": context.values["u"]}
    return await _change(context, RequestCode.AUTH_UPDATE_USER, ext, body, "update user")


@command("deleteUser", "Delete a user (servers with authenticationEnabled=true).", *_user_options(), one_of=("b", "c"))
async def delete_user(context: Context) -> Any:
    return await _change(context, RequestCode.AUTH_DELETE_USER, {"username": context.values["u"]}, None, "delete user")


def _print_users(context: Context, users: list[dict[str, Any]]) -> None:
    context.output.line(_USER_ROW % ("#UserName", "#Password", "#UserType", "#UserStatus"))
    for user in users:
        fields = (user.get(name) for name in ("username", "password", "userType", "userStatus"))
        context.output.line(_USER_ROW % tuple("null" if field is None else field for field in fields))


@command("getUser", "Show a user (servers with authenticationEnabled=true).", *_user_options(), one_of=("b", "c"))
async def get_user(context: Context) -> Any:
    user = await _first(context, RequestCode.AUTH_GET_USER, {"username": context.values["u"]})
    if user is None:
        raise CommandFailedError(f"there is no user {context.values['u']}")
    _print_users(context, [user])
    return user


@command(
    "listUser",
    "List users (servers with authenticationEnabled=true).",
    _BROKER,
    _CLUSTER,
    value("f", "filter", "part of the names"),
    one_of=("b", "c"),
)
async def list_user(context: Context) -> Any:
    users = await _first(context, RequestCode.AUTH_LIST_USER, {"filter": context.values.get("f")}) or []
    _print_users(context, users)
    return users


@command(
    "copyUser",
    "Copy users from one broker to another (servers with authenticationEnabled=true).",
    needed("f", "fromBroker", "host:port of the source"),
    needed("t", "toBroker", "host:port of the target"),
    value("u", "usernames", "only these, separated by commas"),
)
async def copy_user(context: Context) -> Any:
    return await _copy(context, "user", "username", _words(context.values.get("u")))


# --- rules -----------------------------------------------------------------------------------------------------

_RULE_OPTIONS = (
    _BROKER,
    _CLUSTER,
    _SUBJECT,
    needed("r", "resources", "topics and groups, for example Topic:Orders,Group:*"),
    needed("a", "actions", "Pub, Sub, Create, Update, Delete, Get, List, separated by commas"),
    needed("d", "decision", "Allow or Deny"),
    value("i", "sourceIp", "addresses or networks, separated by commas"),
)


def _rules(context: Context) -> dict[str, Any]:
    values = context.values
    entries = [
        _given(actions=_words(values["a"]), decision=values["d"], resource=resource, sourceIps=_words(values.get("i")))
        for resource in _words(values["r"]) or ()
    ]
    return {"policies": [{"entries": entries}], "subject": values["s"]}


@command(
    "createAcl", "Add rules for a user (servers with authenticationEnabled=true).", *_RULE_OPTIONS, one_of=("b", "c")
)
async def create_acl(context: Context) -> Any:
    ext = {"subject": context.values["s"]}
    return await _change(context, RequestCode.AUTH_CREATE_ACL, ext, _rules(context), "create acl")


@command(
    "updateAcl", "Change rules for a user (servers with authenticationEnabled=true).", *_RULE_OPTIONS, one_of=("b", "c")
)
async def update_acl(context: Context) -> Any:
    ext = {"subject": context.values["s"]}
    return await _change(context, RequestCode.AUTH_UPDATE_ACL, ext, _rules(context), "update acl")


@command(
    "deleteAcl",
    "Delete rules of a user (servers with authenticationEnabled=true).",
    _BROKER,
    _CLUSTER,
    _SUBJECT,
    value("r", "resources", "only those about this resource"),
    one_of=("b", "c"),
)
async def delete_acl(context: Context) -> Any:
    ext = {"subject": context.values["s"], "resource": context.values.get("r")}
    return await _change(context, RequestCode.AUTH_DELETE_ACL, ext, None, "delete acl")


def _print_rules(context: Context, subjects: list[dict[str, Any]]) -> None:
    head = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    context.output.line(_RULE_ROW % head)
    for subject in subjects:
        for policy in subject.get("policies") or ():
            for entry in policy.get("entries") or ():
                context.output.line(
                    _RULE_ROW
                    % (
                        subject.get("subject"),
                        policy.get("policyType"),
                        entry.get("resource"),
                        f"[{', '.join(entry.get('actions') or ())}]",
                        f"[{', '.join(entry['sourceIps'])}]" if entry.get("sourceIps") else "null",
                        entry.get("decision"),
                    )
                )


@command(
    "getAcl",
    "Show the rules of a user (servers with authenticationEnabled=true).",
    _BROKER,
    _CLUSTER,
    _SUBJECT,
    one_of=("b", "c"),
)
async def get_acl(context: Context) -> Any:
    found = await _first(context, RequestCode.AUTH_GET_ACL, {"subject": context.values["s"]})
    if found is None:
        raise CommandFailedError(f"there are no rules for {context.values['s']}")
    _print_rules(context, [found])
    return found


@command(
    "listAcl",
    "List rules (servers with authenticationEnabled=true).",
    _BROKER,
    _CLUSTER,
    value("s", "subject", "only of subjects that have this in their name"),
    value("r", "resource", "only about resources that have this in their name"),
    one_of=("b", "c"),
)
async def list_acl(context: Context) -> Any:
    ext = {"subjectFilter": context.values.get("s"), "resourceFilter": context.values.get("r")}
    found = await _first(context, RequestCode.AUTH_LIST_ACL, ext) or []
    _print_rules(context, found)
    return found


@command(
    "copyAcl",
    "Copy rules from one broker to another (servers with authenticationEnabled=true).",
    needed("f", "fromBroker", "host:port of the source"),
    needed("t", "toBroker", "host:port of the target"),
    value("s", "subjects", "only of these, separated by commas"),
)
async def copy_acl(context: Context) -> Any:
    return await _copy(context, "acl", "subject", _words(context.values.get("s")))
