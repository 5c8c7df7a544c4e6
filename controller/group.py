"""What the controllers know of one group, and who of it may be elected.

A broker that was *in step*, in the set of the last master that has confirmed that it leads, had all that was
acknowledged. It has it still when it comes back, unless its memory is lost. The *incarnation* of its store tells: it is
another one whenever something of the store may be gone (:mod:`understudy.broker.led.incarnation`). It is noted with
each change of the set, for the set of a master that leads as well: all of them may lose their power at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from understudy.controller.election import Live


class Replica(Struct, array_like=True):
    """One broker of a group: where it is, and the code it claimed its id with."""

    address: str
    check_code: str


class Group(Struct, array_like=True):
    """All that is known of one broker name.

    Args:
        former_set: who was in step when the controllers heard last of a master that leads; empty once the one in office
            has confirmed that it does.
        incarnations: of the stores of those who are in step, when they came to be; who is missing has not said it.
    """

    cluster_name: str
    broker_name: str
    replicas: dict[int, Replica] = {}
    greatest_id: int = 0
    master_id: int | None = None
    master_epoch: int = 0
    sync_state_set: list[int] = []
    set_epoch: int = 0
    former_set: list[int] = []
    incarnations: dict[int, str] = {}

    @property
    def in_step(self) -> list[int]:
        """Who had everything that was acknowledged, and has it unless it has lost its memory since."""
        return self.former_set or self.sync_state_set

    def lost(self, live: Mapping[int, Live]) -> Collection[int]:
        """Return who of those in step lives, and may have lost its memory since.

        When that is all of them, there is nobody to wait for: none counts as one of these.

        Args:
            live: facts of the living.
        """
        noted, in_step = self.incarnations, self.in_step
        lost = [one for one in in_step if one in live and noted.get(one, "") not in ("", live[one].incarnation)]
        return () if len(lost) == len(in_step) else lost

    def electable(self, live: Mapping[int, Live]) -> list[int]:
        """Return who may be elected, dead or alive; *live* has the facts of the living."""
        lost = self.lost(live)
        return [one for one in self.in_step if one not in lost]

    @property
    def next_id(self) -> int:
        return self.greatest_id + 1

    def master_address(self) -> str | None:
        """Return where the master is; ``None`` without one."""
        replica = self.replicas.get(self.master_id) if self.master_id is not None else None
        return None if replica is None else replica.address

    def install(self, master_id: int) -> None:
        """Have *master_id* lead, in a new epoch and alone in its set."""
        self.master_id = master_id
        self.master_epoch += 1
        self.sync_state_set = [master_id]
        self.set_epoch += 1

    def keep_former(self, live: Mapping[int, Live], chosen: int) -> None:
        """Know who is in step before *chosen* leads: who lives, and who is known again when it comes back.

        Args:
            live: facts of the living.
            chosen: one of them; what it has now counts, whatever its incarnation was.
        """
        told = {one: facts.incarnation for one, facts in live.items()}
        noted = {one: self.incarnations.get(one) or told.get(one, "") for one in self.in_step}
        self.former_set = [one for one in self.in_step if one in live or noted[one]]
        self.note_incarnations({**noted, chosen: told[chosen]})

    def note_incarnations(self, incarnations: Mapping[int, str]) -> None:
        """Note those of the stores of all who are in step; without one they are as before this was known."""
        self.incarnations = {one: incarnations[one] for one in sorted(self.in_step) if incarnations.get(one)}
