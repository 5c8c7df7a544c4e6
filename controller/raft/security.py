"""Mutual TLS between members: each proves with its certificate that it is the member it says it is."""

from __future__ import annotations

import ssl

import attrs
import trio

from understudy.runtime.network import ByteStream
from understudy.runtime.tls import TlsStream, Transport


class SecurityError(Exception):
    """Certificates could not be used, or name another member; the message says which."""


@attrs.frozen
class TlsFiles:
    """Paths in PEM format.

    Args:
        certificate: own certificate; one of its DNS names must be this member's id.
        key: its private key.
        authority: who signs the members' certificates; nothing else is trusted.
    """

    certificate: str
    key: str
    authority: str


class MemberSecurity:
    """The two sides of mutual TLS, built once from :class:`TlsFiles`.

    Raises:
        SecurityError: naming the files when they cannot be loaded.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (self._accepting, self._dialling):
            try:
                context.load_cert_chain(files.certificate, files.key)
            except OSError as error:
                raise SecurityError(
                    f"cannot use certificate {files.certificate} with key {files.key}: {_reason(error)}"
                ) from None
            try:
                context.load_verify_locations(files.authority)
            except OSError as error:
                raise SecurityError(f"cannot use authority {files.authority}: {_reason(error)}") from None
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_2

    async def dial(self, stream: ByteStream, member: str) -> TlsStream:
        """Secure an outgoing connection; the other side must hold *member*'s certificate."""
        return await self._handshake(
            trio.SSLStream(Transport(stream), self._dialling, server_hostname=member), stream, member
        )

    async def accept(self, stream: ByteStream) -> TlsStream:
        """Secure an incoming connection; ask the result for the names in the other side's certificate."""
        return await self._handshake(trio.SSLStream(Transport(stream), self._accepting, server_side=True), stream, "")

    async def _handshake(self, secured: trio.SSLStream[Transport], stream: ByteStream, member: str) -> TlsStream:
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            reason = error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error
            whom = f"member {member}" if member else f"the dialler at {stream.peer[0]}:{stream.peer[1]}"
            raise SecurityError(f"no mutual TLS with {whom}: {reason}") from None
        except ssl.CertificateError as error:
            raise SecurityError(f"no mutual TLS with {member or stream.peer}: {error}") from None
        return TlsStream(secured, stream)


def _reason(error: OSError) -> str:
    """Return what is wrong; of what is no file in PEM format the TLS library says nothing a reader could use."""
    if isinstance(error, ssl.SSLError):
        return f"it is damaged, not in PEM format, or does not fit ({error.reason or error})"
    return error.strerror or str(error)
