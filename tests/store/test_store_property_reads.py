"""Reads by properties: the quick way through a queue finds what the careful one finds, whatever the queue is like."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from store_fixtures import bodies_of, put, running_store, simulated_world, small_config

from understudy.format.properties import find_property
from understudy.format.record import BODY_LENGTH_AT, MAGIC_V2, encode_host, encode_record
from understudy.store.message_store import MessageStore
from understudy.store.property_scan import PropertyScan
from understudy.store.status import GetResult, GetStatus

Accept = Callable[[bytes], bool]
SCAN = PropertyScan.scan
HOSTS = (encode_host("127.0.0.1", 10911), encode_host("::1", 10911))


def accepts(*values: str) -> Accept:
    """Return what wants messages whose property `a` has one of *values*."""
    wanted = {value.encode() for value in values}
    return lambda properties: find_property(properties, b"a\x01") in wanted


def told(found: GetResult) -> tuple[object, ...]:
    return found.status, *attrs_of(found), b"".join(found.parts)


def attrs_of(found: GetResult) -> tuple[object, ...]:
    return (
        found.next_begin_offset,
        found.min_offset,
        found.max_offset,
        found.size_bytes,
        found.count,
        found.suggest_slave,
    )


class Ways:
    """Reads a store in both ways, and counts how often the quick one had an answer."""

    def __init__(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.quick = 0
        self.carefully = False

        def watched(*arguments: object) -> GetResult | None:
            found = None if self.carefully else SCAN(*arguments)  # type: ignore[arg-type]
            self.quick += found is not None
            return found

        monkeypatch.setattr(PropertyScan, "scan", watched)

    def read(
        self, topic: str, offset: int, accept: Accept, most: int = 32, most_bytes: int = 1 << 20, asked: int = 800
    ) -> GetResult:
        found = []
        for self.carefully in (False, True):
            found.append(self.store.get(topic, 0, offset, most, most_bytes, None, accept, asked))
        assert told(found[1]) == told(found[0])
        return found[0]

    def read_all(self, topic: str, chance: random.Random) -> None:
        """Read a queue from everywhere, with bounds of any kind."""
        for offset in range(self.store.max_queue_offset(topic, 0)):
            accept = chance.choice(
                [accepts("3"), accepts("1", "2", "3", "4"), accepts("none"), lambda properties: True]
            )
            bounds = chance.choice([1, 2, 32]), chance.choice([1, 900, 2_500, 1 << 20]), chance.choice([1, 7, 800])
            self.read(topic, offset, accept, *bounds)


def raw_log(chance: random.Random, topic: str, count: int) -> bytes:
    """Return a log of which some messages of *topic* are lost, with other topics between them."""
    raw, own = b"", 0
    for number in range(count):
        own += chance.choice([1, 1, 1, 1, 1, 1, 1, 1, 2, 4]) if number else 0
        for name, at in ((topic, own), ("Other", number)) if chance.randrange(3) else ((topic, own),):
            body = chance.randbytes(chance.choice([0, 10, 700]))
            record = encode_record(
                name,
                0,
                at,
                len(raw),
                body,
                chance.choice([b"", b"a\x013\x02", b"TAGS\x01x\x02a\x01%d" % chance.randrange(5), b"\x02\x01a"]),
                born_host=chance.choice(HOSTS),
                store_host=HOSTS[0],
                born_ms=1,
                store_ms=1,
            )
            raw += record if chance.randrange(10) or len(name) > 127 else with_long_topic_field(record, len(body))
    return raw


def with_long_topic_field(record: bytes, body_length: int) -> bytes:
    """Return a record in the form that those of long topics have."""
    at = BODY_LENGTH_AT[record[39] >> 4 & 3] + 4 + body_length
    raw = record[:at] + b"\0" + record[at:]
    return len(raw).to_bytes(4, "big") + MAGIC_V2.to_bytes(4, "big") + raw[8:]


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_found_in_small_files_is_what_the_careful_way_finds(
    seed: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    config = small_config(
        memory_bytes=chance.choice([1 << 10, 1 << 16, 1 << 30]), max_filter_message_size=chance.choice([400, 16_000])
    )
    async with running_store(world, config) as store:
        for _ in range(90):
            put(store, "T", chance.randbytes(chance.choice([5, 1_000])), a=str(chance.randrange(5)))
            if not chance.randrange(3):
                put(store, "Other", b"x" * 500)
        ways = Ways(store, monkeypatch)
        ways.read_all("T", chance)
        assert 90 == ways.quick
    # what was there before is compared with its checksum when it is read for the first time
    async with running_store(world, config) as store:
        put(store, "T", b"new", a="3")
        ways = Ways(store, monkeypatch)
        ways.read_all("T", chance)
        assert ways.quick == 91


@pytest.mark.parametrize("topic", ["T", "t" * 200])
@pytest.mark.parametrize("seed", range(6))
async def test_what_is_found_between_losses_is_what_the_careful_way_finds(
    seed: int, topic: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    world, chance = simulated_world(seed), random.Random(seed)
    config = small_config(mapped_file_size_commit_log=1 << 17, max_filter_message_size=200)
    async with running_store(world, config) as store:
        store.append_raw(0, raw_log(chance, topic, 100))
        ways = Ways(store, monkeypatch)
        ways.read_all(topic, chance)
        assert 0 < ways.quick < store.max_queue_offset(topic, 0)


async def test_a_read_goes_on_in_the_next_file_while_one_is_mapped_at_a_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    world, config = simulated_world(), small_config(mapped_file_size_consume_queue=20 * 1_000, mapped_log_files_max=1)
    expected = [b"%d" % number for number in range(7, 100, 10)]
    async with running_store(world, config) as store:
        for number in range(100):
            put(store, "T", b"%d" % number + b" " * 1_000, a=str(number % 10))
        assert expected == read_to_the_end(Ways(store, monkeypatch))
    async with running_store(world, config) as store:
        assert expected == read_to_the_end(Ways(store, monkeypatch))


def read_to_the_end(ways: Ways) -> list[bytes]:
    """Return the bodies of one read over several files."""
    assert len(ways.store._core.segments.items) > 5
    found = ways.read("T", 0, accepts("7"))
    assert (GetStatus.FOUND, 100, 1) == (found.status, found.next_begin_offset, ways.quick)
    return [body.strip() for body in bodies_of(found)]


@pytest.mark.parametrize("kind", ["behind the file", "inside of the message", "lost", "longer", "before the log"])
async def test_a_unit_that_has_rotted_is_left_to_the_careful_way(
    kind: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(simulated_world(), small_config(mapped_file_size_consume_queue=20 * 1_000)) as store:
        for number in range(12):
            put(store, "T", b"%d" % number, a=str(number % 2))
        core = store._core
        queue = core.consume_queues.by_key["T", 0]
        units = [core.consume_queues.unit(queue, at) or (0, 0, 0) for at in range(12)]
        physical, size, code = units[5]
        rotten = {
            "behind the file": (physical + (1 << 40), size, code),
            "inside of the message": (physical + 4, size, code),
            "lost": (0, 0, 0),
            "longer": (physical, size + 1, code),
            "before the log": (physical - (1 << 40), size, code),
        }
        core.consume_queues._write(queue, 5, *rotten[kind])
        ways = Ways(store, monkeypatch)
        first = store.get("T", 0, 0, 32, 1 << 20, None, accepts("1"))
        assert 0 == ways.quick
        bodies = bodies_of(first)
        if first.next_begin_offset < 12:  # it is entered again meanwhile
            await trio.sleep(1)
            bodies += bodies_of(store.get("T", 0, first.next_begin_offset, 32, 1 << 20, None, accepts("1")))
        assert [b"%d" % number for number in range(1, 12, 2)] == bodies
