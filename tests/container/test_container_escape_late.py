"""A master elsewhere that stored late is asked until it is known what became of the messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from understudy.container.escape.late import (
    SILENCE_SECONDS,
    Fate,
    LateCopies,
    Stored,
    copied,
    done,
    ends,
    most_bytes,
)
from understudy.format.json_dialect import dumps
from understudy.format.record import encode_record
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, response
from understudy.runtime.threads import Threads
from understudy.runtime.world import real_world
from understudy.testkit.sim.clock import VirtualClock

BODY, BORN_MS, PLACE, END = b"body", 1_000, 5_000, 6_000
STORED = Stored(PLACE, BODY, BORN_MS)


@attrs.define
class Master:
    """A master elsewhere; each question may change it."""

    clock: VirtualClock
    end: int = END
    unflushed: str = "0 B"
    slaves: list[tuple[int, bool]] = attrs.field(factory=list)
    body: bytes | None = BODY
    changes: list[Callable[[Master], None]] = attrs.field(factory=list)
    silent: bool = False
    refuses: frozenset[int] = frozenset()
    asked: list[int] = attrs.field(factory=list)

    async def ask(self, command: Command) -> Command | None:
        self.asked.append(command.code)
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO and self.changes:
            self.changes.pop(0)(self)
        if self.silent:
            return None
        if command.code in self.refuses:
            return response(command, 16, "no right")
        body: Any
        match command.code:
            case RequestCode.GET_BROKER_RUNTIME_INFO:
                body = dumps(
                    {"table": {"commitLogMaxOffset": str(self.end), "remainHowManyDataToFlush": self.unflushed}}
                )
            case RequestCode.GET_BROKER_HA_STATUS:
                body = dumps(
                    {"haConnectionInfo": [{"slaveAckOffset": at, "inSync": in_sync} for at, in_sync in self.slaves]}
                )
            case _ if self.body is None:
                return response(command, 1, "can not find message by the offset")
            case _:
                body = encode_record("T", 0, 7, PLACE, self.body, b"", born_ms=BORN_MS)
        return response(command, body=body)

    async def fate(self, stored: Stored = STORED, *, copies: bool = False) -> Fate:
        threads: Threads = real_world().threads
        (found,) = await LateCopies(self.clock, threads, self.ask).fates([stored], copies=copies)
        return found


@pytest.fixture
def master() -> Master:
    return Master(VirtualClock())


@pytest.mark.parametrize(
    ("text", "most"),
    [("0 B", 0), ("1023 B", 1023), ("1.0 KiB", 1076), ("2,5 MiB", 2_673_869), ("3 kB", None), ("", None)],
)
def test_a_rounded_number_of_bytes_is_taken_at_its_largest(text: str, most: int | None) -> None:
    if most is None:
        with pytest.raises(ValueError, match="no number of bytes"):
            most_bytes(text)
    else:
        assert most_bytes(text) == most


def test_what_waits_for_the_disk_is_not_durable() -> None:
    assert ends({"commitLogMaxOffset": "9000", "remainHowManyDataToFlush": "512 B"}) == (9_000, 8_488)


def test_slaves_that_count_are_waited_for_and_where_there_are_none_nobody_is() -> None:
    rows = [{"slaveAckOffset": 10, "inSync": False}, {"slaveAckOffset": 30, "inSync": True}]
    assert copied({"haConnectionInfo": rows}, 50) == 30
    assert copied({"haConnectionInfo": rows[:1]}, 50) == 50


async def test_a_disk_that_is_late_is_waited_for(autojump_clock: object, master: Master) -> None:
    def end_grows(late: Master) -> None:
        late.end, late.unflushed = END + 4_096, "3.0 KiB"  # what comes in meanwhile is not waited for

    master.unflushed = "1.5 KiB"
    master.changes = [lambda late: None] * 9 + [end_grows]
    assert await master.fate() is Fate.SAFE
    assert master.asked.count(RequestCode.GET_BROKER_RUNTIME_INFO) == 10
    assert RequestCode.GET_BROKER_HA_STATUS not in master.asked


async def test_slaves_that_are_late_are_waited_for_until_they_have_it_or_count_no_more(
    autojump_clock: object, master: Master
) -> None:
    def drops(late: Master) -> None:
        late.slaves = [(END, True), (PLACE, False)]

    master.slaves = [(PLACE, True), (PLACE, True)]
    master.changes = [lambda late: None] * 5 + [drops]
    assert await master.fate(copies=True) is Fate.SAFE
    assert master.asked.count(RequestCode.GET_BROKER_HA_STATUS) == 6


async def test_a_master_without_a_slave_is_waited_for_no_longer_than_its_disk_takes(
    autojump_clock: object, master: Master
) -> None:
    assert await master.fate(copies=True) is Fate.SAFE
    assert master.asked.count(RequestCode.GET_BROKER_HA_STATUS) == 1


@pytest.mark.parametrize("body", [None, b"another"], ids=["nothing", "something else"])
async def test_a_master_that_came_back_without_it_says_so(
    autojump_clock: object, master: Master, body: bytes | None
) -> None:
    def loses_power(late: Master) -> None:
        late.end, late.unflushed, late.body = PLACE - 1_000, "0 B", body

    master.unflushed = "1.5 KiB"
    master.changes = [lambda late: None, loses_power]
    assert await master.fate() is Fate.GONE


@pytest.mark.parametrize("code", [None, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.VIEW_MESSAGE_BY_ID])
async def test_nobody_waits_for_a_master_that_says_nothing_sensible(
    autojump_clock: object, master: Master, code: int | None
) -> None:
    master.silent, master.refuses = code is None, frozenset({code or 0})
    begin = master.clock.monotonic()
    assert await master.fate() is Fate.UNKNOWN
    assert SILENCE_SECONDS <= master.clock.monotonic() - begin < SILENCE_SECONDS + 1


async def test_a_master_that_is_away_for_a_moment_is_waited_for(autojump_clock: object, master: Master) -> None:
    def speaks(late: Master) -> None:
        late.silent = False

    master.silent = True
    master.changes = [lambda late: None] * 20 + [speaks]
    assert await master.fate() is Fate.SAFE


async def test_an_answer_without_a_place_tells_nothing(autojump_clock: object, master: Master) -> None:
    assert await master.fate(Stored(None, BODY, BORN_MS)) is Fate.UNKNOWN


@pytest.mark.parametrize(
    ("fate", "promised", "expected"),
    [
        (Fate.SAFE, True, True),
        (Fate.GONE, True, False),
        (Fate.GONE, False, False),
        (Fate.UNKNOWN, True, False),
        (Fate.UNKNOWN, False, True),
    ],
)
def test_when_nobody_can_tell_the_promise_of_the_own_group_decides(fate: Fate, promised: bool, expected: bool) -> None:
    assert done(fate, promised=promised) is expected
