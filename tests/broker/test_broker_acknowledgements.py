"""Sends that wait for the disk: answered by one flush, in their order, or told that it is late."""

from __future__ import annotations

import trio
from broker_rig import FakeConnection
from trio.testing import MockClock, wait_all_tasks_blocked

from understudy.broker.acknowledgement import Acknowledgements
from understudy.runtime.signal import Signal
from understudy.testkit.sim.clock import VirtualClock


def late(answer: bytes, code: int) -> bytes:
    return b"%b, but %d" % (answer, code)


class FakeLog:
    """A log whose flush is done by the test."""

    def __init__(self) -> None:
        self.flushed_offset = 0
        self._moved = Signal()

    def flush_to(self, offset: int) -> None:
        self.flushed_offset = offset
        self._moved.set()

    async def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        with trio.move_on_after(timeout_ms / 1000):
            while self.flushed_offset < offset:
                await self._moved.wait()
            return True
        return False


class TestAcknowledgements:
    async def test_one_flush_answers_everything_it_covers(self, autojump_clock: MockClock) -> None:
        log, first, second = FakeLog(), FakeConnection(), FakeConnection()
        waiting = Acknowledgements(log, VirtualClock(), lambda: 5_000, lambda: 100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting.run)
            for number in range(1, 5):
                connection = first if number % 2 else second
                waiting.add(number * 10, connection, b"ok %d" % number)
            await wait_all_tasks_blocked()
            assert first.written == second.written == []

            log.flush_to(30)
            await wait_all_tasks_blocked()
            assert first.written == [[b"ok 1", b"ok 3"]]
            assert second.written == [[b"ok 2"]]

            log.flush_to(40)
            await wait_all_tasks_blocked()
            assert second.written == [[b"ok 2"], [b"ok 4"]]
            assert len(waiting) == 0
            nursery.cancel_scope.cancel()

    async def test_late_flush_is_told(self, autojump_clock: MockClock) -> None:
        log, connection = FakeLog(), FakeConnection()
        waiting = Acknowledgements(log, VirtualClock(), lambda: 5_000, lambda: 100, late=late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting.run)
            waiting.add(10, connection, b"ok")
            await trio.sleep(4.9)
            assert connection.written == []
            await trio.sleep(0.2)
            assert connection.written == [[b"ok, but 10"]]
            nursery.cancel_scope.cancel()

    async def test_has_a_bound(self, autojump_clock: MockClock) -> None:
        waiting = Acknowledgements(FakeLog(), VirtualClock(), lambda: 5_000, lambda: 2)
        for number in range(2):
            assert not waiting.full
            waiting.add(number, FakeConnection(), b"")
        assert waiting.full
