"""What was seen in one look at a cluster: the input of everything else here.

Times are wall time in milliseconds of the process that looks, unless a broker's own is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import attrs

MASTER_ID = 0


@attrs.frozen
class GroupAddresses:
    """A broker group as a name server lists it.

    Attributes:
        cluster: that it belongs to.
        registered: address of each member that is registered, by broker id.
        shown: address of each member in the routes that clients get; there a slave that acts stands in the master's
            place. Empty when no route shows the group.
    """

    cluster: str
    registered: Mapping[int, str]
    shown: Mapping[int, str] = attrs.field(factory=dict)


@attrs.frozen
class BrokerLook:
    """What one broker answered.

    Attributes:
        at_ms: when it answered, or when it was given up.
        figures: its runtime info; ``None`` when it did not answer.
        roster: which services run and why; ``None`` when it did not answer, or is one of the reference.
        replication: how far its slaves are, or how it follows its master; ``None`` when it cannot say.
        error: why there is no answer, ``""`` when there is one.
        of_reference: it was asked for its roster and does not know the question.
        settings: those that tell where it runs and who leads it; ``None`` when it did not answer.
    """

    at_ms: int
    figures: Mapping[str, str] | None = None
    roster: Mapping[str, Any] | None = None
    replication: Mapping[str, Any] | None = None
    error: str = ""
    of_reference: bool = False
    settings: Mapping[str, str] | None = None

    @property
    def answered(self) -> bool:
        """Whether the broker said anything."""
        return self.figures is not None

    @property
    def active(self) -> bool:
        """Whether it looks after what is stored: a master, or a slave that acts."""
        if self.roster is not None:
            return bool(self.roster.get("active"))
        return (self.figures or {}).get("brokerActive") == "true"

    def number(self, name: str) -> float | None:
        """Return a figure as a number, the first one where it has several; ``None`` when it is not there or none.

        NaN and infinity are none: JSON, and so a page, has no word for them.
        """
        words = (self.figures or {}).get(name, "").split()
        try:
            found = float(words[0]) if words else None
        except ValueError:
            return None
        return found if found is not None and isfinite(found) else None


@attrs.frozen
class Look:
    """One look at a whole cluster.

    Attributes:
        at_ms: when it ended.
        groups: as the name server lists them; ``None`` when no name server answered.
        brokers: by address, each broker that was asked in this look.
        error: why no name server answered, ``""`` when one did.
    """

    at_ms: int
    groups: Mapping[str, GroupAddresses] | None
    brokers: Mapping[str, BrokerLook] = attrs.field(factory=dict)
    error: str = ""
