"""What clients did and saw, and whether a messaging system may behave like that.

The rules checked are the promises users rely on: what was acknowledged is delivered; nothing is delivered that was not
sent; an offset of a queue is one message, and what was acknowledged in a queue comes from it; within one queue a group
sees messages in the order of their offsets, and messages of one sequential sender in the order it sent them. Repeated
deliveries are counted, and are a violation only where the caller says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import attrs


@attrs.frozen
class Sent:
    """One send.

    Attributes:
        key: unique identity of the message.
        sender: a sender that waits for each answer before the next send; order is checked within one sender.
        queue: topic, broker name and queue id it went to, as answered; ``None`` when there was no answer.
        acknowledged: the answer said it is stored. Without one the message may or may not be there.
    """

    key: str
    sender: str
    queue: tuple[str, str, int] | None
    acknowledged: bool


@attrs.frozen
class Delivered:
    """One delivery of a message to a consumer group.

    Attributes:
        key: identity of the message.
        group: consumer group.
        queue: topic, broker name and queue id it came from.
        offset: its position in the queue.
    """

    key: str
    group: str
    queue: tuple[str, str, int]
    offset: int


@attrs.frozen
class Violation:
    """One broken promise.

    Attributes:
        rule: which.
        detail: what shows it.
        keys: messages that it is about, where that can be said.
        group: that was promised it; ``""`` for all.
        place: queue and offset that it is about, ``None`` for none.
    """

    rule: str
    detail: str
    keys: tuple[str, ...] = attrs.field(default=(), eq=False)
    group: str = attrs.field(default="", eq=False)
    place: tuple[tuple[str, str, int], int] | None = attrs.field(default=None, eq=False)


@attrs.frozen
class Verdict:
    """The result of a check.

    Attributes:
        sent: acknowledged sends.
        delivered: different messages delivered, summed over the groups.
        repeated: deliveries beyond the first of a message to a group.
        violations: broken promises; none means the run was right.
    """

    sent: int
    delivered: int
    repeated: int
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations

    def require(self) -> Verdict:
        """Return this verdict when nothing was violated; raise ``AssertionError`` with what was otherwise.

        In a scenario of :func:`~understudy.testkit.sim.determinism.run_seed` that names the seed, too.
        """
        if not self.ok:
            raise AssertionError("\n".join([str(self), *(f"{each.rule}: {each.detail}" for each in self.violations)]))
        return self

    def __str__(self) -> str:
        lost = sum(violation.rule == "lost" for violation in self.violations)
        disorder = sum(violation.rule == "order" for violation in self.violations)
        return (
            f"sent {self.sent}, delivered {self.delivered}, repeated {self.repeated}, lost {lost}, "
            f"out of order {disorder}: {'ok' if self.ok else 'VIOLATED'}"
        )


class History:
    """Collects events; :meth:`check` judges them."""

    def __init__(self) -> None:
        self.sends: list[Sent] = []
        self.deliveries: list[Delivered] = []

    def sent(self, key: str, sender: str, queue: tuple[str, str, int] | None, *, acknowledged: bool) -> None:
        """Record a send and its outcome.

        Args:
            key: of the message; unique in the history.
            sender: whose sends have an order among themselves.
            queue: topic, broker name and queue id of the answer; ``None`` without one.
            acknowledged: whether the broker said that it has it.
        """
        self.sends.append(Sent(key, sender, queue, acknowledged))

    def delivered(self, key: str, group: str, queue: tuple[str, str, int], offset: int) -> None:
        """Record a delivery.

        Args:
            key: of the message.
            group: consumer group that got it.
            queue: topic, broker name and queue id that it came from.
            offset: its queue offset.
        """
        self.deliveries.append(Delivered(key, group, queue, offset))

    def check(
        self,
        groups: list[str],
        *,
        complete: bool = True,
        ordered: bool | Collection[str] = True,
        allow_repeats: bool = True,
        may_be_lost: Collection[str] = (),
        may_move: bool = False,
    ) -> Verdict:
        """Judge the run.

        Args:
            groups: consumer groups that were subscribed during the whole run.
            complete: the groups had time to consume everything, so what is missing is lost.
            ordered: messages of one sender in one queue must be first delivered in the order they were sent (not so
                for groups that retry or consume concurrently); ``True`` for all groups, or which.
            allow_repeats: a message may be delivered more than once to a group.
            may_be_lost: keys of acknowledged messages that need not be delivered, such as those that a machine without
                synchronous flush lost with its power.
            may_move: messages may come from another queue of their topic than the one that was acknowledged, as delayed
                ones do that escaped to another broker. Retries come from topics of their own and never count.

        Raises:
            ValueError: no group is named, or two sends have one key.
        """
        if not groups:
            raise ValueError("name the groups that were subscribed: without one nothing is judged")
        violations: list[Violation] = []
        known = {sent.key for sent in self.sends}
        acknowledged = {sent.key for sent in self.sends if sent.acknowledged}
        doubled = [key for key, count in Counter(sent.key for sent in self.sends).items() if count > 1]
        if doubled:
            raise ValueError(f"keys must be unique, these are not: {doubled[:5]}")
        delivered_to: dict[str, Counter[str]] = {group: Counter() for group in groups}
        for delivery in self.deliveries:
            delivered_to.setdefault(delivery.group, Counter())[delivery.key] += 1
            if delivery.key not in known:
                detail = f"{delivery.key} was delivered to {delivery.group} from {delivery.queue} but never sent"
                violations.append(Violation("invented", detail))
        for group in groups:
            if complete:
                violations.extend(
                    Violation("lost", f"{key} was acknowledged and never delivered to {group}", (key,), group)
                    for key in sorted(acknowledged - set(delivered_to[group]) - set(may_be_lost))
                )
            if not allow_repeats:
                for key, count in sorted(delivered_to[group].items()):
                    if count > 1:
                        violations.append(Violation("repeated", f"{key} was delivered {count} times to {group}"))
        violations.extend(self._wrong_offsets(may_be_lost, may_move=may_move))
        if ordered:
            violations.extend(self._disorder(None if ordered is True else ordered, may_be_lost))
        delivered = sum(len(counter) for counter in delivered_to.values())
        repeated = sum(counter.total() - len(counter) for counter in delivered_to.values())
        return Verdict(len(acknowledged), delivered, repeated, tuple(violations))

    def _wrong_offsets(self, may_be_lost: Collection[str], *, may_move: bool) -> list[Violation]:
        """Return what two messages at one offset, or another queue than the acknowledged one, say.

        Where a machine lost the end of its log, other messages stand at the offsets of the lost ones later.
        """
        found = []
        acknowledged = {sent.key: sent.queue for sent in self.sends if sent.acknowledged and sent.queue is not None}
        standing: dict[tuple[tuple[str, str, int], int], str] = {}
        told: set[tuple[str, tuple[str, str, int]]] = set()
        for delivery in self.deliveries:
            first = delivery.key
            if delivery.key not in may_be_lost:
                first = standing.setdefault((delivery.queue, delivery.offset), delivery.key)
            if first != delivery.key and (delivery.key, delivery.queue) not in told:
                told.add((delivery.key, delivery.queue))
                detail = (
                    f"{first} and {delivery.key} were both delivered from offset {delivery.offset} of {delivery.queue}"
                )
                place = (delivery.queue, delivery.offset)
                found.append(Violation("offset", detail, (first, delivery.key), delivery.group, place))
            queue = acknowledged.get(delivery.key)
            if may_move or queue is None or queue == delivery.queue or queue[0] != delivery.queue[0]:
                continue
            if (delivery.key, delivery.queue) not in told:
                told.add((delivery.key, delivery.queue))
                detail = f"{delivery.key} was acknowledged in {queue} and delivered from {delivery.queue}"
                found.append(Violation("queue", detail))
        return found

    def _disorder(self, groups: Collection[str] | None, may_be_lost: Collection[str]) -> list[Violation]:
        position = {sent.key: index for index, sent in enumerate(self.sends)}
        sender = {sent.key: sent.sender for sent in self.sends}
        newest: dict[tuple[str, tuple[str, str, int], str], tuple[int, str]] = {}
        highest: dict[tuple[str, tuple[str, str, int]], tuple[int, str]] = {}
        met: set[tuple[str, str]] = set()
        found = []
        for delivery in self.deliveries:
            if groups is not None and delivery.group not in groups:
                continue
            if delivery.key not in position or (delivery.group, delivery.key) in met:
                continue
            met.add((delivery.group, delivery.key))
            place = (delivery.group, delivery.queue)
            above = highest.get(place)
            if above is not None and above[0] > delivery.offset:
                detail = f"{delivery.key} at offset {delivery.offset} came after {above[1]} at {above[0]}"
                found.append(Violation("order", f"{detail}, to {delivery.group} from {delivery.queue}"))
                continue
            if delivery.key not in may_be_lost:
                highest[place] = (delivery.offset, delivery.key)
            lane = (delivery.group, delivery.queue, sender[delivery.key])
            before = newest.get(lane)
            if before is not None and before[0] > position[delivery.key]:
                detail = f"{delivery.key} was sent before {before[1]} but first delivered after it, to {delivery.group}"
                found.append(Violation("order", f"{detail} from {delivery.queue}"))
                continue
            newest[lane] = (position[delivery.key], delivery.key)
        return found
