"""pysyncobj's Raft with its unsafe parts overridden. Internal to ``consensus``, which filters what it is given.

Overridden: clock, randomness, transport, storage, command format (no pickle), membership changes (off), the gate before
an election (pre-vote), installation of snapshots (errors are not swallowed). Overridden for speed, because the library
goes entry by entry: the queue of commands, the way to the commit index, the application. Used as it is: log matching,
term adoption, the no-op of a new leader, replication and compaction triggers.
"""

from __future__ import annotations

import enum
import zlib
from typing import Any, Protocol

import attrs

from understudy.controller.raft.errors import DamagedFileError, FatalError
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.pinned import Node, SyncObj, SyncObjConf, Transport, turn_clock
from understudy.controller.raft.records import Entry
from understudy.controller.raft.snapshot import SnapshotStore

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
REGULAR, NO_OP = 0, 1
_REGULAR = bytes((REGULAR,))


class Fate(enum.Enum):
    """What became of a proposal."""

    APPLIED = 1
    NEVER_APPENDED = 2
    REPLACED = 3
    """Its place in the log went to another leader's entry, or was skipped by a snapshot."""


@attrs.frozen
class Timing:
    """Seconds that shape elections.

    Args:
        election_min_seconds: least silence of a leader before an election; also how long a leader goes on without a
            majority. Must exceed three heartbeats, and the worst sync plus stall of the process.
        election_max_seconds: greatest; each round draws between the two.
        heartbeat_seconds: pause between rounds of an idle leader.
    """

    election_min_seconds: float = 0.4
    election_max_seconds: float = 0.8
    heartbeat_seconds: float = 0.1

    def __attrs_post_init__(self) -> None:
        if not self.election_min_seconds > 3 * self.heartbeat_seconds > 0:
            raise ValueError("election timeout must be more than three heartbeats")
        if not self.election_max_seconds > self.election_min_seconds:
            raise ValueError("greatest election timeout must exceed the least")


class Member(Node):  # type: ignore[misc]
    """A member's id; hashed the same in every process, so that sets of members iterate the same."""

    def __hash__(self) -> int:
        return zlib.crc32(str(self.id).encode())


class CoreOwner(Protocol):
    """What the core asks of the object around it."""

    def draw_election_timeout(self) -> float: ...
    def may_campaign(self) -> bool: ...
    def apply_command(self, index: int, payload: bytes) -> Any: ...
    def on_result(self, ticket: Any, result: Any, fate: Fate) -> None: ...
    def send(self, peer: str, message: dict[str, Any]) -> None: ...
    def on_role(self, old: int, new: int) -> None: ...
    def on_term(self, term: int, voted_for: str | None) -> None: ...
    def on_round(self) -> None: ...
    def on_leader(self) -> None: ...


class _Outlet(Transport):  # type: ignore[misc]
    """Hands outgoing messages to the owner; knows no sockets."""

    def __init__(self, core: Any, self_node: Any, other_nodes: Any) -> None:
        super().__init__(core, self_node, other_nodes)
        self._core = core
        self.connected: set[str] = set()

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        if node.id not in self.connected:
            return False
        self._core.owner.send(node.id, message)
        return True

    def deliver(self, node: Any, message: dict[str, Any]) -> None:
        self._onMessageReceived(node, message)

    def connect(self, node: Any) -> None:
        if node.id not in self.connected:
            self.connected.add(node.id)
            self._onNodeConnected(node)

    def disconnect(self, node: Any) -> None:
        if node.id in self.connected:
            self.connected.discard(node.id)
            self._onNodeDisconnected(node)


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """There is nothing to poll: sockets live outside."""


