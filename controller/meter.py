"""Counts what a controller does, under the reference's names (ControllerMetricsConstant.java)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError
from understudy.runtime.clock import Clock
from understudy.runtime.metrics import OVERFLOW, Family, Histogram, Sample

_MICROSECONDS = [step * scale for scale in (1, 10, 100, 1000, 10_000, 100_000, 1_000_000) for step in (1, 3, 5)] + [
    10_000_000
]
_TYPES = {
    RequestCode.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    RequestCode.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    RequestCode.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    RequestCode.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
}
"""Where the reference names a request otherwise than its code."""

_ELECTION_RESULTS = {
    int(ResponseCode.SUCCESS): "new_master_elected",
    int(ResponseCode.CONTROLLER_MASTER_STILL_EXIST): "keep_current_master",
    int(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE): "no_master_elected",
    int(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED): "no_master_elected",
}
"""By response code; other answers say that there was no election."""

MOST_ELECTIONS = 10_000
"""Sets of labels of elections; groups may come and go, those beyond are counted together."""

T = TypeVar("T")


class ControllerMeter:
    """Counts requests, replicated operations and elections of one controller.

    Args:
        clock: for how long things take.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, str]] = Counter()
        self._operations: Counter[str] = Counter()
        self._elections: Counter[tuple[tuple[str, str], ...]] = Counter()
        self._request_times = Histogram(_MICROSECONDS)
        self._operation_times = Histogram(_MICROSECONDS)

    def handler(self, code: int, handler: Callable[[Connection, Command], Command]) -> Callable[..., Command]:
        """Return *handler*, counted; for one that never waits."""
        name = _type_name(code)

        def counted(connection: Connection, command: Command) -> Command:
            began, status = self._clock.monotonic(), "failed"
            try:
                answer = handler(connection, command)
                status = _status(answer.code)
                return answer
            finally:
                self._request(name, status, began)

        return counted

    def async_handler(
        self, code: int, handler: Callable[[Connection, Command], Awaitable[Command]]
    ) -> Callable[..., Awaitable[Command]]:
        """Return *handler*, counted; for one that waits."""
        name = _type_name(code)

        async def counted(connection: Connection, command: Command) -> Command:
            began, status = self._clock.monotonic(), "failed"
            try:
                answer = await handler(connection, command)
                status = _status(answer.code)
                return answer
            finally:
                self._request(name, status, began)

        return counted

    async def operation(self, run: Awaitable[T]) -> T:
        """Wait for one replicated command and count it."""
        began, status = self._clock.monotonic(), "failed"
        try:
            result = await run
            status = "success"
            self._operation_times.observe((self._clock.monotonic() - began) * 1e6, _operation_labels(status))
            return result
        except CommandError as error:
            # refused before it was replicated, or nobody knows whether it was
            status = "timeout" if error.code == ResponseCode.SYSTEM_ERROR else "failed"
            raise
        finally:
            self._operations[status] += 1

    def elected(self, cluster_name: str, broker_name: str, code: int) -> None:
        """Count one election of the group *broker_name* of *cluster_name* by its response code."""
        result = _ELECTION_RESULTS.get(int(code))
        if result is None:
            return
        labels: tuple[tuple[str, str], ...] = (
            ("cluster", cluster_name),
            ("broker_set", broker_name),
            ("election_result", result),
        )
        if labels not in self._elections and len(self._elections) >= MOST_ELECTIONS - 1:
            labels = tuple(OVERFLOW.items())
        self._elections[labels] += 1

    def families(self) -> list[Family]:
        """Return what was counted so far."""
        requests = [
            Sample(count, {"request_type": name, "request_handle_status": status})
            for (name, status), count in self._requests.items()
        ]
        operations = [Sample(count, dict(_operation_labels(status))) for status, count in self._operations.items()]
        elections = [Sample(count, dict(labels)) for labels, count in self._elections.items()]
        return [
            Family("request_total", "counter", "total request num", requests),
            Family("dledger_op_total", "counter", "total replicated operation num", operations),
            Family("election_total", "counter", "total elect num", elections),
            self._request_times.family("request_latency_microseconds", "request latency", ("request_latency", "us")),
            self._operation_times.family(
                "dledger_op_latency_microseconds", "replicated operation latency", ("dledger_op_latency", "us")
            ),
        ]

    def _request(self, name: str, status: str, began: float) -> None:
        self._requests[name, status] += 1
        self._request_times.observe((self._clock.monotonic() - began) * 1e6, (("request_type", name),))


def _type_name(code: int) -> str:
    known = RequestCode(code)
    return _TYPES.get(known, known.name)


def _status(code: int) -> str:
    return "success" if code == ResponseCode.SUCCESS else "failed"


def _operation_labels(status: str) -> tuple[tuple[str, str], ...]:
    return (("dledger_operation", "append"), ("dLedger_operation_status", status))
