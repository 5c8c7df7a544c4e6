"""A batch is stored byte for byte as its messages one by one would be."""

from __future__ import annotations

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_fixtures import PRODUCER, running_store, simulated_world, small_config
from trio.testing import MockClock

from understudy.format.batch import encode_batch
from understudy.runtime.world import World

TOPIC = "Orders"
PREFIXES = ["FD000000000000000000000000000000024C8D5FFD2B276A7CB0B6", "7F0000010A2B18B4AAC2123456", "", "schlüssel-"]

keys = st.builds(
    lambda prefix, number: f"{prefix}{number:04X}" if prefix else "k" * (number % 3),
    st.sampled_from(PREFIXES),
    st.integers(0, 600),
)
pairs = st.lists(
    st.one_of(
        keys.map(lambda key: ("UNIQ_KEY", key)),
        st.sampled_from([("TAGS", "red"), ("TAGS", "blue"), ("KEYS", "a b"), ("KEYS", "c"), ("WAIT", "true")]),
        st.sampled_from([("xUNIQ_KEY", "99"), ("a", "UNIQ_KEY"), ("", "x"), ("TAGS", "")]),
    ),
    max_size=4,
)
properties = st.builds(
    lambda items, closed: "".join(f"{name}\x01{value}\x02" for name, value in items)[: None if closed else -1].encode(),
    pairs,
    st.booleans(),
)
messages = st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=3), properties), min_size=1, max_size=40)
alike = st.builds(
    lambda first, count, tail: [
        (0, b"body", f"UNIQ_KEY\x01{PREFIXES[0]}{first + number:04X}\x02{tail}".encode()) for number in range(count)
    ],
    st.integers(0, 60_000),
    st.integers(1, 40),
    st.sampled_from(["", "WAIT\x01true\x02", "TAGS\x01red\x02", "KEYS\x01k\x02"]),
)


def files_of(world: World) -> dict[str, bytes]:
    """Return the content of log, queue and index; files of the index, named by the time, by their number."""
    return {
        f"{folder} {number}": world.disk.read(f"{folder}/{name}")
        for folder in ("/store/commitlog", f"/store/consumequeue/{TOPIC}/0", "/store/index")
        for number, name in enumerate(world.disk.listdir(folder))
    }


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=st.lists(st.one_of(messages, alike), min_size=1, max_size=3))
def test_a_batch_leaves_the_bytes_that_single_messages_leave(batches: list[list[tuple[int, bytes, bytes]]]) -> None:
    world_of_batches, world_of_messages = simulated_world(), simulated_world()

    async def store_batches() -> None:
        async with running_store(world_of_batches, small_config(mapped_file_size_commit_log=1 << 16)) as store:
            for batch in batches:
                store.append_batch(TOPIC, 0, encode_batch(batch), 5, PRODUCER, now_ms=1_000_000)

    async def store_messages() -> None:
        async with running_store(world_of_messages, small_config(mapped_file_size_commit_log=1 << 16)) as store:
            for flag, body, text in [message for batch in batches for message in batch]:
                store.append(TOPIC, 0, body, text, 5, PRODUCER, flag=flag, now_ms=1_000_000)

    trio.run(store_batches, clock=MockClock(autojump_threshold=0))
    trio.run(store_messages, clock=MockClock(autojump_threshold=0))
    expected, actual = files_of(world_of_messages), files_of(world_of_batches)
    assert expected == actual
    assert any(path.startswith("/store/commitlog") for path in expected)


async def test_messages_of_one_tag_are_told_together_others_one_by_one(autojump_clock: object) -> None:
    async with running_store(simulated_world()) as store:
        # given somebody who wants to know what arrives
        told: list[tuple[int, bytes | None]] = []
        store.arrived.append(lambda topic, queue, offset, code, ms, text: told.append((offset, text)))
        # when a batch of one tag arrives, and one of two
        store.append_batch(TOPIC, 0, encode_batch([(0, b"x", b"TAGS\x01a\x02")] * 3), 5, PRODUCER)
        assert told == [(3, None)]
        store.append_batch(TOPIC, 0, encode_batch([(0, b"x", b"TAGS\x01a\x02"), (0, b"x", b"")]), 5, PRODUCER)
        # then no message of the second is passed over
        assert told == [(3, None), (4, None), (5, None)]
