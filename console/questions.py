"""What name servers and brokers are asked, each an answer in the words of the model; nothing here remembers anything.

Only the remoting protocol's admin requests, and ours where a broker knows them: one of the reference is asked without.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from understudy.console.model import lag, sync_sets, waiting
from understudy.console.model.lag import LagLook
from understudy.console.model.looks import BrokerLook, GroupAddresses
from understudy.console.model.sync_sets import SyncSetLook
from understudy.console.model.waiting import StuckLook
from understudy.format.json_dialect import JsonError, dumps
from understudy.mqclient.admin import cluster
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.session import Session
from understudy.remoting.bodies import json_value
from understudy.remoting.codes import RequestCode, ResponseCode

_TIMEOUT_MS = 3_000.0
_LONG_TIMEOUT_MS = 15_000.0
_FIND_TIMEOUT_MS = 1_000.0
_SETTINGS = ("asyncLearner", "controllerAddr", "enableControllerMode", "isInBrokerContainer")
_UNREADABLE = (JsonError, ValueError, TypeError, AttributeError, KeyError)


class NoAnswerError(Exception):
    """A server did not answer, refused, or answered what cannot be read; the message is one line for people."""


async def groups(session: Session) -> dict[str, GroupAddresses]:
    """Return the broker groups of a name server, with what routes show of them. Raises :class:`NoAnswerError`."""
    try:
        info = await cluster.cluster_info(session)
        shown: dict[str, Mapping[int, str]] = {}
        for name in info.clusters:
            shown |= await _shown(session, name)
    except (ClientError, *_UNREADABLE) as error:
        raise NoAnswerError(str(error)) from error
    return {
        name: GroupAddresses(each.cluster, dict(each.addresses), shown.get(name, {}))
        for name, each in info.brokers.items()
    }


async def _shown(session: Session, cluster_name: str) -> dict[str, Mapping[int, str]]:
    """Return addresses as clients get them: every broker has a topic called like its cluster, unless told otherwise."""
    try:
        route = await session.fresh_route(cluster_name)
    except ClientError:
        return {}
    return {name: dict(each.addresses) for name, each in route.brokers.items()}


async def broker(
    session: Session, address: str, *, with_roster: bool, with_replication: bool, with_settings: bool
) -> BrokerLook:
    """Return what the broker at *address* says of itself.

    Args:
        session: connections to servers.
        address: ``host:port``.
        with_roster: ask which services run and why, which only brokers of ours know.
        with_replication: ask how its slaves follow.
        with_settings: ask where it runs, and who leads it.
    """
    clock = session.world.clock
    try:
        figures = await cluster.runtime_info(session, address)
        roster, knows = await _asked(session, address, RequestCode.GET_BROKER_ROSTER) if with_roster else (None, True)
        replication = None
        if with_replication:
            replication, _ = await _asked(session, address, RequestCode.GET_BROKER_HA_STATUS)
        settings = await _settings(session, address) if with_settings else None
    except (ClientError, *_UNREADABLE) as error:
        return BrokerLook(clock.wall_ms(), error=str(error))
    return BrokerLook(clock.wall_ms(), figures, roster, replication, of_reference=not knows, settings=settings)


async def _settings(session: Session, address: str) -> Mapping[str, str] | None:
    try:
        found = await cluster.broker_config(session, address)
    except ClientError:  # it refuses, or they cannot be read: the rest counts all the same
        return None
    return {name: found[name] for name in _SETTINGS if name in found}


async def _asked(session: Session, address: str, code: RequestCode) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the answer to a question that not every broker knows, and whether this one does.

    One that refuses it now, as it is busy for example, may answer the next time.
    """
    try:
        return await ask(session, address, code, {}), True
    except BrokerError as error:
        return None, error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def lags(session: Session, address: str) -> LagLook:
    """Return how far all consumer groups are at the broker at *address*."""
    clock = session.world.clock
    try:
        body = await ask(
            session, address, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False}, timeout_ms=_LONG_TIMEOUT_MS
        )
        return await session.world.threads.run(partial(lag.look_of, body, clock.wall_ms()))
    except (ClientError, *_UNREADABLE) as error:
        return LagLook(clock.wall_ms(), error=str(error))


async def stuck(session: Session, address: str, name: str) -> StuckLook:
    """Return what waits in the broker at *address*, which leads broker group *name*."""
    clock = session.world.clock
    try:
        body = await ask(session, address, RequestCode.LIST_STUCK_WORK, {}, timeout_ms=_LONG_TIMEOUT_MS)
        return waiting.look_of(body, name, clock.wall_ms())
    except BrokerError as error:
        says = error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return StuckLook(clock.wall_ms(), name, says=says, error=str(error) if says else "")
    except (ClientError, *_UNREADABLE) as error:
        return StuckLook(clock.wall_ms(), name, error=str(error))


async def sync_state_sets(session: Session, controllers: tuple[str, ...], names: list[str]) -> dict[str, SyncSetLook]:
    """Return what *controllers* say of the broker groups *names*, which they lead; of each group why, if nothing."""
    clock = session.world.clock
    try:
        leader = await _leader_of(session, controllers)
        body = await ask(session, leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, body=dumps(names))
        table, at_ms = body.get("replicasInfoTable") or {}, clock.wall_ms()
        unknown = SyncSetLook(at_ms, controllers, error="they do not know it: none of its brokers has registered there")
        return {
            name: sync_sets.look_of(table[name], at_ms, controllers, leader) if name in table else unknown
            for name in names
        }
    except (ClientError, *_UNREADABLE) as error:
        failed = SyncSetLook(clock.wall_ms(), controllers, error=str(error))
        return dict.fromkeys(names, failed)


async def _leader_of(session: Session, controllers: tuple[str, ...]) -> str:
    """Return the address of the controller that leads the others. Raises :class:`ClientError` when none does."""
    silent = []
    for address in controllers:
        try:
            answer = await session.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO, timeout_ms=_FIND_TIMEOUT_MS)
        except ClientError as error:
            silent.append(f"{address}: {error}")
            continue
        leader = (answer.ext or {}).get("controllerLeaderAddress")
        if leader:
            return leader
    why = f" ({'; '.join(silent)})" if silent else ""
    raise ClientError(f"no controller is active{why}: a majority of them must run and reach each other")


async def progress_of(session: Session, address: str, group: str, topic: str) -> dict[int, int]:
    """Return the offset of the next message of *group* in each queue of *topic* at the broker at *address*.

    Args:
        session: connections to servers.
        address: ``host:port``.
        group: consumer group.
        topic: one that it consumes.

    Raises:
        ClientError: no answer, or a refusal.
    """
    body = await ask(session, address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic})
    return {queue.queue_id: queue.consumed for queue in lag.queues_of(body) if queue.topic == topic}


async def ask(
    session: Session,
    address: str,
    code: RequestCode,
    ext: Mapping[str, object],
    *,
    body: bytes = b"",
    timeout_ms: float = _TIMEOUT_MS,
) -> dict[str, Any]:
    """Return the JSON object that a server answers; a large one is read in a thread.

    Args:
        session: connections to servers.
        address: ``host:port``.
        code: what to ask.
        ext: header fields.
        body: of the request.
        timeout_ms: longest wait.

    Raises:
        ClientError: no answer, a refusal, or no JSON object.
    """
    answer = await session.call(address, code, ext, body, timeout_ms=timeout_ms)
    if not answer.body:
        return {}
    try:
        found = await json_value(session.world.threads, bytes(answer.body))
    except JsonError as error:
        raise ClientError(f"{address}: the answer's body cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ClientError(f"{address}: the answer's body is no JSON object")
    return found
