"""Commits while a simulated ring loses a master: what was acknowledged must be known for good, and nobody reads less.

An application of its own, beside the other traffic of a seed. It is many groups of consumers that come, commit now
and then and never read, so that no consumer's memory makes up for what a broker has forgotten; and readers that keep
asking a master where such a group is, whatever has happened to that master meanwhile.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

import trio

from understudy.broker.broker import Broker
from understudy.format.json_dialect import dumps, loads
from understudy.remoting.client import RemotingClient
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.testkit.drills.acting_answers import Commit
from understudy.testkit.drills.acting_faults import ENDS_PROCESS, Accident
from understudy.testkit.drills.acting_traffic import TOPIC
from understudy.testkit.drills.met_faults import NOTICE_SECONDS
from understudy.testkit.sim.cluster import SimCluster

SAVED_SECONDS = 6.0
"""How long a commit may be known to nobody but the process that took it: until the table is on the disk."""
_CONSUMERS = tuple(f"comers-{number}" for number in range(60))
_PAUSE_SECONDS = 0.2
_SECOND_AFTER_SECONDS = 2.0
_LOOK_SECONDS = 1.0
_LOOKS = 3
_TOLD_SECONDS = 3.0
"""How long a commit at a slave that has just stopped acting may take to reach its master."""
_ANSWER_MS = 500
_PATIENCE_MS = 30_000


def unsaved(cluster: SimCluster, accidents: Iterable[Accident], commit: Commit) -> bool:
    """Return whether the process that took *commit* ended before anybody else had to know of it.

    Args:
        cluster: its hosts.
        accidents: that they met.
        commit: in question.
    """
    return any(
        each.fault.kind in ENDS_PROCESS
        and commit.address.startswith(f"{cluster.address(each.fault.host)}:")
        and commit.taken <= each.began_at + NOTICE_SECONDS
        and each.began_at <= commit.taken + SAVED_SECONDS
        for each in accidents
    )


class CommitTraffic:
    """The application.

    Args:
        source: what it does is drawn from it.
        client: asks.
        servers: addresses of the name servers.
        masters: address of each group's master.
        must_know: whether a group's master must know at this moment what it or a slave of it has taken.

    Attributes:
        problems: promises that were broken, each in a line.
    """

    def __init__(
        self,
        source: random.Random,
        client: RemotingClient,
        servers: Sequence[str],
        masters: dict[str, str],
        must_know: Callable[[str, Commit], bool],
    ) -> None:
        self._source = source
        self._client = client
        self._servers = servers
        self._masters = masters
        self._must_know = must_know
        self._commits: dict[str, list[Commit]] = {group: [] for group in masters}
        self._going = True
        self.problems: list[str] = []

    async def prepare(self) -> None:
        """Make the groups of consumers; a broker refuses to commit for one that it does not know."""
        for address in self._masters.values():
            for name in _CONSUMERS:
                body = dumps({"groupName": name})
                ask = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
                await self._client.invoke(address, ask, 5_000)

    def start(self, nursery: trio.Nursery) -> None:
        """Begin."""
        for group in self._masters:
            nursery.start_soon(self._commit_all, group)
            nursery.start_soon(self._look, group, nursery)

    def stop(self) -> None:
        """Begin nothing more."""
        self._going = False

    async def _commit_all(self, group: str) -> None:
        second: deque[tuple[float, str, int]] = deque()
        turns = ((offset, consumers) for offset in itertools.count(1, 2) for consumers in _CONSUMERS)
        while self._going:
            await trio.sleep(_PAUSE_SECONDS)
            if second and second[0][0] <= trio.current_time():
                _, consumers, offset = second.popleft()
                await self._commit(group, consumers, offset)
                continue
            offset, consumers = next(turns)
            await self._commit(group, consumers, offset)
            second.append((trio.current_time() + _SECOND_AFTER_SECONDS, consumers, offset + 1))

    async def _commit(self, group: str, consumers: str, offset: int) -> None:
        try:
            address = await self._address(group)
            if address is None:
                return
            ext = {"consumerGroup": consumers, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
            answer = await self._client.invoke(address, request(RequestCode.UPDATE_CONSUMER_OFFSET, ext), _ANSWER_MS)
        except RemotingError:
            return
        if answer.code == ResponseCode.SUCCESS:
            self._commits[group].append(Commit(consumers, offset, address, trio.current_time()))

    async def _address(self, group: str) -> str | None:
        """Return where a consumer that starts now finds *group*."""
        ask = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        answer = await self._client.invoke(self._source.choice(self._servers), ask, _ANSWER_MS)
        if answer.code != ResponseCode.SUCCESS:
            return None
        found = {each["brokerName"]: each["brokerAddrs"] for each in loads(answer.body)["brokerDatas"]}
        address: str | None = {int(number): each for number, each in found.get(group, {}).items()}.get(0)
        return address

    async def _look(self, group: str, nursery: trio.Nursery) -> None:
        while self._going:
            await trio.sleep(_LOOK_SECONDS)
            latest = trio.current_time() - _TOLD_SECONDS
            known = {each.consumers: each for each in self._commits[group] if each.taken <= latest}
            for each in self._source.sample(sorted(known), min(_LOOKS, len(known))):
                nursery.start_soon(self._ask, group, known[each])

    async def _ask(self, group: str, known: Commit) -> None:
        """Ask the master, with the patience of a pull, for an offset that somebody of its group has."""
        ext = {"consumerGroup": known.consumers, "topic": TOPIC, "queueId": "0", "setZeroIfNotFound": "false"}
        ask = request(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        try:
            answer = await self._client.invoke(self._masters[group], ask, _PATIENCE_MS)
        except RemotingError:
            return
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            return
        offset = int((answer.ext or {}).get("offset", "0"))
        if offset < known.offset and self._must_know(group, known):
            self.problems.append(
                f"the master of {group} told {known.consumers} offset {offset} at {trio.current_time():.2f} s, "
                f"which had committed {known.offset} at {known.address} at {known.taken:.2f} s"
            )

    def check(self, group: str, broker: Broker, excused: Callable[[Commit], bool]) -> None:
        """Compare what a member of *group* knows in the end with what was acknowledged."""
        lost = [
            each
            for each in self._commits[group]
            if broker.offsets.query(each.consumers, TOPIC, 0) < each.offset and not excused(each)
        ]
        for each in lost[:1]:
            self.problems.append(
                f"{len(lost)} commits to {group} are forgotten, the first of {each.consumers}: {each.offset} at "
                f"{each.address}, taken at {each.taken:.2f} s"
            )

    def counts(self) -> Counter[str]:
        """Return how much was committed."""
        return Counter({"commits": sum(map(len, self._commits.values()))})
