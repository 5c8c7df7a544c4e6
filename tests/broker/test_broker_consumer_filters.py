"""The record of conditions: the reference's file read and written, lives and deaths of its rows, and bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broker_rig import open_rig

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.config import _bloom_bits
from understudy.broker.consumer_filters import AWAY_MS, MOST_CHARACTERS, ConsumerFilters
from understudy.broker.filters import Subscription
from understudy.broker.heartbeat import parse_heartbeat
from understudy.broker.sql_filter.bloom import positions
from understudy.format.json_dialect import dump_chunks, loads
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.pace import run_steps

CAPTURED = Path(__file__).parents[1] / "data" / "sql_filter" / "consumerFilter.json"
DAY_MS = 86_400_000


class Table:
    """A record with a clock and live groups that the test sets."""

    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = loads(b"".join(dump_chunks(self.rows.snapshot())))
        return found

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.live: set[tuple[str, str]] = set()
        self.changes = 0
        self.rows = ConsumerFilters(
            lambda: self.now_ms,
            lambda group, topic: (group, topic) in self.live,
            lambda kind, text: kind == "SQL92" and "!" not in text,
            lambda: DAY_MS,
            lambda group, topic: (positions(group, topic, 20, 112), 112),
        )
        self.rows.on_change.append(self.changed)

    def changed(self) -> None:
        self.changes += 1

    def take(self, text: str, version: int, group: str = "g", topic: str = "T", kind: str = "SQL92") -> None:
        self.live.add((group, topic))
        for _ in self.rows.take(group, [Subscription(topic, text, kind, version)]):
            pass

    def row(self, group: str = "g", topic: str = "T") -> dict[str, Any] | None:
        topics = self.content()["filterDataByTopic"]
        found: dict[str, Any] | None = topics.get(topic, {}).get("groupFilterData", {}).get(group)
        return found


def test_the_file_of_the_reference_is_read_and_written() -> None:
    content = json.loads(CAPTURED.read_text())
    table = Table()
    table.rows.load(content)

    assert table.content() == content


def test_the_length_of_the_bit_map_is_the_references() -> None:
    config = BrokerConfig()
    assert _bloom_bits(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter) == 112
    assert len(positions("g", "t" * 40, 10, 240)) == 4


def test_a_row_is_alive_as_long_as_its_group_asks_for_it() -> None:
    table = Table()
    table.take("a > 1", 5)
    table.take("*", 5, topic="Tags", kind="TAG")
    assert table.row() is not None and table.row("g", "Tags") is None
    assert (table.row() or {})["dead"] is False
    assert table.changes == 1
    table.take("a > 1", 5)
    run_steps(table.rows.burying())
    assert table.changes == 1

    table.live.clear()
    table.now_ms += 500
    run_steps(table.rows.burying())
    assert (table.row() or {})["deadTime"] == table.now_ms
    assert ((table.row() or {})["dead"], table.changes) == (True, 2)
    table.take("a > 1", 5)
    assert ((table.row() or {})["dead"], (table.row() or {})["deadTime"], table.changes) == (False, 0, 3)

    table.live.clear()
    run_steps(table.rows.burying())
    table.now_ms += DAY_MS - 1
    run_steps(table.rows.burying())
    assert table.row() is not None
    table.now_ms += 1
    run_steps(table.rows.burying())
    assert table.row() is None
    assert table.content() == {"filterDataByTopic": {}}


def test_newer_versions_replace_older_ones_and_never_the_other_way() -> None:
    table = Table()
    table.take("a > 1", 5)
    born = (table.row() or {})["bornTime"]
    table.now_ms += 10
    table.take("a > 2", 4)
    table.take("a > 2", 5)
    assert (table.row() or {})["expression"] == "a > 1"
    table.take("a > 1", 6)
    assert ((table.row() or {})["clientVersion"], (table.row() or {})["bornTime"]) == (6, born)
    table.take("a > 2", 7)
    assert ((table.row() or {})["expression"], (table.row() or {})["bornTime"]) == ("a > 2", table.now_ms)
    table.take("a ! 2", 8)
    assert table.row() is None
    table.take("a", 9, kind="XPATH")
    assert table.row() is None


def test_rows_that_were_alive_when_they_were_written_are_dead_when_they_are_read() -> None:
    table, later = Table(), Table()
    table.take("a > 1", 5)
    later.now_ms += 10 * AWAY_MS
    later.rows.load(table.content())
    assert (later.row() or {})["deadTime"] == later.now_ms - AWAY_MS
    soon = Table()
    soon.rows.load(table.content())
    assert (soon.row() or {})["deadTime"] == soon.now_ms


@pytest.mark.parametrize(
    "content",
    [
        {"filterDataByTopic": []},
        {"filterDataByTopic": {"T": 1}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": []}}}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {"bornTime": "x"}}}}},
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {"expression": 1}}}}},
    ],
)
def test_an_entry_that_is_none_is_named_and_nothing_is_taken(content: dict[str, Any]) -> None:
    table = Table()
    with pytest.raises(ValueError, match=r"T|filterDataByTopic"):
        table.rows.load(content)
    assert table.content() == {"filterDataByTopic": {}}


def test_what_is_recorded_is_bounded() -> None:
    table = Table()
    text = "a = 1 OR " * 900 + "a = 1"
    for number in range(2 * MOST_CHARACTERS // len(text)):
        table.take(text, 5, f"g{number}")
    kept = table.content()["filterDataByTopic"]["T"]["groupFilterData"]
    assert MOST_CHARACTERS * 0.9 < sum(len(row["expression"]) for row in kept.values()) <= MOST_CHARACTERS
    table.live.clear()
    run_steps(table.rows.burying())
    table.now_ms += DAY_MS
    run_steps(table.rows.burying())
    table.take(text, 5)
    assert table.row() is not None


def beat(topic: str, text: str, version: int = 7, count: int = 1) -> bytes:
    subscriptions = [
        {
            "expressionType": "SQL92",
            "subString": text.replace("#", str(number)),
            "subVersion": version,
            "topic": f"{topic}{number or ''}",
        }
        for number in range(count)
    ]
    group = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": "cg",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": subscriptions,
    }
    return json.dumps({"clientID": "c@1", "consumerDataSet": [group]}).encode()


async def test_what_groups_ask_for_outlives_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerFilter.json"
    async with open_rig(str(tmp_path)) as rig:
        rig.ask(34, None, beat("T", "a > 5"))
    row = json.loads(path.read_text())["filterDataByTopic"]["T"]["groupFilterData"]["cg"]
    assert (row["expression"], row["clientVersion"]) == ("a > 5", 7)
    assert row["bloomFilterData"] == {"bitNum": 112, "bitPos": positions("cg", "T", 20, 112)}
    async with open_rig(str(tmp_path)) as rig:
        held = rig.broker.consumer_filters.get("T", "cg")
        assert held is not None and held.dead
        rig.ask(34, None, beat("T", "a > 5"))
        held = rig.broker.consumer_filters.get("T", "cg")
        assert held is not None and not held.dead
        rig.ask(34, None, beat("T", "a > >", 8))
        assert rig.broker.consumer_filters.get("T", "cg") is None


async def test_a_damaged_record_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerFilter.json").write_text('{"filterDataByTopic":{"T":')
    async with open_rig(str(tmp_path)) as rig:
        rig.ask(34, None, beat("T", "a > 5"))
        assert rig.broker.consumer_filters.get("T", "cg") is not None


async def test_a_heartbeat_with_many_long_conditions_is_taken_in_pieces(tmp_path: Path) -> None:
    short = " OR ".join(f"a = 1{number}#" for number in range(10))
    for count, expected in ((1, False), (3, True)):
        asked = request(RequestCode.HEART_BEAT, {}, beat("T", short, count=count))
        assert parse_heartbeat(asked).long is expected
    text = " OR ".join(f"a = 1{number}#" for number in range(200))
    async with open_rig(str(tmp_path)) as rig:
        told = rig.tell(34, None, beat("T", text, count=60))
        assert (await rig.wait(told)).code == 0
        assert rig.broker.consumer_filters.get("T59", "cg") is not None


def test_each_condition_is_a_step() -> None:
    table = Table()
    steps = table.rows.take("g", [Subscription(f"T{number}", "a > 1", "SQL92", 5) for number in range(3)])
    for number, _ in enumerate(steps):
        assert (table.rows.get(f"T{number}", "g") is None, table.rows.get(f"T{number + 1}", "g")) == (False, None)
    assert table.changes == 3
