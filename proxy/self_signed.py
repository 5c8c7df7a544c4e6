"""A certificate that a proxy makes for itself: most gRPC clients speak TLS as they are shipped, and look at none."""

from __future__ import annotations

import os
import ssl
import tempfile


class SelfSigned:
    """A key and a certificate for ``localhost`` that nobody vouches for, made when they are needed first.

    Attributes:
        certificate: what log lines call it.
    """

    certificate = "self-signed"

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    def stamps(self) -> tuple[tuple[int, int], ...]:
        """Return that it never changes."""
        return ()

    def context(self) -> ssl.SSLContext:
        """Return what secures connections with it."""
        if self._context is None:
            self._context = self._made()
        return self._context

    def _made(self) -> ssl.SSLContext:
        from understudy.proxy.key_pair import key_and_certificate  # a tenth of the start, and not every client asks

        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(["h2"])
        descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by its owner only, and gone in a moment
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key_and_certificate())
            made.load_cert_chain(path)
        finally:
            os.unlink(path)
        return made
