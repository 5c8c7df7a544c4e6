"""What a controller shows when somebody scrapes (ControllerMetricsManager.java, and facts of ours)."""

from __future__ import annotations

import os.path

from understudy.controller.configuration import Peers
from understudy.controller.failover import Failover
from understudy.controller.leadership import heard_leader
from understudy.controller.liveness import Liveness
from understudy.controller.metadata import Metadata
from understudy.controller.meter import ControllerMeter
from understudy.controller.raft.facts import ElectionRound
from understudy.controller.raft.member import QuorumMember
from understudy.runtime.clock import Clock
from understudy.runtime.disk import Disk
from understudy.runtime.metrics import Family, Sample, counter, gauge

_ROLES = {"DOWN": 0, "CANDIDATE": 1, "FOLLOWER": 2, "LEADER": 3}


class ControllerMetrics:
    """Everything one controller shows.

    Args:
        meter: what was counted.
        peers: the controller group.
        member: member of the quorum.
        metadata, liveness, failover: its parts.
        clock, disk: of this controller.
        folder: where the member keeps its files.
    """

    def __init__(
        self,
        meter: ControllerMeter,
        peers: Peers,
        member: QuorumMember,
        metadata: Metadata,
        liveness: Liveness,
        failover: Failover,
        clock: Clock,
        disk: Disk,
        folder: str,
    ) -> None:
        self._meter = meter
        self._peers = peers
        self._member = member
        self._metadata = metadata
        self._liveness = liveness
        self._failover = failover
        self._clock = clock
        self._disk = disk
        self._folder = folder

    def labels(self, group: str) -> dict[str, str]:
        """Return what the reference puts on every sample."""
        return {"address": self._peers.address(self._peers.own), "group": group, "peer_id": self._peers.own}

    def collect(self) -> list[Family]:
        """Return all families as of now."""
        return [*self._node(), *self._meter.families(), *self._quorum(), *self._groups()]

    def _node(self) -> list[Family]:
        now = self._clock.monotonic()
        active = [
            Sample(len(alive), {"cluster": group.cluster_name, "broker_set": name})
            for name, group in self._metadata.groups.items()
            if (alive := self._liveness.alive(name, now))
        ]
        return [
            gauge("role", "role of current node", _ROLES[self._member.facts().role]),
            gauge("dledger_disk_usage_bytes", "disk usage of the quorum member", self._disk_usage()),
            Family("active_broker_num", "gauge", "now active brokers num", active),
        ]

    def _disk_usage(self) -> int:
        try:
            return sum(self._disk.size(os.path.join(self._folder, name)) for name in self._disk.listdir(self._folder))
        except OSError:
            return 0  # a file was replaced while they were counted; the next scrape sees it

    def _quorum(self) -> list[Family]:
        facts = self._member.facts()
        families = [
            gauge("rocketmq_controller_active", "1 on the controller that decides", self._member.leads()),
            gauge("rocketmq_controller_leader_known", "0 while no leader is heard", heard_leader(facts) is not None),
            gauge("rocketmq_controller_voter", "0 while the disk is new and may not vote", facts.voter),
            gauge("rocketmq_controller_term", "term of the quorum", facts.term),
            gauge("rocketmq_controller_last_log_index", "end of the log", facts.last_index),
            gauge("rocketmq_controller_last_log_term", "term of the end of the log", facts.last_term),
            gauge("rocketmq_controller_commit_index", "confirmed by a majority", facts.commit_index),
            gauge("rocketmq_controller_applied_index", "applied to the metadata", facts.applied_index),
            gauge("rocketmq_controller_snapshot_index", "end of the newest snapshot", facts.snapshot_index),
            gauge("rocketmq_controller_connected_members", "other members that can be sent to", len(facts.connected)),
            counter("rocketmq_controller_syncs_total", "syncs of the log", facts.sync_count),
        ]
        match = [Sample(index, {"member": member}) for member, index in facts.match.items()]
        families.append(
            Family("rocketmq_controller_match_index", "gauge", "held by a follower, as its leader knows", match)
        )
        if facts.rounds:
            families += _round(facts.rounds[-1])
        return families

    def _groups(self) -> list[Family]:
        groups = self._metadata.groups.values()
        without = sum(group.master_id is None for group in groups)
        return [
            gauge("rocketmq_controller_groups", "broker groups that are registered", len(self._metadata.groups)),
            gauge("rocketmq_controller_groups_without_master", "broker groups that nobody leads", without),
            counter("rocketmq_controller_decisions_total", "decisions about masters", self._failover.election_count),
            counter(
                "rocketmq_controller_skipped_entries_total",
                "log entries that could not be applied, since the start: their commands had no effect",
                self._metadata.skipped,
            ),
        ]


def _round(newest: ElectionRound) -> list[Family]:
    """Return the newest election round: its place, and each voter's answer with the reason."""
    answers = [
        Sample(1, {"stage": stage, "voter": voter, "answer": answer})
        for stage, given in (("pre_vote", newest.pre_votes), ("vote", newest.votes))
        for voter, answer in given.items()
    ]
    labels = {
        "term": str(newest.term),
        "last_log_index": str(newest.last_index),
        "last_log_term": str(newest.last_term),
        "outcome": newest.outcome,
    }
    return [
        Family("rocketmq_controller_election_round", "gauge", "this member's newest candidacy", [Sample(1, labels)]),
        Family("rocketmq_controller_election_answer", "gauge", "answers to this member's newest candidacy", answers),
    ]
