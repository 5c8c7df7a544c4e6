"""The incarnation of a led broker's store is the same one as long as nothing of the store is lost."""

from __future__ import annotations

import errno
import random

import pytest

from understudy.broker.led.incarnation import FILE_NAME, StoreIncarnation
from understudy.testkit.sim.disk import SimDisk

FOLDER = "/data/store"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def make(disk: SimDisk, *, durable: bool = False) -> StoreIncarnation:
    return StoreIncarnation(disk, FOLDER, random.Random(), durable=durable)


async def settled(disk: SimDisk, *, durable: bool = False) -> str:
    """Return what the next process says."""
    made = make(disk, durable=durable)
    await made.settle()
    assert 0 < len(made.value) <= 16
    return made.value


@pytest.mark.parametrize("durable", [False, True])
async def test_a_process_that_is_killed_loses_nothing(disk: SimDisk, durable: bool) -> None:
    assert await settled(disk, durable=durable) == await settled(disk, durable=durable)


async def test_a_loss_of_power_takes_what_only_memory_had(disk: SimDisk) -> None:
    before = await settled(disk)
    disk.lose_power()
    after = await settled(disk)
    assert after != before
    assert await settled(disk) == after


async def test_a_loss_of_power_takes_nothing_where_only_the_disk_counts(disk: SimDisk) -> None:
    before = await settled(disk, durable=True)
    disk.lose_power()
    assert await settled(disk, durable=True) == before


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("durable", [False, True])
async def test_what_counted_under_another_flush_disk_type_may_be_lost(
    disk: SimDisk, power: bool, durable: bool
) -> None:
    before = await settled(disk, durable=durable)
    between = await settled(disk, durable=not durable)
    if power:
        disk.lose_power()
    assert len({before, between, await settled(disk, durable=durable)}) == 3


async def test_a_store_that_was_moved_away_is_another_one(disk: SimDisk) -> None:
    before = await settled(disk)
    disk.remove_tree(FOLDER)
    assert await settled(disk) != before


async def test_a_log_that_is_known_to_lack_something_is_another_one(disk: SimDisk) -> None:
    before = await settled(disk, durable=True)
    made = make(disk, durable=True)
    await made.settle(anew=True)
    assert made.value not in ("", before)
    assert await settled(disk, durable=True) == made.value


async def test_after_a_failed_flush_nothing_is_promised_and_the_next_process_has_another(disk: SimDisk) -> None:
    made = make(disk)
    await made.settle()
    before = made.value
    await made.end()
    await made.end()
    assert made.value == ""
    assert await settled(disk) != before


async def test_nothing_is_promised_on_a_disk_that_takes_nothing(
    disk: SimDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.sync_error = OSError(errno.ENOSPC, "No space left on device")
    made = make(disk)
    await made.settle()
    assert made.value == ""
    assert FILE_NAME in caplog.text


@pytest.mark.parametrize("content", [b"", b" ", b"\xff\xfe", b"0123", b"0123 another-boot"])
async def test_a_damaged_file_is_none(disk: SimDisk, content: bytes) -> None:
    disk.make_folder(FOLDER)
    file = disk.open(f"{FOLDER}/{FILE_NAME}")
    file.write_at(0, content)
    file.close()
    value = await settled(disk)
    assert not value.startswith("0123")
    assert await settled(disk) == value
