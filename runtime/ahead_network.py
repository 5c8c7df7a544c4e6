"""The machine's TCP/IP with one address that is listened on already."""

from __future__ import annotations

import trio

from understudy.runtime.listen_ahead import AheadSocket
from understudy.runtime.tcp import TcpListener, TcpNetwork


class AheadNetwork(TcpNetwork):
    """Hands a socket that listens already to whoever asks for its address; all else is new.

    Args:
        ahead: the socket; the first who asks for its address owns it.
    """

    def __init__(self, ahead: AheadSocket) -> None:
        super().__init__()
        self._ahead: AheadSocket | None = ahead

    async def listen(self, host: str, port: int) -> TcpListener:
        ahead = self._ahead
        if ahead is None or (ahead.host, ahead.port) != (host, port):
            return await super().listen(host, port)
        self._ahead = None
        return TcpListener(trio.socket.from_stdlib_socket(ahead.socket))
