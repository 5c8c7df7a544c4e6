"""The leader's loop: watches masters, elects successors, tells brokers, and says what was decided, why and when.

Nothing here needs to survive a crash: what is replicated is the result of an election, and the next leader begins by
looking at every group, so an election that was interrupted is done again or found done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator

import attrs
import msgspec
import trio

from understudy.controller.commands import ElectMaster, Outcome
from understudy.controller.configuration import ControllerConfig
from understudy.controller.election import Live, elect
from understudy.controller.group import Group
from understudy.controller.liveness import Liveness
from understudy.controller.log_ends import LogEnds
from understudy.controller.metadata import FAILED, Metadata
from understudy.controller.meter import ControllerMeter
from understudy.controller.notification import RoleNotifier
from understudy.controller.raft.member import QuorumMember
from understudy.controller.replication import ReplicatedMetadata
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("controller.failover")

KEPT_ELECTIONS = 256
ELECTIONS_AT_ONCE = 16
LOOKS_AT_ONCE = 100
"""Groups that are looked at before others have their turn."""


@attrs.frozen
class ElectionRecord:
    """One decision about a group's master.

    Args:
        controller: member that decided.
        term: its term.
        broker_name: the group.
        cause: why somebody asked.
        code: response code; 0 when a new master was elected.
        master_id, master_epoch: afterwards.
        took_ms: from the cause to the durable decision.
        verdicts: one readable line per replica.
    """

    controller: str
    term: int
    broker_name: str
    cause: str
    code: int
    master_id: int | None
    master_epoch: int | None
    took_ms: float
    verdicts: tuple[str, ...]

    def describe(self) -> str:
        """Return the record as one readable line."""
        result = f"master {self.master_id} epoch {self.master_epoch}" if self.code == 0 else f"refused ({self.code})"
        why = "; ".join(self.verdicts)
        return (
            f"election group={self.broker_name} by={self.controller} term={self.term} cause=[{self.cause}] "
            f"result=[{result}] took={self.took_ms:.1f}ms why=[{why}]"
        )


class Failover:
    """Elections of one controller, on demand and on its own.

    Args:
        world: clock.
        member: member of the quorum.
        metadata: the replicated state, for reading.
        replicated: the way to change it.
        liveness: what this controller hears.
        notifier: tells brokers.
        ends: asks them where their logs end.
    """

    def __init__(
        self,
        world: World,
        member: QuorumMember,
        metadata: Metadata,
        replicated: ReplicatedMetadata,
        liveness: Liveness,
        notifier: RoleNotifier,
        ends: LogEnds,
    ) -> None:
        self._clock = world.clock
        self._member = member
        self._metadata = metadata
        self._replicated = replicated
        self._liveness = liveness
        self._notifier = notifier
        self._ends = ends
        self._suspects: dict[str, str] = {}
        self._refused: dict[str, tuple[str, ...] | None] = {}
        self._wake = Signal()
        self.records: deque[ElectionRecord] = deque(maxlen=KEPT_ELECTIONS)
        self.election_count = 0
        self.meter: ControllerMeter | None = None
        self.config = ControllerConfig()

    def living(self, broker_name: str) -> dict[int, Live]:
        """Return the registered brokers of a group that live, with the facts of their heartbeats.

        Anything may send heartbeats of ids that were never given; they count nowhere.
        """
        group = self._metadata.groups.get(broker_name)
        if group is None:
            return {}
        alive = self._liveness.alive(broker_name, self._clock.monotonic())
        return {broker_id: facts for broker_id, facts in alive.items() if broker_id in group.replicas}

    def candidates(self, broker_name: str) -> dict[int, Live]:
        """Return those of :meth:`living` that were heard just now, and the master, which is not missed yet."""
        group = self._metadata.groups.get(broker_name)
        fresh = self._liveness.fresh(broker_name, self._clock.monotonic())
        living = self.living(broker_name)
        master_id = None if group is None else group.master_id
        return {one: facts for one, facts in living.items() if one in fresh or one == master_id}

    # -- on demand -----------------------------------------------------------------------------------------------

    async def elect_if_needed(self, broker_name: str, broker_id: int | None, cause: str) -> Outcome:
        """Elect a master of a group at the question of a broker, if this controller finds that one is needed.

        Whether a master lives, a controller that has just started cannot know before it has listened for a while, nor
        can a broker know it better. Only who is said to be master knows that it is not: it has lost its role when it
        was started again. Then nobody is waited for but those who could be elected in its place.

        Args:
            broker_name: the group.
            broker_id: who asks; ``None``: nobody in particular.
            cause: for logs and records.

        Returns:
            The outcome of the election, or, that the master still exists.

        Raises:
            CommandError: as of :meth:`elect`.
        """
        await self._replicated.fresh()
        group = self._metadata.groups.get(broker_name)
        if group is not None and broker_id is not None and broker_id == group.master_id:
            self._liveness.waits(broker_name, broker_id, self._clock.monotonic())
        if group is None or group.master_epoch == 0 or self._needed(broker_name):
            return await self.elect(broker_name, broker_id, False, cause)
        if group.master_id is None:
            return self._nobody(group, broker_id, cause)
        living = self.living(broker_name)
        if (
            broker_id == group.master_id
            and {broker_id, *living} >= set(group.electable(living)) & group.replicas.keys()
        ):
            return await self.elect(broker_name, None, False, cause)
        kept = self._metadata.replica_info(broker_name)
        kept.code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        kept.remark = (
            f"The old master {group.master_id} is still alive, not need to elect new master for broker {broker_name}"
        )
        return kept

    def _nobody(self, group: Group, broker_id: int | None, cause: str) -> Outcome:
        """Return that there is nobody to be elected, without an entry in the log: each broker asks twice a second."""
        live, unclean = self.candidates(group.broker_name), self.config.enable_elect_unclean_master
        decision = elect(group.electable(live), group.replicas, live, None, None, unclean, group.lost(live))
        failed, nobody = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
        outcome = Outcome(nobody if broker_id is None else failed, FAILED, verdicts=decision.verdicts)
        self._record(group.broker_name, cause, outcome, self._clock.monotonic())
        return outcome

    async def elect(self, broker_name: str, broker_id: int | None, designate: bool, cause: str) -> Outcome:
        """Elect a master of a group and tell its brokers.

        Args:
            broker_name: the group.
            broker_id: who asks, or who shall lead; ``None``: nobody in particular.
            designate: whether *broker_id* shall be the master.
            cause: for logs and records.

        Raises:
            CommandError: as of :meth:`understudy.controller.replication.ReplicatedMetadata.run`; or the first master of
                the group is to be elected, and *broker_id*, which asks for it, was not heard: it is to ask again.
        """
        started = self._clock.monotonic()
        if not designate:
            self._check_heard(broker_name, broker_id)
        live = self.candidates(broker_name) if designate else await self._ask_where_logs_end(broker_name)
        command = ElectMaster(broker_name, broker_id, designate, live, self.config.enable_elect_unclean_master)
        outcome = await self._replicated.run(command)
        group = self._metadata.groups.get(broker_name)
        if self.meter is not None and group is not None:
            self.meter.elected(group.cluster_name, broker_name, outcome.code)
        self._record(broker_name, cause, outcome, started)
        if outcome.code == 0:
            self.publish(broker_name)
        return outcome

    async def _ask_where_logs_end(self, broker_name: str) -> dict[int, Live]:
        """Return the candidates with what they say of their logs now, where there is a choice; see :mod:`.log_ends`."""
        live, group = self.candidates(broker_name), self._metadata.groups.get(broker_name)
        if group is None or not group.master_epoch or group.master_id in live:
            return live
        eligible = set(group.electable(live)) & live.keys()
        if not eligible and self.config.enable_elect_unclean_master:
            eligible = set(live)
        if len(eligible) < 2:
            return live
        ends = await self._ends.ask({each: group.replicas[each].address for each in sorted(eligible)})
        now = self.candidates(broker_name)  # some may have come or gone meanwhile
        for each in ends.keys() & now.keys():
            end = ends[each]
            now[each] = msgspec.structs.replace(now[each], epoch=end.epoch, max_offset_bytes=end.max_offset_bytes)
        return now

    def _check_heard(self, broker_name: str, broker_id: int | None) -> None:
        """Refuse the first election at the word of a broker whose log is not known: its epochs may be above 1."""
        group = self._metadata.groups.get(broker_name)
        if group is None or group.master_epoch or broker_id not in group.replicas:
            return
        if broker_id not in self.living(broker_name):
            remark = f"{FAILED}: no heartbeat of broker {broker_id} was heard yet, ask again"
            raise CommandError(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)

    def publish(self, broker_name: str) -> None:
        """Tell every living broker of a group who is master, if the settings say so."""
        group = self._metadata.groups.get(broker_name)
        if group is None or not self.config.notify_broker_role_changed or not self._member.leads():
            return
        live = self.living(broker_name)
        self._notifier.tell(group, [group.replicas[i].address for i in sorted(live) if i in group.replicas])

    def _record(self, broker_name: str, cause: str, outcome: Outcome, started: float) -> None:
        if outcome.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
            return
        verdicts = tuple(f"{v.broker_id} {'chosen' if v.chosen else 'excluded'}: {v.reason}" for v in outcome.verdicts)
        if broker_name not in self._metadata.groups:
            self._refused.pop(broker_name, None)  # anybody may ask, with any name
        elif outcome.code and self._refused.get(broker_name) == verdicts:
            return  # said before, and asked for again and again
        else:
            self._refused[broker_name] = verdicts if outcome.code else None
        self.election_count += 1
        record = ElectionRecord(
            self._member.settings.member,
            self._member.term(),
            broker_name,
            cause,
            int(outcome.code),
            outcome.master_id,
            outcome.master_epoch,
            (self._clock.monotonic() - started) * 1000,
            verdicts,
        )
        self.records.append(record)
        log.info(record.describe())

    # -- on its own ----------------------------------------------------------------------------------------------

    def suspect(self, broker_name: str, cause: str) -> None:
        """Look at a group as soon as possible."""
        self._suspects.setdefault(broker_name, cause)
        self._wake.set()

    async def run(self) -> None:
        """Lead whenever this member leads, until cancelled."""
        while True:
            while not self._member.leads():
                self._suspects.clear()
                await self._member.wait_change()
            log.info("controller is active", member=self._member.settings.member, term=self._member.term())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_deposed, nursery.cancel_scope)
                nursery.start_soon(self._watch_masters)
            log.info("controller is standby", member=self._member.settings.member, term=self._member.term())

    async def _until_deposed(self, scope: trio.CancelScope) -> None:
        while self._member.leads():
            await self._member.wait_change()
        scope.cancel()

    async def _watch_masters(self) -> None:
        async for name in a_few_at_a_time(self._metadata.groups):
            self.publish(name)
        next_scan = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if now >= next_scan:
                next_scan = now + max(50, self.config.scan_inactive_master_interval) / 1000
                for name in self._metadata.groups:
                    self._suspects.setdefault(name, "scan found no living master")
            suspects, self._suspects = self._suspects, {}
            await self._elect_where_needed(suspects)
            if not self._suspects:
                with trio.move_on_at(next_scan):
                    await self._wake.wait()

    async def _elect_where_needed(self, suspects: dict[str, str]) -> None:
        needed = {name: suspects[name] async for name in a_few_at_a_time(suspects) if self._needed(name)}
        if not needed:
            return
        left = iter(needed.items())
        async with trio.open_nursery() as nursery:
            for _ in range(min(ELECTIONS_AT_ONCE, len(needed))):
                nursery.start_soon(self._elect_each, left)

    async def _elect_each(self, left: Iterator[tuple[str, str]]) -> None:
        for name, cause in left:
            await self._elect_one(name, cause)

    def _needed(self, name: str) -> bool:
        now, group = self._clock.monotonic(), self._metadata.groups.get(name)
        if group is None:
            return False
        master_id = group.master_id
        if master_id is not None and not group.former_set and self._liveness.maybe_alive(name, master_id, now):
            return False  # as nearly always
        needed = self._metadata.needs_election(
            name,
            self.candidates(name),
            lambda broker_id: self._liveness.maybe_alive(name, broker_id, now),
            self.config.enable_elect_unclean_master,
        )
        if not needed or master_id is None:
            return needed
        return not self._liveness.may_be_cut_off(name, group.replicas.keys(), master_id, now)

    async def _elect_one(self, name: str, cause: str) -> None:
        for _ in range(max(1, self.config.elect_master_max_retry_count)):
            if not self._needed(name):
                return
            try:
                outcome = await self.elect(name, None, False, cause)
            except CommandError as error:
                # one group's trouble must not stop the others; the next scan looks again
                log.warning("election failed, will be repeated", group=name, reason=error.remark)
                continue
            if outcome.code != 0:
                self._say_why(self._metadata.groups.get(name), outcome)
            return

    @staticmethod
    def _say_why(group: Group | None, outcome: Outcome) -> None:
        if group is not None and outcome.changed:
            log.warning(
                "group has no master",
                group=group.broker_name,
                epoch=group.master_epoch,
                why="; ".join(f"{v.broker_id}: {v.reason}" for v in outcome.verdicts),
            )


async def a_few_at_a_time(names: Iterable[str]) -> AsyncIterator[str]:
    """Yield *names* as they are now; others have their turn after each :data:`LOOKS_AT_ONCE`."""
    for number, name in enumerate(list(names), 1):
        yield name
        if not number % LOOKS_AT_ONCE:
            await trio.lowlevel.checkpoint()
