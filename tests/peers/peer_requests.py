"""Single requests to servers of either kind, and waiting for what they answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import trio

from understudy.format.json_dialect import loads
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.errors import RemotingError
from understudy.runtime.world import real_world


def ask(address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    """Send one request and return the answer."""

    async def run() -> Command | RemotingError:
        async with open_client(real_world()) as client:
            try:
                return await client.invoke(address, request(code, ext, body), 10_000)
            except RemotingError as error:
                return error

    answer = trio.run(run)
    if isinstance(answer, RemotingError):
        raise answer
    return answer


class RefusedError(AssertionError):
    """An answer is no success: for good, or because the broker is busy or has not begun."""


def table(address: str, code: int, ext: dict[str, str] | None = None) -> Any:
    """Return the JSON body of an answer."""
    answer = ask(address, code, ext)
    if answer.code != 0:
        raise RefusedError(str(answer))
    return loads(answer.body)


def await_true(condition: Callable[[], bool], limit_s: float, what: str) -> float:
    """Poll until the condition holds, also while nobody answers or refuses; return the seconds it took."""
    began, why = time.monotonic(), ""
    while True:
        try:
            if condition():
                return time.monotonic() - began
        except (RemotingError, RefusedError) as error:
            why = f"; refused last: {error}"
        assert time.monotonic() - began < limit_s, f"not within {limit_s} s: {what}{why}"
        time.sleep(0.1)


def await_registered(namesrv: str, brokers: Collection[str], limit_s: float = 60) -> None:
    """Wait until a name server knows all these brokers by name.

    A real broker prints its boot line whether or not its first registration came through; it tries again after ten
    seconds.
    """

    def known() -> bool:
        return set(brokers) <= set(table(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"])

    await_true(known, limit_s, f"{', '.join(sorted(brokers))} registered at {namesrv}")


def await_routed(namesrv: str, topic: str, brokers: Collection[str], limit_s: float = 60) -> None:
    """Wait until a name server sends clients of *topic* to the masters of all these brokers."""

    def routed() -> bool:
        rows = table(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})["brokerDatas"]
        masters = {row["brokerName"] for row in rows if "0" in {str(number) for number in row["brokerAddrs"]}}
        return set(brokers) <= masters

    await_true(routed, limit_s, f"{topic} at {', '.join(sorted(brokers))} is known to {namesrv}")
