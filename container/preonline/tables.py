"""What a returning master reads of another replica's tables, and how merged offsets get into its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.broker.broker import Broker
from understudy.broker.log_history import history_of
from understudy.broker.merge import unlimited
from understudy.broker.replicated.table import Answer, Merged, ProgressTable
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
    found, bytes_end = {}, None
    for table in broker.tables.progress:
        try:
            answer = await ask(broker, member, table.code, table.asking() or None)
        except RefusedError:
            if not table.optional:
                raise
            continue
        theirs, history = history_of(answer.ext or {}), broker.history
        parting = history.value.parting(theirs)
        if parting is None:
            if bytes_end is None:
                bytes_end = await common_end(broker, member)
            limit = history.limit(table, bytes_end)
        elif broker.role.is_slave and not parting.own_goes_on:
            await history.cut_by(theirs, f"{member.address} has another log from there on")
            limit = unlimited
        else:
            limit = history.limit(table, parting.at)
        found[table] = table.merge(Answer(answer.ext or {}, answer.body), limit)
    return found


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
