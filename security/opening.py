"""Whether a server has a gate. Most have none, and start without what belongs to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from understudy.security.settings import SecuritySettings

if TYPE_CHECKING:
    from understudy.security.gate import Gate


def gate_of(settings: SecuritySettings, cluster: str, now: Callable[[], float]) -> Gate | None:
    """Return the gate of a server; ``None`` when its requests need no signature.

    Args:
        settings: of the server.
        cluster: name of its cluster.
        now: monotonic seconds.
    """
    if not settings.authenticates:
        return None
    from understudy.security.authority import Authority  # only here
    from understudy.security.gate import Gate

    return Gate(Authority(), settings, cluster, now)
