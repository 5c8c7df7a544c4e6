"""What calls need of a proxy, and how a call becomes a method of the gRPC server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

import attrs
from google.protobuf.message import DecodeError, Message

from understudy.proxy.access import Access
from understudy.proxy.brokers import CALL_MS, Brokers
from understudy.proxy.clients import Clients
from understudy.proxy.config import ProxyConfig
from understudy.proxy.core.callers import CLIENT_ID, REQUEST_ID, Caller, caller_of
from understudy.proxy.core.request_parts import SMALL_BYTES
from understudy.proxy.core.statuses import ProxyError, status
from understudy.proxy.grpc.call import Call, Method, unary
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.posts import Posts
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("proxy.rpcs")

SERVICE = "/apache.rocketmq.v2.MessagingService/"

MOST_BYTES = 1 << 20
"""Of a request without messages. A part of it may take two bytes, and fifty times as much once it is read."""

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@attrs.frozen
class Parts:
    """What all calls share.

    Attributes:
        config: settings.
        clock: wall time and deadlines.
        brokers: the cluster.
        posts: what calls without a task ask of it.
        clients: who has said what of itself.
        address: returns host and port by which clients reach this proxy, for those that do not say how they do.
        access: who may call what.
        own_brokers: local mode: returns the names of the brokers of this process; ``None`` in cluster mode.
        ended: how many calls ended, by rpc and code of their status.
    """

    config: ProxyConfig
    clock: Clock
    brokers: Brokers
    posts: Posts
    clients: Clients
    address: Callable[[], tuple[str, int]]
    access: Access
    own_brokers: Callable[[], frozenset[str]] | None = None
    ended: Counter[tuple[str, int]] = attrs.field(factory=Counter)

    def serves(self, broker_name: str) -> bool:
        """Tell whether messages of a broker go through this proxy."""
        return self.own_brokers is None or broker_name in self.own_brokers()


class Begun(Generic[Response]):
    """A call that waits for a broker, without a task.

    Args:
        parts: of the proxy.
        rpc: which call.
        call: the same, as the server knows it.
        caller: whose it is.
        response_type: makes an answer that only has a status.

    Attributes:
        caller: as given.
        until: monotonic seconds until which a broker is waited for.
        is_hurried: its client waits for a shorter time than a broker is given.
    """

    __slots__ = ("_call", "_ended", "_response_type", "_rpc", "caller", "is_hurried", "until")

    def __init__(
        self, parts: Parts, rpc: str, call: Call, caller: Caller, response_type: Callable[..., Response]
    ) -> None:
        self._rpc = rpc
        self._call = call
        self._ended = parts.ended
        self._response_type = response_type
        self.caller = caller
        until, deadline = parts.clock.monotonic() + CALL_MS / 1000, call.deadline
        self.is_hurried = deadline is not None and deadline < until
        self.until = until if deadline is None else min(until, deadline)

    def answer(self, make: Callable[[], Response]) -> None:
        """Answer at once with what *make* returns, and end the call."""
        try:
            response = make()
        except Exception as error:  # nobody may learn of it but this client
            response = self._response_type(status=failed(self._rpc, self.caller.request_id, error))
        self._call.answer(self._counted(response))

    def go_on(self, work: Callable[[], Awaitable[Response]]) -> None:
        """Answer with what *work* returns, which may take its time; it raises what a handler may."""

        async def finish(call: Call) -> None:
            try:
                response = await work()
            except ProxyError as error:
                status = not_served(self._rpc, self.caller.client_id, self.caller.request_id, error)
                response = self._response_type(status=status)
            except Exception as error:
                response = self._response_type(status=failed(self._rpc, self.caller.request_id, error))
            await call.send(self._counted(response), more=True)

        self._call.park(finish)
        self._call.resume()

    def _counted(self, response: Response) -> bytes:
        self._ended[self._rpc, response.status.code] += 1  # type: ignore[attr-defined]  # every answer has one
        return response.SerializeToString()


def method(
    parts: Parts,
    request_type: type[Request],
    response_type: Callable[..., Response],
    answer: Callable[[Caller, Request], Awaitable[Response]],
    most_bytes: int = MOST_BYTES,
    check: Callable[[bytes], None] | None = None,
    begin: Callable[[Begun[Response], Request], bool] | None = None,
) -> Method:
    """Return the method of calls with one request and one answer.

    Args:
        parts: of the proxy.
        request_type: class of the request.
        response_type: makes an answer that only has a status.
        answer: makes it; a :class:`ProxyError` becomes the status of an answer, as any other failure does.
        most_bytes: of a request.
        check: looks at a large request before it is read, in a thread; may raise :class:`ProxyError`.
        begin: begins what the answer to a small request takes, and returns True; or returns False, or raises
            :class:`ProxyError`, and has begun nothing: then *answer* makes it.
    """

    rpc = request_type.DESCRIPTOR.name.removesuffix("Request")
    access, ended = parts.access, parts.ended

    async def handle(call: Call, data: bytes) -> bytes:
        try:
            caller = caller_of(call.metadata, call.connection.peer[0])
            if check is not None and len(data) > SMALL_BYTES:
                await call.connection.threads.run(partial(check, data))
            request = decoded(request_type, data)
            if access.asks:
                user = await access.check(call.metadata, call.connection.source, request)
                caller = attrs.evolve(caller, user=user)
            response = await answer(caller, request)
        except ProxyError as error:
            response = response_type(status=refused(rpc, call, error))
        except RpcError:
            raise
        except Exception as error:
            response = response_type(status=failed(rpc, call.metadata.get(REQUEST_ID, ""), error))
        ended[rpc, response.status.code] += 1  # type: ignore[attr-defined]  # every answer has one
        return response.SerializeToString()

    def begin_at_once(call: Call, data: bytes) -> bool:
        if begin is None or access.asks or len(data) > SMALL_BYTES:
            return False
        try:
            caller = caller_of(call.metadata, call.connection.peer[0])
            begun = Begun(parts, rpc, call, caller, response_type)
            if not begin(begun, request_type.FromString(data)):
                return False
        except (ProxyError, DecodeError):
            return False  # whoever answers finds the same again, and tells it
        except Exception as error:  # one call must never end its connection
            log.error("call not begun", exc=error, rpc=rpc, error=repr(error))
            return False
        if call.scope is None:  # else it goes on in a task already
            call.park(call.method.handler)
        return True

    return unary(handle, most_bytes, None if begin is None else begin_at_once)


def refused(rpc: str, call: Call, error: ProxyError) -> v2.Status:
    """Return the status of a call that is refused; what is not its client's fault is in the log."""
    return not_served(rpc, call.metadata.get(CLIENT_ID, ""), call.metadata.get(REQUEST_ID, ""), error)


def not_served(rpc: str, client_id: str, request_id: str, error: ProxyError) -> v2.Status:
    """Do as :func:`refused` for a call that was parked, and has its header fields no more.

    Args:
        rpc: which call.
        client_id: whose it is.
        request_id: by which its client knows it.
        error: why.
    """
    if error.code >= v2.INTERNAL_ERROR:
        client, request = client_id[:64], request_id[:64]
        log.info("call not served", rpc=rpc, client=client, request=request, code=error.code, why=error.message)
    return error.status


def decoded(request_type: type[Request], data: bytes) -> Request:
    """Return the message in *data*. Raises :class:`RpcError` (INTERNAL) when there is none."""
    try:
        return request_type.FromString(data)
    except DecodeError as error:
        raise RpcError(StatusCode.INTERNAL, f"the request is no {request_type.__name__}: {error}") from None


def failed(rpc: str, request_id: str, error: Exception) -> v2.Status:
    """Log a failure of this proxy and return what its client is told.

    Args:
        rpc: which call.
        request_id: by which its client knows it.
        error: what happened.
    """
    log.error("call failed", exc=error, rpc=rpc, request=request_id[:64], error=repr(error))
    return status(v2.INTERNAL_SERVER_ERROR, "the proxy failed; its log says why")
