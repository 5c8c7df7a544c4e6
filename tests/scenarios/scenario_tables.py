"""Members that are tables alone, how far groups are in queues and delay levels are delivered, for scenario files.

Who knows what of a group is decided by the product's own tables (:mod:`understudy.broker.replicated`), which say what
to ask, what to make of an answer and what to give back. This module carries answers from one to the other and prints
what became of them. Every topic has one queue, and nothing happens unless a command says so:

====================================  ===================================================================
``tables 3``                          a master 0 and its slaves 1 and 2, which know nothing yet
``commit 1 readers orders 17``        a client of member 1 commits offset 17 of ``orders`` for a group
``pull 1 readers orders 17``          a client of member 1 asks for offset 17
``reset 0 readers orders 10``         an operator sets a group back, and is answered
``deliver 1 3 40``                    member 1 has delivered delay level 3 up to 40
``remove 0 group readers``            an operator deletes a group or a topic, with its offsets
``copy 1 0``                          member 1 looks at the tables of member 0, as slaves do twice a second
``act 1``                             member 1 acts: it copies from nobody
``start 0``                           the process of member 0 ends and comes back with what its files hold
``life 0 100``                        the log of member 0 ends at 100, and goes on in another life
``take 0 1``                          master 0, which comes back, takes over what member 1 knows better
``online 0``                          it is done with all of them: its report is complete
``report 0``                          what its report tells
``know``                              what every member knows
====================================  ===================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from scenario_members import Transcript

from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.log_history import LOG_HISTORY, LogHistory, history_of
from understudy.broker.merge import Limit, unlimited
from understudy.broker.offsets import OffsetTable
from understudy.broker.replicated.levels import ReplicatedLevels
from understudy.broker.replicated.offsets import ReplicatedOffsets
from understudy.broker.replicated.table import KNOWN_OFFSETS, PARTLY, Answer, Copying, FilePlan, ProgressTable, Source
from understudy.broker.told_offsets import SEEN_OFFSET, moves_on
from understudy.container.preonline.report import Report, TakenOver, former_of
from understudy.format.json_dialect import dumps, loads
from understudy.runtime.pace import run_steps

QUEUE = 0
_NO_FILE = FilePlan("")
"""Files are contents in here, and no table asks for their names."""


@attrs.define
class Tables:
    """The tables of one life of a member."""

    offsets: OffsetTable
    levels: ScheduleProgress
    travelling: tuple[ReplicatedOffsets, ReplicatedLevels]

    @classmethod
    def empty(cls, now_ms: Callable[[], int]) -> Tables:
        offsets, levels = OffsetTable(now_ms), ScheduleProgress(now_ms)
        both = ReplicatedOffsets(offsets, _NO_FILE, now_ms, lambda: 0), ReplicatedLevels(levels, _NO_FILE)
        return cls(offsets, levels, both)


@attrs.define
class Keeper:
    """One member: its tables, whom it copies from, and what its return has taken so far.

    Attributes:
        life: how often its process has begun.
        source: whose tables it copies, and how; ``None``: nobody's.
        taken: what its return under way has taken, by member.
        report_file: content of the report that it keeps.
    """

    number: int
    tables: Tables
    history: LogHistory
    life: int = 1
    source: int | None = None
    copying: tuple[Copying, ...] = ()
    taken: dict[int, TakenOver] = attrs.field(factory=dict)
    report_file: Mapping[str, Any] | None = None
    former: Sequence[Mapping[str, Any]] = ()

    @property
    def name(self) -> str:
        return str(self.number)


class TableRoom(Transcript):
    """The members 0 to n; a command takes a second."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        first = LogHistory().begun("first", 0)
        self._members = [Keeper(number, Tables.empty(self._now_ms), first) for number in range(int(words[0]))]
        for slave in self._members[1:]:
            self._follow(slave, 0)
        self.commands: dict[str, Callable[[Sequence[str]], None]] = {
            "commit": self._commit,
            "pull": self._pull,
            "reset": self._reset,
            "deliver": lambda words: self._member(words[0]).tables.levels.update(int(words[1]), int(words[2])),
            "remove": self._remove,
            "copy": lambda words: self._copy(self._member(words[0]), self._member(words[1])),
            "act": lambda words: self._follow(self._member(words[0]), None),
            "start": lambda words: self._start(self._member(words[0])),
            "life": self._begin_life,
            "take": lambda words: self._take(self._member(words[0]), self._member(words[1])),
            "online": lambda words: self._keep_report(self._member(words[0]), round(self.now * 1000)),
            "report": lambda words: self._tell_report(self._member(words[0])),
            "know": lambda words: self._know(),
        }

    def _now_ms(self) -> int:
        return round(self.now * 1000)

    def _member(self, word: str) -> Keeper:
        self.now += 1
        return self._members[int(word)]

    def _tell(self, member: Keeper, text: str) -> None:
        self.lines.append(f"{member.name}: {text}")

    # --- clients and operators -------------------------------------------------------------------------------------

    def _commit(self, words: Sequence[str]) -> None:
        member, group, topic, offset = self._member(words[0]), words[1], words[2], int(words[3])
        offsets, travelling = member.tables.offsets, member.tables.travelling[0]
        if not offsets.commit_unless_reset(group, topic, QUEUE, offset):
            self._tell(member, f"does not count it: {group} have not learnt of their reset yet")
        elif offsets.following:
            travelling.note_commit(group, topic, QUEUE, offset)

    def _pull(self, words: Sequence[str]) -> None:
        member, group, topic, offset = self._member(words[0]), words[1], words[2], int(words[3])
        moved = member.tables.offsets.correction(group, topic, QUEUE, offset)
        told = f"gives {group} {topic} from {offset} on" if moved is None else f"tells {group} to go on at {moved}"
        self._tell(member, told)

    def _reset(self, words: Sequence[str]) -> None:
        self._member(words[0]).tables.offsets.assign_reset(words[1], words[2], QUEUE, int(words[3]))

    def _remove(self, words: Sequence[str]) -> None:
        offsets = self._member(words[0]).tables.offsets
        remove = {"group": offsets.remove_group, "topic": lambda name: run_steps(offsets.remove_topics({name}))}
        remove[words[1]](words[2])

    # --- copying ---------------------------------------------------------------------------------------------------

    def _follow(self, member: Keeper, source: int | None) -> None:
        for table in member.tables.travelling:
            table.follow(source is not None)
        member.source, member.copying = source, ()
        if source is not None:
            found = Source(f"b{source}", leads=source == 0)
            member.copying = tuple(table.copying(found) for table in member.tables.travelling)

    def _copy(self, member: Keeper, source: Keeper) -> None:
        if member.source != source.number:
            self._follow(member, source.number)
        for copying, table in zip(member.copying, source.tables.travelling, strict=True):
            copying.take(self._answer(source, table, copying.question()))
            for notice in copying.notices():
                told = notice.ext
                group, topic, offset = told["consumerGroup"], told["topic"], told["commitOffset"]
                self._tell(member, f"tells {source.name} that {group} are at {offset} of {topic}")
                offsets, seen = source.tables.offsets, int(told[SEEN_OFFSET])
                if moves_on(int(offset), seen, offsets.queues(group, topic).get(QUEUE, -1)):
                    offsets.commit_unless_reset(group, topic, QUEUE, int(offset))
                notice.told()

    def _answer(self, source: Keeper, table: ProgressTable, question: Mapping[str, str]) -> Answer:
        """Return what *source* answers: to one that has told what it knows only what changed since."""
        ext = {LOG_HISTORY: source.history.to_text()}
        if not isinstance(table, ReplicatedOffsets):
            return Answer(ext, dumps(table.snapshot()))
        offsets = source.tables.offsets
        life, _, known = question[KNOWN_OFFSETS].partition("-")
        partly = life == str(source.life)
        ext |= {KNOWN_OFFSETS: f"{source.life}-{offsets.revision}", PARTLY: str(partly).lower()}
        unchanged = question[KNOWN_OFFSETS] == ext[KNOWN_OFFSETS]
        return Answer(ext, b"" if unchanged else dumps(offsets.to_json(int(known) if partly else -1)))

    # --- lives and returns -----------------------------------------------------------------------------------------

    def _start(self, member: Keeper) -> None:
        files = [loads(dumps(table.snapshot())) for table in member.tables.travelling]
        member.tables = Tables.empty(self._now_ms)
        for table, content in zip(member.tables.travelling, files, strict=True):
            table.load(content)
        member.life += 1
        member.taken, member.former = {}, former_of(member.report_file)
        self._follow(member, 0 if member.number else None)

    def _begin_life(self, words: Sequence[str]) -> None:
        member = self._member(words[0])
        member.history = member.history.begun(f"life {member.life} of {member.name}", int(words[1]))

    def _take(self, member: Keeper, other: Keeper) -> None:
        rows = {}
        for table, theirs in zip(member.tables.travelling, other.tables.travelling, strict=True):
            answer = self._answer(other, theirs, table.asking() | {KNOWN_OFFSETS: ""})
            merged = table.merge(answer, self._limit(member, answer))
            table.put(merged)
            rows[table.kind] = merged.rows
            for row in merged.rows:
                before = "nothing" if row.own is None else row.own.offset
                if row.changed:
                    self._tell(member, f"{row.key}: {before} becomes {row.merged.offset}: {row.reason.value}")
        taken, former = TakenOver(other.number, f"b{other.number}", 0, rows), member.taken.get(other.number)
        member.taken[other.number] = taken if former is None else former.again(taken)
        self._keep_report(member, None)

    def _limit(self, member: Keeper, answer: Answer) -> Limit:
        """Return up to where an answer counts: a message is a byte long in here, so offsets of queue and log agree."""
        parting = member.history.parting(history_of(answer.ext))
        at = math.inf if parting is None else parting.at
        return unlimited if at == math.inf else lambda key, queue_id: int(at)

    def _keep_report(self, member: Keeper, ended_ms: int | None) -> None:
        taken = tuple(member.taken.values())
        report = Report(f"g0-{member.name}", "its process began", 0, ended_ms, taken, "", member.former)
        member.report_file = loads(dumps(report.to_json()))

    def _tell_report(self, member: Keeper) -> None:
        report = member.report_file
        if report is None:
            self._tell(member, "has no report")
            return
        for number, each in enumerate([report, *report["former"]]):
            state = "under way, or broken off" if each["endedAt"] is None else "complete"
            which = f"former report {number}" if number else "report"
            self._tell(member, f"{which}, {state}: {each['changed']} of {each['compared']} offsets changed")
            for slave in each["slaves"]:
                for row in (*slave["consumerOffsets"], *slave["delayLevels"]):
                    self._tell(member, f"  from {slave['brokerId']}: {_told(row)}")

    # --- what they know --------------------------------------------------------------------------------------------

    def _know(self) -> None:
        for member in self._members:
            offsets, levels = member.tables.offsets, member.tables.levels
            places = []
            for key, queues in sorted(offsets.committed.items()):
                waiting = f" (to be told: {offsets.reset[key][QUEUE]})" if key in offsets.reset else ""
                places.append(f"{key} {queues[QUEUE]}{waiting}")
            places += [f"level {level} {offset}" for level, offset in sorted(levels.offsets.items())]
            places += [f"group {name} deleted" for name in offsets.removed_groups.stamps]
            places += [f"topic {name} deleted" for name in offsets.removed_topics.stamps]
            self._tell(member, ", ".join(places) or "nothing")


def _told(row: Mapping[str, Any]) -> str:
    before, merged = row["before"], row["merged"]
    change = f"stays {merged}" if before == merged else f"{'nothing' if before is None else before} became {merged}"
    return f"{row['key']}: {change}: {row['why']}"
