"""Applies a plan to a running broker through its admin requests, and takes it back.

Only a broker whose log holds the very records the plan was made from is touched. Each change is written to the journal
before and after it is made, so that a killed run goes on where it was and an undo knows every former value. A group
with connected consumers is left alone unless told otherwise: they would overwrite the value with their next commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from understudy.spark_tools.admin import AdminClient, AdminError
from understudy.spark_tools.durable import Journal, sha256
from understudy.spark_tools.plan import Change, Plan, PlanError

BATCH = 200

PENDING = "pending"
DONE = "done"
MOVED = "moved on"
LOWER = "lower than planned"
OUTSIDE = "outside of the log"
ACTIVE = "has connected consumers"
FAILED = "failed"
STAYS = "entry stays"


@dataclass(frozen=True, slots=True)
class Outcome:
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


def assess(plan: Plan, client: AdminClient, allow_active: bool) -> Iterator[Outcome]:
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
                clients = ", ".join(active[change.group][:3])
                status, detail = ACTIVE, f"{clients} would overwrite it; stop them or use --active reset"
        yield Outcome(change, status, live, detail)


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
    """One plan, its journal and one live broker."""

    def __init__(self, plan: Plan, journal_directory: str, client: AdminClient, active: str = "refuse") -> None:
        self.plan = plan
        self.client = client
        self.active = active
        self.journal = Journal(os.path.join(journal_directory, "journal.jsonl"))
        begun = list(self.journal.of("begin"))
        if begun and (begun[-1]["plan"] != plan.digest or begun[-1]["mode"] != "live"):
            self.journal.close()
            raise PlanError(f"{journal_directory} is the journal of another plan or of an offline apply")
        if any(entry["event"] == "undo" for entry in self.journal.entries):
            self._undone = True
        else:
            self._undone = False

    def close(self) -> None:
        """Releases the journal."""
        self.journal.close()

    def apply(self, now_ms: int) -> list[Outcome]:
        """Makes every pending change, reads it back, and returns what became of each."""
        if self._undone:
            raise PlanError("this plan was undone: make a new one with reconcile")
        check_same_log(self.plan, self.client)
        if not list(self.journal.of("begin")):
            begin = {"event": "begin", "plan": self.plan.digest, "mode": "live", "now_ms": now_ms}
            self.journal.write({**begin, "broker": self.client.address})
        outcomes = list(assess(self.plan, self.client, self.active != "refuse"))
        pending = iter([item for item in outcomes if item.status == PENDING])
        settled = {item.change.number: item for item in outcomes if item.status != PENDING}
        while batch := list(islice(pending, BATCH)):
            self.journal.write(
                *(
                    {"event": "write", "number": o.change.number, "before": o.live, "after": o.change.proposed}
                    for o in batch
                )
            )
            results = [self._make(outcome) for outcome in batch]
            self.journal.write(*({"event": "written", "number": o.change.number} for o in results if o.status == DONE))
            settled.update({item.change.number: item for item in results})
        return [settled[change.number] for change in self.plan.changes]

    def _make(self, outcome: Outcome) -> Outcome:
        change = outcome.change
        try:
            self._set(change, change.proposed)
            held = self._read_back(change)
        except AdminError as error:
            return Outcome(change, FAILED, outcome.live, str(error))
        if held != change.proposed:
            return Outcome(change, FAILED, held, f"reads back as {held}: a consumer commits at the same time")
        return Outcome(change, DONE, held, outcome.detail)

    def _set(self, change: Change, offset: int) -> None:
        if self.active == "reset":
            self.client.reset(change.topic, change.group, change.queue_id, offset)
        else:
            self.client.commit(change.topic, change.group, change.queue_id, offset)

    def _read_back(self, change: Change) -> int | None:
        answer = self.client.call(
            14,
            {
                "consumerGroup": change.group,
                "topic": change.topic,
                "queueId": change.queue_id,
                "setZeroIfNotFound": False,
            },
        )
        return int((answer.ext or {})["offset"] or 0) if answer.code == 0 else None

    def undo(self) -> list[Outcome]:
        """Puts back every value the journal knows, where the group has not moved on since."""
        check_same_log(self.plan, self.client)
        written = list(self.journal.of("write"))
        if not written:
            raise PlanError("nothing to undo: the journal has no change")
        self.journal.write({"event": "undo", "plan": self.plan.digest})
        changes = {change.number: change for change in self.plan.changes}
        offsets = self.client.all_offsets()
        first: dict[int, dict[str, int | None]] = {}
        for entry in written:
            first.setdefault(entry["number"], entry)
        results = []
        for number, entry in sorted(first.items(), reverse=True):
            change = changes[number]
            live = offsets.get((change.topic, change.group, change.queue_id))
            before = entry["before"]
            if live == before:
                results.append(Outcome(change, DONE, live, "holds its former offset"))
            elif live != entry["after"]:
                results.append(Outcome(change, MOVED, live, f"the group is at {live} by now"))
            elif before is None:
                detail = "there was no entry before; brokers have no request that removes one"
                results.append(Outcome(change, STAYS, live, detail))
            else:
                try:
                    self._set(change, before)
                    held = self._read_back(change)
                except AdminError as error:
                    results.append(Outcome(change, FAILED, live, str(error)))
                    continue
                status = DONE if held == before else FAILED
                results.append(Outcome(change, status, held, f"{live} -> {before}"))
        return results
