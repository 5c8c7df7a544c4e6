"""A slave's questions to its master about consumers that ask here first (958, ours), and what the master answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from understudy.broker.first_reads import FirstRead, FirstReads, GroupQueue, settle
from understudy.broker.hold import PullHold
from understudy.broker.identity import Identity
from understudy.broker.offsets import OffsetTable
from understudy.broker.replication import Replication
from understudy.format.json_dialect import JsonError, dumps
from understudy.format.numbers import LONG_MAX, whole_number
from understudy.remoting.bodies import json_of, json_value
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.connection import Connection
from understudy.remoting.errors import RemotingError
from understudy.remoting.fields import CommandError
from understudy.remoting.server import RemotingServer
from understudy.runtime.log import get_logger
from understudy.runtime.threads import Threads

log = get_logger("broker.first_reads")

MOST_READS = 500
"""Most questions of one request."""
ASK_TIMEOUT_MS = 1_000


@attrs.frozen
class FirstReadQuestions:
    """Puts the questions to the master.

    Attributes:
        reads: what is to be asked.
        replication: knows the master.
        client: connections to other brokers.
        threads: where large answers are read.
        hold: pulls that wait for an answer.
    """

    reads: FirstReads
    replication: Replication
    client: RemotingClient
    threads: Threads
    hold: PullHold

    async def run(self) -> None:
        """Ask until cancelled; asleep while there is nothing to ask."""
        handled = 0
        while True:
            asked = self.reads.take(MOST_READS)
            if not asked:
                handled = await self.reads.asked.wait(handled)
                continue
            corrections, doubts = await self._ask(asked)
            self.reads.answered(asked, corrections)
            if not doubts:
                self.reads.end()
            for queue in {(read.key.partition("@")[0], read.queue_id) for read in asked}:
                self.hold.wake_queue(queue)

    async def _ask(self, asked: Sequence[FirstRead]) -> tuple[dict[GroupQueue, int], bool]:
        """Return where consumers have to go on instead, and whether the master doubts anybody.

        A master that does not answer, or cannot, is gone or of another kind: its consumers are believed.
        """
        master = self.replication.master_address
        if master is None:
            return {}, False
        rows = [
            {"key": read.key, "queueId": read.queue_id, "offset": read.offset, "common": read.common} for read in asked
        ]
        try:
            command = request(RequestCode.SETTLE_FIRST_READS, {}, dumps({"reads": rows}))
            answer = await self.client.invoke(master, command, ASK_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                return {}, answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            body = await json_value(self.threads, answer.body)
            corrections = {
                (str(row["key"]), whole_number(row["queueId"], "queueId")): whole_number(row["offset"], "offset", 0)
                for row in body["corrections"]
            }
            return corrections, bool(body["doubts"])
        except (RemotingError, JsonError, KeyError, TypeError, ValueError) as error:
            log.info("the master does not say where consumers stand, they are believed", master=master, why=error)
            return {}, True


@attrs.frozen
class FirstReadAnswers:
    """A master's answers to its slaves.

    Attributes:
        identity: of this broker.
        offsets: whom it doubts.
    """

    identity: Identity
    offsets: OffsetTable

    def register(self, server: RemotingServer) -> None:
        """Answer the question at *server*."""
        server.register(RequestCode.SETTLE_FIRST_READS, self.answer)

    def answer(self, connection: Connection, command: Command) -> Command:
        """Tell a slave where consumers that ask it have to go on instead; they are believed from now on."""
        if self.identity.role.is_slave:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "this broker is a slave, ask the master of the group")
        reads = _reads_of(command)
        doubts = self.offsets.doubts
        found = settle(doubts, reads) if doubts.active else {}
        rows: list[dict[str, Any]] = [
            {"key": key, "queueId": queue_id, "offset": offset} for (key, queue_id), offset in found.items()
        ]
        body = {"corrections": rows, "doubts": doubts.active or bool(found)}
        return response(command, body=dumps(body))


def _reads_of(command: Command) -> list[FirstRead]:
    """Return the questions in the body of *command*. Raises :class:`CommandError` when it holds none or too many."""
    try:
        body = json_of(command)
        rows = body["reads"]
        if not isinstance(rows, list) or len(rows) > MOST_READS:
            raise ValueError(f"reads must be a list of at most {MOST_READS}")
        return [
            FirstRead(
                str(row["key"]),
                whole_number(row["queueId"], "queueId", 0),
                whole_number(row["offset"], "offset", 0, LONG_MAX),
                row["common"] is True,
            )
            for row in rows
        ]
    except (JsonError, KeyError, TypeError, ValueError) as error:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER,
            f"the body must be {{'reads': [{{'key', 'queueId', 'offset', 'common'}}, ...]}}: {error}",
        ) from None
