"""Commands of the controller on their way through the quorum, each in a session of its own."""

from __future__ import annotations

from understudy.controller.commands import Command, MalformedCommandError, Outcome, decode_outcome, write_command
from understudy.controller.leadership import heard_leader
from understudy.controller.meter import ControllerMeter
from understudy.controller.raft.errors import (
    CommandRefusedError,
    NotLeaderError,
    OutcomeUnknownError,
    QuorumBusyError,
)
from understudy.controller.raft.leading import MAX_COMMAND_BYTES
from understudy.controller.raft.member import QuorumMember
from understudy.remoting.codes import ResponseCode
from understudy.remoting.fields import CommandError
from understudy.runtime.world import World

ANSWER_SECONDS = 5.0
ATTEMPT_SECONDS = 2.0

NOT_LEADER = "The controller is not in leader state"


class ReplicatedMetadata:
    """Runs commands and fresh reads against the quorum; a command without an answer is repeated in its session.

    Args:
        world: clock and randomness.
        member: this process's member of the quorum.
    """

    def __init__(self, world: World, member: QuorumMember) -> None:
        self._world = world
        self._member = member
        self._process = f"{member.settings.member}-{world.random.getrandbits(64):016x}"
        self._idle: list[tuple[str, int]] = []
        self._sessions = 0
        self.meter: ControllerMeter | None = None

    async def run(self, command: Command) -> Outcome:
        """Replicate *command* and return what it did.

        Raises:
            CommandError: 2007 surely not done here, 1 the outcome is unknown, 2 too many wait, 2005 it is too large or
                its numbers are.
        """
        payload = _payload(command)
        if self.meter is not None:
            return await self.meter.operation(self._replicate(payload))
        return await self._replicate(payload)

    async def _replicate(self, payload: bytes) -> Outcome:
        client, sequence = self._idle.pop() if self._idle else self._new_session()
        sequence += 1
        deadline = self._world.clock.monotonic() + ANSWER_SECONDS
        unknown = False
        while True:
            try:
                result = await self._member.propose(client, sequence, payload, ATTEMPT_SECONDS)
            except NotLeaderError:
                if unknown:
                    raise self._unknown() from None
                self._idle.append((client, sequence))
                raise CommandError(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER, self.leader_hint()) from None
            except OutcomeUnknownError:
                unknown = True
                if self._world.clock.monotonic() >= deadline:
                    raise self._unknown() from None
            except QuorumBusyError as error:
                if unknown:
                    raise self._unknown() from None
                self._idle.append((client, sequence))
                raise CommandError(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy, {error}") from None
            except CommandRefusedError as error:
                self._idle.append((client, sequence))
                raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from None
            else:
                self._idle.append((client, sequence))
                return decode_outcome.decode(result)

    async def fresh(self) -> None:
        """Return once the metadata here is at least as new as this call.

        Raises:
            CommandError: 2007 when this member does not lead, or could not prove it.
        """
        try:
            await self._member.read_barrier()
        except NotLeaderError:
            raise CommandError(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER, self.leader_hint()) from None

    def leader_hint(self) -> dict[str, str]:
        """Return header fields that tell who leads, as far as this member knows."""
        leader = heard_leader(self._member.facts())
        return {} if leader is None or leader == self._member.settings.member else {"controllerLeaderId": leader}

    def _new_session(self) -> tuple[str, int]:
        self._sessions += 1
        return f"{self._process}-{self._sessions}", 0

    @staticmethod
    def _unknown() -> CommandError:
        # the session is left behind: whether its newest command was applied is not known
        return CommandError(
            ResponseCode.SYSTEM_ERROR,
            "the controller group did not confirm the request in time; it may or may not have taken effect, ask again",
        )


def _payload(command: Command) -> bytes:
    try:
        payload = write_command(command)
    except MalformedCommandError as error:
        raise CommandError(ResponseCode.CONTROLLER_INVALID_REQUEST, str(error)) from None
    if len(payload) > MAX_COMMAND_BYTES:
        raise CommandError(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"the request is {len(payload)} bytes long as a command of the controller group, {MAX_COMMAND_BYTES} are "
            "accepted: use shorter names or fewer ids",
        )
    return payload
