"""The slave's writing side of a heal: a master's bytes over the void records of our log, in place."""

from __future__ import annotations

from understudy.ha.continuity import MismatchError
from understudy.ha.settings import LogRepair
from understudy.ha.wire import Transfer


class HoleFilling:
    """What comes over one connection and is written over the void records of our log.

    Args:
        hole: first byte that is missing.
        end: where our log ends, or what there is to be had.
        repair: writes.

    Attributes:
        position: up to here our log is as the master's.
        end: as above.
        why_not: why it cannot go on.
    """

    def __init__(self, hole: int, end: int, repair: LogRepair) -> None:
        self.position = hole
        self.end = end
        self.why_not = ""
        self._repair = repair

    async def take(self, frames: list[Transfer]) -> list[Transfer]:
        """Write what came and belongs before the end; return the rest, which follows it.

        Raises:
            MismatchError: the master does not have what it had a moment ago; nothing of ours was overwritten.
        """
        rest = []
        for frame in frames:
            part = frame.body[: self.end - self.position]
            if part:
                try:
                    await self._repair.write(self.position, part)
                    self.position += len(part)
                    if self.position == self.end:
                        await self._repair.finish(self.end)
                except ValueError as error:
                    raise MismatchError(f"what is missing cannot be taken from this master: {error}") from None
            elif self.position < self.end:
                self.why_not = f"the master did not send what is missing from {self.position} on"
                return []
            if len(part) < len(frame.body) or not frame.body:
                rest.append(Transfer(frame.offset + len(part), frame.body[len(part) :]))
        return rest
