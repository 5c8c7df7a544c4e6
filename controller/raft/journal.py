"""Log, term and vote of one member in one append-only file that survives power loss.

Laws of the file:

1. Records are written in *groups*; a group begins only after the previous one was synced. Every record names its group
   and the byte where the group began, under one checksum.
2. Damage inside the newest group is a torn tail: it was never acknowledged, it is cut. Damage before the beginning of
   any intact group hit synced bytes: the member stops.
3. A rewritten file (compaction) replaces the old one by rename after it was synced; its first record says how long it
   was then, and damage in that part stops the member too.
4. Term and vote never go back; entries are contiguous. Nothing is repaired in silence.
5. The file grows in steps, ahead of what is written: behind the last record there are only zeros. A sync then changes
   no metadata of the file, which on a journalling file system is most of its cost.
"""

from __future__ import annotations

import os.path
import struct

import msgspec

from understudy.controller.raft.errors import DamagedFileError, FatalError
from understudy.controller.raft.pinned import Journal as JournalInterface
from understudy.controller.raft.records import (
    HEADER_BYTES,
    MAGIC,
    Entry,
    Kind,
    decode_entries,
    encode_entries,
    encode_record,
    intact_record,
    later_group,
    only_zeros_from,
)
from understudy.runtime.disk import Disk

MAX_ENTRIES_PER_RECORD = 256
"""Times the longest command, this stays below the longest record."""
GROWTH_BYTES = 1 << 18
SNAPSHOT_NAME = "raft.snapshot"
"""The file beside the log that holds the state at one index; it never exists without the log."""
FIRST_COMMAND = b"\x01"

_NUMBER = struct.Struct("<Q")


def rejoin_advice(folder: str, member: str) -> str:
    """Return the sentence that tells an operator how a member with an untrustworthy disk comes back."""
    return (
        f"to rejoin: stop this controller, move {folder} away, run 'mqadmin updateControllerConfig "
        f"-k controllerForgetMember -v {member}' with the addresses of the other controllers, then start it again"
    )


