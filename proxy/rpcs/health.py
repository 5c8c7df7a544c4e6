"""Whether this proxy serves, for load balancers (grpc.health.v1)."""

from __future__ import annotations

from google.protobuf.wrappers_pb2 import Int32Value, StringValue  # as bytes the same as the messages of that service

from understudy.proxy.grpc.call import Call, Method, unary
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.proxy.rpcs.parts import SERVICE, decoded

_PREFIX = "/grpc.health.v1.Health/"
_SERVING, _SERVICE_UNKNOWN = 1, 3
_SERVICES = ("", SERVICE.strip("/"))


class Health:
    """Says that it serves: a proxy that does not has closed its port."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        return {_PREFIX + "Check": unary(self.check), _PREFIX + "Watch": Method(self.watch, endless=True)}

    async def check(self, call: Call, data: bytes) -> bytes:
        """Answer whether a service is served. Raises :class:`RpcError` (NOT_FOUND) for an unknown one."""
        if decoded(StringValue, data).value not in _SERVICES:
            raise RpcError(StatusCode.NOT_FOUND, "there is no such service here")
        return Int32Value(value=_SERVING).SerializeToString()

    async def watch(self, call: Call) -> None:
        """Tell it now, and again when it changes, which it does not until the call ends."""
        known = decoded(StringValue, await call.receive() or b"").value in _SERVICES
        await call.send(Int32Value(value=_SERVING if known else _SERVICE_UNKNOWN).SerializeToString())
        call.park(self.watch)
