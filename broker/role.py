"""What a broker is in its group: a value that is read when it is needed and copied nowhere."""

from __future__ import annotations

import attrs

KINDS = frozenset({"ASYNC_MASTER", "SYNC_MASTER", "SLAVE"})


@attrs.frozen
class Role:
    """One role of one broker.

    Attributes:
        kind: in the words of ``brokerRole``.
        broker_id: the id under which name servers list it: 0 for a master, more for a slave.
        epoch: grows with each change that a controller commands; 0 for the role of the configuration.
        reason: who gave it, for people.
        is_slave: it copies a master and takes no messages of its own.
        waits_for_copies: its sends are answered when slaves have them.

    Raises ``ValueError`` when there is no such kind, or kind and id do not fit each other.
    """

    kind: str
    broker_id: int
    epoch: int = 0
    reason: str = "configuration"
    # Attributes, not properties: a pull reads the first.
    is_slave: bool = attrs.field(init=False)
    waits_for_copies: bool = attrs.field(init=False)

    @is_slave.default
    def _is_slave(self) -> bool:
        return self.kind == "SLAVE"

    @waits_for_copies.default
    def _waits_for_copies(self) -> bool:
        return self.kind == "SYNC_MASTER"

    def __attrs_post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"brokerRole={self.kind}: expected one of {', '.join(sorted(KINDS))}")
        if self.broker_id < 0 or self.is_slave != (self.broker_id > 0):
            raise ValueError(f"a {self.kind} cannot have broker id {self.broker_id}: 0 for a master, more for a slave")

    def __str__(self) -> str:
        return f"{self.kind} {self.broker_id} (epoch {self.epoch}, {self.reason})"
