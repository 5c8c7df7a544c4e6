"""Applies a plan to a running broker through its admin requests, and takes it back.

Only a broker whose log holds the very records the plan was made from is touched. Each change is written to the journal
before and after it is made, so that a killed run goes on where it was and an undo knows every former value. A group
with connected consumers is left alone unless told otherwise: they would overwrite the value with their next commit.

Groups go on while a plan is applied. Changes are made in small windows: at the start of each its groups are asked for
consumers again, and right before each write the offset is read again; one that is not what the journal says was there
is left alone. Brokers have no request that compares and sets, so a commit between that reading and the write is
overwritten: how long that was at most is measured and said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from understudy.spark_tools.admin import AdminClient, AdminError
from understudy.spark_tools.durable import Journal, sha256
from understudy.spark_tools.plan import Change, Plan, PlanError

WINDOW = 20

PENDING = "pending"
DONE = "done"
MOVED = "moved on"
LOWER = "lower than planned"
OUTSIDE = "outside of the log"
ACTIVE = "has connected consumers"
MEANWHILE = "committed meanwhile"
FAILED = "failed"
STAYS = "entry stays"

NEVER, NO_ENTRY = np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1
"""Among former values: nothing was written, and there was no offset."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What happened, or would happen, to one change on the live broker."""

    change: Change
    status: str
    live: int | None
    detail: str


def check_same_log(plan: Plan, client: AdminClient) -> int:
    """Compares records of the plan's log with those of the live broker and returns how many were found equal.

    Raises:
        PlanError: when a record differs or none could be compared: another cluster, or a log that was replaced.
    """
    equal = 0
    wanted = {item["physical_offset"]: item for store in plan.stores.values() for item in store["anchors"]}
    for offset, item in sorted(wanted.items()):
        record = client.record(offset)
        if record is None:
            continue
        if sha256(record) != item["sha256"]:
            raise PlanError(
                f"{client.address} holds another message at physical offset {offset}: the plan is for another cluster"
            )
        equal += 1
    if not equal:
        raise PlanError(
            f"{client.address} has none of the messages the plan was made from: another cluster, or they were deleted"
        )
    return equal


def expected(change: Change) -> set[int | None]:
    """Values the live broker may hold for the change to be still right: what any replica of the plan held."""
    return set(change.current.values())


class Assessment:
    """Says for each change, in the order of a plan, whether it is still to be made.

    DONE: holds the proposed value already. MOVED: the group has consumed past it. PENDING: holds what a replica held.
    LOWER: some other, lower value, which nobody planned for. OUTSIDE: the live log cannot serve the proposal.
    """

    def __init__(self, client: AdminClient, allow_active: bool) -> None:
        self._client = client
        self._allow_active = allow_active
        self._offsets = client.all_offsets()
        self._bounds: dict[int, tuple[int, int]] = {}
        self._topic = ""
        self._members: dict[str, list[str]] = {}

    def of(self, changes: Iterable[Change]) -> Iterator[ChangeResult]:
        """One result for each change; groups are asked for their consumers anew with each call."""
        self._members.clear()
        for change in changes:
            yield self._one(change)

    def _one(self, change: Change) -> ChangeResult:
        live = self._offsets.get((change.topic, change.group, change.queue_id))
        status, detail = judge(change, live)
        if status == PENDING:
            low, high = self._served(change.topic, change.queue_id)
            if not low <= change.proposed <= high:
                status, detail = OUTSIDE, f"the live queue holds {low} to {high}"
        if status == PENDING and not self._allow_active:
            if change.group not in self._members:
                self._members[change.group] = self._client.members(change.group)
            if self._members[change.group]:
                status, detail = ACTIVE, overwritten_by(self._members[change.group])
        return ChangeResult(change, status, live, detail)

    def _served(self, topic: str, queue_id: int) -> tuple[int, int]:
        if topic != self._topic:  # changes come topic by topic
            self._topic, self._bounds = topic, {}
        if queue_id not in self._bounds:
            self._bounds[queue_id] = self._client.queue_bounds(topic, queue_id)
        return self._bounds[queue_id]


def overwritten_by(clients: list[str]) -> str:
    """Why a change of a group with these connected consumers is not made."""
    return f"{', '.join(clients[:3])} would overwrite it; stop them or use --active reset"


def judge_again(change: Change, known: int | None, live: int | None) -> tuple[str, str]:
    """Status of a pending change whose value is read again right before it is written.

    PENDING: still what it was. MEANWHILE: another value the plan knows, which the journal does not.
    """
    status, detail = judge(change, live)
    if status == PENDING and live != known:
        return MEANWHILE, f"went from {known} to {live} while the plan was applied; apply it again"
    return status, detail


def former_values(entries: Iterable[dict[str, Any]], count: int) -> np.ndarray:
    """What each change replaced by its last write in the journal, announced writes that were not made left aside.

    Args:
        count: changes of the plan.

    Returns:
        A number for each change, `NEVER` where nothing was written, `NO_ENTRY` where there was no offset before.
    """
    last = np.full(count + 1, NEVER)
    before_last = last.copy()
    for entry in entries:
        if entry["event"] == "write":
            number, before = entry["number"], entry["before"]
            before_last[number] = last[number]
            last[number] = NO_ENTRY if before is None else before
        elif entry["event"] == "skipped":
            last[entry["number"]] = before_last[entry["number"]]
    return last[1:]


