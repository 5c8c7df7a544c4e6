"""What a returning master reads of another replica's tables, and how merged places get into its own."""

from __future__ import annotations

from understudy.broker.broker import Broker
from understudy.broker.merge import Limit, unlimited
from understudy.broker.replicated.table import Answer, Merged, ProgressTable
from understudy.broker.storage import config_path
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.report import FILE_NAME, Report
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


async def compare(broker: Broker, member: Member, table: ProgressTable, limit: Limit = unlimited) -> Merged:
    """Compare a table of progress of *broker* with that of *member*; change nothing.

    Args:
        broker: the one that comes back.
        member: asked for its table.
        table: ours.
        limit: up to where the places of *member* count.

    Raises:
        RemotingError, RefusedError, ReplicaTableError: there is no answer, or none that can be understood.
    """
    answer = await ask(broker, member, table.code, table.asking() or None)
    return table.merge(Answer(answer.ext or {}, answer.body), limit)


async def keep(broker: Broker, report: Report) -> None:
    """Write *report* beside the store of *broker*; a disk that refuses is told in the log."""
    disk, path = broker.world.disk, config_path(broker.options.store, FILE_NAME)
    try:
        await disk.in_thread(lambda: save_table(disk, path, report.to_json()))
    except OSError as error:
        log.error("report not kept", path=path, why=error)
