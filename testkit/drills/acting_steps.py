"""The steps of a failover and of the return, in the words of every drill; docs/failover.md says what each means."""

from __future__ import annotations

STEPS = {
    "T0": "fault",
    "T1": "seen by the name server",
    "T2": "decided by the slave",
    "T3": "services on",
    "T4": "route served",
    "T5": "first good request",
    "R0": "fault ends",
    "R1": "master up, pre-online",
    "R2": "master registered",
}
"""In their order."""


def step_line(*keys: str, what: str = "") -> str:
    """Return the line of a timeline for one step, or for several that are seen at once.

    Args:
        keys: of :data:`STEPS`.
        what: happened in this run, where that says more than the words of the step.
    """
    return f"{', '.join(keys)} {what or ', '.join(STEPS[key] for key in keys)}"
