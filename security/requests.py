"""The requests about users and rules, 3001 to 3010, and ours that replicas copy them with.

Source: AdminBrokerProcessor.java (createUser and what follows it).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from understudy.format.json_dialect import JsonError, dumps
from understudy.remoting.bodies import json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.remoting.fields import CommandError, optional
from understudy.runtime.os_failure import os_failure
from understudy.security.authority import AuthorityError
from understudy.security.gate import Gate

SUBJECT_PREFIX = "User:"
_UNSET = "not set any response code"


def register(server: Dispatcher, gate: Gate, save: Callable[[], Awaitable[None]]) -> None:
    """Have *server* answer requests about the users of *gate*, which knows who asks.

    Args:
        server: the port.
        gate: with the table.
        save: makes the table durable, which it is before a change is answered; raises ``OSError``.
    """
    handlers = _Handlers(gate)
    for code, change in (
        (RequestCode.AUTH_CREATE_USER, handlers.create_user),
        (RequestCode.AUTH_UPDATE_USER, handlers.update_user),
        (RequestCode.AUTH_DELETE_USER, handlers.delete_user),
        (RequestCode.AUTH_CREATE_ACL, handlers.merge_acl),
        (RequestCode.AUTH_UPDATE_ACL, handlers.merge_acl),
        (RequestCode.AUTH_DELETE_ACL, handlers.delete_acl),
    ):
        server.register_async(code, _saving(change, save))
    for code, handler in (
        (RequestCode.AUTH_GET_USER, handlers.get_user),
        (RequestCode.AUTH_LIST_USER, handlers.list_user),
        (RequestCode.AUTH_GET_ACL, handlers.get_acl),
        (RequestCode.AUTH_LIST_ACL, handlers.list_acl),
        (RequestCode.GET_ALL_USERS, handlers.all_users),
    ):
        server.register(code, _refusing(handler))


def _saving(
    change: Callable[[Command], None], save: Callable[[], Awaitable[None]]
) -> Callable[[Connection, Command], Awaitable[Command]]:
    async def handle(connection: Connection, command: Command) -> Command:
        answer = _refusing(change)(connection, command)
        try:
            await save()
        except OSError as error:
            remark = f"changed, but not written: it is lost at the next start: {os_failure(error)}"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark) from error
        return answer

    return handle


def _refusing(handler: Callable[[Command], Any]) -> Callable[[Connection, Command], Command]:
    def handle(connection: Connection, command: Command) -> Command:
        try:
            found = handler(command)
        except AuthorityError as error:
            code = ResponseCode.INVALID_PARAMETER if error.invalid else ResponseCode.NO_PERMISSION
            raise CommandError(code, str(error)) from None
        body = dumps(found) if found is not None else b""
        return response(command, ResponseCode.SUCCESS, _UNSET, body=body)

    return handle


class _Handlers:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._authority = gate.authority

    def create_user(self, command: Command) -> None:
        self._authority.create_user(_name(command), _body(command), self._gate.caller(command))

    def update_user(self, command: Command) -> None:
        self._authority.update_user(_name(command), _body(command), self._gate.caller(command))

    def delete_user(self, command: Command) -> None:
        self._authority.delete_user(_name(command), self._gate.caller(command))

    def get_user(self, command: Command) -> dict[str, str] | None:
        user = self._authority.user(_name(command))
        return None if user is None else user.to_json()

    def list_user(self, command: Command) -> list[dict[str, str]] | None:
        return [user.to_json() for user in self._authority.list_users(optional(command, "filter"))] or None

    def merge_acl(self, command: Command) -> None:
        self._authority.merge_acl(optional(command, "subject"), _body(command))

    def delete_acl(self, command: Command) -> None:
        resource = optional(command, "resource")
        self._authority.delete_acl(optional(command, "subject"), optional(command, "policyType"), resource)

    def get_acl(self, command: Command) -> dict[str, Any] | None:
        subject = optional(command, "subject") or ""
        acl = self._authority.acl(subject)
        return None if acl is None else acl.to_json(SUBJECT_PREFIX + subject.removeprefix(SUBJECT_PREFIX))

    def list_acl(self, command: Command) -> list[dict[str, Any]] | None:
        found = self._authority.list_acls(optional(command, "subjectFilter"), optional(command, "resourceFilter"))
        return [acl.to_json(subject) for subject, acl in found] or None

    def all_users(self, command: Command) -> dict[str, Any]:
        return self._authority.to_json()


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
