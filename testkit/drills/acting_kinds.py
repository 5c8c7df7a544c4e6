"""What came of each kind of message in a drill: a row of figures for each, and the table of them for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs

ORDERED, DELAYED, TIMED = "ordered", "delayed", "timer"
HALVES, POPPED, POPPED_IN_ORDER = "half", "popped", "popped in order"


@attrs.frozen
class Kind:
    """One kind of message.

    Attributes:
        name: what it is.
        sent: acknowledged to their senders; of half messages those that were committed.
        delivered: how many of them came.
        repeated: how often one came that had come; of popped ones, that was acknowledged.
        lost: how many never came and must have.
        wrong: how many came that must not: not committed, or before their time.
        late: how long after it was due each came first, in seconds.
    """

    name: str
    sent: int
    delivered: int
    repeated: int
    lost: int
    wrong: int
    late: tuple[float, ...]

    def after(self, part: float) -> float:
        """Return within how many seconds *part* (0 to 1) of all came; not a number when none did."""
        if not self.late:
            return math.nan
        return sorted(self.late)[max(0, math.ceil(part * len(self.late)) - 1)]


def kinds_table(kinds: Iterable[Kind]) -> list[str]:
    """Return *kinds* as lines of a table."""
    columns = ("sent", "delivered", "repeated", "lost", "wrong", "p50 s", "p99 s", "max s")
    lines = [f"  {'kind':<16}" + "".join(f"{each:>10}" for each in columns)]
    for kind in kinds:
        counts: Sequence[int] = (kind.sent, kind.delivered, kind.repeated, kind.lost, kind.wrong)
        figures = "".join(f"{each:>10}" for each in counts)
        late = "".join(f"{kind.after(part):>10.3f}" for part in (0.5, 0.99, 1.0))
        lines.append(f"  {kind.name:<16}{figures}{late}")
    return lines