def judge(change: Change, live: int | None) -> tuple[str, str]:
    """Status of a change from the live value alone."""
    if live == change.proposed:
        return DONE, "holds the proposed offset"
    if live in expected(change):
        return PENDING, f"{live} -> {change.proposed}"
    if live is not None and live > change.proposed:
        return MOVED, f"the group is at {live} by now"
    return LOWER, f"{live} is none of the values the plan was made from"


class LiveApply:
    """One plan, its journal and one live broker.

    Args:
        active: what to do with groups that have connected consumers: "refuse", "commit" or "reset".
        clock: monotonic seconds.
    """

    def __init__(
        self,
        plan: Plan,
        journal_directory: str,
        client: AdminClient,
        active: str = "refuse",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.client = client
        self.active = active
        self.longest_unseen_s = 0.0
        """Longest time between reading an offset and the answer to its write: a commit in it was not seen."""
        self._clock = clock
        self.journal = Journal(os.path.join(journal_directory, "journal.jsonl"))
        begun = list(self.journal.of("begin"))
        if begun and (begun[-1]["plan"] != plan.digest or begun[-1]["mode"] != "live"):
            self.journal.close()
            raise PlanError(f"{journal_directory} is the journal of another plan or of an offline apply")
        self._undone = any(entry["event"] == "undo" for entry in self.journal.entries)

    def close(self) -> None:
        """Releases the journal."""
        self.journal.close()

    def apply(self, now_ms: int) -> Iterator[ChangeResult]:
        """Makes every pending change that the broker still waits for, reads it back, tells what became of each.

        Raises:
            PlanError: when the plan was undone, or is for another broker.
        """
        if self._undone:
            raise PlanError("this plan was undone: make a new one with reconcile")
        check_same_log(self.plan, self.client)
        if not list(self.journal.of("begin")):
            begin = {"event": "begin", "plan": self.plan.digest, "mode": "live", "now_ms": now_ms}
            self.journal.write({**begin, "broker": self.client.address})
        assessment = Assessment(self.client, self.active != "refuse")
        changes = self.plan.changes()
        while window := list(islice(changes, WINDOW)):
            yield from self._window(list(assessment.of(window)))

    def _window(self, assessed: list[ChangeResult]) -> list[ChangeResult]:
        """Makes those of a few changes that are pending, announced together in the journal and confirmed together."""
        chosen = [item for item in assessed if item.status == PENDING]
        if not chosen:
            return assessed
        self.journal.write(
            *(
                {"event": "write", "number": item.change.number, "before": item.live, "after": item.change.proposed}
                for item in chosen
            )
        )
        made = {item.change.number: self._make(item) for item in chosen}
        self.journal.write(
            *({"event": event, "number": number} for number, (_, event) in made.items() if event is not None)
        )
        return [made[item.change.number][0] if item.status == PENDING else item for item in assessed]

    def _make(self, result: ChangeResult) -> tuple[ChangeResult, str | None]:
        """What became of one change, and what the journal has to say of it (None: it may have been made or not)."""
        change = result.change
        try:
            begun = self._clock()
            live = self.client.offset(change.topic, change.group, change.queue_id)
            status, detail = judge_again(change, result.live, live)
            if status != PENDING:
                return ChangeResult(change, status, live, detail), "skipped"
            self._set(change, change.proposed, begun)
            held = self.client.offset(change.topic, change.group, change.queue_id)
        except AdminError as error:
            return ChangeResult(change, FAILED, result.live, str(error)), None
        if held != change.proposed:
            return ChangeResult(
                change, FAILED, held, f"reads back as {held}: a consumer commits at the same time"
            ), None
        return ChangeResult(change, DONE, held, result.detail), "written"

    def _set(self, change: Change, offset: int, read_at: float) -> None:
        if self.active == "reset":
            self.client.reset(change.topic, change.group, change.queue_id, offset)
        else:
            self.client.commit(change.topic, change.group, change.queue_id, offset)
        self.longest_unseen_s = max(self.longest_unseen_s, self._clock() - read_at)

    def undo(self) -> Iterator[ChangeResult]:
        """Puts back every value the journal knows, where the group has not moved on since.

        Raises:
            PlanError: when the journal has no change, or the plan is for another broker.
        """
        check_same_log(self.plan, self.client)
        former = former_values(self.journal.replay(), self.plan.count)
        if not (former != NEVER).any():
            raise PlanError("nothing to undo: the journal has no change")
        self.journal.write({"event": "undo", "plan": self.plan.digest})
        for change, value in zip(self.plan.changes(), former, strict=True):
            if value != NEVER:
                yield self._take_back(change, None if value == NO_ENTRY else int(value))

    def _take_back(self, change: Change, before: int | None) -> ChangeResult:
        live: int | None = None
        try:
            begun = self._clock()
            live = self.client.offset(change.topic, change.group, change.queue_id)
            if live == before:
                return ChangeResult(change, DONE, live, "holds its former offset")
            if live != change.proposed:
                return ChangeResult(change, MOVED, live, f"the group is at {live} by now")
            if before is None:
                detail = "there was no entry before; brokers have no request that removes one"
                return ChangeResult(change, STAYS, live, detail)
            self._set(change, before, begun)
            held = self.client.offset(change.topic, change.group, change.queue_id)
        except AdminError as error:
            return ChangeResult(change, FAILED, live, str(error))
        return ChangeResult(change, DONE if held == before else FAILED, held, f"{live} -> {before}")
