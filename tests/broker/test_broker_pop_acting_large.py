"""The table of a slave that acts when it is large: it is read whatever its size, and travels packed."""

from __future__ import annotations

import json
import zlib
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from test_broker_pop_acting import POINT, table

from understudy.broker.admin.copied_tables import CopiedPopParts, CopiedPops
from understudy.broker.pop.acting import ActingPops, OpenPoint
from understudy.broker.replicated import packed
from understudy.broker.replicated.acting_pops import Home, ReplicatedActingPops
from understudy.broker.replicated.rules import ReplicaTableError
from understudy.broker.replicated.table import Answer, Source
from understudy.container.preonline import tables
from understudy.container.preonline.handshake import Member
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.frame import FRAME_LIMIT_BYTES, encode
from understudy.runtime.threads import InPlace


def large_table(count: int) -> ActingPops:
    """Return a table of so many check points that came out of the timer: they have no bound."""
    pops = table()
    for number in range(count):
        point = attrs.evolve(POINT, start_offset=number, offsets=(number,), pop_ms=1_000 + number // 3, group="g" * 120)
        pops.points[point.key] = {0: OpenPoint(point, 3, True)}
    pops.changed()
    return pops


async def answered(pops: ActingPops, ext: dict[str, str]) -> Command:
    """Return the answer of the broker that has *pops*."""
    history = SimpleNamespace(value=SimpleNamespace(to_text=lambda: ""))
    unused: Any = None
    parts: Any = {"threads": InPlace(), "started_ms": 1, "history": history, "orders": unused, "acting_pops": pops}
    connection: Any = Connection
    question = request(RequestCode.GET_ACTING_POPS, ext)
    return await CopiedPops(CopiedPopParts(**parts, request_modes=unused)).acting_pops(connection, question)


def replicated(pops: ActingPops) -> ReplicatedActingPops:
    return ReplicatedActingPops(pops, lambda: table(0), Home(lambda: True, lambda *given: None))  # type: ignore[arg-type, return-value]


async def test_a_table_larger_than_a_frame_is_copied_and_taken_home() -> None:
    there, slave, master = large_table(60_000), table(2), table(0)
    # given who asks does not say that it can unpack, then it gets the plain body, which no frame holds
    assert len((await answered(there, {})).body) > FRAME_LIMIT_BYTES
    # when a slave asks, then it has the table, and asks no more for what it has
    copying = replicated(slave).copying(Source("there"))
    answer = await answered(there, copying.question())
    assert len(encode(answer)) < FRAME_LIMIT_BYTES
    given = Answer(answer.ext or {}, answer.body)
    copying.take(attrs.evolve(given, said=copying.read(given)))
    assert len(slave) == 60_000
    assert (await answered(there, copying.question())).body == b""
    # and so has a master that returns
    home = replicated(master)
    answer = await answered(there, home.asking())
    given = Answer(answer.ext or {}, answer.body)
    given = attrs.evolve(given, said=home.read(given))
    assert home.holds(given)
    assert home.take_back(given, lambda key, queue_id: None)
    assert len(master) == 60_000


async def test_a_small_table_is_not_packed() -> None:
    there = large_table(3)
    answer = await answered(there, {packed.PACKED: packed.ZLIB})
    assert packed.PACKED not in (answer.ext or {})
    assert len(json.loads(answer.body)["points"]) == 3


@pytest.mark.parametrize(
    ("how", "body", "what"),
    [
        ("rar", b"", "unknown way, 'rar'"),
        (packed.ZLIB, b"abc", "cannot be unpacked"),
        (packed.ZLIB, zlib.compress(b"x" * 1000)[:-1], "ends too soon"),
        (packed.ZLIB, zlib.compress(b"x" * 1001), "more than 1000 bytes"),
    ],
)
def test_what_cannot_be_unpacked_is_told(how: str, body: bytes, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_BYTES", 1000)
    with pytest.raises(ReplicaTableError, match=what):
        packed.body_of(Answer({packed.PACKED: how}, body))


def test_a_table_of_any_size_is_read_again() -> None:
    content = large_table(1).to_json()
    again_read = table()
    again_read.load({**content, "points": content["points"] * 200_001})
    assert len(again_read) == 1


def test_a_table_that_would_fill_the_memory_is_refused() -> None:
    body = zlib.compress(bytes((64 << 20) + 1))
    assert len(body) < 1 << 20
    with pytest.raises(ReplicaTableError, match="more than"):
        packed.body_of(Answer({packed.PACKED: packed.ZLIB}, body))


async def test_a_returning_master_reads_what_is_packed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    in_thread = list[Any]()

    class Noted(InPlace):
        async def run(self, function: Any) -> Any:
            in_thread.append(function)
            return await super().run(function)

    there = large_table(3)
    monkeypatch.setattr(packed, "PACKED_FROM_BYTES", 0)

    async def ask(broker: object, member: object, code: int, ext: dict[str, str]) -> Command:
        return await answered(there, ext)

    monkeypatch.setattr(tables, "ask", ask)
    broker: Any = SimpleNamespace(
        tables=SimpleNamespace(given_back=[replicated(table(0))]), world=SimpleNamespace(threads=Noted())
    )
    assert await tables.handed_out(broker, Member(1, "there"))
    assert len(in_thread) == 1
