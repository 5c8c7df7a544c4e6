"""How long a server's requests take, by request and response code.

The laws:

* A request takes from when work on the receive that brought it begins until its answer is given to the network.
* Those answered in place are told together once the answers of their receive are sent: two looks at the clock for all
  of them, and for each nothing but its code put into a list.
* One that is answered later is a row of its connection, until a frame with its number is written there.
* Servers whose metrics nobody asked for have plain connections, and do none of this.

Source: NettyRemotingAbstract.java, RemotingMetricsConstant.java, RemotingHelper.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache

from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import ONEWAY_BIT, Command
from understudy.remoting.connection import Connection, Dispatch
from understudy.remoting.dispatch import Handler, failure
from understudy.remoting.frame import Buffer, encode
from understudy.remoting.limits import ConnectionLimits
from understudy.runtime.clock import Clock
from understudy.runtime.load import Load
from understudy.runtime.metrics import Family, Histogram, Observations
from understudy.runtime.network import ByteStream

BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
MOST_WAITING = 10_000
"""Requests of one connection whose answers are waited for; of any more the oldest is not told."""

_NAME = "rocketmq_rpc_latency_milliseconds"
_LENGTHS_BYTES = 8  # of the frame and of its header, in front of that
_CODE = b'{"code":'
_SUCCESS = _CODE + b"0,"
_CODE_AT = _LENGTHS_BYTES + len(_CODE)
_OPAQUE = b'"flag":1,"language":"JAVA","opaque":'
_LONG_POLLS = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
    }
)
_LOST, _ONEWAY, _ANSWERED = "write_channel_failed", "oneway", "success"


class Latencies:
    """How long the requests of one server took, or of several that are one to their clients.

    Args:
        clock: monotonic time.

    Attributes:
        began: when work on the receive began that is in work; 0 between receives.
        succeeded: codes of its requests that were answered with success.
        others: codes of the others, of their answers, and what came of it.
    """

    def __init__(self, clock: Clock) -> None:
        self.began = 0.0
        self.succeeded: list[int] = []
        self.others: list[tuple[int, int, str]] = []
        self._monotonic = clock.monotonic
        self._histogram = Histogram(BOUNDS_MS)
        self._successes: dict[int, Observations] = {}

    def family(self) -> Family:
        """Return what was measured so far."""
        return self._histogram.family(_NAME, "Rpc latency")

    def connection(
        self,
        stream: ByteStream,
        clock: Clock,
        limits: ConnectionLimits,
        load: Load,
        handlers: tuple[Mapping[int, Handler], Handler],
    ) -> Connection:
        """Return a connection whose requests are measured.

        Args:
            stream, clock, limits, load: of the connection.
            handlers: of its requests, by code, and that of others.
        """
        return _TimedConnection(stream, clock, limits, load, self, handlers)

    def end(self) -> None:
        """Count the requests of this receive, whose answers are sent."""
        elapsed_ms = (self._monotonic() - self.began) * 1000
        self.began = 0.0
        succeeded, others = self.succeeded, self.others
        if len(succeeded) == 1:
            self._success(succeeded[0]).add(elapsed_ms)
            succeeded.clear()
        elif succeeded:
            for code, number in Counter(succeeded).items():
                self._success(code).add(elapsed_ms, number)
            succeeded.clear()
        if others:
            for (code, answered, result), number in Counter(others).items():
                self._histogram.of(_labels(code, answered, False, result)).add(elapsed_ms, number)
            others.clear()

    def _success(self, code: int) -> Observations:
        row = self._successes.get(code)
        if row is None:  # a code that a handler answers: there are not many
            row = self._successes[code] = self._histogram.of(_labels(code, 0, False, _ANSWERED))
        return row

    def later(self, code: int, since: float, answered: int, *, lost: bool) -> None:
        """Count a request that was answered after its receive.

        Args:
            code: of the request.
            since: when it came.
            answered: the response code.
            lost: its connection had ended.
        """
        elapsed_ms = (self._monotonic() - since) * 1000
        labels = _labels(code, answered, code in _LONG_POLLS, _LOST if lost else _ANSWERED)
        self._histogram.observe(elapsed_ms, labels)


class _TimedConnection(Connection):
    """A connection that tells *latencies* of its requests."""

    def __init__(
        self,
        stream: ByteStream,
        clock: Clock,
        limits: ConnectionLimits,
        load: Load,
        latencies: Latencies,
        handlers: tuple[Mapping[int, Handler], Handler],
    ) -> None:
        super().__init__(stream, clock, limits, load)
        self._latencies = latencies
        self._handlers, self._default = handlers
        self._monotonic = clock.monotonic
        self._unanswered: dict[int, tuple[int, float]] = {}

    async def run(
        self,
        dispatch: Dispatch,
        *,
        proxied: bool = False,
        handed_on: Callable[[], None] | None = None,
        answered: Callable[[], None] | None = None,
    ) -> None:
        def after() -> None:
            self._latencies.end()
            if answered is not None:
                answered()

        await super().run(self._timed, proxied=proxied, handed_on=handed_on, answered=after)

    def _timed(self, connection: Connection, command: Command) -> None:
        """Do what ``Dispatcher.dispatch`` does, and tell of it. Hot path: few calls."""
        latencies, code = self._latencies, command.code
        if not latencies.began:
            latencies.began = self._monotonic()
        try:
            answer = self._handlers.get(code, self._default)(connection, command)
        except Exception as error:
            answer = failure(connection, command, error)
        if type(answer) is bytes and answer.startswith(_SUCCESS, _LENGTHS_BYTES) and not command.flag & ONEWAY_BIT:
            Connection.write(self, answer)
            latencies.succeeded.append(code)
        elif command.flag & ONEWAY_BIT:
            latencies.others.append((code, answer.code if isinstance(answer, Command) else 0, _ONEWAY))
        elif answer is None:
            if len(self._unanswered) >= MOST_WAITING:
                del self._unanswered[next(iter(self._unanswered))]
            self._unanswered[command.opaque or 0] = code, latencies.began
        else:
            frame = encode(answer) if isinstance(answer, Command) else answer
            Connection.write(self, frame)
            head = frame if isinstance(frame, (bytes, bytearray, memoryview)) else frame[0]
            latencies.others.append((code, _code_of(bytes(head)), _ANSWERED))

    def write(self, frame: Buffer | Sequence[Buffer]) -> None:
        super().write(frame)
        if self._unanswered:
            self._settle((frame,) if isinstance(frame, (bytes, bytearray, memoryview)) else frame)

    def _settle(self, buffers: Sequence[Buffer]) -> None:
        """Tell of the requests that *buffers* answer; what else goes out says nothing."""
        missing = 0
        for buffer in buffers:
            if missing > 0:  # a part of the body before it
                missing -= len(buffer)
                continue
            missing = int.from_bytes(buffer[:4], "big") + 4 - len(buffer)
            header = bytes(buffer[: _LENGTHS_BYTES + int.from_bytes(buffer[5:_LENGTHS_BYTES], "big")])
            at = header.find(_OPAQUE)
            if at < 0:
                continue
            at += len(_OPAQUE)
            request = self._unanswered.pop(int(header[at : header.index(b",", at)]), None)
            if request is not None:
                self._latencies.later(*request, _code_of(header), lost=not self.alive)


def _code_of(head: bytes) -> int:
    """Return the code of the answer that begins with *head*: keys are sorted, so that its header begins with it."""
    return int(head[_CODE_AT : head.index(b",", _CODE_AT)])


@lru_cache(maxsize=1000)
def _labels(code: int, answered: int, long_polling: bool, result: str) -> tuple[tuple[str, str], ...]:
    return (
        ("protocol_type", "remoting"),
        ("request_code", _name_of(RequestCode, code)),
        ("response_code", _name_of(ResponseCode, answered)),
        ("is_long_polling", "true" if long_polling else "false"),
        ("result", result),
    )


def _name_of(codes: type[IntEnum], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)
