"""Whether members talk to each other: each pins the disks of the others and notices one that lost what it promised."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from understudy.controller.raft.consensus import Consensus
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.journal import Journal
from understudy.controller.raft.messages import Hello, Refusal, Welcome
from understudy.controller.raft.settings import QuorumSettings

_TOLD_BYTES = 200


def _told(members: Iterable[str]) -> str:
    """Return the names in one order, or a digest of them where a greeting has no room for all."""
    names = ",".join(sorted(members))
    return names if len(names.encode()) <= _TOLD_BYTES else hashlib.sha256(names.encode()).hexdigest()


def check_members(journal: Journal, members: Iterable[str]) -> None:
    """Refuse to start with a list that leaves out members this disk has met: two majorities must always share one.

    Raises :class:`FatalError`.
    """
    missing = sorted(set(journal.peers).difference(members))
    if missing:
        raise FatalError(
            f"{journal.path} belongs to a quorum with {', '.join(missing)}, which controllerDLegerPeers does not name: "
            "list the same members on all of them; one whose machine was replaced keeps its id; to take one out for "
            "good, start this one with the former list, stop the other one, run 'mqadmin updateControllerConfig -k "
            "controllerForgetMember -v ID' with the addresses of those that stay, restart these with the shorter list"
        )


class Admission:
    """Greetings given, taken and refused by one member.

    Args:
        settings: of the member.

    Attributes:
        fatal: why this member must stop, when another one said so.
    """

    def __init__(self, settings: QuorumSettings) -> None:
        self.fatal = ""
        self._settings = settings
        self._refusals: dict[str, str] = {}

    def greeting_for(self, peer: str, journal: Journal, nonce: bytes) -> Hello:
        """Return what this member says when it dials *peer*, with the *nonce* of this greeting."""
        settings = self._settings
        return Hello(
            settings.cluster,
            settings.member,
            peer,
            journal.incarnation,
            journal.last_index(),
            settings.features,
            members=_told(settings.addresses),
            term=journal.term,
            nonce=nonce,
        )

    def admit(self, consensus: Consensus, hello: Hello) -> Welcome | Refusal:
        """Judge the greeting of a member that dialled this one."""
        members = _told(self._settings.addresses)
        if hello.members not in ("", members):
            return Refusal(
                f"{hello.source} is configured with the members {hello.members}, {self._settings.member} with {members}"
                ": controllerDLegerPeers must name the same members everywhere",
                False,
            )
        problem = _pin(consensus.journal, hello.source, hello.incarnation)
        if problem:
            return Refusal(problem, False)
        # whoever knows a newer term may have given up entries for its leader: this one just does not know it yet
        deposed = hello.term > consensus.core.term()
        lost = 0 if deposed else consensus.lost_entries(hello.source, hello.last_index)
        if lost:
            return Refusal(
                f"the log of {hello.source} ends at {hello.last_index} but it had confirmed entries up to {lost}: its "
                "disk lost synced data; treat it as a new disk",
                True,
            )
        consensus.features[hello.source] = hello.features
        return Welcome(consensus.journal.incarnation, self._settings.features, consensus.journal.is_blank)

    def welcomed(self, consensus: Consensus, peer: str, welcome: Welcome) -> str:
        """Judge the answer of *peer*; returns what is wrong with it, or an empty string."""
        problem = _pin(consensus.journal, peer, welcome.incarnation)
        if not problem:
            self._refusals.pop(peer, None)
            consensus.welcomed(peer, welcome.blank_disk, welcome.features)
        return problem

    def refused(self, peer: str, refusal: Refusal, log_path: str) -> None:
        """*peer* will not talk."""
        self._refusals[peer] = refusal.reason
        if refusal.fatal:
            self.fatal = f"{log_path}: member {peer} says: {refusal.reason}"

    def problem(self) -> str:
        """Return who refuses this member and why, or an empty string."""
        return "; ".join(f"{peer}: {why}" for peer, why in sorted(self._refusals.items()))


def _pin(journal: Journal, peer: str, incarnation: str) -> str:
    """Remember the disk of *peer*, or say that it is another one than before."""
    known = journal.peers.get(peer)
    if known == incarnation:
        return ""
    if known is None:
        journal.set_peer(peer, incarnation)
        return ""
    return (
        f"member {peer} comes with another disk ({incarnation[:8]}, known is {known[:8]}); if it really lost its disk, "
        f"run 'mqadmin updateControllerConfig -k controllerForgetMember -v {peer}' with the addresses of the others"
    )
