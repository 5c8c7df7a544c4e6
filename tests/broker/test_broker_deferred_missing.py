"""What is due while messages that cannot be read may be there in a moment: nothing is passed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from understudy.broker.deferred import NEVER, Found, Item
from understudy.broker.deferred_service import DeferredService
from understudy.broker.inner import InnerMessage
from understudy.store.status import PutStatus
from understudy.testkit.sim.clock import VirtualClock

COUNT = 3
ROTTEN = 1
MENDED_SECONDS = 3.5


class RottenSource:
    """A queue of due messages, one of which a read finds to be damaged; what a read has passed it does not read again.

    Attributes:
        lacks: the damage is known, and not mended.
        mended: it is.
        reads: how many there were.
    """

    def __init__(self) -> None:
        self.lacks = self.mended = False
        self.reads = 0
        self._position = self._next = 0

    def queues(self) -> list[int]:
        return [0]

    def position(self, queue: int) -> int:
        return self._position

    def read(self, queue: int, position: int) -> Found:
        self.reads += 1
        self.lacks = not self.mended
        items = [Item(at, _message(at)) for at in range(self._next, COUNT) if self.mended or at != ROTTEN]
        self._next = COUNT
        return Found(tuple(items), COUNT, NEVER)

    def move(self, queue: int, position: int) -> None:
        self._position = position

    def undo(self, queue: int) -> None:
        self._next = self._position

    def stored(self, message: InnerMessage) -> None:
        pass

    def mend(self) -> None:
        self.lacks, self.mended = False, True


class Target:
    """Takes everything."""

    def __init__(self) -> None:
        self.bodies = list[bytes]()

    async def put(self, messages: Sequence[InnerMessage]) -> list[PutStatus]:
        self.bodies += [each.body for each in messages]
        return [PutStatus.PUT_OK for _ in messages]


def _message(at: int) -> InnerMessage:
    return InnerMessage("T", 0, b"%d" % at, b"", 1, b"\0" * 8)


async def test_what_a_read_finds_to_be_damaged_is_passed_by_nobody_and_read_once_more_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    source, target = RottenSource(), Target()
    service = DeferredService(VirtualClock(), source, target)
    service.missing = lambda: source.lacks
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        await trio.sleep(MENDED_SECONDS)
        # given damage that was found by the first read, then nothing is passed, and nothing read as long as it may come
        assert (target.bodies, source.position(0), source.reads) == ([], 0, 1)
        source.mend()
        await trio.sleep(1)
        assert target.bodies == [b"%d" % at for at in range(COUNT)]
        assert (source.position(0), source.reads) == (COUNT, 2)
        nursery.cancel_scope.cancel()
