"""One question to the controllers for another sync-state set: what a master does before it leaves, and after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from understudy.ha.switch.keeper import SyncStateKeeper


class SetQuestion:
    """A question that counts from the moment at which it is decided: who may be in the set is known before it leaves.

    Args:
        keeper: of the set.
        members: that are asked for.
        set_epoch: of the set that they are to replace.
        flush: makes the log durable; ``None``: the disk is not what keeps what was acknowledged.
        changed: called when it counts no more.
    """

    def __init__(
        self,
        keeper: SyncStateKeeper,
        members: frozenset[int],
        set_epoch: int,
        flush: Callable[[], Awaitable[bool]] | None,
        changed: Callable[[], None],
    ) -> None:
        self._keeper = keeper
        alone = {keeper.state.own_id}
        self._flush = flush if members == alone != keeper.state.accepted else None
        self._changed = changed
        self._asked = keeper.asking(members, set_epoch)

    async def durable_alone(self) -> bool:
        """Have the log durable if this master is to be alone; False: it is not, and nobody may hear the question.

        What it acknowledged before may be on no other disk; until that is on its own, others would be elected. What it
        acknowledges meanwhile is: it counts as alone already.
        """
        if self._flush is None or self._keeper.is_durable:
            return True
        durable = False
        try:
            durable = await self._flush()
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
