"""The requests about users and rules, 3001 to 3010, and ours that replicas copy them with.

Source: AdminBrokerProcessor.java (createUser and what follows it).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from understudy.format.json_dialect import JsonError, dump_pieces, join_in_steps
from understudy.remoting.bodies import JSON, Reading, body_of, json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.fields import CommandError, optional
from understudy.runtime.os_failure import os_failure
from understudy.runtime.pace import Pace
from understudy.runtime.world import World
from understudy.security.authority import SUBJECT_PREFIX, AuthorityError
from understudy.security.gate import Gate
from understudy.security.policies import Policies, acl_of
from understudy.security.users import User

RULES_BYTES = 2 * 1024
"""Bodies with rules from this size on are read in a thread: each address in them takes a hundredth of a millisecond."""
_UNSET = "not set any response code"


def register(server: Dispatcher, gate: Gate, save: Callable[[], Awaitable[None]], world: World) -> None:
    """Have *server* answer requests about the users of *gate*, which knows who asks.

    Args:
        server: the port.
        gate: with the table.
        save: makes the table durable, which it is before a change is answered; raises ``OSError``.
        world: its clock and turns, for what takes long.
    """
    changes, questions = _Changes(gate), _Questions(gate)
    for code, change in (
        (RequestCode.AUTH_CREATE_USER, changes.create_user),
        (RequestCode.AUTH_UPDATE_USER, changes.update_user),
        (RequestCode.AUTH_DELETE_USER, changes.delete_user),
        (RequestCode.AUTH_CREATE_ACL, changes.merge_acl),
        (RequestCode.AUTH_UPDATE_ACL, changes.merge_acl),
        (RequestCode.AUTH_DELETE_ACL, changes.delete_acl),
    ):
        server.register_async(code, _saving(change, save), reading=RULES if change == changes.merge_acl else JSON)
    for code, question in (
        (RequestCode.AUTH_GET_USER, questions.get_user),
        (RequestCode.AUTH_LIST_USER, questions.list_user),
        (RequestCode.AUTH_GET_ACL, questions.get_acl),
        (RequestCode.AUTH_LIST_ACL, questions.list_acl),
        (RequestCode.GET_ALL_USERS, questions.all_users),
    ):
        server.register_async(code, _answering(question, world))


def _saving(
    change: Callable[[Command], None], save: Callable[[], Awaitable[None]]
) -> Callable[[Connection, Command], Awaitable[Command]]:
    async def handle(connection: Connection, command: Command) -> Command:
        try:
            change(command)
        except AuthorityError as error:
            raise _refusal(error) from None
        try:
            await save()
        except OSError as error:
            remark = f"changed, but not written: it is lost at the next start: {os_failure(error)}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from error
        return response(command, ResponseCode.SUCCESS, _UNSET)

    return handle


def _answering(
    question: Callable[[Command], Iterable[bytes]], world: World
) -> Callable[[Connection, Command], Awaitable[Command]]:
    async def handle(connection: Connection, command: Command) -> Command:
        try:
            pieces = question(command)
        except AuthorityError as error:
            raise _refusal(error) from None
        async with Pace(world) as pace:
            body = await pace.run(join_in_steps(pieces))
        return response(command, ResponseCode.SUCCESS, _UNSET, body=body)

    return handle


def _refusal(error: AuthorityError) -> CommandError:
    return CommandError(ResponseCode.INVALID_PARAMETER if error.invalid else ResponseCode.NO_PERMISSION, str(error))


class _Changes:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._authority = gate.authority

    def create_user(self, command: Command) -> None:
        self._authority.create_user(_name(command), _body(command), self._gate.changes_by(command))

    def update_user(self, command: Command) -> None:
        self._authority.update_user(_name(command), _body(command), self._gate.changes_by(command))

    def delete_user(self, command: Command) -> None:
        self._authority.delete_user(_name(command), self._gate.changes_by(command))

    def merge_acl(self, command: Command) -> None:
        try:
            subject, policies = body_of(command, _read_rules)
        except ValueError as error:
            raise AuthorityError(str(error)) from None
        self._authority.merge_acl(subject or optional(command, "subject"), policies)

    def delete_acl(self, command: Command) -> None:
        resource = optional(command, "resource")
        self._authority.delete_acl(optional(command, "subject"), optional(command, "policyType"), resource)


class _Questions:
    """Each returns the pieces of a body; there are none where nothing is to be told."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._authority = gate.authority

    def get_user(self, command: Command) -> Iterable[bytes]:
        user = self._authority.user(_name(command))
        return () if user is None else dump_pieces(self._rows_for(command)(user))

    def list_user(self, command: Command) -> Iterable[bytes]:
        return _listed(map(self._rows_for(command), self._authority.list_users(optional(command, "filter"))))

    def _rows_for(self, command: Command) -> Callable[[User], dict[str, str]]:
        # Who reads a super user's password is one. So no right on the cluster is enough to read any.
        return User.to_json if self._gate.tells_secrets(command) else User.to_row

    def get_acl(self, command: Command) -> Iterable[bytes]:
        subject = optional(command, "subject") or ""
        acl = self._authority.acl(subject)
        return () if acl is None else dump_pieces(acl.to_rows(SUBJECT_PREFIX + subject.removeprefix(SUBJECT_PREFIX)))

    def list_acl(self, command: Command) -> Iterable[bytes]:
        found = self._authority.list_acls(optional(command, "subjectFilter"), optional(command, "resourceFilter"))
        return _listed(None if each is None else each[1].to_rows(each[0]) for each in found)

    def all_users(self, command: Command) -> Iterable[bytes]:
        if not self._gate.tells_secrets(command):
            raise AuthorityError("the passwords in this table are told to super users only")
        return dump_pieces(self._authority.to_json())


def _listed(rows: Iterable[Any]) -> Iterator[bytes]:
    """Write a list in pieces, one at least for each of *rows*; ``None`` is left out. Of an empty list nothing is."""
    separator = b"["
    for row in rows:
        if row is None:
            yield b""
            continue
        yield separator
        separator = b","
        yield from dump_pieces(row)
    if separator == b",":
        yield b"]"


def _read_rules(command: Command) -> tuple[object, Policies]:
    """Return whose rules a body has, and the rules. Raises ``ValueError`` or :class:`CommandError`."""
    info = _body(command)
    return info.get("subject"), acl_of(info)


RULES = Reading(_read_rules, lambda command: len(command.body) >= RULES_BYTES)


def _name(command: Command) -> str | None:
    return optional(command, "username")


def _body(command: Command) -> Mapping[str, Any]:
    if not command.body:
        raise CommandError(ResponseCode.INVALID_PARAMETER, "the body is missing")
    try:
        value = json_of(command)
    except JsonError as error:
        raise CommandError(ResponseCode.INVALID_PARAMETER, f"the body is no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise CommandError(ResponseCode.INVALID_PARAMETER, "the body is no JSON object")
    return value
