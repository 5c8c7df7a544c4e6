"""What calls need of a proxy, and how a call becomes a method of the gRPC server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
from google.protobuf.message import DecodeError, Message

from understudy.proxy.brokers import Brokers
from understudy.proxy.clients import Clients
from understudy.proxy.config import ProxyConfig
from understudy.proxy.core.callers import Caller, caller_of
from understudy.proxy.core.statuses import ProxyError
from understudy.proxy.grpc.call import Call, Method, unary
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.runtime.clock import Clock
from understudy.runtime.log import get_logger

log = get_logger("proxy.rpcs")

SERVICE = "/apache.rocketmq.v2.MessagingService/"

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@attrs.frozen
class Parts:
    """What all calls share.

    Attributes:
        config: settings.
        clock: wall time and deadlines.
        brokers: the cluster.
        clients: who has said what of itself.
        address: returns host and port by which clients reach this proxy, for those that do not say how they do.
        own_brokers: local mode: returns the names of the brokers of this process; ``None`` in cluster mode.
    """

    config: ProxyConfig
    clock: Clock
    brokers: Brokers
    clients: Clients
    address: Callable[[], tuple[str, int]]
    own_brokers: Callable[[], frozenset[str]] | None = None

    def serves(self, broker_name: str) -> bool:
        """Tell whether messages of a broker go through this proxy."""
        return self.own_brokers is None or broker_name in self.own_brokers()


def method(
    parts: Parts,
    request_type: type[Request],
    response_type: Callable[..., Response],
    answer: Callable[[Caller, Request], Awaitable[Response]],
) -> Method:
    """Return the method of calls with one request and one answer.

    Args:
        parts: of the proxy.
        request_type: class of the request.
        response_type: makes an answer that only has a status.
        answer: makes it; a :class:`ProxyError` becomes the status of an answer, as any other failure does.
    """

    async def handle(call: Call, data: bytes) -> bytes:
        try:
            caller = caller_of(call.metadata, call.connection.peer[0])
            response = await answer(caller, decoded(request_type, data))
        except ProxyError as error:
            response = response_type(status=error.status)
        except RpcError:
            raise
        except Exception as error:
            response = response_type(status=failed(call, error).status)
        return response.SerializeToString()

    return unary(handle)


def decoded(request_type: type[Request], data: bytes) -> Request:
    """Return the message in *data*. Raises :class:`RpcError` (INTERNAL) when there is none."""
    try:
        return request_type.FromString(data)
    except DecodeError as error:
        raise RpcError(StatusCode.INTERNAL, f"the request is no {request_type.__name__}: {error}") from None


def failed(call: Call, error: Exception) -> ProxyError:
    """Log a failure of this proxy and return what its client is told."""
    log.error("call failed", exc=error, path=call.metadata.get(":path"), error=repr(error))
    return ProxyError(v2.INTERNAL_SERVER_ERROR, "the proxy failed; its log says why")
