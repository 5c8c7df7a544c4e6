"""One member as a pure object for tests: what it holds on a simulated disk, and messages put into it by hand."""

from __future__ import annotations

import random

from understudy.controller.raft.consensus import Consensus
from understudy.controller.raft.core import Timing
from understudy.controller.raft.journal import SNAPSHOT_NAME, Journal
from understudy.controller.raft.messages import Append, PeerMessage, SnapshotChunk
from understudy.controller.raft.records import Entry
from understudy.controller.raft.sessions import COMMAND, ReplicatedState, encode_envelope
from understudy.controller.raft.snapshot import SnapshotStore
from understudy.testkit.quorum.simulation import CounterMachine
from understudy.testkit.sim.disk import SimDisk

FOLDER = "/controller"
LOG = f"{FOLDER}/raft.log"
SNAPSHOT = f"{FOLDER}/{SNAPSHOT_NAME}"


class Member:
    """Member n0 on *disk*; its turns are made by hand.

    Args:
        disk: where its files are.
        size: members of the quorum.
    """

    def __init__(self, disk: SimDisk, size: int = 3) -> None:
        disk.make_folder(FOLDER)
        self.disk = disk
        self.machine = CounterMachine()
        state = ReplicatedState(self.machine)
        self.journal = Journal(disk, LOG, "sim", "n0", "disk of n0")
        self.snapshots = SnapshotStore(disk, SNAPSHOT, "n0", state)
        self.peers = [f"n{index}" for index in range(1, size)]
        self.consensus = Consensus(
            "n0", self.peers, self.journal, self.snapshots, state, Timing(), random.Random(1), 0.0
        )
        for peer in self.peers:
            self.consensus.connect(peer)
        self.journal.sync()

    def turn(self, now: float, *arrived: tuple[str, PeerMessage]) -> list[tuple[str, PeerMessage]]:
        """Take what *arrived*, act, make it durable; returns what leaves."""
        consensus = self.consensus
        consensus.at(now)
        for peer, message in arrived:
            consensus.receive(peer, message)
        consensus.tick()
        self.journal.sync()
        self.snapshots.write_pending()
        if consensus.finish_install():
            consensus.tick()
            self.journal.sync()
        return consensus.take_outbox()


def entry(index: int, term: int, name: str = "x") -> Entry:
    """Return a command that counts *name* up, once per index."""
    return b"\0" + encode_envelope((COMMAND, 1, f"client-{index}-{term}", 1, 0, name.encode())), index, term


def append(term: int, previous: tuple[int, int], entries: list[Entry], commit: int = 0) -> Append:
    """Return entries behind *previous* (index and term) from the leader of *term*."""
    end = entries[-1][1] if entries else previous[0]
    return Append(term, commit, previous[0], previous[1], entries, 1, end, True)


def snapshot_file(last: Entry, before: Entry, counters: dict[str, int]) -> bytes:
    """Return a leader's snapshot that ends with *last*."""
    disk, machine = SimDisk(random.Random(0)), CounterMachine()
    disk.make_folder(FOLDER)
    machine.counters = counters
    store = SnapshotStore(disk, SNAPSHOT, "n1", ReplicatedState(machine))
    store.serialize((None, last, before, None), before[1])
    store.write_pending()
    return disk.read(SNAPSHOT)


def chunk(term: int, last: Entry, data: bytes) -> SnapshotChunk:
    """Return *data* as the only part of a snapshot that ends with *last*, from the leader of *term*."""
    return SnapshotChunk(term, last[1], last[1], last[2], 0, len(data), data, 2)
