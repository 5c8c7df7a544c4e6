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
from understudy.runtime.world import World

MOST_ASKED = 10_000
"""Questions of one client that brokers have not answered; pulls wait long."""
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

    async def run(self, world: World, like: RemotingClient) -> None:
        """Hold the connections to brokers while the client is there; they are signed and secured as those of *like*."""
        async with open_client(world, like=like) as client:
            client.default(self._asked_by_broker)
            self.client = client
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
        self._asked += 1

        def answered(answer: Command | None) -> None:
            self._asked -= 1
            if refused is not None and (answer is None or answer.code in PERHAPS_REPLACED):
                refused()
            self.connection.respond(command, relabelled(answer, command, broker.address))

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
        try:
            self.connection.ask(
                out, lambda answer: broker.respond(command, relabelled(answer, command, self.connection.address))
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
