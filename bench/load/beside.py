"""A normal client beside a load: a process of its own that works at a calm pace and measures each exchange."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, NamedTuple, Protocol, TypeVar

import attrs

from bench.load.wire import Peer, percentile, send_request

PAUSE_S = 0.004
"""Between two exchanges."""


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


def send_small(topic: str) -> Exchange[Peer]:
    """Return the exchange of a small sender: one message with its number."""

    def once(peer: Peer, number: int) -> bool:
        command = send_request(topic, b"%d" % number)
        peer.send(command)
        return peer.wait(command).code == 0

    return Exchange(Peer, once)


class Beside:
    """The client; use as a context manager around the load, and read :attr:`measured` after it."""

    def __init__(self, port: int, exchange: Exchange[C], first: int = 0) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_work, args=(port, exchange, first, theirs), daemon=True
        )
        self.measured = Measured([], [], [])

    def __enter__(self) -> Beside:
        self._process.start()
        self._ours.recv()  # it has had its first answer
        return self

    @property
    def pid(self) -> int:
        """Of the client's process."""
        return self._process.pid or 0

    def __exit__(self, *_: object) -> None:
        self._ours.send("stop")
        self.measured = self._ours.recv() if self._ours.poll(60) else Measured([], [], ["the client hangs"])
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()


def _work(port: int, exchange: Exchange[C], number: int, owner: Connection) -> None:
    seconds: list[float] = []
    acknowledged: list[int] = []
    failures: list[str] = []
    peer = exchange.connect(port)
    exchange.once(peer, number)
    acknowledged.append(number)
    owner.send("ready")
    while not owner.poll():
        number += 1
        begin = time.perf_counter()
        try:
            if exchange.once(peer, number):
                acknowledged.append(number)
            else:
                failures.append("refused")
        except OSError as error:
            failures.append(f"{type(error).__name__}: {error}")
            peer.close()
            peer = exchange.connect(port)
        took = time.perf_counter() - begin
        while took > 0:  # exchanges that would have begun meanwhile waited, too
            seconds.append(took)
            took -= PAUSE_S
        time.sleep(PAUSE_S)
    owner.recv()
    owner.send(Measured(seconds, acknowledged, sorted(set(failures))))