class Core(SyncObj):  # type: ignore[misc]
    """One member's algorithm.

    Args:
        member: own id.
        peers: ids of the others.
        journal: log and hard state.
        snapshots: snapshot file, loaded here.
        timing: see :class:`Timing`.
        owner: answers and hears what the core cannot decide.
    """

    def __init__(
        self,
        member: str,
        peers: list[str],
        journal: Journal,
        snapshots: SnapshotStore,
        timing: Timing,
        owner: CoreOwner,
        compaction_entries: int,
    ) -> None:
        self.owner = owner
        self.snapshots = snapshots
        self.journal = journal
        self._proposed: list[tuple[bytes, Any]] = []
        self._waiting: dict[int, tuple[int, Any]] = {}
        configuration = SyncObjConf(
            autoTick=False,
            raftMinTimeout=timing.election_min_seconds,
            raftMaxTimeout=timing.election_max_seconds,
            appendEntriesPeriod=timing.heartbeat_seconds,
            leaderFallbackTimeout=timing.election_min_seconds,
            connectionTimeout=2 * timing.election_max_seconds,
            appendEntriesUseBatch=True,
            commandsWaitLeader=False,
            commandsQueueSize=10_000,
            dynamicMembershipChange=False,
            useFork=False,
            logCompactionMinEntries=compaction_entries,
            logCompactionMinTime=300,
        )
        super().__init__(
            Member(member), [Member(peer) for peer in peers], configuration, nodeClass=Member, transportClass=_Outlet
        )
        configuration.serializer = snapshots  # only its presence is asked: the state is not the core's own attributes
        self._poller = _NoPoller()
        self._SyncObj__needLoadDumpFile = False
        self._SyncObj__serializer = snapshots
        self._SyncObj__raftLog = journal
        self.outlet: _Outlet = self._SyncObj__transport
        self.nodes: dict[str, Any] = {node.id: node for node in self.otherNodes}
        loaded = snapshots.load()
        if loaded is not None:
            self._align(journal, *loaded)
            self._SyncObj__raftLastApplied = loaded[0][1]
        elif not journal.entries or journal.entries[0][1] > 1:
            raise DamagedFileError(
                f"{snapshots.path} is missing although {journal.path} was cut to it: the disk lost a file; "
                f"{journal.advice()}"
            )
        self._SyncObj__raftCurrentTerm = max(journal.term, journal.entries[-1][2])
        self._SyncObj__votedForNodeId = journal.voted_for if journal.term == self._SyncObj__raftCurrentTerm else None
        self._SyncObj__raftCommitIndex = max(journal.getRaftCommitIndex(), self._SyncObj__raftLastApplied)

    @staticmethod
    def _align(journal: Journal, last: Entry, before: Entry) -> None:
        """Make log and snapshot meet after a crash between writing the one and cutting the other.

        A leader's snapshot takes the place of what was never committed here: entries of another term at its end, beyond
        the commit index that is known to the log.
        """
        entries = journal.entries
        first = entries[0][1] if entries else 0
        if not entries or entries[-1][1] < last[1]:
            held = False
        elif first <= before[1] and entries[last[1] - first] == last and entries[before[1] - first] == before:
            held = True
        elif first <= before[1] and entries[last[1] - first][2] != last[2] and journal.getRaftCommitIndex() < last[1]:
            held = False
        else:
            raise DamagedFileError(
                f"{journal.path} and its snapshot, which ends at index {last[1]}, do not belong together; "
                f"{journal.advice()}"
            )
        if held:
            journal.deleteEntriesTo(before[1] - first)
        else:
            journal.clear()
            journal.add(*before)
            journal.add(*last)

    # -- what the owner asks -------------------------------------------------------------------------------------

    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    def role(self) -> int:
        return int(self._SyncObj__raftState)

    def leader(self) -> str | None:
        node = self._SyncObj__raftLeader
        return None if node is None else str(node.id)

    def commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    def applied_index(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    def no_op_index(self) -> int:
        return int(self._SyncObj__noopIDx or 0)

    def election_deadline(self) -> float:
        return float(self._SyncObj__raftElectionDeadline)

    def next_round_at(self) -> float:
        return float(self._SyncObj__newAppendEntriesTime)

    def handover_pending(self) -> bool:
        return bool(self._SyncObj__transferInProgress)

    def match_index(self, peer: str) -> int:
        return int(self._SyncObj__raftMatchIndex.get(self.nodes[peer], 0))

    def propose(self, command: bytes, ticket: Any) -> None:
        """Append *command* in the next tick; the owner hears what became of it."""
        self._proposed.append((_REGULAR + command, ticket))

    def hear(self, peer: str, message: dict[str, Any]) -> None:
        """Take a message of *peer* in the core's own form."""
        self.outlet.deliver(self.nodes[peer], message)

    def send_round(self) -> None:
        self._SyncObj__sendAppendEntries()

    def rewind_peer(self, peer: str, next_index: int) -> None:
        """Go on sending to *peer* from *next_index*, without counting anything as held by it."""
        self._SyncObj__raftNextIndex[self.nodes[peer]] = next_index

    def forget_match(self, peer: str) -> None:
        """Count nothing as held by *peer* any longer."""
        self._SyncObj__raftMatchIndex[self.nodes[peer]] = 0

    def vote_for_leader(self) -> None:
        """Vote for the leader of this term, if nobody was voted for in it."""
        leader = self.leader()
        if leader is not None and self._SyncObj__votedForNodeId is None:
            self._SyncObj__setCurrentTerm(self.term(), leader)

    def step_down(self, term: int) -> None:
        """Become a follower, in *term* if that is newer."""
        if term > self.term():
            self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__raftLeader = None
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftElectionDeadline = turn_clock.now + self._SyncObj__generateRaftTimeout()

    # -- overridden internals ------------------------------------------------------------------------------------

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self.owner.draw_election_timeout()

    def _SyncObj__connectedToAnyone(self) -> bool:
        # asked exactly when the election deadline has passed
        return self.owner.may_campaign()

    def _onTick(self, timeToWait: float = 0.0) -> None:
        self._advance_commit_index()
        super()._onTick(timeToWait)

    def _advance_commit_index(self) -> None:
        """Commit in one step what a majority holds. The library then looks at one entry more and finds no majority."""
        if self.role() != LEADER:
            return
        held = sorted([self.journal.last_index(), *map(self._SyncObj__raftMatchIndex.get, self.nodes.values())])
        index = held[(len(held) - 1) // 2]
        if index > self._SyncObj__raftCommitIndex:
            entries = self.journal.entries
            if entries[index - entries[0][1]][2] == self.term():  # earlier terms commit only under one of this term
                self._SyncObj__raftCommitIndex = index
                self.journal.setRaftCommitIndex(index)

    def _checkCommandsToApply(self) -> None:
        if not self._proposed:
            return
        proposed, self._proposed = self._proposed, []
        if self.role() != LEADER:
            for _, ticket in proposed:
                self.owner.on_result(ticket, None, Fate.NEVER_APPENDED)
            return
        journal, waiting, term = self.journal, self._waiting, self.term()
        index = journal.last_index()
        for command, ticket in proposed:
            index += 1
            journal.add(command, index, term)
            former = waiting.get(index)
            if former is not None:
                self.owner.on_result(former[1], None, Fate.REPLACED)
            waiting[index] = term, ticket

    def _SyncObj__applyLogEntries(self) -> bool:
        applied, commit = self._SyncObj__raftLastApplied, self._SyncObj__raftCommitIndex
        if commit <= applied:
            return False
        first, waiting, owner = self.journal.entries[0][1], self._waiting, self.owner
        for command, index, term in self.journal.entries[applied + 1 - first : commit + 1 - first]:
            kind, result = command[0], None
            if kind == REGULAR:
                result = owner.apply_command(index, command[1:])
            elif kind != NO_OP:
                raise FatalError(f"log entry {index} is of unknown kind {kind}")
            self._SyncObj__raftLastApplied = index
            waiter = waiting.pop(index, None)
            if waiter is not None:
                owner.on_result(waiter[1], result, Fate.APPLIED if waiter[0] == term else Fate.REPLACED)
        return False

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> None:
        return None

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        loaded = self.snapshots.load()
        if loaded is None:
            raise FatalError(f"{self.snapshots.path} vanished while it was installed")
        last, before = loaded
        journal = self._SyncObj__raftLog
        journal.clear()
        journal.add(*before)
        journal.add(*last)
        self._SyncObj__raftLastApplied = last[1]
        for index in [index for index in self._waiting if index <= last[1]]:
            self.owner.on_result(self._waiting.pop(index)[1], None, Fate.REPLACED)

    def _SyncObj__setState(self, newState: int) -> None:
        old = self.role()
        super()._SyncObj__setState(newState)
        if old != newState:
            self.owner.on_role(old, newState)

    def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        super()._SyncObj__setCurrentTerm(term, votedForNodeId)
        self.owner.on_term(term, votedForNodeId)

    def _SyncObj__onBecomeLeader(self) -> None:
        self.owner.on_leader()
        super()._SyncObj__onBecomeLeader()

    def _SyncObj__sendAppendEntries(self) -> None:
        self.owner.on_round()
        super()._SyncObj__sendAppendEntries()
