"""One question to the controllers for another sync-state set: what a master does before it leaves, and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.ha.switch.keeper import SyncStateKeeper

LOOK_MS = 1000
"""How long the disk is waited for before it is looked again whether the set is still wanted."""


class FlushedLog(Protocol):
    """The part of a message store that is needed here; offsets are bytes."""

    @property
    def max_physical_offset(self) -> int: ...
    @property
    def disk_failed(self) -> bool: ...
    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool: ...


class SetQuestion:
    """A question that counts from the moment at which it is decided: who may be in the set is known before it leaves.

    Args:
        keeper: of the set.
        members: that are asked for.
        set_epoch: of the set that they are to replace.
        log: of the master; ``None``: the disk is not what keeps what was acknowledged.
        changed: called when it counts no more.
    """

    def __init__(
        self,
        keeper: SyncStateKeeper,
        members: frozenset[int],
        set_epoch: int,
        log: FlushedLog | None,
        changed: Callable[[], None],
    ) -> None:
        self._keeper = keeper
        alone = {keeper.state.own_id}
        self._log = log if members == alone != keeper.state.accepted else None
        self._changed = changed
        self._asked = keeper.asking(members, set_epoch)

    async def durable_alone(self) -> bool:
        """Have the log durable if this master is to be alone; False: it is not, and nobody may hear the question.

        What it acknowledged before may be on no other disk; until that is on its own, others would be elected. What it
        acknowledges meanwhile is: it counts as alone already. A disk that hangs is waited for as long as no other set
        is wanted, for which the controllers could not be asked meanwhile.
        """
        log, keeper = self._log, self._keeper
        if log is None or keeper.is_durable:
            return True
        end, durable = log.max_physical_offset, False
        try:
            while not durable and not log.disk_failed and self._asked in keeper.state.asked:
                durable = await log.wait_flushed(end, LOOK_MS)
        finally:
            if not durable:
                self.refused()
        return durable

    def leaves(self) -> bool:
        """Know that the controllers hear it from now on; False: another set is wanted by now, and they must not."""
        left = self._keeper.leaves(self._asked)
        if left is None:
            return False
        self._asked = left
        return True

    def refused(self) -> None:
        """Know that the controllers refused it, or never heard it."""
        self._keeper.refused(self._asked)
        self._changed()
