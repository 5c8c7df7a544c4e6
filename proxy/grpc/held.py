"""What the calls of one connection hold of the process's memory."""

from __future__ import annotations

from collections.abc import Hashable

from understudy.proxy.grpc.call import Call
from understudy.proxy.grpc.status import RpcError, StatusCode
from understudy.runtime.load import Load


class Held:
    """Counts for one connection.

    Args:
        load: totals of the process.
        holder: the connection.
    """

    def __init__(self, load: Load, holder: Hashable) -> None:
        self._load = load
        self._holder = holder

    def request(self, call: Call, size: int) -> None:
        """Count *size* bytes of a request that is not read yet, in place of those counted before.

        Raises:
            RpcError: the process holds too much.
        """
        incoming = self._load.incoming
        incoming.change(call, size - call.held_bytes)
        call.held_bytes = size
        if not incoming.allows(call):
            incoming.refused += 1
            why = "requests hold too much memory of this server; slow down and try again"
            raise RpcError(StatusCode.RESOURCE_EXHAUSTED, why)

    def park(self, call: Call, size: int) -> bool:
        """Count *size* bytes that *call* keeps until its end; return False when its client keeps too much."""
        parked = self._load.parked
        parked.change(self._holder, size)
        call.parked_bytes += size
        allowed = parked.allows(self._holder)
        parked.refused += not allowed
        return allowed

    def release(self, call: Call) -> None:
        """Count nothing of *call* any more."""
        self._load.incoming.change(call, -call.held_bytes)
        self._load.parked.change(self._holder, -call.parked_bytes)
