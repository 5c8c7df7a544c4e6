"""TLS on a listening port beside plain connections: told apart by the first byte, as the reference does.

A handshake is bounded in time, so that a peer that says hello and nothing more holds one connection for seconds only.
Certificates are looked at again when connections come, at most once a second: a new pair of files counts for those that
come then, and connections that are open live on. A pair that cannot be read yet leaves the one before in force.

Source: NettyRemotingServer.java (TlsModeHandler), TlsHelper.java, FileRegionEncoder.java; FileWatchService.java.
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import attrs
import trio

from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger
from understudy.runtime.network import ByteStream
from understudy.runtime.tls import TlsStream, Transport

log = get_logger("runtime.tls")

HANDSHAKE_BYTE = 0x16
HANDSHAKE_SECONDS = 10.0
_FIRST_BYTES = 65_536
_LOOK_SECONDS = 1.0


class TlsMode(Enum):
    """Which connections a port takes."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class NoTlsError(Exception):
    """A connection was refused because of how it began; the message says why."""


class Continued:
    """A byte stream of which the first bytes were read already.

    Args:
        stream: the connection.
        first: what was read, given out again first.
    """

    def __init__(self, stream: ByteStream, first: bytes) -> None:
        self._stream = stream
        self._first = first
        self.local: tuple[str, int] = stream.local
        self.peer: tuple[str, int] = stream.peer

    async def receive_some(self, max_bytes: int) -> bytes:
        if not self._first:
            return await self._stream.receive_some(max_bytes)
        given, self._first = self._first[:max_bytes], self._first[max_bytes:]
        return given

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        return self._stream.send_nowait(buffers)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def aclose(self) -> None:
        await self._stream.aclose()


@attrs.frozen
class CertificateFiles:
    """Paths in PEM format, and what is asked of clients.

    Attributes:
        certificate, key: of the server.
        password: of an encrypted key.
        authority: who signs clients' certificates; ``None``: those that are not signed by anybody known are taken.
        verify: whether clients must, may, or need not have a certificate.
        ciphers: names as OpenSSL takes them; ``""`` for its own choice.
        protocols: what is spoken under TLS, for clients that ask (ALPN); empty where they do not.
    """

    certificate: str
    key: str
    password: str | None = attrs.field(default=None, repr=False)
    authority: str | None = None
    verify: ssl.VerifyMode = ssl.CERT_NONE
    ciphers: str = ""
    protocols: tuple[str, ...] = ()

    def stamps(self) -> tuple[tuple[int, int], ...]:
        """Return what changes when a file does. Raises ``OSError``."""
        paths = (self.certificate, self.key, self.authority)
        states = [os.stat(path) for path in paths if path]
        return tuple((state.st_mtime_ns, state.st_ino) for state in states)

    def context(self) -> ssl.SSLContext:
        """Return what secures connections with these files. Raises ``OSError``, ``ssl.SSLError`` among them."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self.certificate, self.key, self.password or "")
        if self.ciphers:
            made.set_ciphers(self.ciphers)
        if self.protocols:
            made.set_alpn_protocols(list(self.protocols))
        if self.authority is not None:
            made.load_verify_locations(self.authority)
            made.verify_mode = self.verify
        return made


class Certificates(Protocol):
    """Where a server's certificate comes from: from :class:`CertificateFiles`, nearly always."""

    @property
    def certificate(self) -> str:
        """What log lines call it."""
        ...

    def stamps(self) -> tuple[tuple[int, int], ...]:
        """Return what changes when the certificate does, nothing for one that is in no file. Raises ``OSError``."""
        ...

    def context(self) -> ssl.SSLContext:
        """Return what secures connections with it. Raises ``OSError``."""
        ...


class ServerTls:
    """What a listening port does with TLS.

    Args:
        clock: bounds handshakes.
        files: certificate and key.
        mode: which connections it takes.

    Raises:
        OSError: the files cannot be used.
    """

    def __init__(self, clock: Clock, files: Certificates, mode: TlsMode) -> None:
        self._clock = clock
        self._files = files
        self._mode = mode
        self._stamps = files.stamps()
        # What no file says cannot be wrong, and takes its time: it is made for the first who wants it.
        self._context = files.context() if self._stamps else None
        self._looked_at = -math.inf

    async def accept(self, stream: ByteStream) -> ByteStream:
        """Return the connection that carries a peer's bytes: secured if it began a handshake.

        Raises:
            NoTlsError: it began otherwise than the mode allows, or the handshake failed.
            trio.BrokenResourceError: the peer was gone.
        """
        with self._clock.move_on_after(HANDSHAKE_SECONDS) as scope:
            first = await stream.receive_some(_FIRST_BYTES)
            if not first or first[0] != HANDSHAKE_BYTE:
                if first and self._mode is TlsMode.ENFORCING:
                    raise NoTlsError("it does not speak TLS, which this port asks for (tls.server.mode=enforcing)")
                return Continued(stream, first)
            if self._mode is TlsMode.DISABLED:
                raise NoTlsError("it speaks TLS, which this port does not (tls.server.mode=disabled)")
            return await self._secure(Continued(stream, first))
        assert scope.cancelled_caught
        raise NoTlsError(f"it sent nothing, or did not finish its TLS handshake, for {HANDSHAKE_SECONDS:g} s")

    async def _secure(self, stream: ByteStream) -> ByteStream:
        self._look()
        context = self._context = self._context or self._files.context()
        secured = trio.SSLStream(Transport(stream), context, server_side=True, https_compatible=True)
        try:
            await secured.do_handshake()
        except (trio.BrokenResourceError, ssl.SSLError) as error:
            reason = error.__cause__ or error
            raise NoTlsError(f"its TLS handshake failed: {getattr(reason, 'reason', None) or reason}") from None
        return TlsStream(secured, stream)

    def _look(self) -> None:
        """Take new files, if there are some."""
        now = self._clock.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            stamps = self._files.stamps()
            if stamps == self._stamps:
                return
            self._context = self._files.context()
            self._stamps = stamps
            log.info("certificate read again", path=self._files.certificate)
        except OSError as error:
            log.warning("new certificate not taken, the one before counts", path=self._files.certificate, why=error)


async def dial_tls(stream: ByteStream, context: ssl.SSLContext, name: str | None = None) -> ByteStream:
    """Secure a connection that this side opened.

    Args:
        stream: the connection.
        context: with which it is secured.
        name: of the other side, for those who look at names; its address if not given.

    Raises:
        ConnectionError: the handshake failed.
    """
    secured = trio.SSLStream(Transport(stream), context, server_hostname=name or stream.peer[0], https_compatible=True)
    try:
        await secured.do_handshake()
    except (trio.BrokenResourceError, ssl.SSLError) as error:
        reason = error.__cause__ or error
        raise ConnectionError(f"TLS handshake failed: {getattr(reason, 'reason', None) or reason}") from None
    return TlsStream(secured, stream)
