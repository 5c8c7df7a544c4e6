"""Calls about a message to the broker that has it, or to who has taken its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from understudy.mqclient.route import BrokerAddresses
from understudy.mqclient.session import fields
from understudy.proxy.brokers import CALL_MS, BrokerGoneError, Brokers, refusal_of
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.posts import Outcome
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.runtime.clock import Clock

PERHAPS_REPLACED = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""What a former master, now a slave, answers to sends, pops and acknowledgements: it has done nothing."""
_NOT_DONE = PERHAPS_REPLACED | {ResponseCode.SYSTEM_ERROR}
"""What it answers to anything about a message that it has, and has done nothing."""
_PERHAPS_DONE = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)
"""What it answers, too, where it cannot be told whether it had done something before it was replaced."""

_REJECTED = "[REJECTREQUEST]"
"""How the reason begins that lies in the role of a broker."""
SUCCESSOR_SECONDS = 1.5
"""How long a call waits for the successor of a master: a route is asked for once a second at most."""
LOOK_SECONDS = 0.1
_LEAST_MS = 1_000
"""What a successor has for its answer at least; all who are asked have no longer than one broker alone, else."""
_NEWS_SECONDS = 0.5
"""How long a name server has to tell where a broker is by now."""
_MOST_ASKED = 4
"""Brokers that are asked one after the other: one that is gone, a slave, the same as master, and one for bad luck."""


async def call_holder(
    brokers: Brokers,
    clock: Clock,
    broker_name: str,
    topic: str,
    code: RequestCode,
    ext: Mapping[str, object],
    *,
    again: bool,
    waits: bool = True,
    first: Outcome | None = None,
) -> Command:
    """Ask the broker that has a message, or who has taken its place.

    One that is gone, or cannot do what it is asked, may have a successor by now or in a moment.

    Args:
        brokers: the cluster.
        clock: for the wait.
        broker_name: the group of brokers.
        topic: of the message.
        code: of the request.
        ext: fields of its header.
        again: it does no harm when it is carried out twice.
        waits: somebody waits for just this answer; who has many to see to asks only those who are there.
        first: what came of it when it was asked before.

    Raises:
        ProxyError: see :meth:`Brokers.call`; 40013 when nobody knows the broker.
    """
    begin, timeout_ms = clock.monotonic(), float(CALL_MS)
    failure: ProxyError = BrokerGoneError(f"broker {broker_name} is not there at the moment", sent=False)
    found: BrokerAddresses | None = await brokers.addresses(broker_name, topic)
    for _ in range(_MOST_ASKED):
        asked = None if found is None else found.first()
        if asked is None:
            break
        patient = waits
        try:
            if isinstance(first, ProxyError):
                raise first
            answer = first or await brokers.ask(asked[1], request(code, fields(ext)), timeout_ms)
        except BrokerGoneError as error:
            failure, repeats = error, again or not error.sent
        except ProxyError as error:  # a timeout: no time is left
            failure, repeats = error, False
        else:
            if answer.code == ResponseCode.SUCCESS:
                return answer
            failure, repeats = refusal_of(answer), again or answer.code in _NOT_DONE
            if answer.code not in _NOT_DONE and answer.code not in _PERHAPS_DONE:
                break
            if answer.code == ResponseCode.SYSTEM_ERROR or is_overload(answer):
                patient = False
        first = None
        wait = begin + SUCCESSOR_SECONDS - clock.monotonic() if patient and repeats else 0.0
        found = await changed(brokers, clock, broker_name, topic, _other_than(asked), wait)
        if not repeats:
            break
        timeout_ms = max(_LEAST_MS, CALL_MS - (clock.monotonic() - begin) * 1000)
    raise failure


def _other_than(asked: tuple[int, str]) -> Callable[[BrokerAddresses], bool]:
    return lambda found: found.first() != asked


async def changed(
    brokers: Brokers,
    clock: Clock,
    broker_name: str,
    topic: str,
    wanted: Callable[[BrokerAddresses], bool],
    seconds: float,
) -> BrokerAddresses | None:
    """Ask anew where the brokers of a group are, until it is as *wanted*; ``None`` if that does not come.

    Args:
        brokers: the cluster.
        clock: for the wait.
        broker_name: the group of brokers.
        topic: one that it has.
        wanted: tells whether it is.
        seconds: how long to look: a new master is known a moment after the former one is none.
    """
    until = clock.monotonic() + seconds
    while True:
        with contextlib.suppress(ProxyError), clock.move_on_after(_NEWS_SECONDS):
            await brokers.route(topic, fresh=True)
            found = await brokers.addresses(broker_name, topic)
            if wanted(found):
                return found
        if clock.monotonic() >= until:
            return None
        await clock.sleep(LOOK_SECONDS)


def is_overload(answer: Command) -> bool:
    """Tell whether a broker refuses because it has too much to do, and not because of its role."""
    return answer.code == ResponseCode.SYSTEM_BUSY and not (answer.remark or "").startswith(_REJECTED)
