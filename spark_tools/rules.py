"""What is wrong with a committed offset and what the right value is: pure functions of what the replicas hold.

The laws:

* The larger offset wins, as consumers only ever acknowledge forward; a recorded reset is the one exception.
* A value is never carried to a log that differs below it: after a divergence equal numbers are different messages.
* What no log can serve is not proposed: an offset above the log comes down to its end, one below it comes up to its
  start. Both say what that costs.
* A version of a whole table says nothing about one queue. Where the newer or equal version holds the smaller offset,
  the next comparison of versions loses acknowledgements (or has lost them): that is named, not followed.
* An offset that went back in a replica's own history, to a value no other replica holds and without taking over
  another table's version, can only come from a commit: it was reset on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from understudy.format.data_version import DataVersion

EQUAL = "equal"
BEHIND = "behind"
LOST = "lost-by-version-step"
RESET = "reset-on-purpose"
AHEAD = "ahead-of-log"
AHEAD_OF_REPLICA = "ahead-of-replica-log"
GAP = "gap"
ORPHAN_GROUP = "orphaned-group"
ORPHAN_TOPIC = "orphaned-topic"
NO_QUEUE = "no-queue"
DIVERGED = "diverged-log"
INVALID = "invalid-offset"

WORST_FIRST = (
    INVALID,
    DIVERGED,
    LOST,
    GAP,
    AHEAD,
    NO_QUEUE,
    RESET,
    BEHIND,
    AHEAD_OF_REPLICA,
    ORPHAN_TOPIC,
    ORPHAN_GROUP,
    EQUAL,
)
"""Classes as a report lists them: what nobody can follow blindly, what loses or repeats messages, what heals itself."""
NO_VERSION = DataVersion()


@dataclass(frozen=True, slots=True)
class Replica:
    """What one replica holds for one group, topic and queue.

    `offset` is None without an entry; `previous_*` come from the table's last saved copy; the range [min_offset,
    max_offset) is what its consume queue and log can serve, both None without queue files.
    """

    name: str
    offset: int | None
    version: DataVersion = NO_VERSION
    previous_offset: int | None = None
    previous_version: DataVersion = NO_VERSION
    min_offset: int | None = None
    max_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset somebody recorded: the offset that was asked for, and when in milliseconds."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Context:
    """What is known about the key besides its offsets; `diverged_at` is the first queue offset whose units differ."""

    topic_known: bool = True
    group_known: bool = True
    diverged_at: int | None = None
    resets: Sequence[Reset] = field(default=())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Class of a key, the proposed offset (None: nothing to propose), why, and what following it costs in messages.

    `repeated` messages were acknowledged somewhere and will be delivered again; `skipped` ones were acknowledged
    nowhere and will not be delivered; `saved` ones would be delivered again if the lowest replica took over unrepaired.
    """

    kind: str
    proposed: int | None
    reason: str
    repeated: int = 0
    skipped: int = 0
    saved: int = 0


def classify(replicas: Sequence[Replica], context: Context) -> Verdict:
    """The verdict on one group, topic and queue over all replicas of one broker, in whatever order they are given.

    Raises:
        ValueError: when no replica has an entry.
    """
    replicas = sorted(replicas, key=lambda replica: replica.name)
    held = [replica for replica in replicas if replica.offset is not None]
    if not held:
        raise ValueError("no replica has an entry for this key")
    offsets = [replica.offset for replica in held if replica.offset is not None]
    negative = next((replica for replica in held if (replica.offset or 0) < 0), None)
    if negative is not None:
        return Verdict(INVALID, None, f"{negative.name} holds {negative.offset}")
    if not context.group_known:
        return Verdict(ORPHAN_GROUP, None, "no replica has a subscription group of this name")
    if not context.topic_known:
        return Verdict(ORPHAN_TOPIC, None, "no replica has a topic of this name")
    kind, target, reason = _target(replicas, held, context)
    furthest = max(offsets)
    served_max = max((r.max_offset for r in replicas if r.max_offset is not None), default=None)
    served_min = min((r.min_offset for r in replicas if r.min_offset is not None), default=None)
    agreed = len(held) == len(replicas) and min(offsets) == furthest
    if served_max is None or served_min is None:
        if target == 0:
            return (
                Verdict(kind, 0, reason, saved=0) if not agreed else Verdict(EQUAL, 0, "all at 0, nothing stored yet")
            )
        return Verdict(NO_QUEUE, None, f"offset {furthest} in a queue without files on any replica")
    if context.diverged_at is not None and max(target, served_min) > context.diverged_at:  # where it comes up to counts
        detail = f"the messages differ from offset {context.diverged_at} on; equal numbers are different messages"
        return Verdict(DIVERGED, None, detail)
    if target > served_max:
        kind, reason = AHEAD, f"offset {target} lies above the longest log, which ends at {served_max}"
        target = served_max
    elif target < served_min:
        kind, reason = GAP, f"offset {target} lies below {served_min}, the first message any log still has"
        target = served_min
    if agreed and target == furthest:
        return _within_each_log(replicas, target)
    best_known = max(
        [furthest, *(r.previous_offset for r in replicas if r.previous_offset is not None and kind == LOST)]
    )
    return Verdict(
        kind,
        target,
        reason,
        repeated=max(0, min(best_known, served_max) - target),
        skipped=max(0, target - best_known) if kind == GAP else 0,
        saved=max(0, target - (min(offsets) if len(held) == len(replicas) else 0)),
    )


