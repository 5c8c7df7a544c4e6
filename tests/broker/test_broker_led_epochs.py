"""An epoch begins once in a log: at one position, and in one life of its master."""

from __future__ import annotations

import random
from typing import cast

import attrs
import pytest

from understudy.broker.switch_epochs import begin_epoch
from understudy.ha.switch.epoch_file import EpochFile
from understudy.ha.switch.epochs import Epochs
from understudy.store.message_store import MessageStore
from understudy.testkit.sim.disk import SimDisk


@attrs.frozen
class Store:
    min_physical_offset: int = 0


STORE = cast(MessageStore, Store())


def history_of(*pairs: tuple[int, int]) -> EpochFile:
    disk = SimDisk(random.Random(1))
    disk.make_folder("/store")
    history = EpochFile(disk, "/store/epochs")
    history.epochs = Epochs.of(pairs)
    return history


async def test_a_new_epoch_begins_at_the_end() -> None:
    history = history_of((1, 0), (2, 100))
    await begin_epoch(history, STORE, 4, 300)
    assert history.epochs == Epochs.of([(1, 0), (2, 100), (4, 300)])


async def test_a_change_of_role_that_is_made_again_finds_its_epoch_begun() -> None:
    history = history_of((1, 0), (2, 100))
    await begin_epoch(history, STORE, 2, 100)
    assert history.epochs == Epochs.of([(1, 0), (2, 100)])


@pytest.mark.parametrize(
    ("epoch", "end"), [(2, 300), (2, 50), (1, 300)], ids=["it has bytes", "they are lost", "a later one has begun"]
)
async def test_an_epoch_begins_nowhere_else(epoch: int, end: int) -> None:
    history = history_of((1, 0), (2, 100))
    with pytest.raises(OSError, match=f"epoch {epoch} cannot begin at {end}: epoch 2 has begun at 100"):
        await begin_epoch(history, STORE, epoch, end)
    assert history.epochs == Epochs.of([(1, 0), (2, 100)])
