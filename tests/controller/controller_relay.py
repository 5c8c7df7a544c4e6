"""Relays in front of controllers and name servers: they record what brokers ask, all in one order.

Servers listen at 127.0.0.1; brokers are told of 127.0.0.2, where the relays listen at the same ports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import attrs
import trio

RELAYED_HOST = "127.0.0.2"
PAYLOAD_BYTES = 65536


@attrs.frozen
class Asked:
    """One request as it passed."""

    connection: int
    port: int
    code: int
    ext: dict[str, str]


class Relays:
    """See the module.

    Attributes:
        asked: every request, oldest first.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._connections = 0

    async def start(self, nursery: trio.Nursery, ports: Iterable[int]) -> None:
        """Relay these ports until *nursery* is cancelled."""
        for port in ports:
            listeners = await trio.open_tcp_listeners(port, host=RELAYED_HOST)
            nursery.start_soon(self._serve, listeners, port)

    def of(self, address: str, since: int = 0) -> list[Asked]:
        """Return what the broker at *address* asked over all its connections, from the entry *since* on."""
        own = {each.connection for each in self.asked if _speaker(each.ext) == address}
        return [each for each in self.asked[since:] if each.connection in own]

    async def _serve(self, listeners: list[trio.SocketListener], port: int) -> None:
        async def relay(stream: trio.SocketStream) -> None:
            self._connections += 1
            number = self._connections
            try:
                server = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                await stream.aclose()
                return
            async with stream, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._requests, number, port, stream, server, nursery.cancel_scope)
                nursery.start_soon(self._answers, server, stream, nursery.cancel_scope)

        await trio.serve_listeners(relay, listeners)

    async def _requests(
        self, number: int, port: int, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        waiting = bytearray()
        try:
            async for data in source:
                waiting += data
                while len(waiting) >= 4 and len(waiting) >= 4 + int.from_bytes(waiting[:4]):
                    end = 4 + int.from_bytes(waiting[:4])
                    frame = bytes(waiting[:end])
                    del waiting[:end]
                    header = json.loads(frame[8 : 8 + int.from_bytes(frame[5:8])])
                    if not header["flag"] & 1:
                        self.asked.append(Asked(number, port, header["code"], header.get("extFields") or {}))
                    await target.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # either side went away; the other is told by the end of this connection
        scope.cancel()

    async def _answers(self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            async for data in source:
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # as above
        scope.cancel()


def _speaker(ext: dict[str, str]) -> str:
    """Return the address a broker gives of itself in a request, or an empty text."""
    return ext.get("brokerAddr") or ext.get("brokerAddress") or ext.get("registerCheckCode", "").partition(";")[0]
