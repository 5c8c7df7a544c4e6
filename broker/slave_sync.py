"""Keeps a slave's tables like those of the replica that it follows: its master, or else the slave that acts for it.

What is asked for, in which order and how often, stands in the list of tables; what an answer means is the affair of
each table (:mod:`understudy.broker.replicated.table`). Progress is asked for several times a second, so that a slave
that must act knows nearly everything that was consumed and delivered; the other tables at once when the master becomes
known and then every few seconds, or when an answer says that they have changed. All tables of a round are asked for at
once: over a slow link one after another would take seconds, in which no progress is learned.

Source: SlaveSynchronize.java, BrokerOuterAPI.java.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

import attrs
import trio

from understudy.broker.history_keeper import HistoryKeeper
from understudy.broker.identity import Identity
from understudy.broker.log_history import history_of
from understudy.broker.replicated.packed import is_large
from understudy.broker.replicated.rows import ReplicatedTables
from understudy.broker.replicated.table import (
    SLAVE_HOST,
    TABLES,
    Answer,
    Copying,
    Notice,
    Pace,
    ReplicatedTable,
    Source,
    Taken,
)
from understudy.broker.replication import Replication
from understudy.broker.source import source_of
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.log import get_logger
from understudy.runtime.pace import run_beside
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("broker.slave_sync")

PROGRESS_PERIOD_MS = 500
TABLES_PERIOD_MS = 3_000
QUESTION_TIMEOUT_MS = 3_000
LOAD_SHARE = 0.1
"""Largest part of the time that reading a Java master's whole tables may take."""


class SyncError(Exception):
    """A round that could not be finished; what was taken before stays."""


