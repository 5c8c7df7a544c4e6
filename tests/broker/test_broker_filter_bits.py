"""Bit maps of the conditions that messages meet: the reference's bytes, and what a pull does with them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Rig, open_rig
from test_broker_sql_filter import bodies, filled, heartbeat

from understudy.broker.conditions import Conditions
from understudy.broker.consumer_filters import ConsumerFilters
from understudy.broker.filter_bits import FilterBits, wanted_bits
from understudy.broker.filters import Subscription
from understudy.broker.property_filter import PropertyFilter
from understudy.broker.sql_filter.bloom import positions
from understudy.broker.sql_filter.expression import compile_expression
from understudy.runtime.world import real_world
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.testkit.waiting import until

CAPTURED = Path(__file__).parents[1] / "data" / "store" / "cqext.tar.gz"
ON = {"enablePropertyFilter": "true", "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


class Rows:
    """Conditions with a clock."""

    def __init__(self, enabled: bool = True) -> None:
        self.now_ms, self.enabled = 1_000, enabled
        self.conditions = Conditions(lambda: True)
        self.filters = ConsumerFilters(
            lambda: self.now_ms,
            lambda group, topic: True,
            self.conditions.compiles,
            lambda: 1_000_000,
            lambda group, topic: (positions(group, topic, 20, 112), 112),
        )
        self.bits = FilterBits(self.filters, self.conditions, lambda: self.enabled)

    def take(self, group: str, text: str, version: int = 1) -> None:
        for _ in self.filters.take(group, [Subscription("T", text, "SQL92", version)]):
            pass

    def of(self, value: str) -> set[int]:
        found = self.bits.of("T", f"a\x01{value}\x02".encode())
        return {at for at in range(len(found) * 8) if found[at >> 3] >> (at & 7) & 1}


def condition(text: str) -> PropertyFilter:
    return PropertyFilter(compile_expression(text))


async def test_the_files_of_the_reference_are_written_from_its_log_and_its_conditions(tmp_path: Path) -> None:
    # Given what the reference has left, and its log as a slave gets it
    with tarfile.open(CAPTURED) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    captured = tmp_path / "cqext"
    rows = Rows()
    rows.filters.load(json.loads((captured / "config" / "consumerFilter.json").read_text()))
    config = StoreConfig(
        folder=str(tmp_path / "ours"),
        mapped_file_size_commit_log=262_144,
        mapped_file_size_consume_queue=2_000,
        mapped_file_size_consume_queue_ext=1_024,
        enable_consume_queue_ext=True,
    )
    store = await MessageStore.open(real_world(), config, ("127.0.0.1", 10911))
    store.extensions.bits = rows.bits.of
    raw = (captured / "commitlog" / f"{0:020}").read_bytes()[:16_240]
    store.append_raw(0, raw)
    await store.close()

    # Then units and what extends them are the reference's, byte for byte
    for folder in ("consumequeue", "consumequeue_ext"):
        theirs = {
            path.relative_to(captured): path.read_bytes() for path in (captured / folder).rglob("0*") if path.is_file()
        }
        root = tmp_path / "ours"
        ours = {path.relative_to(root): path.read_bytes() for path in (root / folder).rglob("0*") if path.is_file()}
        assert {path for path in theirs if any(theirs[path])} and theirs == ours


def test_bits_are_those_of_the_groups_that_want_the_message() -> None:
    rows = Rows()
    assert set() == rows.of("1")
    assert b"" == rows.bits.of("T", b"")
    rows.take("one", "a > 5")
    rows.take("two", "a > 3")
    one, two = set(positions("one", "T", 20, 112)), set(positions("two", "T", 20, 112))
    assert (set(), two, one | two) == (rows.of("1"), rows.of("4"), rows.of("6"))
    # a group that asks for something else, or is gone
    rows.take("one", "a < 2", version=2)
    assert (one, two) == (rows.of("1"), rows.of("6"))
    rows.enabled = False
    assert b"" == rows.bits.of("T", b"a\x016\x02")


def test_a_condition_that_cannot_be_asked_counts_as_met() -> None:
    rows = Rows()
    row = {
        "consumerGroup": "g",
        "topic": "T",
        "expression": "a = 03",  # the reference takes it
        "expressionType": "SQL92",
        "clientVersion": 1,
        "bornTime": 1,
        "bloomFilterData": {"bitNum": 112, "bitPos": positions("g", "T", 20, 112)},
    }
    rows.filters.load({"filterDataByTopic": {"T": {"groupFilterData": {"g": row}}}})
    long = " OR ".join(f"a = {number}" for number in range(700))
    for number in range(9):
        rows.take(f"long-{number}", f"{long} OR a = {1000 + number}")
    expected = set(positions("g", "T", 20, 112))
    assert expected <= rows.of("x")
    assert any(set(positions(f"long-{number}", "T", 20, 112)) <= rows.of("x") for number in range(9))


def test_bits_are_asked_only_of_the_condition_that_they_were_made_for() -> None:
    rows = Rows()
    assert wanted_bits(rows.filters, "g", "T", condition("a > 5")) is None
    rows.take("g", "a > 5")
    found = wanted_bits(rows.filters, "g", "T", condition("a > 5"))
    assert found is not None
    assert (tuple(positions("g", "T", 20, 112)), 112, 1_000) == (found.positions, found.length, found.born_ms)
    assert wanted_bits(rows.filters, "g", "T", condition("a > 4")) is None


def test_a_condition_that_comes_while_the_clock_is_behind_the_messages_counts_from_the_newest_of_them() -> None:
    rows = Rows()
    rows.filters.newest_ms = lambda: 5_000
    rows.take("g", "a > 5")
    found = wanted_bits(rows.filters, "g", "T", condition("a > 5"))
    assert found is not None and 5_000 == found.born_ms


@pytest.mark.parametrize(("stored", "doubtful", "born_ms"), [(112, False, 7), (120, False, 1_000), (112, True, 1_000)])
def test_bits_from_before_count_only_where_the_file_says_what_they_were_made_for(
    stored: int, doubtful: bool, born_ms: int
) -> None:
    row: dict[str, Any] = {
        "consumerGroup": "g",
        "topic": "T",
        "expression": "a > 5",
        "expressionType": "SQL92",
        "clientVersion": 1,
        "bornTime": 7,
        "bloomFilterData": {"bitNum": stored, "bitPos": positions("g", "T", 20, 112)},
    }
    rows = Rows()
    rows.filters.load({"filterDataByTopic": {"T": {"groupFilterData": {"g": row}}}}, doubtful=doubtful)
    found = rows.filters.get("T", "g")
    assert found is not None and born_ms == found.born_ms


async def subscribed(rig: Rig, text: str) -> None:
    """Let the group ask for *text*; bits count for what is stored later, in milliseconds."""
    heartbeat(rig, text)
    row = rig.broker.consumer_filters.get("T", "cg")
    assert row is not None
    await until(lambda: rig.broker.world.clock.wall_ms() > row.born_ms)


def looked_at(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the list to which the properties go that a pull looks at from now on."""
    found: list[bytes] = []
    reading = PropertyFilter.reading

    def noting(self: PropertyFilter) -> Callable[[bytes], bool]:
        passes = reading(self)

        def noted(properties: bytes) -> bool:
            found.append(properties)
            return passes(properties)

        return noted

    monkeypatch.setattr(PropertyFilter, "reading", noting)
    return found


