"""What becomes of messages that a client holds and wants to keep (auto_renew): one pure step.

Source: ReceiptHandleManager.java, RenewStrategyPolicy.java.
"""

from __future__ import annotations

from enum import Enum

import attrs

from understudy.proxy.core.handles import Handle
from understudy.proxy.core.settings import GroupConfig

WAITS_MS = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
"""For how long the first, second ... renewal hides a message; the last one repeats."""


@attrs.frozen
class RenewalRules:
    """When messages are renewed, in milliseconds.

    Attributes:
        ahead_ms: so long before a message would come again.
        most_ms: a message that is held for longer is left to its group's retry policy.
        retries: how often a failed renewal is tried again.
        clear_ms: for how long a message stays hidden whose client is gone.
    """

    ahead_ms: int
    most_ms: int
    retries: int
    clear_ms: int


@attrs.frozen
class Held:
    """A message that a client holds.

    Attributes:
        client_id, group, topic: whose it is.
        handle: the newest.
        since_ms: wall time at which it was handed out.
        reconsume_times: how often it was tried before.
        renewals: how often it was renewed.
        failures: renewals that failed since the last one that did not.
    """

    client_id: str
    group: str
    topic: str
    handle: Handle
    since_ms: int
    reconsume_times: int
    renewals: int = 0
    failures: int = 0

    def renewed(self, handle: Handle) -> Held:
        """Return it after a renewal."""
        return attrs.evolve(self, handle=handle, renewals=self.renewals + 1, failures=0)

    def failed(self) -> Held:
        """Return it after a renewal that failed."""
        return attrs.evolve(self, failures=self.failures + 1)


class Step(Enum):
    """What is to be done about a message."""

    KEEP = "nothing yet"
    RENEW = "hide it for longer"
    RELEASE = "hide it once more, and forget it"
    FORGET = "forget it"


def step(
    held: Held, now_ms: int, *, client_is_there: bool, group: GroupConfig, rules: RenewalRules
) -> tuple[Step, int]:
    """Decide about one message.

    Args:
        held: the message.
        now_ms: wall time.
        client_is_there: whether its client lives.
        group: retry policy.
        rules: see there.

    Returns:
        What to do, and for how many milliseconds the message is hidden then.
    """
    left_ms = held.handle.expires_ms - now_ms
    if left_ms <= 0 or held.failures > rules.retries:
        return Step.FORGET, 0
    if not client_is_there:
        return Step.RELEASE, rules.clear_ms
    if left_ms > rules.ahead_ms:
        return Step.KEEP, 0
    if now_ms - held.since_ms > rules.most_ms:
        return Step.RELEASE, group.wait_ms(held.reconsume_times)
    return Step.RENEW, WAITS_MS[min(held.renewals, len(WAITS_MS) - 1)]
