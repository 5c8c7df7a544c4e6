"""Requests of ours that the reference does not have.

What runs here and why (950), what was given back (951), and that a master shall not wait for it any longer (952).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from understudy.broker.admin.answers import json_answer
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


def register(broker: Broker, server: RemotingServer) -> None:
    """Answer questions about the role of *broker* on *server*."""
    handlers = RoleAdmin(broker)
    server.register(RequestCode.GET_BROKER_ROSTER, handlers.roster)
    server.register_async(RequestCode.GET_PRE_ONLINE_REPORT, handlers.report)
    server.register(RequestCode.FINISH_PRE_ONLINE, handlers.finish)


class RoleAdmin:
    """Handlers over one broker's role."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def roster(self, connection: Connection, command: Command) -> Command:
        """Return every service with its state and reason, those that must not run too (950)."""
        broker, role, rules = self._broker, self._broker.role, self._broker.session.rules
        body = {
            "brokerName": broker.identity.name,
            "brokerId": broker.identity.broker_id,
            "role": {"kind": role.kind, "epoch": role.epoch, "reason": role.reason},
            "active": rules.active,
            "activeReason": rules.reason,
            "isolated": broker.registration.isolated,
            "members": {str(number): address for number, address in (broker.member_group.members or {}).items()},
            "warnings": list(rules.warnings),
            "services": [
                {"name": each.name, "state": each.state, "reason": each.reason, "startedAt": each.started_ms}
                for each in broker.services.roster()
            ]
            + [
                {"name": f"table {name}", "state": "failed", "reason": f"not saved: {why}", "startedAt": 0}
                for name, why in broker.persistence.unsaved.items()
            ],
        }
        return json_answer(command, body)

    def finish(self, connection: Connection, command: Command) -> Command:
        """Bring a broker online that waits in pre-online, without what is missing (952)."""
        if not self._broker.session.rules.finish_pre_online():
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND, "this broker is not in pre-online: there is nothing to end"
            )
        return response(command)

    async def report(self, connection: Connection, command: Command) -> Command:
        """Return what this broker took over when it came back, a row for each offset on which both differed (951).

        The rows come in pages: header field ``rowSeq`` is the first one wanted, ``totalRowNum`` of the answer tells how
        many there are.
        """
        try:
            found = await self._broker.session.rules.give_back()
        except (TableDamagedError, OSError) as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"the report cannot be read: {error}") from None
        if found is None:
            remark = "this broker has never come back: there is no pre-online report"
            raise CommandError(ResponseCode.QUERY_NOT_FOUND, remark)
        begin = optional_int(command, "rowSeq") or 0
        if begin < 0:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"rowSeq must be 0 or more, not {begin}")
        kinds = [table.kind for table in self._broker.tables.progress]
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
