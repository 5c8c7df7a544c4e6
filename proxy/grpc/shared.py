"""What the connections of one server share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from understudy.proxy.grpc.call import Method
from understudy.proxy.grpc.limits import GrpcLimits
from understudy.proxy.grpc.writing import Later
from understudy.runtime.clock import Clock
from understudy.runtime.load import Load
from understudy.runtime.threads import Threads


@attrs.frozen
class Shared:
    """What each connection of a server is given.

    Attributes:
        clock: for deadlines and idle times.
        load: where unread requests, open calls and unsent answers are counted.
        threads: for what takes long.
        methods: by path, as ``/package.Service/Method``.
        limits: see there.
        later: sends what is said outside of a connection's own turns.
        handed_on: called when what a client sent at once was dealt with, for what calls have begun meanwhile; must not
            raise.
    """

    clock: Clock
    load: Load
    threads: Threads
    methods: Mapping[str, Method]
    limits: GrpcLimits
    later: Later
    handed_on: Callable[[], None]
