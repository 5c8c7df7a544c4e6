"""From which hosts the slaves of a broker have signed what they asked it: only from these its log may be copied.

The port for replication knows no signatures, as the reference's. A slave asks its master for other things as well, all
the time and with its signature: the host that such a question comes from may connect, and so may the one that it names,
for the log may go over another network. Whoever may ask that, may read the raw log over the broker's own port, too. The
first connection of a slave may come before its first question; it is refused then, and comes again a second later.
"""

from __future__ import annotations

from understudy.broker.replicated.table import SLAVE_HOST
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.runtime.clock import Clock
from understudy.security.gate import Gate
from understudy.security.policies import Action, Kind, Need

_LONGEST_HOST = 64
QUESTIONS = (
    RequestCode.EXCHANGE_BROKER_HA_INFO,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_TIMER_CHECK_POINT,
)
"""What slaves ask their master, those of the reference too."""
KNOWN_SECONDS = 180.0
"""How long after its last question a host may connect; slaves of the reference ask for most things once a minute."""
MOST_HOSTS = 256


class SignedSlaves:
    """The hosts of one broker's slaves.

    Args:
        gate: of the broker; it has let the questions in.
        cluster: name of the cluster as a resource.
        clock: of this process.
    """

    def __init__(self, gate: Gate, cluster: str, clock: Clock) -> None:
        self._gate = gate
        self._need = Need(Kind.CLUSTER, cluster, frozenset({Action.UPDATE}))
        self._clock = clock
        self._asked_at: dict[str, float] = {}  # what came last stands last

    def watch(self, server: Dispatcher) -> None:
        """Take note of the questions that come to *server*, whose handlers are there."""
        for code in QUESTIONS:
            server.watch(code, self._asked)

    def _asked(self, connection: Connection, command: Command) -> None:
        if not self._gate.may(command, self._need, connection.source):
            return
        named = (command.ext or {}).get(SLAVE_HOST) or connection.source
        for host in {connection.source, named[:_LONGEST_HOST]}:
            self._asked_at.pop(host, None)
            self._asked_at[host] = self._clock.monotonic()
            if len(self._asked_at) > MOST_HOSTS:
                del self._asked_at[next(iter(self._asked_at))]

    def has(self, host: str) -> bool:
        """Return whether a slave at *host* has asked something lately, or has named it."""
        return self._clock.monotonic() - self._asked_at.get(host, float("-inf")) <= KNOWN_SECONDS
