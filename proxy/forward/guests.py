"""One remoting client of a proxy: what it asks brokers, and what they ask it."""

from __future__ import annotations

from collections.abc import Callable

import trio

from understudy.proxy.holders import PERHAPS_REPLACED
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command, next_opaque, response
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Answer
from understudy.remoting.errors import ConnectionLostError
from understudy.runtime.budget import Budget
from understudy.runtime.world import World

MOST_ASKED = 10_000
"""Questions of one client that brokers have not answered; pulls wait long."""
ASKED_BYTES = 2_048
"""Memory of one of them: rows here and in the table of the broker's connection, and what an answer needs of it."""
_NO_MEMORY = "[OVERLOAD]requests of this client that wait for brokers hold too much memory of this proxy; try again"
STATE = "guest"


class Guest:
    """One client, with connections of its own to brokers.

    Args:
        connection: to the client.

    Attributes:
        client: its connections to brokers; ``None`` until they can be made.
        ready: set when they can.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.client: RemotingClient | None = None
        self.ready = trio.Event()
        self._asked = 0
        self._parked: Budget | None = None

    async def run(self, world: World, like: RemotingClient) -> None:
        """Hold the connections to brokers while the client is there; they are signed and secured as those of *like*."""
        async with open_client(world, like=like) as client:
            client.default(self._asked_by_broker)
            self.client, self._parked = client, world.load.parked
            self.ready.set()
            await trio.sleep_forever()

    def ask(self, broker: Connection, command: Command, refused: Callable[[], object] | None = None) -> None:
        """Ask a broker what the client asks; the answer goes to the client when it comes.

        Args:
            broker: to whom.
            command: of the client.
            refused: called when the broker is gone, or answers as one that is no master any more.
        """
        out = copied(command)
        if command.flag & ONEWAY_BIT:
            broker.notify(out)
            return
        if self._asked >= MOST_ASKED:
            remark = f"[OVERLOAD]{MOST_ASKED} requests of this client wait for brokers; slow down and try again"
            self.connection.respond(command, response(command, ResponseCode.SYSTEM_BUSY, remark))
            return
        parked, holder, asked = self._parked, self.connection, without_content(command)
        if parked is not None:
            if not parked.allows(holder, ASKED_BYTES):
                parked.refused += 1
                self.connection.respond(command, response(command, ResponseCode.SYSTEM_BUSY, _NO_MEMORY))
                return
            parked.change(holder, ASKED_BYTES)
        self._asked += 1

        # It may wait for long: nothing of what the client has sent is kept but what its answer needs.
        def answered(answer: Command | None) -> None:
            self._asked -= 1
            if parked is not None:
                parked.change(holder, -ASKED_BYTES)
            if refused is not None and (answer is None or answer.code in PERHAPS_REPLACED):
                refused()
            self.connection.respond(asked, relabelled(answer, asked, broker.address))

        try:
            broker.ask(out, answered)
        except ConnectionLostError:
            answered(None)

    def _asked_by_broker(self, broker: Connection, command: Command) -> Answer:
        """Hand on what a broker asks the client: to decide about a half message, to look at its group again."""
        out = copied(command)
        if command.flag & ONEWAY_BIT:
            self.connection.notify(out)
            return None
        asked = without_content(command)
        try:
            self.connection.ask(
                out, lambda answer: broker.respond(asked, relabelled(answer, asked, self.connection.address))
            )
        except ConnectionLostError:
            return relabelled(None, command, self.connection.address)
        return None


def guest_of(connection: Connection, run: Callable[[Guest], object]) -> Guest:
    """Return the guest behind *connection*; *run* starts what it needs when it is seen first."""
    guest = connection.state.get(STATE)
    if not isinstance(guest, Guest):
        guest = connection.state[STATE] = Guest(connection)
        run(guest)
    return guest


def copied(command: Command) -> Command:
    """Return *command* as a request of this process: with a correlation number of its own."""
    flag = command.flag & ONEWAY_BIT
    return Command(
        command.code,
        command.language,
        command.version,
        next_opaque(),
        flag,
        command.remark,
        command.ext,
        bytes(command.body),
    )


def without_content(command: Command) -> Command:
    """Return what an answer to *command* needs of it: its numbers, and neither its fields nor its body."""
    return Command(command.code, command.language, command.version, command.opaque, command.flag)


def relabelled(answer: Command | None, request: Command, peer: str) -> Command:
    """Return the *answer* of *peer* as the one to *request*; ``None``: it went away."""
    if answer is None:
        return response(request, ResponseCode.SYSTEM_ERROR, f"{peer} went away before it answered; try again")
    return Command(
        answer.code,
        answer.language,
        answer.version,
        request.opaque,
        answer.flag,
        answer.remark,
        answer.ext,
        bytes(answer.body),
    )
