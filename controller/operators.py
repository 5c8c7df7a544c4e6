"""Whether an operator may change who belongs to the quorum: from the controller's own host, or who knows the secret."""

from __future__ import annotations

import random

from understudy.controller.configuration import FORGET_MEMBER_KEY
from understudy.controller.raft.member import QuorumMember
from understudy.controller.raft.secret import SECRET_FILE_KEY, Secret, draw_nonce
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional
from understudy.runtime.clock import Clock
from understudy.runtime.network import is_own_host

CHALLENGE, PROOF = "challenge", "proof"
"""Header fields: in a refusal what is to be proved, in the next request the same and the proof."""
CHALLENGE_SECONDS = 30.0
MAX_CHALLENGES = 1000


_FORGETS = "an operator has a member forgotten"


def forget_proof(secret: Secret, controller: str, member: str, challenge: str) -> str:
    """Return the proof that allows to forget *member*.

    Args:
        secret: of the quorum.
        controller: id of the controller that is asked.
        member: id of the member whose disk is lost.
        challenge: as the controller gave it.
    """
    return secret.proof(_FORGETS, controller.encode(), member.encode(), challenge.encode()).hex()


class Operators:
    """Allows and refuses; each challenge is good once, and for a short time.

    Args:
        member: knows the secret once it runs.
        clock: of this controller.
        source: for challenges.
    """

    def __init__(self, member: QuorumMember, clock: Clock, source: random.Random) -> None:
        self._member = member
        self._clock = clock
        self._source = source
        self._challenges: dict[str, float] = {}

    def check(self, connection: Connection, command: Command, member: str) -> None:
        """Raise :class:`CommandError` unless who asks may have *member* forgotten."""
        ends = {connection.peer[0], connection.source}  # a proxy may have named another peer than the one connected
        if all(is_own_host(connection.local[0], host) for host in ends):
            return
        secret, own = self._member.secret, self._member.settings.member
        if secret is None:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"{FORGET_MEMBER_KEY} is taken from the controller's own host only: run mqadmin there, or give all "
                f"controllers {SECRET_FILE_KEY}",
            )
        challenge = optional(command, CHALLENGE) or ""
        expires = self._challenges.pop(challenge, None)
        if expires is not None and self._clock.monotonic() < expires:
            if secret.proves(_digest(command), _FORGETS, own.encode(), member.encode(), challenge.encode()):
                return
            remark = f"{FORGET_MEMBER_KEY}: that is not the secret which {SECRET_FILE_KEY} names here"
            raise CommandError(ResponseCode.NO_PERMISSION, remark)
        remark = f"{FORGET_MEMBER_KEY} from another host needs the secret: mqadmin option --secretFile"
        raise CommandError(ResponseCode.NO_PERMISSION, remark, {CHALLENGE: self._issue(), "controllerId": own})

    def _issue(self) -> str:
        now = self._clock.monotonic()
        self._challenges = {each: expires for each, expires in self._challenges.items() if expires > now}
        while len(self._challenges) >= MAX_CHALLENGES:
            del self._challenges[next(iter(self._challenges))]
        challenge = draw_nonce(self._source).hex()
        self._challenges[challenge] = now + CHALLENGE_SECONDS
        return challenge


def _digest(command: Command) -> bytes:
    try:
        return bytes.fromhex(optional(command, PROOF) or "")
    except ValueError:
        return b""
