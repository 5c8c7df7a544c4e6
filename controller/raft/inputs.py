"""What waits for the actor's next turn, each kind in a bounded queue of its own, and who waits for an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from understudy.controller.raft.answers import Answer, Deadlines
from understudy.controller.raft.consensus import Consensus
from understudy.controller.raft.errors import NotLeaderError, OutcomeUnknownError, QuorumBusyError
from understudy.controller.raft.messages import PeerMessage
from understudy.runtime.signal import Signal

MAX_INBOX_MESSAGES = 10_000
MAX_WAITING_PROPOSALS = 10_000
MESSAGES_PER_TURN = 256

Answered = tuple[Answer[Any], Any, Exception | None]
"""A caller with its value or its error, to be told when the turn is durable."""


class Inputs:
    """Everything that arrives between two turns. Any task may add to it; only the actor takes."""

    def __init__(self) -> None:
        self._arrived = Signal()
        self._taken = 0
        self._messages: deque[tuple[str, PeerMessage]] = deque()
        self._link_changes: deque[tuple[str, bool]] = deque()
        self._proposals: deque[tuple[bytes, Answer[Any]]] = deque()
        self._calls: deque[tuple[Callable[[Consensus], Any], Answer[Any]]] = deque()
        self._deadlines = Deadlines()

    def __bool__(self) -> bool:
        return bool(self._messages or self._link_changes or self._calls or self._proposals)

    # -- what arrives --------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the next turn begin at once."""
        self._arrived.set()

    def deliver(self, peer: str, message: PeerMessage) -> None:
        """Take a message of *peer*; beyond the bound it is lost, as on a bad network."""
        if len(self._messages) < MAX_INBOX_MESSAGES:
            self._messages.append((peer, message))
            self._arrived.set()

    def link(self, peer: str, up: bool) -> None:
        """Messages to *peer* can be sent, or no longer."""
        self._link_changes.append((peer, up))
        self._arrived.set()

    def drop_messages_of(self, peer: str) -> None:
        """Forget what *peer* sent and nobody has read."""
        self._messages = deque(item for item in self._messages if item[0] != peer)

    def call(self, call: Callable[[Consensus], Any], answer: Answer[Any]) -> None:
        """Run *call* in the next turn."""
        self._calls.append((call, answer))
        self._arrived.set()

    def check_room(self) -> None:
        """Raise :class:`QuorumBusyError` when no more commands may wait."""
        if len(self._proposals) >= MAX_WAITING_PROPOSALS:
            raise QuorumBusyError(f"{MAX_WAITING_PROPOSALS} commands wait already")

    def propose(self, envelope: bytes, answer: Answer[Any]) -> None:
        """Propose a command in the next turn."""
        self._proposals.append((envelope, answer))
        self._arrived.set()

    def watch(self, answer: Answer[Any]) -> None:
        """End the wait for *answer* when it expires: a cancel scope for each command costs more than the command."""
        self._deadlines.add(answer)

    def unwatch(self, answer: Answer[Any]) -> None:
        """Nobody waits for *answer* any longer."""
        self._deadlines.remove(answer)

    # -- what the actor does -------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """What arrives from now on wakes the actor again."""
        self._taken = self._arrived.count

    async def wait(self, deadline: float) -> None:
        """Wait until something arrives, an answer expires or *deadline* (trio's clock) passes."""
        with trio.move_on_at(min(deadline, self._deadlines.next_at)):
            await self._arrived.wait(self._taken)

    def put_into(self, consensus: Consensus, now: float) -> list[Answered]:
        """Let *consensus* have what waits; returns the callers that are to be told after this turn's sync."""
        consensus.finish_install()
        for late in self._deadlines.take_expired(now):
            late.deliver(None, OutcomeUnknownError("no majority answered in time"))
        while self._link_changes:
            peer, up = self._link_changes.popleft()
            if up:
                consensus.connect(peer)
            else:
                consensus.disconnect(peer)
        for _ in range(min(len(self._messages), MESSAGES_PER_TURN)):
            consensus.receive(*self._messages.popleft())
            if consensus.installs():
                break
        answered: list[Answered] = []
        while self._calls:
            call, waiter = self._calls.popleft()
            try:
                answered.append((waiter, call(consensus), None))
            except (NotLeaderError, ValueError) as error:
                answered.append((waiter, None, error))
        while self._proposals:
            command, answer = self._proposals.popleft()
            try:
                consensus.propose(command, answer)
            except (NotLeaderError, ValueError) as error:
                answer.deliver(None, error)
        return answered

    def end(self, why: str) -> None:
        """Leave no caller waiting for an actor that cannot answer; what it has not begun will not be."""
        for _, answer in self._proposals:
            answer.deliver(None, NotLeaderError(None))
        for _, waiter in self._calls:
            waiter.deliver(None, NotLeaderError(None))
        for waiting in self._deadlines.take_all():
            waiting.deliver(None, OutcomeUnknownError(why))
        self._proposals.clear()
        self._calls.clear()
