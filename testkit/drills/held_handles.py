"""What acknowledgements by held handles may be answered, and what may come again after a good answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from understudy.testkit.drills.met_faults import SYNC_SECONDS
from understudy.testkit.history import Violation

OK = "20000"
CODES = {
    OK: "OK",
    "40013": "INVALID_RECEIPT_HANDLE",
    "42900": "TOO_MANY_REQUESTS",
    "50001": "INTERNAL_SERVER_ERROR",
    "50400": "PROXY_TIMEOUT",
}
"""What the reference answers an acknowledgement, too, when the broker is away, takes nothing now, or knows the handle
no more."""
MARGIN_SECONDS = 10.0
"""How long after a fault its handles are settled: held for 4 s, a time limit of 5 s for the answer, one to notice."""


@attrs.frozen
class Fault:
    """From when to when something was wrong, in seconds."""

    begin: float
    end: float


@attrs.frozen
class Settled:
    """An acknowledgement: of which message, when it was answered (seconds), and what."""

    key: str
    at: float
    code: str


def judge(settled: Sequence[Settled], again: Iterable[tuple[str, float]], faults: Sequence[Fault]) -> list[Violation]:
    """Return what no fault explains.

    Args:
        settled: all acknowledgements.
        again: messages that came after a good answer to their acknowledgement, and when (seconds).
        faults: of the run.
    """

    def explained(at: float, before: float = 0.0) -> bool:
        return any(fault.begin - before <= at <= fault.end + MARGIN_SECONDS for fault in faults)

    found = [
        Violation("answer", f"{each.key}: {CODES.get(each.code, each.code)} at {each.at:.2f} s")
        for each in settled
        if each.code not in CODES or (each.code != OK and not explained(each.at))
    ]
    if not any(each.code == OK and not explained(each.at) for each in settled):
        found.append(Violation("answer", "no good answer outside of the faults: nothing was shown"))
    for key, came in again:
        earlier = [each.at for each in settled if each.key == key and each.at <= came]
        if not any(explained(at, SYNC_SECONDS) for at in earlier):
            found.append(Violation("repeated", f"{key} came again at {came:.2f} s although it was acknowledged"))
    return found
