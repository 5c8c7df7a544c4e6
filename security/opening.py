"""Whether a server has a gate. Most have none, and start without what belongs to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from understudy.runtime.properties import ConfigError
from understudy.security.settings import INIT_USER, ON, SecuritySettings

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


def check_open(gate: Gate | None) -> None:
    """Refuse a server to which nobody could sign in.

    Raises:
        ConfigError: its gate knows no super user.
    """
    if gate is not None and not gate.authority.has_super_user():
        raise ConfigError(
            f"{ON}=true, but there is no super user who may sign in: name one by {INIT_USER} in this server's file", ON
        )
