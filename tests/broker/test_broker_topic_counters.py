"""Messages that come in are counted by type and by size, and the totals are what they were."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.topic_counters import (
    DELAYED,
    FIFO,
    NORMAL,
    SIZE_BOUNDS,
    TRANSACTION,
    TYPES,
    TopicCounters,
    type_of,
)

REQUESTS = st.lists(
    st.tuples(
        st.sampled_from((NORMAL, FIFO, DELAYED, TRANSACTION)),
        st.integers(0, 5),
        st.integers(1, 40),
        st.one_of(
            st.integers(1, 9_000_000), st.sampled_from([bound + more for bound in SIZE_BOUNDS for more in (0, 1)])
        ),
    ),
    max_size=30,
)


@given(REQUESTS)
def test_every_request_is_in_one_type_and_one_bucket(requests: list[tuple[int, int, int, int]]) -> None:
    counters = TopicCounters()
    messages, sizes, observed = [0] * 4, [0] * 4, [0] * 4
    buckets = [[0] * (len(SIZE_BOUNDS) + 1) for _ in TYPES]
    for type_, queue_id, number, size_bytes in requests:
        counters.of(type_)(queue_id, number, size_bytes)
        messages[type_] += number
        sizes[type_] += size_bytes
        observed[type_] += size_bytes // number
        buckets[type_][bisect_left(SIZE_BOUNDS, size_bytes // number)] += 1
    found = {figures.type: figures for figures in counters.figures()}
    assert {TYPES[type_] for type_, *_ in requests} == found.keys()
    for name, figures in found.items():
        type_ = TYPES.index(name)
        assert (messages[type_], sizes[type_]) == (figures.messages, figures.size_bytes)
        assert (buckets[type_], observed[type_]) == (figures.buckets, figures.observed_bytes)
    assert (sum(messages), sum(sizes)) == (sum(counters.messages), sum(counters.sizes))
    assert len(requests) == sum(counters.times)


@pytest.mark.parametrize(
    ("type_", "pairs"),
    [
        (NORMAL, {"TAGS": "red", "PRIORITY": "3", "TRAN_MSG": "false"}),
        (FIFO, {"__SHARDINGKEY": "a", "DELAY": "3"}),
        (TRANSACTION, {"TRAN_MSG": "true", "__SHARDINGKEY": "a"}),
        *((DELAYED, {name: "1"}) for name in ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")),
        (DELAYED, {"__STARTDELIVERTIME": "1"}),
    ],
)
def test_the_type_is_told_by_the_properties_a_transaction_first(type_: int, pairs: dict[str, str]) -> None:
    assert type_ == type_of(pairs)