class RefusedError(SyncError):
    """The source answered a question with a refusal.

    Args:
        text: for people.
        code: of the answer.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _Asked:
    """The first question about a table in a round, under way.

    Attributes:
        copying: whose question it is; one made since then has seen something that this one has not.
        ended: there is an answer, or an error.
        answer, error: what came.
    """

    def __init__(self, copying: Copying) -> None:
        self.copying = copying
        self.question = copying.question()
        self.ended = trio.Event()
        self.answer: Command | None = None
        self.error: RemotingError | None = None


class SlaveSync:
    """Copies the tables of the replica that one slave follows.

    Args:
        world: clock and threads.
        replication: knows the master.
        client: asks it.
        identity: of this slave.
        members: returns ids and addresses of the group as name servers show them; call :meth:`look` when they change.
        tables: what is kept like the other replica's.
        history: of this slave's log.

    Attributes:
        synced: every table was copied at least once, in this life of the broker or a former one: without that, a slave
            cannot act.
        current: so since this slave has come online, or it has asked those who know: it is not behind other slaves.
        synced_ms: wall time of the last complete copy in milliseconds, 0 before.
        parted: this slave has messages that its master does not have, and cannot copy it.
        on_synced: called when :attr:`synced` becomes true.
        on_parted: called when :attr:`parted` has changed.
        before_copying: awaited when a run begins, before a table becomes like another replica's.
    """

    def __init__(
        self,
        world: World,
        replication: Replication,
        client: RemotingClient,
        identity: Identity,
        members: Callable[[], Mapping[int, str] | None],
        tables: ReplicatedTables,
        history: HistoryKeeper,
    ) -> None:
        self._clock = world.clock
        self._threads = world.threads
        self._replication = replication
        self._client = client
        self._identity = identity
        self._members = members
        self._tables = tables
        self._history = history
        self._source: Source | None = None
        self._copyings: dict[str, Copying] = {}
        self._asked: dict[str, _Asked] = {}
        self._changed = Signal()
        self._asking: trio.CancelScope | None = None
        self._hint = ""
        self._tables_due = self._looking_since = 0.0
        self._pause = PROGRESS_PERIOD_MS / 1000
        self._failing = ""
        self.synced = False
        self.current = False
        self.synced_ms = 0
        self.parted = False
        self.on_parted: list[Callable[[], None]] = []
        self.on_synced: list[Callable[[], None]] = []
        self.before_copying: Callable[[], Awaitable[None]] | None = None
        replication.master_changed.append(self.look)

    def look(self) -> None:
        """Look soon whether another replica is to be followed; a question to the former one is given up at once.

        Its host may have died without a word: until such a question times out nothing would be learned from anybody.
        """
        self._changed.set()
        source, asking = self._source, self._asking
        if asking is not None and source is not None and self._wanted() != (source.address, source.leads):
            asking.cancel()

    async def run(self) -> None:
        """Copy until cancelled; asleep while there is no source."""
        if self.before_copying is not None:
            await self.before_copying()
        self._begin(None)  # a later run is the first look again: this slave may have acted since
        try:
            while True:
                looked = self._changed.count
                wanted, now = self._wanted(), self._source
                if wanted != (None if now is None else (now.address, now.leads)):
                    self._begin(wanted)
                source = self._source
                if source is None:
                    await self._changed.wait(looked)
                    continue
                try:
                    await self.round(source)
                    self._note(source, "")
                except (RemotingError, SyncError, ValueError, OSError) as error:
                    self._note(source, str(error))
                    self._forget()  # it may come back with another history
                with self._clock.move_on_after(self._pause):
                    await self._changed.wait(looked)
        finally:
            self._follow(False)

    def _wanted(self) -> tuple[str, bool] | None:
        own = self._identity
        return source_of(own.broker_id, own.address, self._replication.master_address, self._members(), self.synced)

    async def round(self, source: Source) -> None:
        """Copy what is due from *source* once.

        Raises:
            RemotingError, SyncError, ValueError: it did not answer, refused, or answered nonsense.
        """
        failed: Exception | None = None
        async with trio.open_nursery() as nursery:
            try:
                await self._round(source, nursery)
            except (RemotingError, SyncError, ValueError, OSError) as error:
                failed = error
            self._asked.clear()
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _round(self, source: Source, nursery: trio.Nursery) -> None:
        now = self._clock.monotonic()
        often = [table for table in self._tables if table.pace is Pace.OFTEN]
        seldom = [table for table in self._tables if table.pace is Pace.SELDOM]
        self._ask_ahead(nursery, source, often)
        if now >= self._tables_due:
            self._ask_ahead(nursery, source, seldom)
        reading = 0.0
        for table in often:
            reading += await self._copy(source, table)
        self._pause = max(PROGRESS_PERIOD_MS / 1000, reading / LOAD_SHARE)
        if now < self._tables_due:
            return
        if not self._asked:  # an answer has said a moment ago that they are due
            self._ask_ahead(nursery, source, seldom)
        for table in seldom:
            await self._copy(source, table)
        self._tables_due = now + TABLES_PERIOD_MS / 1000
        self.synced_ms = self._clock.wall_ms()
        self.current = True
        if not self.synced:
            self.synced = True
            log.info("tables copied", source=source.address)
            for callback in self.on_synced:
                callback()

    def _ask_ahead(self, nursery: trio.Nursery, source: Source, tables: Iterable[ReplicatedTable]) -> None:
        """Ask for *tables* at once; the answers are taken in their order."""

        async def ask(table: ReplicatedTable, asked: _Asked) -> None:
            command = request(table.code, self._fields(asked.question))
            try:
                asked.answer = await self._client.invoke(source.address, command, QUESTION_TIMEOUT_MS)
            except RemotingError as error:
                asked.error = error
            asked.ended.set()

        for table in tables:
            copying = self._copyings.get(table.name) or table.copying(source)
            if copying is not None:
                self._copyings[table.name] = copying
                self._asked[table.name] = asked = _Asked(copying)
                nursery.start_soon(ask, table, asked)

    async def _copy(self, source: Source, table: ReplicatedTable) -> float:
        """Copy one table and tell what its source does not know; return how long the answers took to read (seconds)."""
        copying = self._copyings.get(table.name) or table.copying(source)
        if copying is None:
            return 0.0
        self._copyings[table.name] = copying
        reading, taken = 0.0, Taken.MORE
        while taken is Taken.MORE:
            asked = self._asked.pop(table.name, None)
            try:
                if asked is not None and asked.copying is copying:
                    answer = await self._answer(source, table.code, partial(_wait, asked))
                else:
                    answer = await self._ask(source, table.code, copying.question())
            except RefusedError as error:
                if not table.optional:
                    raise
                log.debug("no such table", source=source.address, table=table.name, why=error)
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    await self._tell(source, copying.otherwise())
                return reading
            self._heed_hint(answer)
            was_parted = self.parted
            if (await self._compare_history(source, answer) or was_parted) and not self.parted:
                # What was cut may be what this source told a moment ago, or while the logs had parted, and leaves out
                # as known from now on. A slave with a log of its own has no use for it.
                self._copyings.clear()
                copying = table.copying(source)
                if copying is None:
                    return reading
                self._copyings[table.name] = copying
                continue
            began = self._clock.monotonic()
            if is_large(answer):
                answer = attrs.evolve(answer, said=await self._threads.run(partial(copying.read, answer)))
                self._check(source)
            with trio.CancelScope(shield=True):  # to its end: what was forgotten by half nobody would forget any more
                taken = await run_beside(self._clock, copying.take_in_steps(answer))
            reading += self._clock.monotonic() - began
        if taken is Taken.ANEW:
            self._forget()
            self._copyings[table.name] = copying
        await self._tell(source, copying.notices())
        return reading

    async def _tell(self, source: Source, notices: Sequence[Notice]) -> None:
        for notice in notices:
            try:
                await self._ask(source, notice.code, notice.ext, notice.body)
            except RefusedError as error:
                notice.refused(str(error))
            else:
                notice.told()

    async def _compare_history(self, source: Source, answer: Answer) -> bool:
        """Cut progress that was made in a log which the source does not have; then follow the master's history.

        Returns:
            Whether something was cut.

        Raises:
            SyncError: a slave's log parts from ours: nothing of it is taken.
        """
        theirs, own = history_of(answer.ext), self._history.value
        if not theirs.lives:
            return False
        if theirs == own:
            self._part(False)
            return False
        parting = own.parting(theirs)
        self._part(source.leads and self._history.goes_beyond(parting) and not source.continues())
        if not source.leads and parting is not None and parting.own_goes_on:
            raise SyncError(f"its log is another one than ours from byte {parting.at:.0f} on")
        cut = await self._history.cut_by(theirs, f"{source.address} never had it or has lost it")
        if source.leads and source.continues():
            await self._history.adopt(theirs)
        return cut

    def _part(self, parted: bool) -> None:
        if parted != self.parted:
            self.parted = parted
            for callback in self.on_parted:
                callback()

    def _heed_hint(self, answer: Answer) -> None:
        hint = answer.ext.get(TABLES)
        if hint is not None and hint != self._hint:
            self._hint = hint
            self._tables_due = 0.0

    def _fields(self, ext: Mapping[str, str]) -> dict[str, str] | None:
        """Return the header of a question; a signed one also says from where the log is copied."""
        slave = self._replication.slave
        if slave is not None and slave.own_host and self._client.sign is not None:
            return {**ext, SLAVE_HOST: slave.own_host}
        return {**ext} or None

    async def _ask(self, source: Source, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> Answer:
        command = request(code, self._fields(ext), body)
        return await self._answer(
            source, code, partial(self._client.invoke, source.address, command, QUESTION_TIMEOUT_MS)
        )

    async def _answer(self, source: Source, code: RequestCode, wait: Callable[[], Awaitable[Command]]) -> Answer:
        answer = None
        with trio.CancelScope() as self._asking:
            answer = await wait()
        self._asking = None
        if answer is None:
            raise SyncError("another replica is to be followed")
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(f"{code.name}: code {answer.code}, {answer.remark}", answer.code)
        self._check(source)
        return Answer(answer.ext or {}, answer.body)

    def _check(self, source: Source) -> None:
        if self._wanted() != (source.address, source.leads):
            raise SyncError("another replica is to be followed")

    def _begin(self, wanted: tuple[str, bool] | None) -> None:
        """Start anew with another source, or stop following."""
        self._source = None if wanted is None else Source(*wanted, self._continues)
        self._part(False)
        self._forget()
        self._failing = ""
        self._follow(wanted is not None)
        if wanted is not None and not wanted[1]:
            log.info("no master: tables are copied from the slave that acts", source=wanted[0])

    def _continues(self) -> bool:
        return self._replication.continued_since(self._looking_since)

    def _forget(self) -> None:
        """Let the next look at the source be the first one."""
        self._copyings.clear()
        self._hint = ""
        self._tables_due = 0.0
        self._looking_since = self._clock.monotonic()

    def _follow(self, following: bool) -> None:
        for table in self._tables:
            table.follow(following)

    def _note(self, source: Source, why: str) -> None:
        if why != self._failing:
            if why:
                log.warning("tables not copied, trying again", source=source.address, why=why)
            else:
                log.info("tables are copied again", source=source.address)
            self._failing = why


async def _wait(asked: _Asked) -> Command:
    await asked.ended.wait()
    if asked.error is not None:
        raise asked.error
    assert asked.answer is not None
    return asked.answer
