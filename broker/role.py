"""Who decides which services of a broker run: brought by whoever hosts it, so that a broker knows of no other broker.

Without a role a master runs everything a master runs and a slave what a slave runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from understudy.broker.redelivery import Redelivery

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


class Role(Redelivery, Protocol):
    """Starts and stops services of one broker while it runs, and takes what falls due if the broker may put it now."""

    @property
    def active(self) -> bool:
        """Whether the broker looks after what is stored: a master, or a slave that acts for it."""
        ...

    @property
    def reason(self) -> str:
        """Why it does or does not."""
        ...

    @property
    def summary(self) -> str:
        """The newest give-back in one line, ``""`` when there was none."""
        ...

    def wanted(self) -> Mapping[str, tuple[bool, str]]:
        """Return for each service of the role whether it must run now, and why."""
        ...

    async def give_back(self) -> Mapping[str, Any] | None:
        """Return the report of the newest give-back, of a former life if need be; ``None`` when there is none."""
        ...

    async def run(self) -> None:
        """Make the decisions true until cancelled."""
        ...


OpenRole = Callable[["Broker"], Role]
"""Called once for each start of the broker, when its parts exist and nothing runs yet."""
