"""The members of a group and their name servers, and who of them reaches whom."""

from __future__ import annotations

from scenario_members import Broker, NameServer, Transcript

from understudy.broker import lock_quorum
from understudy.broker.absence import Moment
from understudy.container.preonline.handshake import MASTER_ID, Member
from understudy.container.preonline.lost_end import Reach, longest_first


class Links(Transcript):
    """The members 0 to n and their name servers, over links that can be cut.

    Args:
        members: how many.
        servers: how many.
        total_replicas: ``totalReplicas`` of every member.
        without_acting: members whose ``enableSlaveActingMaster`` is false.
    """

    def __init__(
        self, members: int, servers: int, total_replicas: int, *, without_acting: frozenset[int] = frozenset()
    ) -> None:
        super().__init__()
        self.total_replicas = total_replicas
        self.brokers = [Broker(number, number not in without_acting) for number in range(members)]
        self.servers = [NameServer(f"n{number + 1}") for number in range(servers)]
        self.cuts: set[frozenset[str]] = set()

    def linked(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.cuts

    def _reachable(self, broker: Broker, address: str) -> Broker | None:
        """Return the member at *address* if it answers *broker*."""
        found = self.brokers[int(address[1:])]
        return found if found.runs and not found.stuck and self.linked(broker.name, found.name) else None

    def _server(self, broker: Broker, name: str) -> NameServer | None:
        found = next(each for each in self.servers if each.name == name)
        return found if found.up and self.linked(broker.name, name) else None

    def _names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.servers)

    def boot(self, server: NameServer) -> None:
        server.up, server.members, server.heard = True, {}, {}

    def _moment(self) -> Moment:
        return Moment(self.now * 1000, round(self.now * 1000))

    def lock(self, client: str, queue: str, broker: Broker) -> None:
        """Ask *broker* for a lock that a majority must grant."""
        grants: dict[str, list[tuple[str, str, int]]] = {}
        key = ("orders", "g0", int(queue))
        held = [key] if broker.locks.get(queue) == client else []
        silent = 0
        for other in self.brokers:
            if other is not broker and self._reachable(broker, other.address) is None:
                silent += other.broker_id in (broker.view.members or {})
            elif other.locks.get(queue, client) == client:
                other.locks[queue] = client
                grants[other.name] = [key]
        quorum = lock_quorum.quorum_of(self.total_replicas)
        result = lock_quorum.decide([key], grants, quorum, held, silent=silent)
        if result.returned:
            for name in grants:
                del self.brokers[int(name)].locks[queue]
        verdict = "granted" if result.granted else "kept" if result.unclear else "refused"
        self.note(f"queue {queue}: {verdict}, {len(grants)} of {len(self.brokers)} grant it, {quorum} must")

    def _complete_log(self, broker: Broker, members: tuple[Member, ...]) -> None:
        takes = broker.log_open or broker.broker_id != MASTER_ID
        answers = [(member, self._reachable(broker, member.address)) for member in members if takes]
        reaches = [Reach(member, other.log_end) for member, other in answers if other is not None]
        for reach in longest_first(broker.log_end, reaches)[:1]:
            self.say(broker, f"takes its log from {broker.log_end} to {reach.end} from {reach.member.broker_id}")
            broker.log_end = reach.end
