"""A slave whose master has lost very many topics at once: they go together, and what belonged to them in few looks."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
from slave_rig import open_pair, run

from understudy.broker.forgotten_topics import forget_topic
from understudy.broker.offsets import OffsetTable
from understudy.broker.topics import TopicConfig, TopicTable
from understudy.format.data_version import DataVersion
from understudy.runtime import pace
from understudy.runtime.pace import run_steps
from understudy.testkit.waiting import until

MANY = 150


def test_topics_go_together_and_what_belonged_to_them_in_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"gone-{number}" for number in range(MANY)]
    removing, seen = list[object](), set[int]()
    remove = OffsetTable._remove

    def counted(self: OffsetTable, *names: Any) -> Generator[None, None, None]:
        removing.append(self)
        return remove(self, *names)

    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            master, slave = pair.master, pair.slave
            master.topics.update([TopicConfig(name, 1, 1) for name in (*names, "stays")])
            for name in (*names, "stays"):
                master.store.append(name, 0, b"x", b"", 1, b"\0" * 8)
                master.offsets.commit("readers", name, 0, 1)
            await until(lambda: slave.offsets.query("readers", "stays", 0) == 1, 10)
            await until(lambda: slave.store.max_physical_offset == master.store.max_physical_offset, 10)
            assert set(names) <= slave.topics.rows.keys()
            # when the master loses most of its topics
            for name in names:
                master.topics.delete(name)
                forget_topic(master, name)
            monkeypatch.setattr(OffsetTable, "_remove", counted)
            monkeypatch.setattr(pace, "PIECE_SECONDS", -1.0)
            slave.topics.on_change.append(lambda rows: seen.add(len(slave.topics.rows.keys() & set(names))))
            await until(lambda: not slave.topics.rows.keys() & set(names), 10)
            await until(lambda: {topic for topic, _ in slave.store.queues()} == {"stays"}, 10)
            # then the slave has what is left, and has not looked for the offsets of each topic by itself
            assert list(slave.offsets.committed) == ["stays@readers"]
            assert seen == {0}
            assert 1 <= removing.count(slave.offsets) <= 3

    run(scenario)


def test_a_table_that_changes_while_it_is_compared_is_taken_as_it_is_then() -> None:
    table, version = TopicTable(lambda: 1), DataVersion(5, 5)
    table.update([TopicConfig(name, 1, 1) for name in ("stays", "differs", "goes")])
    theirs = [TopicConfig("stays", 1, 1), TopicConfig("differs", 8, 8), TopicConfig("new", 2, 2)]
    told: list[tuple[str, ...]] = []
    steps = table.take_in_steps(map(table.own, theirs), version, delete=True, overwrite=True)
    # Given a comparison that is under way, when rows come and change here
    for _ in range(2):
        next(steps)
    table.update([TopicConfig("stays", 3, 3), TopicConfig("goes, too", 1, 1)])
    table.on_change.append(lambda rows: told.append(tuple(row.name for row in rows)))
    # Then what counts is what is there in the end
    assert run_steps(steps) == ["goes", "goes, too"]
    assert table.rows == {row.name: row for row in theirs}
    assert told == [("stays", "differs", "new"), ()]
    assert table.version == version
