"""The members of a group and their name servers, and who of them reaches whom."""

from __future__ import annotations

from scenario_members import Broker, NameServer, Transcript

from understudy.broker.absence import Moment


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

    def boot(self, server: NameServer) -> None:
        server.up, server.members, server.heard = True, {}, {}

    def _moment(self) -> Moment:
        return Moment(self.now * 1000, round(self.now * 1000))
