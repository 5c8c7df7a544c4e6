"""What looks like a seal and is none: such a message is whole, whoever stored it, and nobody loses it.

A broker that does not seal stores what a client says, and a reference without `enabledAppendPropCRC` keeps the seal of
a message's former record.
"""

from __future__ import annotations

import pytest
from store_fixtures import LOG_FILE_BYTES, PRODUCER, disk_of, running_store, simulated_world, small_config
from test_store_rot import everything, rot

from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.seals import NAME, seal, unsealed
from understudy.testkit.waiting import until

TOPIC = "Orders"
#: A property that a seal becomes when one bit of its name changes: no writer takes it off.
NEARLY = b"__CRC33#\x01"
SEALING = small_config(enabled_append_prop_crc=True)
FORMER = seal(b"of a former life")
COUNT = 20


def put(store: MessageStore, number: int, *, stale: bool = False) -> tuple[int, int]:
    """Store a message, *stale*: whose last property is nearly a seal; return where it begins and its size."""
    properties = b"KEYS\x01k%d\x02" % number + stale * (NEARLY + FORMER[len(NAME) :])
    return store.append(TOPIC, 0, b"body%02d" % number, properties, 1, PRODUCER)[:2]


def make_stale(world: World, place: tuple[int, int]) -> None:
    """Let the last property of a record be the seal of another one, as a reference leaves it."""
    rot(world, sum(place) - len(FORMER) + NEARLY.index(b"33") + 1, 1)


async def found_anew(world: World, config: StoreConfig) -> list[int]:
    """Start the store; return which messages readers get, before and after a scrub, which says what is missing."""
    async with running_store(world, config) as store:
        found = [each.queue_offset for each in everything(store)]
        report = store.start_scrub()
        await until(lambda: not report.running, 10)
        assert len(found) == report.records
        assert (len(found) == COUNT) == (not report.damaged) == (store.hole is None)  # what lies side by side is one
        assert found == [each.queue_offset for each in everything(store)]
        return found


def all_but(*missing: int) -> list[int]:
    return [number for number in range(COUNT) if number not in missing]


@pytest.mark.parametrize("is_known", [True, False], ids=["read", "walked"])
@pytest.mark.parametrize("kind", ["nearly a seal", "that of another record"])
@pytest.mark.parametrize("stale", [(12,), (12, 13, 14), (0,), (COUNT - 1,), tuple(range(COUNT))], ids=str)
async def test_what_only_looks_like_a_seal_costs_no_message(
    stale: tuple[int, ...], kind: str, is_known: bool, autojump_clock: object
) -> None:
    world = simulated_world()
    async with running_store(world) as store:
        places = [put(store, number, stale=number in stale) for number in range(COUNT)]
    if kind == "that of another record":
        for number in stale:
            make_stale(world, places[number])
    if not is_known:
        disk_of(world).remove("/store/recovery.mark")
    assert all_but() == await found_anew(world, small_config())


@pytest.mark.parametrize("is_known", [True, False], ids=["read", "walked"])
async def test_messages_from_before_and_after_a_time_of_seals_are_whole(is_known: bool, autojump_clock: object) -> None:
    # given a store that sealed its records for a while, and the first and last ones around that bring seals of others
    world = simulated_world()
    places = []
    for number in range(COUNT):
        seals = 6 <= number < 12
        async with running_store(world, SEALING if seals else small_config()) as store:
            places.append(put(store, number, stale=number in (4, 12, 13)))
    for number in (4, 12, 13):
        make_stale(world, places[number])
    if not is_known:
        disk_of(world).remove("/store/recovery.mark")
    # then each of them is found
    assert all_but() == await found_anew(world, small_config())
    # and what has rotted among sealed ones is not
    rot(world, places[8][0] + 17, 1)
    assert all_but(8) == await found_anew(world, small_config())


@pytest.mark.parametrize("rotten", [(8,), (8, 9), (8, 9, 10)], ids=str)
async def test_several_sealed_records_that_rot_side_by_side_are_noticed(
    rotten: tuple[int, ...], autojump_clock: object
) -> None:
    world = simulated_world()
    async with running_store(world, SEALING) as store:
        places = [put(store, number) for number in range(COUNT)]
    for number in rotten:
        rot(world, places[number][0] + 17, 1)
    assert all_but(*rotten) == await found_anew(world, SEALING)


async def test_a_scrub_notices_rot_in_the_last_sealed_record_of_a_file(autojump_clock: object) -> None:
    world = simulated_world()
    async with running_store(world, SEALING) as store:
        places = [put(store, number) for number in range(LOG_FILE_BYTES // 130)]
        assert places[-1][0] >= LOG_FILE_BYTES
    number = max(number for number, (physical, _) in enumerate(places) if physical < LOG_FILE_BYTES)
    rot(world, places[number][0] + 17, 1)
    async with running_store(world, SEALING) as store:
        report = store.start_scrub()
        await until(lambda: not report.running, 10)
        assert [places[number][0]] == [first for first, _ in report.damaged]
        assert number not in [each.queue_offset for each in everything(store)]


def test_all_seals_of_former_records_are_taken_off() -> None:
    other = seal(b"of yet another life")
    for text in (b"A\x01b\x02%b%bC\x01d\x02", b"%bA\x01b\x02%bC\x01d\x02", b"%bA\x01b\x02C\x01d\x02%b"):
        assert b"A\x01b\x02C\x01d\x02" == unsealed(text % (FORMER, other))
    assert b"" == unsealed(FORMER + other)
    assert b"A\x01" + NAME[:-1] + b"\x02" == unsealed(b"A\x01" + NAME[:-1])
