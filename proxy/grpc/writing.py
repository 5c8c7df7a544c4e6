"""What one connection says: the frames that the protocol's state makes, and the outbox by which they leave.

What many calls of a connection say in one turn of the event loop leaves together in the next: a write costs as much as
all that goes before it in a small call. What is said while the connection reads leaves when it has read.
"""

from __future__ import annotations

import trio

from understudy.proxy.grpc import http2
from understudy.proxy.grpc.call import Call
from understudy.proxy.grpc.streams import Streams
from understudy.runtime.outbox import Outbox
from understudy.runtime.signal import Signal


class Later:
    """Sends what connections have to say once all that go on in this turn of the event loop have said it."""

    def __init__(self) -> None:
        self._said: list[Writing] = []
        self._changed = Signal()

    def add(self, writing: Writing) -> None:
        """Send what *writing* has, later."""
        self._said.append(writing)
        self._changed.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            if not self._said:
                await self._changed.wait()
            said, self._said = self._said, []
            for writing in said:
                writing.flush()


class Writing:
    """The outgoing side of one connection; nothing here waits.

    Args:
        streams: of the connection.
        outbox: of the connection.
        later: of the server.

    Attributes:
        corked: what is said leaves later, together.
    """

    def __init__(self, streams: Streams, outbox: Outbox, later: Later) -> None:
        self._streams = streams
        self._outbox = outbox
        self._later = later
        self._is_due = False
        self._rooms: dict[int, Signal] = {}  # of streams whose answer waits for room
        self.corked = False

    def flush(self) -> None:
        """Send what there is."""
        self._is_due = False
        if self.corked:
            return
        data = self._streams.take()
        if data:
            self._outbox.send((data,), len(data))

    def flush_later(self) -> None:
        """Send what there is in the next turn of the event loop, unless it leaves before."""
        if not self._is_due and not self.corked:
            self._is_due = True
            self._later.add(self)

    def give_back(self, size: int, stream_id: int) -> None:
        """Give back the window of *size* bytes."""
        self._streams.give_back(size, stream_id)
        self.flush_later()

    def send(self, stream_id: int, data: bytes, at: int) -> int:
        """Make a frame of *data* from *at* on; return its bytes, 0 where its client has no room."""
        return self._streams.send_data(stream_id, data, at)

    async def message(self, call: Call, data: bytes) -> None:
        """Send *data* of a call, in frames, as its client has room for them.

        Args:
            call: that is answered.
            data: a message with its length before it.

        Raises:
            trio.BrokenResourceError: the client has ended the call.
        """
        at = 0
        while at < len(data):
            if call.ended:
                raise trio.BrokenResourceError("the client has ended the call")
            self._begin(call)
            sent = 0 if self._outbox.choked else self.send(call.stream_id, data, at)
            at += sent
            if not sent:
                self.flush()
                await (self._outbox.wait_drained() if self._outbox.choked else self._room(call.stream_id))

    async def _room(self, stream_id: int) -> None:
        """Wait until there may be more room for an answer; one task at a time waits for that of a stream."""
        room = self._rooms[stream_id] = Signal()
        try:
            await room.wait()
        finally:
            del self._rooms[stream_id]

    def wake(self, stream_id: int) -> None:
        """Have a stream's answer look whether there is room: there may be, or its call has ended."""
        if (room := self._rooms.get(stream_id)) is not None:
            room.set()

    def wake_all(self) -> None:
        """Have every answer look that waits for room."""
        for room in self._rooms.values():
            room.set()

    def whole(self, call: Call, data: bytes) -> bool:
        """Send all of *data* of a call at once; False where there is no room for it now, and nothing is sent."""
        if self._outbox.choked or self._streams.room(call.stream_id) < len(data):
            return False
        self._begin(call)
        self._streams.send_data(call.stream_id, data)
        return True

    def _begin(self, call: Call) -> None:
        if not call.headers_sent:
            call.headers_sent = True
            self._streams.send_fields(call.stream_id, http2.HEADERS, end=False)

    def end(self, stream_id: int, block: bytes) -> None:
        """End a stream with a block of header fields."""
        self._streams.send_fields(stream_id, block, end=True)
        self.flush_later()
