"""What a master keeps of one connection to a slave."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from understudy.ha.conversation import Conversation
from understudy.ha.flow import Flow
from understudy.ha.hearing import Unconfirmed, Voice
from understudy.ha.replicas import Replica
from understudy.runtime.seats import Seat


class ConnectedSlave:
    """One connection; *close* ends it.

    Attributes:
        began_at: the first byte of the log that was given to it; -1 before.
        next_offset: up to here (bytes) everything was sent.
        given_until: up to here it was sent, or is being sent at this moment.
        closing: it was told to end; it does so in a moment.
    """

    def __init__(
        self, peer: tuple[str, int], flow: Flow, conversation: Conversation, seat: Seat, close: Callable[[], None]
    ) -> None:
        self.host = peer[0]
        self.seat = seat
        self._close = close
        self.closing = False
        self.address = "{}:{}".format(*peer)
        self.flow = flow
        self.conversation = conversation
        self.replica = Replica()
        self.began_at = self.next_offset = self.given_until = -1
        self.started = trio.Event()
        self.heard_at = -math.inf
        self.unconfirmed = Unconfirmed()

    def close(self) -> None:
        """End it."""
        self.closing = True
        self._close()

    @property
    def voice(self) -> Voice:
        """What is heard of it."""
        return Voice(self.host, self.replica.known, self.heard_at, self.unconfirmed.since)