class Journal(JournalInterface):  # type: ignore[misc]
    """The durable journal in the shape the consensus core drives.

    Methods named as in the core's journal interface keep those names. Records are buffered, and entries added one after
    the other share a record; :meth:`sync` writes and syncs everything in one go and is the only method that touches the
    disk, so it may run in a worker thread.

    Args:
        disk: where the file lives.
        path: the file.
        cluster: name of the quorum, checked against the file.
        member: id of this member, checked against the file.
        incarnation: identity of a new disk, used only when the file does not exist.
    """

    def __init__(self, disk: Disk, path: str, cluster: str, member: str, incarnation: str) -> None:
        self._disk = disk
        self.path = path
        self.cluster = cluster
        self.member = member
        self.incarnation = incarnation
        self.entries: list[Entry] = []
        self.term = 0
        self.voted_for: str | None = None
        self.peers: dict[str, str] = {}
        self.voter = False
        self.dirty = False
        self.sync_count = 0
        self.cut_bytes = 0
        self._commit = 1
        self._commit_known = 1
        self.synced_term = 0
        self.end_bytes = 0
        self._pending = bytearray()
        self._added = 0
        self._allocated_bytes = 0
        self._group = 1
        self._group_start = 0
        self._rewrite = False
        self.existed = disk.exists(path)
        if self.existed:
            data = disk.read(path)
            self._recover(data)
            self._file = disk.open(path, create=False)
            self._allocated_bytes = len(data)
            self.synced_term = self.term
            if self.cut_bytes:
                self._file.truncate(self.end_bytes)
                self._file.sync()
                self._allocated_bytes = self.end_bytes
        else:
            snapshot = os.path.join(os.path.dirname(path), SNAPSHOT_NAME)
            if disk.exists(snapshot):
                raise self._damaged(
                    f"the log is missing although its snapshot {snapshot} is there: the disk lost a file"
                )
            if disk.exists(path + ".new"):
                disk.remove(path + ".new")  # a first start that lost power before it had promised anything
            self.entries.append((FIRST_COMMAND, 1, 0))
            self._rewrite = self.dirty = True
            self._file = disk.open(path + ".new")
            self.sync()

    # -- reading -------------------------------------------------------------------------------------------------

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(f"{self.path}: {what}; {self.advice()}")

    def advice(self) -> str:
        """Return how this member comes back when its disk cannot be trusted."""
        return rejoin_advice(os.path.dirname(self.path), self.member)

    def _recover(self, data: bytes) -> None:
        if data[: len(MAGIC)] != MAGIC:
            raise self._damaged("this is no controller log (first bytes are wrong)")
        offset, end, sealed_bytes = len(MAGIC), len(data), 0
        damage = ""
        while offset < end:
            if only_zeros_from(data, offset):
                break  # room for what comes next
            record = intact_record(data, offset)
            if isinstance(record, str):
                damage = record
                break
            body, group, group_start = record
            if offset == len(MAGIC):
                sealed_bytes = self._read_identity(body)
            else:
                self._replay(body)
            self._group, self._group_start = group + 1, group_start
            offset += HEADER_BYTES + len(body)
        if offset < sealed_bytes or sealed_bytes == 0:
            raise self._damaged(f"{damage or 'the file ends'} at byte {offset}, inside the part that was synced")
        if damage:
            later = later_group(data, offset)
            if later is not None:
                raise self._damaged(f"{damage} at byte {offset}, but an intact later group begins at byte {later}")
            self.cut_bytes = end - offset
        self.end_bytes = self._group_start = offset
        if not self.entries:
            # the power went between clearing the log and the entries of an installed snapshot; the snapshot has them
            self._commit = 1

    def _read_identity(self, body: bytes) -> int:
        try:
            kind, sealed_bytes = body[0], _NUMBER.unpack_from(body, 1)[0]
            cluster, member, incarnation = body[9:].decode().split("\0")
        except (ValueError, IndexError, struct.error):
            raise self._damaged("the first record names no owner") from None
        if kind != Kind.IDENTITY:
            raise self._damaged("the first record names no owner")
        if (cluster, member) != (self.cluster, self.member):
            raise DamagedFileError(
                f"{self.path} belongs to member {member} of group {cluster}, this is {self.member} of {self.cluster}: "
                "correct controllerDLegerSelfId, controllerDLegerGroup or controllerStorePath"
            )
        self.incarnation = incarnation
        return int(sealed_bytes)

    def _replay(self, body: bytes) -> None:
        kind = body[0]
        if kind == Kind.ENTRIES:
            try:
                entries = decode_entries(memoryview(body)[1:])
            except msgspec.DecodeError as error:
                raise self._damaged(f"entries are undecodable ({error})") from None
            for entry in entries:
                if self.entries and entry[1] != self.entries[-1][1] + 1:
                    raise self._damaged(f"entry {entry[1]} follows entry {self.entries[-1][1]}")
                self.entries.append(entry)
        elif kind == Kind.CUT:
            (index,) = _NUMBER.unpack_from(body, 1)
            if self.entries:
                del self.entries[max(0, index - self.entries[0][1]) :]
        elif kind == Kind.TERM:
            (self.term,) = _NUMBER.unpack_from(body, 1)
            self.voted_for = body[9:].decode() or None
        elif kind == Kind.COMMIT:
            (self._commit,) = _NUMBER.unpack_from(body, 1)
        elif kind == Kind.CLEAR:
            self.entries.clear()
        elif kind == Kind.PEER:
            name, incarnation = body[1:].decode().split("\0")
            if incarnation:
                self.peers[name] = incarnation
            else:
                self.peers.pop(name, None)
        elif kind == Kind.VOTER:
            self.voter = body[1:2] == b"\1"
        else:
            raise self._damaged(f"record of unknown kind {kind}; it was written by a newer version")

    # -- writing -------------------------------------------------------------------------------------------------

    def _put(self, kind: int, rest: bytes) -> None:
        self._put_added()
        self._put_record(kind, rest)

    def _put_added(self) -> None:
        """Write down the entries added since the last record: later records may cut them again."""
        if self._added:
            added, self._added = self.entries[-self._added :], 0
            self._put_entries(added)

    def _put_entries(self, entries: list[Entry]) -> None:
        for first in range(0, len(entries), MAX_ENTRIES_PER_RECORD):
            self._put_record(Kind.ENTRIES, encode_entries(entries[first : first + MAX_ENTRIES_PER_RECORD]))

    def _put_record(self, kind: int, rest: bytes) -> None:
        self._pending += encode_record(kind, rest, self._group, self._group_start)
        self.dirty = True

    def sync(self) -> None:
        """Make everything put so far durable. Blocking. After a failed sync the member must die, never try again."""
        if not self.dirty:
            return
        if self._rewrite:
            self._write_anew()
        else:
            self._put_added()
            length = len(self._pending)
            if self.end_bytes + length > self._allocated_bytes:
                self._allocated_bytes = self._grow(self._pending, self.end_bytes)
            self._file.write_at(self.end_bytes, self._pending)
            self._file.sync()
            self.end_bytes += length
        self._pending = bytearray()
        self.dirty = False
        self.synced_term = self.term
        self._group += 1
        self._group_start = self.end_bytes
        self.sync_count += 1

    @staticmethod
    def _grow(data: bytearray, offset: int) -> int:
        """Add zeros behind *data*, which goes to *offset*, up to the next step; returns the file's length then."""
        end = offset + len(data)
        allocated = -(-end // GROWTH_BYTES) * GROWTH_BYTES
        data += bytes(allocated - end)
        return allocated

    def _write_anew(self) -> None:
        self._rewrite = False
        self._pending = bytearray(MAGIC)
        self._added = 0
        self._group_start = 0
        self._put(Kind.IDENTITY, self._identity(0))
        self._put(Kind.VOTER, b"\1" if self.voter else b"\0")
        for name, incarnation in self.peers.items():
            self._put(Kind.PEER, f"{name}\0{incarnation}".encode())
        self._put(Kind.TERM, _NUMBER.pack(self.term) + (self.voted_for or "").encode())
        self._put_entries(self.entries)
        self._put(Kind.COMMIT, _NUMBER.pack(self.getRaftCommitIndex()))
        self.end_bytes = len(self._pending)
        self._seal(self.end_bytes)
        self._allocated_bytes = self._grow(self._pending, 0)
        temporary = self.path + ".new"
        fresh = self._disk.open(temporary)
        fresh.truncate(0)
        fresh.write_at(0, self._pending)
        fresh.sync()
        self._disk.replace(temporary, self.path)
        self._disk.sync_folder(os.path.dirname(self.path))
        self._file.close()
        self._file = fresh

    def _identity(self, sealed_bytes: int) -> bytes:
        return _NUMBER.pack(sealed_bytes) + f"{self.cluster}\0{self.member}\0{self.incarnation}".encode()

    def _seal(self, sealed_bytes: int) -> None:
        """Write the final length into the first record, now that it is known."""
        rest, self._pending = self._pending, bytearray()
        self._put(Kind.IDENTITY, self._identity(sealed_bytes))
        rest[len(MAGIC) : len(MAGIC) + len(self._pending)] = self._pending
        self._pending = rest

    def set_peer(self, name: str, incarnation: str) -> None:
        """Pin the disk of member *name*; an empty *incarnation* forgets it."""
        if incarnation:
            self.peers[name] = incarnation
        else:
            self.peers.pop(name, None)
        self._put(Kind.PEER, f"{name}\0{incarnation}".encode())

    def set_voter(self) -> None:
        """From now on this member may vote and stand for election."""
        self.voter = True
        self._put(Kind.VOTER, b"\1")

    @property
    def is_blank(self) -> bool:
        """Whether this disk is blank: it has never heard of an election."""
        return self.term == 0 and self.last_index() <= 1

    def last_index(self) -> int:
        """Return the index of the last entry; 0 when there is none."""
        return self.entries[-1][1] if self.entries else 0

    def end(self) -> tuple[int, int]:
        """Return index and term of the last entry."""
        return self.entries[-1][1], self.entries[-1][2]

    def close(self) -> None:
        """Give the file back without syncing."""
        self._file.close()

    # -- the core's interface ------------------------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        if self.entries and idx != self.entries[-1][1] + 1:
            raise FatalError(f"entry {idx} does not follow entry {self.entries[-1][1]}")
        self.entries.append((bytes(command), idx, term))
        self._added += 1
        self.dirty = True

    def clear(self) -> None:
        self.entries.clear()
        self._added = 0
        self._put(Kind.CLEAR, b"")

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        if entryFrom < len(self.entries):
            index = self.entries[entryFrom][1]
            self._put_added()
            del self.entries[entryFrom:]
            self._put(Kind.CUT, _NUMBER.pack(index))

    def deleteEntriesTo(self, entryTo: int) -> None:
        if entryTo > 0:
            del self.entries[:entryTo]
            self._rewrite = self.dirty = True

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        if (term, votedForNodeId) == (self.term, self.voted_for):
            return
        if term < self.term or (term == self.term and self.voted_for is not None):
            raise FatalError(
                f"term and vote would go back from {(self.term, self.voted_for)} to {(term, votedForNodeId)}"
            )
        self.term, self.voted_for = term, votedForNodeId
        self._put(Kind.TERM, _NUMBER.pack(term) + (votedForNodeId or "").encode())

    def getCurrentTerm(self) -> int:
        return self.term

    def getVotedForNodeId(self) -> str | None:
        return self.voted_for

    def setRaftCommitIndex(self, index: int) -> None:
        self._commit_known = index

    def getRaftCommitIndex(self) -> int:
        # a hint that may be old; never beyond the log
        return min(max(self._commit, self._commit_known), self.last_index()) if self.entries else 1

    def onOneSecondTimer(self) -> None:
        if self._commit_known > self._commit:
            # rides along with the next group: losing it costs a replay, not data
            self._commit = self._commit_known
            dirty = self.dirty
            self._put(Kind.COMMIT, _NUMBER.pack(self._commit))
            self.dirty = dirty

    def _destroy(self) -> None:
        self.close()

    def __getitem__(self, key: int | slice) -> Entry | list[Entry]:
        return self.entries[key]

    def __len__(self) -> int:
        return len(self.entries)
