"""Byte streams under TLS, as trio's TLS secures them."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import trio

from understudy.runtime.network import ByteStream


class TlsStream:
    """A byte stream under TLS.

    Args:
        secured: trio's TLS over a :class:`Transport`, its handshake done.
        stream: the connection below, for its addresses.
    """

    def __init__(self, secured: trio.SSLStream[Transport], stream: ByteStream) -> None:
        self._secured = secured
        self._stream = stream
        self.local: tuple[str, int] = stream.local
        self.peer: tuple[str, int] = stream.peer

    def names(self) -> frozenset[str]:
        """Return the DNS names in the other side's certificate."""
        certificate = self._secured.getpeercert()
        return frozenset(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")

    async def receive_some(self, max_bytes: int) -> bytes:
        try:
            return bytes(await self._secured.receive_some(max_bytes))
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(str(error)) from error

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Take nothing: encryption hands its records to :meth:`send_all` of the connection below."""
        return 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._secured.send_all(bytes(data))

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._secured)


class Transport(trio.abc.Stream):
    """Shows a byte stream of ours to trio's TLS.

    Args:
        stream: the connection that carries the records.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes or 65_536)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._stream.aclose()
