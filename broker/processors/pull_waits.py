"""What pulls wait for at one broker, and how those begin to wait that do.

Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java.
"""

from __future__ import annotations

import attrs

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.first_reads import FirstReads
from understudy.broker.hold import PullHold
from understudy.broker.parked_pulls import ParkedPull, TopicQueue, Wanted, only_needed
from understudy.broker.presence import Presence
from understudy.broker.replication import Replication
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, required, required_int

BEHIND_MS = 100
"""How long a slave keeps a pull that its master could answer."""
_NO_ROOM = "[OVERLOAD]system busy, waiting pulls hold too much memory of this broker; slow down and try again"


@attrs.frozen
class PullWaits:
    """The waits of one broker's pulls: for a message, for the broker itself, for its master.

    Attributes:
        config: how long they may wait; read at each.
        hold: those that wait, until a message comes.
        presence: readers of a broker that was away wait until it is online again.
        first_reads: consumers that a slave has to ask its master about wait for the answer.
        replication: where a slave is behind, those that its master could answer wait for a moment only.
    """

    config: BrokerConfig
    hold: PullHold
    presence: Presence
    first_reads: FirstReads
    replication: Replication

    @property
    def behind_ms(self) -> int | None:
        """The longest wait at a slave that may be behind its master; ``None``, the client's own, when it has none."""
        return None if self.replication.master_address is None else BEHIND_MS

    def park(
        self,
        connection: Connection,
        command: Command,
        ext: dict[str, str],
        topic: str,
        queue_id: int,
        wanted: Wanted,
        most_ms: int | None = None,
    ) -> None:
        """Let a pull wait that found nothing, as long as it and the settings want.

        Args:
            connection: that waits for the answer.
            command: the pull.
            ext: fields of its header.
            topic: of the queue.
            queue_id: of the queue.
            wanted: what it wants of the queue.
            most_ms: the longest wait; ``None`` for no bound.

        Raises:
            CommandError: as :meth:`keep` does, or the header does not say how long.
        """
        if self.config.long_polling_enable:
            try:
                wait_ms = int(ext.get("suspendTimeoutMillis") or 0)
            except ValueError:
                raise explain(command) from None
        else:
            wait_ms = self.config.short_polling_time_mills
        if most_ms is not None:
            wait_ms = min(wait_ms, most_ms)
        command, size = only_needed(command, command.ext or ext)
        self.keep(ParkedPull(connection, command, wanted, size), (topic, queue_id), wait_ms)

    def keep(self, parked: ParkedPull, queue: TopicQueue, wait_ms: int) -> None:
        """Keep *parked* for *wait_ms* at most. Raises :class:`CommandError`: there is no room for it."""
        if not self.hold.has_room(parked):
            raise CommandError(ResponseCode.SYSTEM_BUSY, _NO_ROOM)
        # Nothing can arrive between the read before and here: neither yields.
        self.hold.park(parked, queue, wait_ms)


def explain(command: Command) -> CommandError:
    """Return the refusal of a pull header that could not be read, naming the first field that is wrong."""
    try:
        for name in ("consumerGroup", "topic"):
            required(command, name)
        for name in ("queueId", "queueOffset", "maxMsgNums", "sysFlag"):
            required_int(command, name)
    except CommandError as error:
        return error
    return CommandError(ResponseCode.SYSTEM_ERROR, "field suspendTimeoutMillis is not a number")
