"""What a page asks for beyond the first screen, each answered from what is known or by asking brokers once.

The same question within a second has the same answer, so that many open pages are not many questions. Addresses that a
page names must be those of brokers that the cluster has: the console is no way into other hosts.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from understudy.console import consumers, failover_reports, messages, resets, spark_reports, topics
from understudy.console.gatherer import Gatherer
from understudy.console.model import memory, waiting
from understudy.console.report_files import ReportError, ReportFiles
from understudy.console.resets import Done, ResetError
from understudy.console.spark_reports import Listing
from understudy.format.names import TRACE_TOPIC, group_name_error, topic_name_error
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal

log = get_logger("console")

Fields = Mapping[str, str]
Query = Callable[[Fields], Awaitable[Any]]
Change = Callable[[Mapping[str, Any]], Awaitable[Any]]

_SAME_SECONDS = 1.0
_MOST_KEPT = 64
_LONGEST_NAME = 512
_LONGEST_TIME = 15
_MOST_BY_TIME = 64
_READ_BACK_SECONDS = 4.0
_MOVED_WITHIN_SECONDS = 15.0
"""How long whoever asked for a move waits for its end, less than an answer may take; the move goes on."""


class QueryError(Exception):
    """A question cannot be answered; the message is one sentence for whoever sits before the page."""


@attrs.frozen
class _Kept:
    until: float
    value: Any


class Queries:
    """The questions of pages.

    Args:
        session: connections to servers.
        gatherer: what is known.
        nursery: moves run in it: one that has begun does not end because whoever asked has gone.
        reports: of the Spark jobs; ``None``: there are none.
    """

    def __init__(
        self, session: Session, gatherer: Gatherer, nursery: trio.Nursery, reports: ReportFiles | None = None
    ) -> None:
        self._session = session
        self._nursery = nursery
        self._gatherer = gatherer
        self._report_files = reports
        self._listing = Listing()
        self._kept: dict[tuple[str, tuple[tuple[str, str], ...]], _Kept] = {}
        self._by_name: dict[str, Query] = {
            "history": self._history,
            "roster": self._roster,
            "topics": self._topics,
            "topic": self._topic,
            "groups": self._groups,
            "group": self._group,
            "stuck": self._stuck,
            "failovers": self._failovers,
            "messages": self._messages,
            "reports": self._reports,
            "report": self._report,
            "reset": self._preview,
        }
        self._changes: dict[str, Change] = {"reset": self._reset, "undo": self._undo}
        self._done: dict[str, Done] = {}
        self._ended = Signal()  # moves that have ended

    def named(self, name: str) -> Query | None:
        """Return the question called *name*; ``None`` when there is none."""
        return partial(self._once, name) if name in self._by_name else None

    def change(self, name: str) -> Change | None:
        """Return the change called *name*; ``None`` when there is none."""
        return self._changes.get(name)

    async def idle(self) -> None:
        """Wait until no move is under way."""
        while not all(done.ended for done in self._done.values()):
            await self._ended.wait()

    async def _once(self, name: str, fields: Fields) -> Any:
        now = self._session.world.clock.monotonic()
        key = name, tuple(sorted(fields.items()))
        kept = self._kept.get(key)
        if kept is not None and now < kept.until:
            return kept.value
        try:
            value = await self._by_name[name](fields)
        except (ClientError, ResetError, ReportError) as error:
            raise QueryError(str(error)) from error
        now = self._session.world.clock.monotonic()
        self._kept = {each: old for each, old in self._kept.items() if now < old.until}
        if len(self._kept) < _MOST_KEPT:
            self._kept[key] = _Kept(now + _SAME_SECONDS, value)
        return value

    async def _history(self, fields: Fields) -> Any:
        return {"points": memory.points(self._gatherer.known)}

    async def _roster(self, fields: Fields) -> Any:
        address = fields.get("address", "")
        members = [group.members.get(address) for group in self._gatherer.known.groups.values()]
        if not any(members):
            raise QueryError(f"{address[:_LONGEST_NAME]} is no broker of this cluster")
        return await cluster.roster(self._session, address)

    async def _topics(self, fields: Fields) -> Any:
        return await topics.every_topic(self._session, self._gatherer.known)

    async def _topic(self, fields: Fields) -> Any:
        return await topics.one_topic(self._session, self._gatherer.known, _name(fields, "topic"))

    async def _groups(self, fields: Fields) -> Any:
        return consumers.every_group(self._gatherer.known)

    async def _group(self, fields: Fields) -> Any:
        name = _name(fields, "group")
        if group_name_error(name) is not None:
            raise QueryError(f"{name} is no name of a group")
        return await consumers.one_group(self._session, self._gatherer.known, name)

    async def _stuck(self, fields: Fields) -> Any:
        known = self._gatherer.known
        return {
            "rows": waiting.rows_of(known.stuck.values()),
            "more": sum(look.more for look in known.stuck.values()),
            "missing": [name for name in sorted(known.groups) if name not in known.stuck or known.stuck[name].error],
            "cannotSay": sorted(name for name, look in known.stuck.items() if not look.says),
        }

    async def _failovers(self, fields: Fields) -> Any:
        return await failover_reports.every_failover(self._session, self._gatherer.known)

    async def _messages(self, fields: Fields) -> Any:
        topic = _name(fields, "topic", "topic")
        if fields.get("id"):
            trace_topic = fields.get("traceTopic") or TRACE_TOPIC
            if topic_name_error(trace_topic) is not None:
                raise QueryError("where clients trace is no name of a topic")
            return await messages.by_id(self._session, topic, _name(fields, "message id", "id"), trace_topic)
        if fields.get("key"):
            return await messages.by_key(self._session, topic, _name(fields, "key", "key"))
        begin = fields.get("from", "")
        if not (begin.isascii() and begin.isdigit() and len(begin) <= _LONGEST_TIME):
            raise QueryError("say what to find: an id, a key, or from which time on")
        return await messages.by_time(self._session, topic, int(begin), _MOST_BY_TIME)

    async def _reports(self, fields: Fields) -> Any:
        files = self._report_files
        if files is not None:
            look = partial(spark_reports.look, files, self._listing.known)
            self._listing = await self._session.world.threads.run(look)
        return {"configured": files is not None, **self._listing.to_json()}

    async def _report(self, fields: Fields) -> Any:
        name = _name(fields, "report")
        if self._report_files is None:
            raise QueryError("this console was started without a folder of reports (--spark-reports)")
        return await self._session.world.threads.run(partial(spark_reports.one, self._report_files, name))

    # --- changes -----------------------------------------------------------------------------------------------

    async def _preview(self, fields: Fields) -> Any:
        group, topic = _name(fields, "group", "group"), _name(fields, "topic", "topic")
        return await resets.preview(self._session, self._gatherer.known, group, topic, fields.get("to", ""))

    async def _reset(self, body: Mapping[str, Any]) -> Any:
        fields = {name: str(body.get(name) or "") for name in ("group", "topic")}
        group, topic = _name(fields, "group", "group"), _name(fields, "topic", "topic")
        try:
            wanted = resets.moves_of(body.get("rows"))
        except ResetError as error:
            raise QueryError(str(error)) from error
        return await self._carry_out(Done(group, topic, wanted))

    async def _undo(self, body: Mapping[str, Any]) -> Any:
        done = self._done.get(str(body.get("undo")))
        if done is None:
            raise QueryError("there is nothing like that to take back; the console keeps it as long as it runs")
        return await self._carry_out(Done(done.group, done.topic, resets.back(done)))

    async def _carry_out(self, done: Done) -> Any:
        if any(not each.ended and (each.group, each.topic) == (done.group, done.topic) for each in self._done.values()):
            raise QueryError(f"a move of {done.group} on {done.topic} is under way still; wait for its end")
        name, ended = secrets.token_urlsafe(12), trio.Event()
        self._done[name] = done
        for old in list(self._done)[: -resets.MOST_UNDONE]:
            del self._done[old]
        self._nursery.start_soon(self._move, done, ended)
        with self._session.world.clock.move_on_after(_MOVED_WITHIN_SECONDS):
            await ended.wait()
        if done.ended and not done.moves:
            del self._done[name]
            raise QueryError(f"nothing was moved: {'; '.join(done.failed)}")
        answer = {
            "undo": name,
            "rows": [move.to_json() for move in done.moves],
            "failed": [*done.failed],
            "wanted": len(done.wanted),
            "ended": done.ended,
        }
        return {**answer, "elsewhere": await self._read_back(done) if done.ended else []}

    async def _move(self, done: Done, ended: trio.Event) -> None:
        try:
            await resets.carry_out(self._session, self._gatherer.known, done)
        except Exception as error:
            log.error("a move failed", exc=error)  # whatever a server answered: the console goes on
            done.failed.append(f"an answer could not be used: {error!r}")
        finally:
            done.ended = True
            self._ended.set()
            self._kept.clear()
            credentials = self._session.options.credentials
            log.warning(
                "somebody moved a consumer group",
                by=credentials.access_key if credentials is not None else "who has the token",
                group=done.group,
                topic=done.topic,
                queues=len(done.moves),
                wanted=len(done.wanted),
                failed="; ".join(done.failed),
            )
            ended.set()

    async def _read_back(self, done: Done) -> list[str]:
        with self._session.world.clock.move_on_after(_READ_BACK_SECONDS):
            return await resets.elsewhere(self._session, self._gatherer.known, done)
        return ["it was not read back in time"]


def _name(fields: Fields, what: str, key: str = "name") -> str:
    value = fields.get(key, "")
    if not value or len(value) > _LONGEST_NAME:
        raise QueryError(f"name the {what}")
    return value