def _within_each_log(replicas: Sequence[Replica], target: int) -> Verdict:
    short = [r.name for r in replicas if r.max_offset is not None and target > r.max_offset]
    short += [r.name for r in replicas if r.max_offset is None and target > 0]
    if short:
        reason = f"all agree on {target}, but the log of {', '.join(short)} ends before it"
        return Verdict(AHEAD_OF_REPLICA, None, reason)
    return Verdict(EQUAL, target, "all replicas agree and can serve it")


def _target(replicas: Sequence[Replica], held: Sequence[Replica], context: Context) -> tuple[str, int, str]:
    """Class, offset and reason from the replicas' knowledge alone, before the log has its say."""
    reset = max(context.resets, key=lambda item: item.time_ms, default=None)
    if reset is not None:
        later = [r.offset for r in held if r.offset is not None and r.version.timestamp >= reset.time_ms]
        target = max([value for value in later if value >= reset.offset], default=reset.offset)
        if any(r.offset != target for r in replicas):
            return RESET, target, f"a reset to {reset.offset} is recorded, the furthest commit after it is {target}"
        return EQUAL, target, "all replicas hold the recorded reset"
    top = max(r.offset or 0 for r in held)
    # of several at the top the oldest table: any other one may be compared with it and win
    furthest = min((r for r in held if r.offset == top), key=lambda r: r.version)
    went_back = [r for r in held if r.previous_offset is not None and r.previous_offset > (r.offset or 0)]
    on_purpose = [r for r in went_back if not _taken_over(r, replicas)]
    if on_purpose:
        latest = max(on_purpose, key=lambda r: (r.version, -(r.offset or 0)))
        target = latest.offset or 0
        detail = (
            f"{latest.name} itself went from {latest.previous_offset} back to {target}, a value no other replica holds"
        )
        return RESET, target, detail
    if went_back:
        victim = max(went_back, key=lambda r: r.previous_offset or 0)
        remembered = victim.previous_offset or 0
        if remembered > top:
            detail = f"{victim.name} knew {remembered} before it took over another table with {victim.offset}"
            return LOST, remembered, detail
    lower = [r for r in held if (r.offset or 0) < top]
    blind = [r for r in lower if r.version >= furthest.version]
    if blind:
        other = blind[0]
        relation = "newer" if other.version > furthest.version else "equal"
        detail = f"{other.name} holds {other.offset} under a version {relation} to {furthest.name}'s, which holds {top}"
        return LOST, top, detail
    missing = [r for r in replicas if r.offset is None]
    if lower or missing:
        names = ", ".join(f"{r.name} at {r.offset}" for r in [*lower, *missing])
        return BEHIND, top, f"{furthest.name} is the furthest at {top}; older: {names}"
    return EQUAL, top, "all replicas agree"


def _taken_over(replica: Replica, replicas: Sequence[Replica]) -> bool:
    """Whether the replica's lower offset was taken over from another one rather than committed here."""
    others = [r for r in replicas if r is not replica]
    same_value = any(replica.offset in (r.offset, r.previous_offset) for r in others)
    adopted = replica.version != replica.previous_version and any(replica.version == r.version for r in others)
    return same_value or adopted
