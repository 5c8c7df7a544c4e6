"""Pull after pull from one broker: what comes next is asked for where an answer arrives.

To wake a task for each answer would cost as much as to read its messages. So as long as answers bring messages and
nothing speaks against it, they are taken while they are received, and the next pulls of all queues that were answered
together leave together. The task that wanted them sleeps until there is something else to do.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from understudy.mqclient.errors import NotConnectedError
from understudy.mqclient.pull import PullRequest, PullResult, PullStatus, longest_wait_ms, pull_command, pull_result
from understudy.mqclient.session import Session
from understudy.remoting.command import Command
from understudy.remoting.errors import RemotingError


class Pulls:
    """Some pulls of one queue, one after the other.

    Args:
        session: the client.
        address: of the broker.
        take: takes an answer that has found messages, and returns what to pull next, or ``None`` for nothing.
    """

    __slots__ = ("_address", "_asked_at", "_clock", "_connection", "_ended", "_error", "_result", "_session", "_take",
                 "_wanted", "_withdraw")  # fmt: skip

    def __init__(self, session: Session, address: str, take: Callable[[PullResult], PullRequest | None]) -> None:
        self._session = session
        self._address = address
        self._take = take
        self._clock = session.world.clock
        self._ended = trio.Event()
        self._result: PullResult | None = None
        self._error: Exception | None = None

    async def run(self, wanted: PullRequest) -> PullResult | None:
        """Pull until an answer has found nothing, or nothing is to be pulled next.

        Args:
            wanted: the first pull.

        Returns:
            The answer that found nothing; ``None`` when all that was answered is taken.

        Raises:
            ClientError: as :func:`~understudy.mqclient.pull.pull`; everything answered before is taken.
        """
        try:
            self._connection = await self._session.remoting.connection(self._address, longest_wait_ms(wanted))
            self._ask(wanted)
            try:
                await self._until_ended()
            finally:
                self._withdraw()
            if self._error is not None:
                raise self._error
        except RemotingError as error:
            raise NotConnectedError(str(error)) from error
        return self._result

    async def _until_ended(self) -> None:
        # The limit is that of the pull under way. To move it with each would cost more than to look again.
        while not self._ended.is_set():
            wait_seconds = longest_wait_ms(self._wanted) / 1000
            left_seconds = self._asked_at + wait_seconds - self._clock.monotonic()
            if left_seconds <= 0:
                raise NotConnectedError(f"no answer from {self._address} to a pull within {wait_seconds:g} s")
            with self._clock.move_on_after(left_seconds):
                await self._ended.wait()

    def _ask(self, wanted: PullRequest) -> None:
        self._wanted = wanted
        self._asked_at = self._clock.monotonic()
        self._withdraw = self._connection.ask(pull_command(wanted), self._answered)

    def _answered(self, answer: Command | None) -> None:
        """Take an answer where it arrives; its task is told only of what is not usual."""
        try:
            if answer is None:
                why = self._connection.close_reason
                raise NotConnectedError(f"connection to {self._address} ended before the answer: {why}")
            result = pull_result(self._wanted, answer, self._address)
            if result.status is PullStatus.FOUND:
                wanted = self._take(result)
                if wanted is not None:
                    self._ask(wanted)
                    return
            else:
                self._result = result
        except Exception as error:  # the task's
            self._error = error
        self._ended.set()
