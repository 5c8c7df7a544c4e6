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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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


def assess(plan: Plan, client: AdminClient, allow_active: bool) -> Iterator[ChangeResult]:
    """Says for each change whether it is still to be made.

    DONE: holds the proposed value already. MOVED: the group has consumed past it. PENDING: holds what a replica held.
    LOWER: some other, lower value, which nobody planned for. OUTSIDE: the live log cannot serve the proposal.
    """
    offsets = client.all_offsets()
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    active: dict[str, list[str]] = {}
    for change in plan.changes:
        live = offsets.get((change.topic, change.group, change.queue_id))
        status, detail = judge(change, live)
        if status == PENDING:
            queue = (change.topic, change.queue_id)
            if queue not in bounds:
                bounds[queue] = client.queue_bounds(*queue)
            low, high = bounds[queue]
            if not low <= change.proposed <= high:
                status, detail = OUTSIDE, f"the live queue holds {low} to {high}"
        if status == PENDING and not allow_active:
            if change.group not in active:
                active[change.group] = client.members(change.group)
            if active[change.group]:
                status, detail = ACTIVE, overwritten_by(active[change.group])
        yield ChangeResult(change, status, live, detail)


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


def last_writes(entries: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The last write a journal has of each change, writes that were announced and then not made left aside."""
    found: dict[int, list[dict[str, Any]]] = {}
    for entry in entries:
        if entry["event"] == "write":
            found.setdefault(entry["number"], []).append(entry)
        elif entry["event"] == "skipped":
            found[entry["number"]].pop()
    return {number: writes[-1] for number, writes in found.items() if writes}


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

    def apply(self, now_ms: int) -> list[ChangeResult]:
        """Makes every pending change that the broker still waits for, reads it back, returns what became of each."""
        if self._undone:
            raise PlanError("this plan was undone: make a new one with reconcile")
        check_same_log(self.plan, self.client)
        if not list(self.journal.of("begin")):
            begin = {"event": "begin", "plan": self.plan.digest, "mode": "live", "now_ms": now_ms}
            self.journal.write({**begin, "broker": self.client.address})
        results = list(assess(self.plan, self.client, self.active != "refuse"))
        pending = [item for item in results if item.status == PENDING]
        settled = {item.change.number: item for item in results if item.status != PENDING}
        for at in range(0, len(pending), WINDOW):
            results = self._window(pending[at : at + WINDOW])
            settled.update({item.change.number: item for item in results})
        return [settled[change.number] for change in self.plan.changes]

    def _window(self, pending: list[ChangeResult]) -> list[ChangeResult]:
        """Makes a few changes, announced together in the journal and confirmed together."""
        active: dict[str, list[str]] = {}
        if self.active == "refuse":
            active = {group: self.client.members(group) for group in sorted({item.change.group for item in pending})}
        left = [
            ChangeResult(item.change, ACTIVE, item.live, overwritten_by(active[item.change.group]))
            for item in pending
            if active.get(item.change.group)
        ]
        chosen = [item for item in pending if not active.get(item.change.group)]
        self.journal.write(
            *(
                {"event": "write", "number": item.change.number, "before": item.live, "after": item.change.proposed}
                for item in chosen
            )
        )
        made = [(self._make(item), item) for item in chosen]
        self.journal.write(
            *({"event": event, "number": item.change.number} for (_, event), item in made if event is not None)
        )
        return left + [result for (result, _), _ in made]

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

    def undo(self) -> list[ChangeResult]:
        """Puts back every value the journal knows, where the group has not moved on since."""
        check_same_log(self.plan, self.client)
        written = last_writes(self.journal.entries)
        if not written:
            raise PlanError("nothing to undo: the journal has no change")
        self.journal.write({"event": "undo", "plan": self.plan.digest})
        changes = {change.number: change for change in self.plan.changes}
        return [self._take_back(changes[number], entry) for number, entry in sorted(written.items(), reverse=True)]

    def _take_back(self, change: Change, entry: dict[str, Any]) -> ChangeResult:
        before = entry["before"]
        live: int | None = None
        try:
            begun = self._clock()
            live = self.client.offset(change.topic, change.group, change.queue_id)
            if live == before:
                return ChangeResult(change, DONE, live, "holds its former offset")
            if live != entry["after"]:
                return ChangeResult(change, MOVED, live, f"the group is at {live} by now")
            if before is None:
                detail = "there was no entry before; brokers have no request that removes one"
                return ChangeResult(change, STAYS, live, detail)
            self._set(change, before, begun)
            held = self.client.offset(change.topic, change.group, change.queue_id)
        except AdminError as error:
            return ChangeResult(change, FAILED, live, str(error))
        return ChangeResult(change, DONE if held == before else FAILED, held, f"{live} -> {before}")
