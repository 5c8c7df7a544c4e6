"""The core speaks in dictionaries; these functions make them, and typed messages of those it sends."""

from __future__ import annotations

from typing import Any

from understudy.controller.raft.messages import Acknowledgement, Append, SnapshotChunk, SnapshotPending, VoteRequest
from understudy.controller.raft.records import Entry
from understudy.controller.raft.snapshot import SnapshotStore

Said = dict[str, Any]
"""What the core says or hears."""


# -- what the core hears ---------------------------------------------------------------------------------------------


def heartbeat(term: int, commit: int) -> Said:
    """A leader of *term* is alive and has committed up to *commit*."""
    return {"type": "append_entries", "term": term, "commit_index": commit, "serialized": None}


def entries_to_append(message: Append, entries: list[Entry], previous_index: int, previous_term: int) -> Said:
    """Return what the core is told of an append.

    Args:
        message: what the leader sent.
        entries: its entries that are new here.
        previous_index, previous_term: of the entry that they follow.
    """
    return {
        "type": "append_entries",
        "term": message.term,
        "commit_index": message.commit,
        "entries": entries,
        "prevLogIdx": previous_index,
        "prevLogTerm": previous_term,
    }


def snapshot_installed(message: SnapshotChunk, data: bytes) -> Said:
    """The snapshot that *message* completes is on the disk."""
    return {"type": "append_entries", "term": message.term, "commit_index": message.commit, "serialized": data}


def held_entries(message: Acknowledgement) -> Said:
    """A follower's acknowledgement."""
    return {
        "type": "next_node_idx",
        "next_node_idx": message.next_index,
        "reset": message.reset,
        "success": message.success,
    }


def vote_wanted(message: VoteRequest) -> Said:
    """Another member stands for election."""
    return {
        "type": "request_vote",
        "term": message.term,
        "last_log_index": message.last_index,
        "last_log_term": message.last_term,
    }


def vote_given(term: int) -> Said:
    """A vote for this member."""
    return {"type": "response_vote", "term": term}


def stand_now(term: int) -> Said:
    """The leader of *term* hands over to this member."""
    return {"type": "timeout_now", "term": term}


# -- what the core says ----------------------------------------------------------------------------------------------


def append_of(said: Said, sequence: int, leader_end: int, confirmed: bool) -> Append:
    """Return the append that the core sends.

    Args:
        said: what the core sends, with its entries.
        sequence, leader_end, confirmed: as the fields of :class:`Append`.
    """
    return Append(
        said["term"],
        said["commit_index"],
        said["prevLogIdx"],
        said["prevLogTerm"],
        said["entries"],
        sequence,
        leader_end,
        confirmed,
    )


def snapshot_part_of(said: Said, store: SnapshotStore, sequence: int) -> SnapshotChunk | SnapshotPending:
    """The part of *store*'s snapshot that the core sends, or word that it is still being written."""
    chunk = said.get("serialized")
    if chunk is None:
        return SnapshotPending(said["term"], said["commit_index"], sequence)
    data, _, _, offset_bytes = chunk
    return SnapshotChunk(
        said["term"], said["commit_index"], store.index, store.term, offset_bytes, store.current_bytes, data, sequence
    )


def acknowledgement_of(said: Said, term: int, sequence: int, voter: bool) -> Acknowledgement:
    """Return what the core tells its leader about its log.

    Args:
        said: what the core sends.
        term: of this member.
        sequence: newest round of the leader that this member has heard.
        voter: whether it may vote.
    """
    return Acknowledgement(term, said["next_node_idx"], said["reset"], said["success"], sequence, voter)


def vote_request_of(said: Said, forced: bool) -> VoteRequest:
    """The core stands for election."""
    return VoteRequest(said["term"], said["last_log_index"], said["last_log_term"], forced)