async def test_a_pull_looks_at_what_its_group_wants_and_gets_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for keys, expected in (
        (ON, 2),
        ({"enablePropertyFilter": "true"}, 10),
        ({**ON, "enableCalcFilterBitMap": "false"}, 10),
    ):
        folder = tmp_path / str(len(keys)) / keys.get("enableCalcFilterBitMap", "")
        async with open_rig(str(folder), keys) as rig:
            await subscribed(rig, "a > 7")
            await filled(rig)
            with monkeypatch.context() as patch:
                seen = looked_at(rig, patch)
                answer = rig.pull("T", 0, 0, sysFlag="0", subVersion="7")
                assert ([b"m8", b"m9"], expected) == (bodies(answer), len(seen))
                # another condition than the announced one is not answered by the bits of that
                assert [b"m1"] == bodies(rig.pull("T", 0, 0, expressionType="SQL92", subscription="a = 1"))


async def test_bits_are_used_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig(str(tmp_path), ON) as rig:
        await subscribed(rig, "a > 7")
        await filled(rig)
        await rig.broker.persistence.save_all()
        await rig.broker.store.close()
    async with open_rig(str(tmp_path), ON) as rig:
        heartbeat(rig, "a > 7")
        seen = looked_at(rig, monkeypatch)
        assert [b"m8", b"m9"] == bodies(rig.pull("T", 0, 0, sysFlag="0", subVersion="7"))
        assert 2 == len(seen)
