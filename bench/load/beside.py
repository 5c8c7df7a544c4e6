"""A normal client beside a load: a process of its own that works at a calm pace and measures each exchange."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, NamedTuple, Protocol, TypeVar

import attrs

from bench.load.wire import Peer, percentile, send_request

PAUSE_S = 0.004
"""Between two exchanges."""
ANSWER_S = 60
"""How long the client may take to say something."""


class Measured(NamedTuple):
    """What the client saw.

    Attributes:
        seconds: time of each exchange, those included that could not begin because another one took long.
        acknowledged: numbers of the messages that the server answered "stored".
        failures: what went wrong, each text once.
    """

    seconds: list[float]
    acknowledged: list[int]
    failures: list[str]

    @property
    def p50_ms(self) -> float:
        return percentile(self.seconds, 0.5) * 1000

    @property
    def p99_ms(self) -> float:
        return percentile(self.seconds, 0.99) * 1000

    @property
    def most_ms(self) -> float:
        return max(self.seconds, default=float("inf")) * 1000


class Client(Protocol):
    """One connection."""

    def close(self) -> None:
        """End it."""
        ...


C = TypeVar("C", bound=Client)


@attrs.frozen
class Exchange(Generic[C]):
    """What the client does again and again.

    Attributes:
        connect: returns a connection to a server's port.
        once: one exchange with a number of its own; returns whether the server said yes.
    """

    connect: Callable[[int], C]
    once: Callable[[C, int], bool]


def send_small(topic: str, broker: str = "") -> Exchange[Peer]:
    """Return the exchange of a small sender: one message with its number; a proxy must be told the *broker*."""

    def once(peer: Peer, number: int) -> bool:
        command = send_request(topic, b"%d" % number, broker=broker)
        peer.send(command)
        return peer.wait(command).code == 0

    return Exchange(Peer, once)


class Beside:
    """The client; use as a context manager around the load, and read :attr:`measured` after it."""

    def __init__(self, port: int, exchange: Exchange[C], first: int = 0) -> None:
        self._ours, self._theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_work, args=(port, exchange, first, self._theirs), daemon=True
        )
        self.measured = Measured([], [], [])

    def __enter__(self) -> Beside:
        self._process.start()
        self._theirs.close()  # so that its end is noticed here
        self._answer()  # it has had its first answer, or will have to tell why not
        return self

    @property
    def pid(self) -> int:
        """Of the client's process."""
        return self._process.pid or 0

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._ours.send("stop")
        self.measured = self._answer()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def _answer(self) -> Measured:
        try:
            if self._ours.poll(ANSWER_S):
                told: Measured = self._ours.recv()
                return told
            return Measured([], [], ["the client hangs"])
        except (EOFError, OSError):
            return Measured([], [], ["the client has died"])


def _work(port: int, exchange: Exchange[C], number: int, owner: Connection) -> None:
    found = Measured([], [], [])
    peer = _exchanged(port, exchange, None, number, found)
    owner.send(found)
    while not owner.poll():
        number += 1
        begin = time.perf_counter()
        peer = _exchanged(port, exchange, peer, number, found)
        took = time.perf_counter() - begin
        while took > 0:  # exchanges that would have begun meanwhile waited, too
            found.seconds.append(took)
            took -= PAUSE_S
        time.sleep(PAUSE_S)
    owner.recv()
    owner.send(found._replace(failures=sorted(set(found.failures))))


def _exchanged(port: int, exchange: Exchange[C], peer: C | None, number: int, found: Measured) -> C | None:
    """Do one exchange and note what came of it; return the connection for the next one, ``None`` for a new one."""
    try:
        peer = exchange.connect(port) if peer is None else peer
        if exchange.once(peer, number):
            found.acknowledged.append(number)
        else:
            found.failures.append("refused")
    except Exception as error:  # whatever a server under attack answers, or does not: the row says it
        found.failures.append(f"{type(error).__name__}: {error}")
        if peer is not None:
            peer.close()
        return None
    return peer
