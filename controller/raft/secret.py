"""The secret that members and operators of one quorum share, and how it is proved without being said."""

from __future__ import annotations

import hashlib
import hmac
import random

from understudy.controller.raft.security import SecurityError
from understudy.runtime.disk import Disk

SECRET_FILE_KEY = "controllerRaftSecretFile"
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 4096
NONCE_BYTES = 32


class Secret:
    """Knows the secret and shows it to nobody.

    Args:
        text: the secret. Spaces and line ends around it do not count.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text.strip()

    def proof(self, purpose: str, *parts: bytes) -> bytes:
        """Return what only those can make who know the secret.

        Args:
            purpose: what it is good for: it proves nothing else.
            parts: what it speaks of. The last one is a nonce of whoever is to believe it: it is worthless elsewhere.
        """
        proof = hmac.new(self._text, purpose.encode(), hashlib.sha256)
        for part in parts:
            proof.update(len(part).to_bytes(8, "big") + part)
        return proof.digest()

    def proves(self, given: bytes, purpose: str, *parts: bytes) -> bool:
        """Return whether *given* is the :meth:`proof` of the same purpose and parts; takes as long either way."""
        return hmac.compare_digest(given, self.proof(purpose, *parts))


def read_secret(disk: Disk, path: str) -> Secret:
    """Read the secret in the file at *path*. Blocking.

    Raises:
        SecurityError: there is none, or none that could not be guessed.
    """
    try:
        text = disk.read(path)
    except OSError as error:
        raise SecurityError(f"{SECRET_FILE_KEY}: cannot read {path}: {error.strerror or error}") from None
    if not MIN_SECRET_BYTES <= len(text.strip()) <= MAX_SECRET_BYTES:
        raise SecurityError(
            f"{SECRET_FILE_KEY}: the secret in {path} is {len(text.strip())} bytes long, {MIN_SECRET_BYTES} to "
            f"{MAX_SECRET_BYTES} are accepted; 'openssl rand -hex 32' makes one"
        )
    return Secret(text)


def draw_nonce(source: random.Random) -> bytes:
    """Return bytes that were never used before, which tell nothing about what *source* draws next."""
    return hashlib.sha256(source.randbytes(NONCE_BYTES)).digest()
