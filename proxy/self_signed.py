"""A certificate that a proxy makes for itself: most gRPC clients speak TLS as they are shipped, and look at none."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import tempfile

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_VALID_DAYS = 3650


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
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.set_alpn_protocols(["h2"])
        descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by its owner only, and gone in a moment
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_key_and_certificate())
            made.load_cert_chain(path)
        finally:
            os.unlink(path)
        return made


def _key_and_certificate() -> bytes:
    """Return a new private key and its certificate in PEM format."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
