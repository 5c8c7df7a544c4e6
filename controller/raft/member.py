"""The actor: one task owns a consensus object, and nothing leaves it before it is durable.

A turn: take what arrived, let the consensus act, sync the journal once, then send messages and answer callers. A turn
starts when something arrives or a deadline passes; there is no polling. All commands that wait are one turn, one sync
and one message to each member. A leader's new entries travel while it syncs them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from understudy.controller.raft.admission import Admission, check_members
from understudy.controller.raft.answers import Answer
from understudy.controller.raft.consensus import Consensus
from understudy.controller.raft.core import LEADER
from understudy.controller.raft.durability import Durability
from understudy.controller.raft.errors import CommandRefusedError, FatalError, NotLeaderError
from understudy.controller.raft.facts import Event, Facts
from understudy.controller.raft.inputs import Answered, Inputs
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.links import Links
from understudy.controller.raft.messages import Hello, PeerMessage, Refusal, Welcome
from understudy.controller.raft.secret import Secret, read_secret
from understudy.controller.raft.security import MemberSecurity
from understudy.controller.raft.sessions import (
    ACTIVATE,
    COMMAND,
    OK,
    Machine,
    ReplicatedState,
    encode_envelope,
)
from understudy.controller.raft.settings import QuorumSettings
from understudy.controller.raft.snapshot import SnapshotStore
from understudy.controller.raft.trust import Trust
from understudy.runtime.durable import make_folder_durably
from understudy.runtime.log import get_logger
from understudy.runtime.program import single_cause
from understudy.runtime.properties import printable
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("controller.raft")
DISK_HANGS = "the disk of this member does not answer: it neither leads nor votes until it does"
T = TypeVar("T")


class QuorumMember:
    """One durable member of the quorum. Run :meth:`run`; everything else may be called from other tasks meanwhile.

    Args:
        world: the outside world.
        settings: see :class:`QuorumSettings`.
        machine: the replicated state machine; only this object calls it.
        observer: hears events after what they speak of is durable; must not raise.

    Attributes:
        secret: what members share; ``None`` when there is none, and before :meth:`run`.
    """

    def __init__(
        self,
        world: World,
        settings: QuorumSettings,
        machine: Machine,
        observer: Callable[[Event], None] | None = None,
    ) -> None:
        self.world = world
        self.settings = settings
        self.state = ReplicatedState(machine, settings.features)
        self.problem = ""
        self.secret: Secret | None = None
        self.links: Links | None = None
        self._observer = observer
        self._consensus: Consensus | None = None
        self._journal: Journal | None = None
        self._changed = Signal()
        self._told: tuple[object, ...] = ()
        self._inputs = Inputs()
        self._activating_term = -1
        self._admission = Admission(settings)
        self._hangs = False

    # -- lifetime ------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in the quorum until cancelled.

        Raises:
            FatalError: (with :class:`DamagedFileError`) this member must not go on.
            SecurityError: certificates or the secret cannot be used.
            DiskLockedError: another process holds the folder.
            ListenError: the port cannot be had.
        """
        settings, disk = self.settings, self.world.disk
        security = MemberSecurity(settings.tls) if settings.tls is not None else None
        if settings.secret_file:
            self.secret = await disk.in_thread(lambda: read_secret(disk, settings.secret_file))
        await disk.in_thread(lambda: make_folder_durably(disk, settings.folder))
        lock = disk.lock(settings.folder + "/lock")
        try:
            now = self.world.clock.monotonic()
            consensus = self._consensus = await disk.in_thread(lambda: self._open(now))
            self._links_of(security)
            assert self.links is not None
            async with trio.open_nursery() as nursery:
                await nursery.start(self.links.run)
                task_status.started()
                await self._take_turns(consensus)
        except BaseExceptionGroup as group:
            error = single_cause(group)
            self.problem = str(error)
            raise error from None
        except FatalError as error:
            self.problem = str(error)
            raise
        finally:
            self._give_up()
            lock.release()

    def _open(self, now: float) -> Consensus:
        settings = self.settings
        incarnation = f"{self.world.random.getrandbits(96):024x}"
        journal = Journal(
            self.world.disk, settings.folder + "/raft.log", settings.cluster, settings.member, incarnation
        )
        self._journal = journal
        if journal.cut_bytes:
            log.warning("torn tail cut", file=journal.path, bytes=journal.cut_bytes)
        check_members(journal, settings.addresses)
        snapshots = SnapshotStore(self.world.disk, settings.folder + "/raft.snapshot", settings.member, self.state)
        consensus = Consensus(
            settings.member,
            [member for member in settings.addresses if member != settings.member],
            journal,
            snapshots,
            self.state,
            settings.timing,
            self.world.random,
            now,
            settings.compaction_entries,
        )
        journal.sync()
        return consensus

    def _links_of(self, security: MemberSecurity | None) -> None:
        settings = self.settings
        self.links = Links(
            self.world,
            self,
            settings.cluster,
            settings.member,
            settings.addresses,
            settings.listen_host,
            security,
            Trust(self.secret, security is not None, settings.open_to_all, self.world.random),
        )

    async def _take_turns(self, consensus: Consensus) -> None:
        clock = self.world.clock
        durability = Durability(self.world, self.settings, consensus.journal, consensus.snapshots, self._disk_hangs)
        while True:
            self._inputs.begin_turn()
            now = clock.monotonic()
            consensus.at(now)
            answers = self._inputs.put_into(consensus, now)
            consensus.tick()
            self._send(consensus.take_appends())
            await durability.make_durable()
            self._let_out(consensus, answers)
            if self._admission.fatal:
                raise FatalError(self._admission.fatal)
            if consensus.busy() or self._inputs:
                await trio.lowlevel.checkpoint()
                continue
            await self._inputs.wait(consensus.next_deadline())

    def _disk_hangs(self, hangs: bool) -> None:
        """Stop or begin again to be there for others; a leader leads no longer, elected successor or not."""
        consensus = self._consensus
        assert consensus is not None
        self._hangs = hangs
        if hangs:
            self._inputs.end(DISK_HANGS)
        else:
            consensus.at(self.world.clock.monotonic())
            consensus.step_down()
        self._changed.set()

    def _send(self, messages: list[tuple[str, PeerMessage]]) -> None:
        assert self.links is not None
        for peer, message in messages:
            self.links.send(peer, message)

    def _let_out(self, consensus: Consensus, answers: list[Answered]) -> None:
        self._send(consensus.take_outbox())
        for ticket, value, error in consensus.take_results():
            ticket.deliver(value, error)
        for waiter, value, error in answers:
            waiter.deliver(value, error)
        while consensus.events:
            event = consensus.events.popleft()
            if event.kind in ("role", "round", "voter", "snapshot"):
                log.info(f"quorum {event.kind}", member=event.member, term=event.term, detail=event.detail)
            if self._observer is not None:
                self._observer(event)
        facts = (consensus.core.role(), consensus.core.term(), consensus.core.leader(), consensus.leads())
        if facts != self._told:
            self._told = facts
            self._changed.set()
        self._activate_features(consensus)

    def _activate_features(self, consensus: Consensus) -> None:
        """Propose a newer feature version once every member has shown that it can apply it."""
        if not consensus.leads() or self._activating_term == consensus.core.term():
            return
        if any(peer not in consensus.features for peer in consensus.peers):
            return
        version = min([self.settings.features, *consensus.features.values()])
        if version <= self.state.features:
            return
        self._activating_term = consensus.core.term()
        envelope = encode_envelope((ACTIVATE, version, "features", version, self.world.clock.wall_ms(), b""))
        self._inputs.propose(envelope, Answer())

    def _give_up(self) -> None:
        """Leave no caller waiting for an actor that is gone."""
        self._consensus = None
        if self._journal is not None:
            self._journal.close()
        self._inputs.end("this member stopped")
        self._changed.set()

    # -- what callers do -----------------------------------------------------------------------------------------

    async def propose(self, client: str, sequence: int, payload: bytes, timeout_seconds: float = 3.0) -> bytes:
        """Replicate and apply a command; returns the machine's result once it is committed.

        Args:
            client: session name; one command at a time per client.
            sequence: grows by one per command of *client*; repeating one returns the first result.
            payload: the command, at most 60 000 bytes with its envelope.
            timeout_seconds: how long to wait.

        Raises:
            NotLeaderError: it was surely not applied.
            OutcomeUnknownError: it may have been; repeat it with the same client and sequence.
            CommandRefusedError: it was refused, alike by every member.
            QuorumBusyError: too many commands wait.
        """
        consensus = self._running()
        if consensus.core.role() != LEADER:
            raise NotLeaderError(consensus.core.leader())
        self._inputs.check_room()
        clock = self.world.clock
        answer: Answer[tuple[int, bytes]] = Answer(clock.monotonic() + timeout_seconds)
        envelope = encode_envelope((COMMAND, self.state.features, client, sequence, clock.wall_ms(), payload))
        self._inputs.watch(answer)
        self._inputs.propose(envelope, answer)
        try:
            await answer.wait()
        finally:
            self._inputs.unwatch(answer)
        if answer.error is not None:
            raise answer.error
        assert answer.value is not None
        status, result = answer.value
        if status != OK:
            raise CommandRefusedError(result.decode())
        return result

    async def read_barrier(self, timeout_seconds: float = 2.0) -> int:
        """Return once the state here holds everything committed anywhere before the call.

        Raises:
            NotLeaderError: when this member does not lead or could not prove it in time.
        """
        self._running()
        ticket: Answer[int] = Answer()
        opened: Answer[None] = Answer()
        self._inputs.call(lambda consensus: consensus.open_barrier(ticket), opened)
        with trio.move_on_after(timeout_seconds):
            await opened.wait()
            if opened.error is not None:
                raise opened.error
            await ticket.wait()
        if ticket.error is not None:
            raise ticket.error
        if ticket.value is None:
            if self._consensus is not None:
                self._consensus.close_barrier(ticket)
            raise NotLeaderError(None)
        return ticket.value

    async def in_turn(self, call: Callable[[Consensus], T]) -> T:
        """Run *call* inside the next turn and return its result after that turn's sync."""
        self._running()
        answer: Answer[T] = Answer()
        self._inputs.call(call, answer)
        await answer.wait()
        if answer.error is not None:
            raise answer.error
        return answer.value  # type: ignore[return-value]

    async def hand_over(self, member: str | None = None) -> str | None:
        """Ask another member to lead. Returns what stands against it, or ``None`` when it was asked."""
        return await self.in_turn(lambda consensus: consensus.hand_over(member))

    async def compact(self) -> None:
        """Write a snapshot and cut the log."""
        await self.in_turn(lambda consensus: consensus.compact())

    async def forget(self, member: str) -> bool:
        """Forget which disk *member* has, so that it may return on a new one; returns whether one was known."""

        if member not in self.settings.addresses or member == self.settings.member:
            members = ", ".join(sorted(self.settings.addresses))
            raise ValueError(f"{printable(member)} is no other member; members are {members}")
        if self.links is not None:
            self.links.drop(member)

        def forget(consensus: Consensus) -> bool:
            # what the old disk still had on the way must not be counted for the new one
            self._inputs.drop_messages_of(member)
            return consensus.forget(member)

        return await self.in_turn(forget)

    def leads(self) -> bool:
        """Whether this member leads and has applied everything of earlier terms; not while its disk does not answer."""
        return self._consensus is not None and not self._hangs and self._consensus.leads()

    def leader(self) -> str | None:
        """Return the member believed to lead, or ``None``."""
        return None if self._consensus is None else self._consensus.core.leader()

    def term(self) -> int:
        """Return the current term; 0 while not running."""
        return 0 if self._consensus is None else self._consensus.core.term()

    async def wait_change(self) -> None:
        """Wait until role, term, leader or readiness changes."""
        await self._changed.wait()

    def facts(self) -> Facts:
        """Return this member's view; role DOWN while it does not run."""
        consensus = self._consensus
        if consensus is not None:
            now = self.world.clock.monotonic()
            if self._hangs:
                return consensus.facts(now, DISK_HANGS).powerless()
            return consensus.facts(now, self.problem or self._admission.problem())
        return Facts(
            self.settings.member, "DOWN", 0, None, None, 0, 0, 0, 0, False, False, False, (), {}, 0, 0.0, (), 0, 0,
            self.problem,
        )  # fmt: skip

    def _running(self) -> Consensus:
        if self._consensus is None or self._hangs:
            raise NotLeaderError(None)
        return self._consensus

    # -- what links ask (see LinkOwner) --------------------------------------------------------------------------

    def greeting_for(self, peer: str, nonce: bytes) -> Hello:
        assert self._journal is not None
        return self._admission.greeting_for(peer, self._journal, nonce)

    async def admit(self, hello: Hello) -> Welcome | Refusal:
        try:
            return await self.in_turn(lambda consensus: self._admission.admit(consensus, hello))
        except NotLeaderError:
            return Refusal(DISK_HANGS if self._hangs else "this member has stopped", False)

    async def welcomed(self, peer: str, welcome: Welcome) -> str:
        try:
            return await self.in_turn(lambda consensus: self._admission.welcomed(consensus, peer, welcome))
        except NotLeaderError:
            return DISK_HANGS if self._hangs else "this member has stopped"

    def refused(self, peer: str, refusal: Refusal) -> None:
        assert self._journal is not None
        self._admission.refused(peer, refusal, self._journal.path)
        self._inputs.wake()

    def link(self, peer: str, up: bool) -> None:
        self._inputs.link(peer, up)

    def deliver(self, peer: str, message: PeerMessage) -> None:
        self._inputs.deliver(peer, message)
