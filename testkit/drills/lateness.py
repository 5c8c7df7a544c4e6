"""How late what is due may come while a ring loses a master: as long as nobody delivers, and a little more. Pure.

A delayed message comes when it is due, give or take the precision of who delivers it. Where nobody of its group does,
because the master has just been lost or is on its way back, it comes when somebody does again. What a master took while
it was cut off stands in its log alone, and waits for its return. Whatever comes later than that was held up by the
failover without need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from understudy.testkit.history import Violation

PRECISION_SECONDS = 3.0
"""How late one may come while somebody delivers: the timer's precision of a second, and what a consumer needs to find
who has the message by then, as it asks a broker that refused it again after a while."""

Gap = tuple[float, float]
"""From when until when something of a group was so, in virtual seconds."""


@attrs.frozen
class Due:
    """One message that was to come at some time.

    Attributes:
        key: of it.
        group: of brokers, which had it.
        stored, due, came: when it was acknowledged, was due, and came first, in virtual seconds.
    """

    key: str
    group: str
    stored: float
    due: float
    came: float

    def could_come(self, unserved: Iterable[Gap], cut_off: Iterable[Gap]) -> float:
        """Return when it could come at the earliest.

        Args:
            unserved: when nobody of its group delivered.
            cut_off: when the master of its group was cut off.
        """
        could = self.due
        own = [gap for gap in cut_off if gap[0] <= self.stored <= gap[1]]
        for begin, end in sorted([*own, *unserved]):
            if begin <= could + PRECISION_SECONDS:  # it was on its way, or due in there
                could = max(could, end)
        return could


@attrs.frozen
class Lateness:
    """What a run showed.

    Attributes:
        latest: how long after somebody delivered (again) the latest message came, in seconds.
        longest_gap: for how long nobody of a group delivered, at the most.
        violations: those that came later than allowed.
    """

    latest: float
    longest_gap: float
    violations: tuple[Violation, ...]

    def sentence(self) -> str:
        """Return it for people."""
        kept = "none came later" if not self.violations else f"{len(self.violations)} came later"
        gap = f"nobody delivered for {self.longest_gap:.3f} s at the most"
        gap = gap if self.longest_gap else "somebody delivered all the time"
        return (
            f"{gap}; what was due came {self.latest:.3f} s after "
            f"somebody could deliver it, at the most: {PRECISION_SECONDS:g} s are allowed, {kept}"
        )


def judge_lateness(
    dues: Iterable[Due], unserved: Mapping[str, Sequence[Gap]], cut_off: Mapping[str, Sequence[Gap]]
) -> Lateness:
    """Judge when messages came.

    Args:
        dues: those that came.
        unserved: by group, when nobody of it delivered.
        cut_off: by group, when its master was cut off.
    """
    latest, found = 0.0, list[Violation]()
    for each in dues:
        could = each.could_come(unserved.get(each.group, ()), cut_off.get(each.group, ()))
        late = each.came - could
        latest = max(latest, late)
        if late > PRECISION_SECONDS:
            held = f" and {could - each.due:.3f} s in which nobody could deliver it" if could > each.due else ""
            detail = (
                f"{each.key} of {each.group} came {each.came - each.due:.3f} s after it was due, "
                f"{PRECISION_SECONDS:g} s{held} are allowed"
            )
            found.append(Violation("late", detail, (each.key,)))
    longest = max((end - begin for each in unserved.values() for begin, end in each), default=0.0)
    return Lateness(latest, longest, tuple(found))
