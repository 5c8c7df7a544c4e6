"""What replication offers to a broker that a controller leads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from understudy.broker.switch_question import SetQuestion
from understudy.ha.switch.sync_state import Moment


class LedReplication(Protocol):
    """The part of replication that the controller's word meets.

    Attributes:
        own_id: persistent id of the broker; set before its first role.
        commanded: address of the master that the controllers named; set before each role.
        sync_state_wanted: called with the set that the controllers should be asked for; what is called must not wait.
        epoch_claimed: called with the epoch of a master's log of which the controllers have said nothing yet.
        registered: says of an IP address whether a replica that the controllers know is there.
        log_is_short: the log, as it was opened, lacked bytes that it is known to have had.
    """

    own_id: int
    commanded: str | None
    sync_state_wanted: list[Callable[[frozenset[int]], None]]
    epoch_claimed: list[Callable[[int], None]]
    registered: Callable[[str], bool]
    log_is_short: bool

    def last_epoch(self) -> int:
        """Return the newest epoch of the log; -1 without any."""
        ...

    def max_offset(self) -> int:
        """Return the end of the log in bytes."""
        ...

    def confirm_offset(self) -> int:
        """Return up to where readers may see the log, in bytes."""
        ...

    @property
    def gives_up(self) -> str:
        """Why others of its set had better lead in the place of this master, which cannot serve; "": they had not."""
        ...

    async def same_role(self, epoch: int) -> None:
        """Go on as before in a newer *epoch*. Raises ``OSError``."""
        ...

    @property
    def trust_s(self) -> float:
        """How long the word of a controller that this is the master holds, in seconds."""
        ...

    def appoint(self, epoch: int, members: frozenset[int], set_epoch: int, proven_at: Moment) -> None:
        """Know, before the role of a master begins, what the controllers said of it.

        Args:
            epoch: of the role.
            members: the set.
            set_epoch: counts its changes.
            proven_at: when they were asked.
        """
        ...

    def confirmed(self, epoch: int) -> None:
        """Take note that the controllers have heard that this broker leads in *epoch*; nothing was acknowledged."""
        ...

    def prove(self, asked_at: Moment, set_epoch: int) -> None:
        """Take note that a controller, asked at *asked_at*, said that this broker is master, and the set's epoch."""
        ...

    def doubt(self) -> None:
        """Take note that a controller may have missed this broker: what was said before proves nothing."""
        ...

    def followers(self) -> Collection[int]:
        """Return the persistent ids of the slaves that are connected to this master."""
        ...

    def set_sync_state(self, members: frozenset[int], set_epoch: int) -> None:
        """Take the set that the controllers have; without effect on a slave."""
        ...

    def asking(self, members: frozenset[int], set_epoch: int) -> SetQuestion | None:
        """Know that the controllers are to be asked for a set; ``None``: they are not, it is not wanted any more.

        Args:
            members: the set.
            set_epoch: of the set that it is to replace.
        """
        ...

    def wanted_sync_state(self) -> frozenset[int]:
        """Return the set that is right now, this broker included."""
        ...

    def set_fenced(self, fenced: bool) -> None:
        """Take no message and serve no slave while it is not known who is master."""
        ...

    def follow(self, master_address: str | None, ha_address: str | None) -> None:
        """Learn where the master is; without effect on a master."""
        ...
