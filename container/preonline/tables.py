"""What a returning master reads of another replica's tables, and how merged offsets get into its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from understudy.broker.broker import Broker
from understudy.broker.log_history import LOG_HISTORY, history_of
from understudy.broker.merge import Limit, unlimited
from understudy.broker.replicated.packed import is_large
from understudy.broker.replicated.table import Answer, GivenBackTable, Merged, ProgressTable
from understudy.broker.storage import config_path
from understudy.container.preonline.asking import RefusedError, ask
from understudy.container.preonline.common_log import common_end
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.report import FILE_NAME, Report, former_of
from understudy.runtime.log import get_logger
from understudy.runtime.table import TableDamagedError, load_table, save_table

log = get_logger("container.preonline")


async def compare(broker: Broker, member: Member) -> dict[ProgressTable, Merged]:
    """Compare each table of progress of *broker* with that of *member*.

    Offsets of *member* count as far as its log and ours are the same. When it is the other way round, because this
    slave slept through a new life of its master, our own are cut; nothing else changes.

    Raises:
        RemotingError, RefusedError, ValueError, OSError: there is no answer, none that can be understood, or what was
            cut could not be made durable.
    """
    found, common = {}, _CommonLog(broker, member)
    for table in broker.tables.progress:
        try:
            answer = await ask(broker, member, table.code, table.asking() or None)
        except RefusedError:
            if not table.optional:
                raise
            continue
        limit = await common.limit(table, answer.ext or {})
        found[table] = table.merge(Answer(answer.ext or {}, answer.body), limit)
    return found


async def handed_out(broker: Broker, member: Member) -> bool:
    """Return whether *member* has handed out something for its master that it would give back.

    Raises:
        RemotingError, ValueError: as :func:`compare`.
    """
    for table in broker.tables.given_back:
        answer = await _asked(broker, member, table)
        if answer is not None and table.holds(answer):
            return True
    return False


async def bring_back(broker: Broker, member: Member, *, late: bool = False) -> None:
    """Make ours what *member* handed out for its master, as far as its log and ours are the same.

    Done before its offsets are: nobody may go on behind what nothing brings back.

    Args:
        broker: whose group it is.
        member: that acted.
        late: *broker* serves already.

    Raises:
        RemotingError, ValueError: as :func:`compare`.
        OSError: the disk does not take it; nothing is lost.
    """
    common = _CommonLog(broker, member)
    for table in broker.tables.given_back:
        answer = await _asked(broker, member, table)
        if answer is None:
            continue
        limit = await common.limit(broker.tables.offsets, answer.ext)
        if table.take_back(answer, _within_log(broker, limit), late=late):
            await broker.persistence.save(table.name)
    await broker.pops.bring_home()


async def _asked(broker: Broker, member: Member, table: GivenBackTable) -> Answer | None:
    """Ask *member* for *table*; ``None``: it is a replica of the reference, which has no such table."""
    try:
        command = await ask(broker, member, table.code, {LOG_HISTORY: "", **table.asking()})
    except RefusedError:
        return None
    answer = Answer(command.ext or {}, command.body)
    if not is_large(answer):
        return answer
    return attrs.evolve(answer, said=await broker.world.threads.run(partial(table.read, answer)))


def _within_log(broker: Broker, limit: Limit) -> Limit:
    """Return *limit*, nowhere beyond what the log of *broker* has."""

    def within(key: str, queue_id: int) -> int | None:
        end, most = broker.store.max_queue_offset(key.partition("@")[0], queue_id), limit(key, queue_id)
        return end if most is None else min(end, most)

    return within if not broker.role.is_slave else limit


class _CommonLog:
    """Up to where the log of *member* and that of *broker* are the same."""

    def __init__(self, broker: Broker, member: Member) -> None:
        self._broker = broker
        self._member = member
        self._bytes_end: float | None = None

    async def limit(self, table: ProgressTable, ext: Mapping[str, str]) -> Limit:
        """Return it as offsets of *table*, from the header fields of an answer. Raises as :func:`compare`."""
        broker, member = self._broker, self._member
        theirs, history = history_of(ext), broker.history
        parting = history.value.parting(theirs)
        if parting is None:
            if self._bytes_end is None:
                self._bytes_end = await common_end(broker, member)
            return history.limit(table, self._bytes_end)
        if broker.role.is_slave and not parting.own_goes_on:
            await history.cut_by(theirs, f"{member.address} has another log from there on")
            return unlimited
        return history.limit(table, parting.at)


async def former(broker: Broker) -> tuple[Mapping[str, Any], ...]:
    """Return the reports of former returns of *broker*; a file that cannot be read is told in the log."""
    disk, path = broker.world.disk, config_path(broker.options.store, FILE_NAME)
    try:
        return former_of((await disk.in_thread(lambda: load_table(disk, path))).data)
    except (OSError, TableDamagedError) as error:
        log.error("former reports not read, they are given up", path=path, why=error)
        return ()


async def keep(broker: Broker, report: Report) -> None:
    """Write *report* beside the store of *broker*; a disk that refuses is told in the log."""
    disk, path = broker.world.disk, config_path(broker.options.store, FILE_NAME)
    try:
        await disk.in_thread(lambda: save_table(disk, path, report.to_json()))
    except OSError as error:
        log.error("report not kept", path=path, why=error)
