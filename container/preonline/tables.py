"""What a returning master reads of its slaves' tables, and how merged places get into its own."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.broker.broker import Broker
from understudy.broker.replica_tables import OffsetsAnswer, of_present_topics, read_offsets
from understudy.broker.slave_sync import KNOWN_OFFSETS
from understudy.broker.storage import config_path
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.merge import Row, Table, places, table_of
from understudy.container.preonline.report import FILE_NAME, Report
from understudy.format.data_version import DataVersion
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.runtime.log import get_logger
from understudy.runtime.table import save_table

log = get_logger("container.preonline")

QUESTION_TIMEOUT_MS = 3_000


class RefusedError(Exception):
    """Another broker did not do what it was asked for."""


async def ask(broker: Broker, member: Member, code: RequestCode, ext: dict[str, str] | None = None) -> Command:
    """Return the answer of *member*. Raises ``RemotingError``, :class:`RefusedError`."""
    answer = await broker.client.invoke(member.address, request(code, ext), QUESTION_TIMEOUT_MS)
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedError(f"{member.address} answered {code.name} with {answer.code}: {answer.remark}")
    return answer


async def offsets_of(broker: Broker, member: Member) -> OffsetsAnswer:
    """Return the consumer offsets of *member*, without topics that were deleted at *broker* since it heard of it.

    Raises:
        RemotingError, RefusedError, ReplicaTableError: there is no answer, or none that can be understood.
    """
    answer = await ask(broker, member, RequestCode.GET_ALL_CONSUMER_OFFSET, {KNOWN_OFFSETS: ""})
    theirs = read_offsets(answer.body)
    return of_present_topics(broker.offsets, theirs) if KNOWN_OFFSETS in (answer.ext or {}) else theirs


def own_places(broker: Broker) -> Table:
    """Return the places of every group of *broker* as they are now."""
    return places(broker.offsets.committed, broker.offsets.stamps)


def take_offsets(broker: Broker, rows: Sequence[Row], version: DataVersion) -> bool:
    """Put the changed places of *rows* into the table of *broker*; return whether there were any.

    Args:
        broker: the returning master.
        rows: the outcome of a merge with its places as they are now.
        version: of the other table.
    """
    merged = table_of([row for row in rows if row.changed])
    broker.offsets.take(
        {key: {queue: place.offset for queue, place in queues.items()} for key, queues in merged.items()},
        {
            key: {queue: place.reset_stamp for queue, place in queues.items() if place.reset_stamp}
            for key, queues in merged.items()
        },
        version,
    )
    if merged:
        # A step of the version, so that whoever compares versions only (the reference) sees who is newer.
        now_ms = broker.world.clock.wall_ms()
        broker.offsets.version = broker.offsets.version.next(now_ms, broker.offsets.state_version())
    return bool(merged)


async def keep(broker: Broker, report: Report) -> None:
    """Write *report* beside the store of *broker*; a disk that refuses is told in the log."""
    disk, path = broker.world.disk, config_path(broker.options.store, FILE_NAME)
    try:
        await disk.in_thread(lambda: save_table(disk, path, report.to_json()))
    except OSError as error:
        log.error("report not kept", path=path, why=error)
