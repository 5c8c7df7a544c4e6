"""What a user may set about replication in controller mode."""

from __future__ import annotations

from typing import Protocol


class SwitchSettings(Protocol):
    """Settings as both sides read them, anew each time.

    Attributes:
        all_must_ack: readers see, and sends wait for, what the whole sync-state set has (``allAckInSyncStateSet``).
        patience_s: how long a member may lag before it leaves the set (``haMaxTimeSlaveNotCatchup``), in seconds.
        last_file_only: an empty slave begins with the master's last file (``syncFromLastFile``).
        learner: this slave copies and is never counted (``asyncLearner``).
        sync_flush: a slave reports what is durable (``flushDiskType=SYNC_FLUSH``), not what it has in memory.
        copies: replicas that must have a message, unless all must (``inSyncReplicas``).
        trust_s: how long nobody else can be elected after a controller was asked and said that this is the master, in
            seconds: less than the controllers wait for a silent one.
        asked_s: how long a question for a set that has left may still be accepted, in seconds.
    """

    @property
    def all_must_ack(self) -> bool: ...
    @property
    def patience_s(self) -> float: ...
    @property
    def last_file_only(self) -> bool: ...
    @property
    def learner(self) -> bool: ...
    @property
    def sync_flush(self) -> bool: ...
    @property
    def copies(self) -> int: ...
    @property
    def trust_s(self) -> float: ...
    @property
    def asked_s(self) -> float: ...
