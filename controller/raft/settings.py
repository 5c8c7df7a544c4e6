"""What makes a member of a quorum."""

from __future__ import annotations

import attrs

from understudy.controller.raft.core import Timing
from understudy.controller.raft.security import TlsFiles


@attrs.frozen
class QuorumSettings:
    """What makes a member of a quorum.

    Args:
        cluster: name of the quorum; equal on all members.
        member: own id, one of *addresses*.
        addresses: host and port of every member's raft listener; equal on all members.
        folder: where log and snapshot live; locked while the member runs.
        listen_host: where to listen.
        timing: election timing, equal on all members.
        compaction_entries: the log is cut to a snapshot when it is longer.
        features: newest feature version this program can apply.
        tls: files for mutual TLS, or ``None``.
        secret_file: path of the secret that members share; empty: none.
        open_to_all: accept also members that prove nothing, from anywhere.
    """

    cluster: str
    member: str
    addresses: dict[str, tuple[str, int]]
    folder: str
    listen_host: str = "0.0.0.0"
    timing: Timing = attrs.field(factory=Timing)
    compaction_entries: int = 5000
    features: int = 6
    tls: TlsFiles | None = None
    secret_file: str = ""
    open_to_all: bool = False
