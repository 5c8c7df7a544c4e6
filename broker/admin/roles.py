"""Requests of ours that the reference does not have.

What runs here and why (950), what was given back (951), and that a master shall not wait for it any longer (952).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from understudy.broker.admin.answers import json_answer
from understudy.broker.identity import Identity
from understudy.broker.member_group import MemberGroup
from understudy.broker.persistence import Persistence
from understudy.broker.registration import Registration
from understudy.broker.services import BrokerServices
from understudy.broker.session import RoleRules
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional_int
from understudy.remoting.server import RemotingServer
from understudy.runtime.table import TableDamagedError

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

PAGE_ROWS = 10_000
"""Most rows of one answer: a page stays far below the largest frame."""


@attrs.frozen
class RosterParts:
    """What of a broker is needed to tell what runs in it.

    Attributes:
        identity: names, addresses and role.
        rules: returns the rules of the role in force.
        registration: whether name servers are told of it.
        member_group: who else is alive.
        services: everything that runs, or does not and why.
        persistence: which tables are not saved.
    """

    identity: Identity
    rules: Callable[[], RoleRules]
    registration: Registration
    member_group: MemberGroup
    services: BrokerServices
    persistence: Persistence


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer questions about the role of *broker* on *server*."""
    roster = RosterAdmin(
        RosterParts(
            identity=broker.identity,
            rules=lambda: broker.session.rules,
            registration=broker.registration,
            member_group=broker.member_group,
            services=broker.services,
            persistence=broker.persistence,
        )
    )
    server.register(RequestCode.GET_BROKER_ROSTER, roster.roster)
    kinds = [table.kind for table in broker.tables.progress]
    pre_online = PreOnlineAdmin(lambda: broker.session.rules, kinds)
    server.register_async(RequestCode.GET_PRE_ONLINE_REPORT, pre_online.report)
    server.register(RequestCode.FINISH_PRE_ONLINE, pre_online.finish)


class RosterAdmin:
    """Handler over one broker's services."""

    def __init__(self, parts: RosterParts) -> None:
        self._parts = parts

    def roster(self, connection: Connection, command: Command) -> Command:
        """Return every service with its state and reason, those that must not run too (950)."""
        parts, role, rules = self._parts, self._parts.identity.role, self._parts.rules()
        body = {
            "brokerName": parts.identity.name,
            "brokerId": parts.identity.broker_id,
            "container": parts.identity.container,
            "role": {"kind": role.kind, "epoch": role.epoch, "reason": role.reason},
            "active": rules.active,
            "activeReason": rules.reason,
            "isolated": parts.registration.isolated,
            "members": {str(number): address for number, address in (parts.member_group.members or {}).items()},
            "warnings": list(rules.warnings),
            "services": [
                {"name": each.name, "state": each.state, "reason": each.reason, "startedAt": each.started_ms}
                for each in parts.services.roster()
            ]
            + [
                {"name": f"table {name}", "state": "failed", "reason": f"not saved: {why}", "startedAt": 0}
                for name, why in parts.persistence.unsaved.items()
            ],
        }
        return json_answer(command, body)


class PreOnlineAdmin:
    """Handlers over the way back of one broker.

    Args:
        rules: returns the rules of the role in force.
        kinds: of progress that a report has rows of.
    """

    def __init__(self, rules: Callable[[], RoleRules], kinds: Sequence[str]) -> None:
        self._rules = rules
        self._kinds = kinds

    def finish(self, connection: Connection, command: Command) -> Command:
        """Bring a broker online that waits in pre-online, without what is missing, or let it forget that (952)."""
        if not self._rules().finish_pre_online():
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND,
                "this broker is not in pre-online, and waits for no slave: there is nothing to end",
            )
        return response(command)

    async def report(self, connection: Connection, command: Command) -> Command:
        """Return what this broker took over when it came back, a row for each offset on which both differed (951).

        The rows come in pages: header field ``rowSeq`` is the first one wanted, ``totalRowNum`` of the answer tells how
        many there are.
        """
        try:
            found = await self._rules().give_back()
        except (TableDamagedError, OSError) as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the report cannot be read: {error}") from None
        if found is None:
            remark = "this broker has never come back: there is no pre-online report"
            raise CommandError(ResponseCode.QUERY_NOT_FOUND, remark)
        begin = optional_int(command, "rowSeq") or 0
        if begin < 0:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"rowSeq must be 0 or more, not {begin}")
        kinds = self._kinds
        rows = _rows(found, kinds)
        slaves = [{name: each[name] for name in each if name not in kinds} for each in found["slaves"]]
        former = [{name: each[name] for name in each if name != "slaves"} for each in found.get("former", ())]
        body = {**found, "slaves": slaves, "former": former, "rows": rows[begin : begin + PAGE_ROWS]}
        return json_answer(command, body, ext={"totalRowNum": str(len(rows))})


def _rows(found: Mapping[str, Any], kinds: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"slaveId": each["brokerId"], "kind": kind, **row}
        for each in found["slaves"]
        for kind in kinds
        for row in each.get(kind, ())
    ]
