"""What becomes of a half message that nobody has decided. Pure.

Differs from the reference in what counts as a check: only a time when its producer was due to be asked, not one at
which the message was merely stored anew because it is immune still. A half message whose birth lies ahead of our clock
is as old as its place in the log, not due at once; and what came since a look began is told by its queue offset, so
that a clock that was set back holds up no checks.

Source: TransactionalMessageServiceImpl.java (check, needDiscard, needSkip, checkPrepareQueueOffset).
"""

from __future__ import annotations

from enum import Enum

import attrs

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.transactions.half import IMMUNITY_SECONDS, Half

_HOUR_MS = 3_600_000


class Verdict(Enum):
    """What is to be done."""

    WAIT = "its time has not come, nor that of those behind it"
    POSTPONE = "store it anew: it is immune for longer than the others"
    CHECK = "store it anew and ask its producer"
    GIVE_UP_CHECKS = "its producer was asked as often as it may be"
    GIVE_UP_AGE = "it is older than the log is kept"


@attrs.frozen
class CheckRules:
    """The settings that decide.

    Attributes:
        timeout_ms: ``transactionTimeOut``.
        most_checks: ``transactionCheckMax``.
        kept_ms: ``fileReservedTime`` in milliseconds.
    """

    timeout_ms: int
    most_checks: int
    kept_ms: int


def rules_of(config: BrokerConfig, keys: MessageStoreConfig) -> CheckRules:
    """Return what the settings in force say."""
    return CheckRules(config.transaction_time_out, config.transaction_check_max, keys.file_reserved_time * _HOUR_MS)


def verdict(half: Half, rules: CheckRules, end: int, now_ms: int) -> Verdict:
    """Return what is to be done about *half*, which is undecided.

    Args:
        half: its newest copy.
        rules: the settings.
        end: of the queue when this look at it began; what was stored since waits for the next one.
        now_ms: wall time.
    """
    record = half.record
    if half.offset >= end:
        return Verdict.WAIT
    age_ms = now_ms - record.born_ms
    if half.checks >= rules.most_checks:
        return Verdict.GIVE_UP_CHECKS
    if age_ms > rules.kept_ms:
        return Verdict.GIVE_UP_AGE
    if age_ms < 0:
        age_ms = now_ms - record.store_ms
    if age_ms < 0 or age_ms > half.immunity_ms(rules.timeout_ms):
        return Verdict.CHECK
    return Verdict.POSTPONE if IMMUNITY_SECONDS in half.pairs else Verdict.WAIT
