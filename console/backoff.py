"""When a broker is asked again: at the next look while it answers, later and later while it does not. Pure."""

from __future__ import annotations

import attrs

LONGEST_SECONDS = 8.0


@attrs.frozen
class Backoff:
    """How one broker has behaved.

    Attributes:
        failures: questions in a row without an answer.
        not_before: monotonic time in seconds before which it is not asked.
    """

    failures: int = 0
    not_before: float = 0.0

    def after(self, answered: bool, now: float) -> Backoff:
        """Return it after one more question at monotonic time *now*."""
        if answered:
            return Backoff()
        failures = self.failures + 1
        return Backoff(failures, now + min(2.0 ** (failures - 1), LONGEST_SECONDS))
