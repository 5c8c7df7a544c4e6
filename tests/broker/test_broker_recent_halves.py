"""What is remembered of half messages that were stored last is what their records say, within its bounds."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.transactions import recent
from understudy.broker.transactions.half import Half, to_half
from understudy.broker.transactions.recent import RecentHalves
from understudy.format import names
from understudy.format.properties import format_properties, parse_properties
from understudy.format.record import Record


def stored(at: int, body: bytes = b"body", **more: str) -> tuple[Record, dict[str, str]]:
    pairs = {"UNIQ_KEY": f"key-{at}", "PGROUP": "writers", "TRAN_MSG": "true", **more}
    topic, queue_id, sys_flag = to_half("orders", 3, pairs, 4)
    return Record(topic, queue_id, at, at * 100, body, format_properties(pairs), sys_flag=sys_flag, born_ms=7), pairs


texts = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=("Cs",)), min_size=1, max_size=9)


@given(st.dictionaries(texts, texts, max_size=5))
def test_what_is_taken_is_what_its_record_says_and_is_there_once(more: dict[str, str]) -> None:
    halves = RecentHalves()
    record, pairs = stored(5, **{f"x{name}": text for name, text in more.items()})
    assert parse_properties(record.properties_text) == pairs
    halves.keep(record, pairs)
    assert halves.take(500) == Half.of(record) != None  # noqa: E711
    assert halves.take(500) is None
    assert len(halves) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "orders"},
        {"body": bytes(recent.LARGEST_BYTES)},
    ],
)
def test_what_is_none_or_is_large_is_not_kept(change: dict[str, object]) -> None:
    halves, (record, pairs) = RecentHalves(), stored(5)
    halves.keep(attrs.evolve(record, **change), pairs)
    assert halves.take(500) is None


def test_a_message_for_a_topic_that_nobody_may_send_to_is_judged_by_its_record() -> None:
    halves, (record, pairs) = RecentHalves(), stored(5)
    halves.keep(record, {**pairs, "REAL_TOPIC": names.HALF_TOPIC})
    assert halves.take(500) is None


def test_the_oldest_go_when_there_are_many_or_much() -> None:
    halves = RecentHalves()
    for at in range(recent.MOST + 10):
        halves.keep(*stored(at))
    assert len(halves) == recent.MOST
    assert halves.take(9 * 100) is None
    assert halves.take(10 * 100) is not None
    for at in range(10_000, 10_100):
        halves.keep(*stored(at, bytes(recent.LARGEST_BYTES - 1000)))
    assert 10 < len(halves) < 20
    assert halves.take((10_099) * 100) is not None
    halves.clear()
    assert len(halves) == 0
    # and what was forgotten counts no more
    for at in range(recent.MOST):
        halves.keep(*stored(at))
    assert len(halves) == recent.MOST
