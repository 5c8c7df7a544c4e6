"""Who may greet a member: whoever proves to know the secret, and without one only members on the same host.

The dialler names itself with a nonce. The accepting side answers with a nonce of its own and proves the secret over
both; then the dialler does the same. So neither gives anything away to who does not know the secret, and a recorded
greeting is worth nothing. What follows the greeting is not secured: where others can change what is on the wire,
members need mutual TLS, with or without a secret.
"""

from __future__ import annotations

import random

from understudy.controller.raft.messages import Challenge, Hello, Proof, Refusal, Welcome, encode_body
from understudy.controller.raft.secret import SECRET_FILE_KEY, Secret, draw_nonce
from understudy.controller.raft.security import SecurityError
from understudy.runtime.network import is_own_host

_DIALS, _ACCEPTS = "a member dials", "a member accepts"


class Trust:
    """Judges greetings of one member, on both sides.

    Args:
        secret: what members must know, ``None`` when there is none.
        certified: the connections prove by certificates who dials whom.
        open_to_all: accept also who proves nothing, from anywhere.
        source: for nonces.
    """

    def __init__(self, secret: Secret | None, certified: bool, open_to_all: bool, source: random.Random) -> None:
        self._secret = secret
        self._certified = certified
        self._open_to_all = open_to_all
        self._source = source

    def nonce(self) -> bytes:
        """Return the nonce of a new greeting; empty where there is no secret to prove."""
        return b"" if self._secret is None else draw_nonce(self._source)

    # -- the accepting side --------------------------------------------------------------------------------------

    def judge(self, hello: Hello, body: bytes, local_host: str, peer_host: str) -> Challenge | Refusal | None:
        """Return how to go on with a greeting; ``None``: believe it.

        Args:
            hello: the greeting, *body* as it arrived.
            local_host, peer_host: the two ends of the connection.
        """
        if self._secret is not None and hello.nonce:
            nonce = draw_nonce(self._source)
            return Challenge(nonce, self._secret.proof(_ACCEPTS, body, nonce, hello.nonce))
        if self._open_to_all:
            return None
        if self._secret is not None:
            return Refusal(f"{hello.source} proves nothing: it needs {SECRET_FILE_KEY} with our secret", False)
        if self._certified or is_own_host(local_host, peer_host):
            return None
        return Refusal(
            f"{hello.source} comes from another host and {hello.target} cannot tell whether it may: give all members "
            f"{SECRET_FILE_KEY} with the same secret, or mutual TLS",
            False,
        )

    def judge_proof(self, hello: Hello, body: bytes, challenge: Challenge, proof: Proof) -> Refusal | None:
        """Judge the answer to a challenge.

        Args:
            hello: the greeting.
            body: its bytes, which the proof covers.
            challenge: what was asked.
            proof: the answer.

        Returns:
            What is wrong; ``None``: believe the greeting.
        """
        assert self._secret is not None
        if self._secret.proves(proof.proof, _DIALS, body, hello.nonce, challenge.nonce):
            return None
        return Refusal(f"{hello.source} does not know the secret of {SECRET_FILE_KEY} here: give it the same", False)

    # -- the dialling side ---------------------------------------------------------------------------------------

    def prove(self, hello: Hello, challenge: Challenge) -> Proof:
        """Answer *challenge*. Raises :class:`SecurityError` when it comes from who does not know the secret."""
        secret, body = self._secret, encode_body(hello)
        if secret is None or not secret.proves(challenge.proof, _ACCEPTS, body, challenge.nonce, hello.nonce):
            raise SecurityError(
                f"member {hello.target} does not know the secret of {SECRET_FILE_KEY} here: give both the same"
            )
        return Proof(secret.proof(_DIALS, body, hello.nonce, challenge.nonce))

    def check_unasked(self, hello: Hello, answer: Welcome | Refusal) -> None:
        """Take an *answer* without a challenge. Raises :class:`SecurityError` when there should have been one."""
        if self._secret is not None and isinstance(answer, Welcome) and not self._open_to_all:
            raise SecurityError(f"member {hello.target} asks for no secret: give it ours by {SECRET_FILE_KEY}")
