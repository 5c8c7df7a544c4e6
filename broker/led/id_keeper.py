"""Brings a broker to its persistent id: asks the controllers and writes the files, in the order that is decided.

What is decided is in :mod:`~understudy.broker.led.identity`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from understudy.broker.led import identity
from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import NOBODY, Word
from understudy.broker.led.identity_files import Claim, IdentityError, IdentityFiles, Kept
from understudy.remoting.codes import ResponseCode
from understudy.runtime.clock import Clock
from understudy.runtime.disk import Disk
from understudy.runtime.log import get_logger

log = get_logger("broker.led")

AGAIN_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 5.0


@attrs.frozen
class Registered:
    """The controllers know the broker.

    Attributes:
        broker_id: its persistent id.
        leader: address of the controller that said so.
        word: what it said of the group.
    """

    broker_id: int
    leader: str
    word: Word


class IdKeeper:
    """The id of one broker.

    Args:
        clock: for pauses, and codes of claims.
        disk: of the files.
        files: keep it.
        controllers: are asked.
        addresses: returns where they are.
        own_address: of the broker, ``host:port``.

    Attributes:
        problem: why there is none yet, ``""`` when there is one.
    """

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        files: IdentityFiles,
        controllers: Controllers,
        addresses: Callable[[], Iterable[str]],
        own_address: str,
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._files = files
        self._controllers = controllers
        self._addresses = addresses
        self._own_address = own_address
        self._leader = ""
        self.problem = "no controller was reached yet"

    async def register(self) -> Registered:
        """Return once the controllers know the broker under its id and address, however long it takes.

        Raises:
            OSError: what must be durable cannot be.
        """
        state, word = identity.begin(await self._read()), NOBODY
        while not isinstance(state.action, identity.Done):
            claimed = self._claim(state.action)
            event = await self._write(state.action, claimed)
            if event is None:
                event, word = await self._ask(state.action)
                if isinstance(event, identity.Unanswered):
                    await self._clock.sleep(AGAIN_SECONDS)
            state = identity.step(state, event, claimed)
        self.problem = ""
        return Registered(state.action.broker_id, self._leader, word)

    async def _read(self) -> Kept:
        """Return what the files hold; a file that cannot be used is waited for, until somebody has mended it."""
        while True:
            try:
                return await self._disk.in_thread(self._files.read)
            except IdentityError as error:
                self._has_problem(str(error))
            await self._clock.sleep(LOOK_AGAIN_SECONDS)

    def _claim(self, action: identity.Action) -> Claim | None:
        if not isinstance(action, identity.WriteClaim):
            return None
        return Claim(action.broker_id, f"{self._own_address};{self._clock.wall_ms()}")

    async def _write(self, action: identity.Action, claimed: Claim | None) -> identity.Event | None:
        """Make durable what *action* says; ``None`` when it says nothing of files."""
        files = self._files
        if claimed is not None:
            await self._disk.in_thread(lambda: files.claim(claimed))
        elif isinstance(action, identity.Confirm):
            broker_id = action.broker_id
            await self._disk.in_thread(lambda: files.confirm(broker_id))
        elif isinstance(action, identity.ForgetClaim):
            await self._disk.in_thread(files.forget_claim)
        elif isinstance(action, identity.ForgetAll):
            await self._disk.in_thread(files.forget_all)
        else:
            return None
        return identity.Written()

    async def _ask(self, action: identity.Action) -> tuple[identity.Event, Word]:
        try:
            self._leader = self._leader or await self._controllers.find_leader(self._addresses())
            if not self._leader:
                raise UnansweredError("none of them is there and knows a leader")
            return await self._question(action)
        except UnansweredError as error:
            named = ";".join(self._addresses()) or "none: controllerAddr is empty"
            self._has_problem(f"no answer of the controllers ({named}): {error}")
            self._leader = ""
        except RefusedError as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                return identity.Taken(), NOBODY
            if error.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                return identity.Unknown(), NOBODY
            self._has_problem(f"the controller {self._leader} refused: {error}")
        return identity.Unanswered(), NOBODY

    async def _question(self, action: identity.Action) -> tuple[identity.Event, Word]:
        controllers = self._controllers
        if isinstance(action, identity.AskNextId):
            return identity.NextId(await controllers.next_id(self._leader)), NOBODY
        if isinstance(action, identity.Apply):
            await controllers.apply(self._leader, action.claim)
            return identity.Granted(), NOBODY
        assert isinstance(action, identity.Register)
        return identity.Known(), await controllers.register(self._leader, action.broker_id, self._own_address)

    def _has_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            log.warning("this broker has no role yet", broker=self._own_address, why=problem)
