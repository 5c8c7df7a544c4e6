"""The members of a group and their name servers, and who of them reaches whom."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scenario_members import Broker, NameServer, Transcript

from understudy.broker import lock_quorum
from understudy.broker.absence import Moment
from understudy.container.preonline.handshake import Member
from understudy.container.preonline.lost_end import Reach, longest_first
from understudy.ha.hearing import Hearing, Voice


class Links(Transcript):
    """The members 0 to n and their name servers, over links that can be cut."""

    def __init__(self, members: int, servers: int, *, without_acting: frozenset[int] = frozenset()) -> None:
        super().__init__()
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

    def down(self, server: NameServer) -> None:
        server.up = False
        for broker_id in server.members:
            self.brokers[broker_id].hung_up.add(server.name)

    def boot(self, server: NameServer) -> None:
        server.up, server.members, server.heard = True, {}, {}

    def sleep(self, broker: Broker) -> None:
        """Stop *broker*, and both of its clocks: those that go on were set back."""
        broker.frozen, broker.asleep_at = True, self.now

    def wake(self, broker: Broker) -> None:
        """Let *broker* go on that slept or was frozen."""
        if broker.asleep_at is not None:
            broker.lag += self.now - broker.asleep_at
        broker.frozen, broker.asleep_at = False, None

    def _clock(self, broker: Broker) -> float:
        return self.now - broker.lag

    def _moment(self, broker: Broker) -> Moment:
        return Moment(self._clock(broker) * 1000, round(self._clock(broker) * 1000))

    def lock(self, client: str, queue: str, broker: Broker) -> None:
        """Ask *broker* for a lock that a majority must grant."""
        grants: Mapping[str, list[tuple[str, str, int]]] = {}
        key = ("orders", "g0", int(queue))
        for other in self.brokers:
            answers = other is broker or self._reachable(broker, other.address) is not None
            if answers and other.locks.get(queue, client) == client:
                other.locks[queue] = client
                grants = {**grants, other.name: [key]}
        quorum = lock_quorum.quorum_of(len(self.brokers))
        result = lock_quorum.decide([key], grants, quorum)
        if result.returned:
            for name in grants:
                del self.brokers[int(name)].locks[queue]
        verdict = "granted" if result.granted else "refused"
        self.note(f"queue {queue}: {verdict}, {len(grants)} of {len(self.brokers)} grant it, {quorum} must")

    def _complete_log(self, broker: Broker, members: tuple[Member, ...]) -> None:
        answers = [(member, self._reachable(broker, member.address)) for member in members if broker.log_open]
        reaches = [Reach(member, other.log_end) for member, other in answers if other is not None]
        for reach in longest_first(broker.log_end, reaches)[:1]:
            self.say(broker, f"takes back its log from {broker.log_end} to {reach.end} from {reach.member.broker_id}")
            broker.log_end = reach.end

    def _hearing(self, master: Broker) -> Hearing:
        now = self._clock(master)
        for other in self.brokers[1:]:
            if self._reachable(master, other.address) is not None and other.follows == master.address:
                master.heard[other.broker_id] = now
                master.left.pop(other.broker_id, None)
            elif master.heard.get(other.broker_id, now) < now and not other.alive:
                master.left.setdefault(other.broker_id, now)  # the connection of a dead process ends
                del master.heard[other.broker_id]
        voices = (Voice(f"b{number}", True, heard, math.inf) for number, heard in master.heard.items())
        return Hearing(tuple(voices), {f"b{number}": at for number, at in master.left.items()})
