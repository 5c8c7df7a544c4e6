"""What a led broker finds that it must not believe: damaged epochs, epochs that are not its log's, an id of another."""

from __future__ import annotations

import random

import pytest
import trio
from test_broker_led_asked import elect
from test_broker_led_rows import others, part

from understudy.broker.storage import BrokerStartError
from understudy.ha.switch.epoch_file import from_text, to_text
from understudy.ha.switch.epochs import Epochs
from understudy.runtime.program import first_cause
from understudy.testkit.led.group import BROKERS, LedGroup, led_group
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

ALL = {"allAckInSyncStateSet": "true"}
EPOCHS = "/data/store/epochFileCheckpoint"
IDENTITY = "/data/store/brokerIdentity"
SENT = [b"%d" % number for number in range(20)]


async def send_all(group: LedGroup) -> tuple[str, str]:
    """Have messages acknowledged in two epochs; return the master of the second one and a slave of both."""
    former = await group.ready(3)
    await group.create_topic(former)
    assert [await group.send(former, body) for body in SENT[:10]] == [0] * 10
    first, slave = others(former)
    await elect(group, first)
    await group.ready(3)
    assert [await group.send(first, body) for body in SENT[10:]] == [0] * 10
    await until(lambda: all(group.bodies(name) == SENT for name in BROKERS))
    return first, slave


def put(group: LedGroup, name: str, path: str, content: bytes) -> None:
    file = group.cluster.host(name).disk.open(path)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


@pytest.mark.parametrize("backup", [None, b"1\n7\n1-0\n"], ids=["without the one before", "both damaged"])
def test_a_broker_whose_epochs_cannot_be_read_does_not_start_and_says_so_in_a_line(backup: bytes | None) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, slave = await send_all(group)
            await group.kill(slave)
            disk = group.cluster.host(slave).disk
            good = disk.read(EPOCHS)
            put(group, slave, EPOCHS, b"2\n1\n" + good)
            if backup is None:
                disk.remove(f"{EPOCHS}.bak")
            else:
                put(group, slave, f"{EPOCHS}.bak", backup)
            with pytest.raises(BaseExceptionGroup) as refused:
                await group.start_broker(slave)
            why = first_cause(refused.value)
            assert isinstance(why, BrokerStartError)
            assert str(why).startswith(f"{EPOCHS}: line 1 promises 2 entries")
            assert "put a good copy of the file there" in str(why)
            assert "\n" not in str(why)
            # then nothing was changed, and with a good copy it goes on
            assert disk.read(EPOCHS) == b"2\n1\n" + good
            put(group, slave, EPOCHS, good)
            await group.start_broker(slave)
            await group.ready(3)
            assert group.bodies(slave) == group.bodies(first) == SENT

    run_seed(scenario, 1)


@pytest.mark.parametrize("leads", [False, True], ids=["follows", "leads"])
def test_with_the_epochs_before_the_damaged_ones_nothing_that_was_acknowledged_is_lost(leads: bool) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, slave = await send_all(group)
            for name in (slave,) if not leads else BROKERS:  # all are in the set: whoever is there first leads
                await group.kill(name)
            put(group, slave, EPOCHS, b"rubbish")
            await group.start_broker(slave)
            if leads:
                await until(lambda: group.master() == slave)
                await until(lambda: group.bodies(slave) == SENT)  # once the controllers have heard that it leads
                for name in others(slave):
                    await group.start_broker(name)
                await group.ready(3)
                await elect(group, first)
            await group.ready(3)
            await until(lambda: all(group.bodies(name) == SENT for name in BROKERS))
            assert len({tuple(part(group, name).epochs()) for name in BROKERS}) == 1

    run_seed(scenario, 2)


@pytest.mark.parametrize("behind", [0, 1, 5_000])
def test_epochs_of_the_future_or_behind_the_end_of_the_log_are_believed_by_nobody(behind: int) -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, slave = await send_all(group)
            end = group.brokers[slave].store.max_physical_offset
            await group.kill(slave)
            disk = group.cluster.host(slave).disk
            known = from_text(disk.read(EPOCHS))
            put(group, slave, EPOCHS, to_text(Epochs((*known.entries, *Epochs.of([(99, end + behind)])))))
            await group.start_broker(slave)
            await group.ready(3)
            assert group.master() == first
            assert await group.send(first, b"more") == 0
            # then it follows, leads in turn, and all say the same of the log
            await elect(group, slave)
            await group.ready(3)
            assert group.master() == slave
            assert await group.send(slave, b"last") == 0
            await until(lambda: all(group.bodies(name) == [*SENT, b"more", b"last"] for name in BROKERS))
            assert {tuple(epoch for epoch, _, _ in part(group, name).epochs()) for name in BROKERS} == {(1, 2, 3)}

    run_seed(scenario, 3)


def test_an_id_whose_broker_lives_is_given_to_no_copy_of_its_store() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, ALL) as group:
            first, slave = await send_all(group)
            copy = next(name for name in others(first) if name != slave)
            own_id, address = part(group, slave).own_id, group.brokers[slave].identity.address
            await group.kill(copy)
            put(group, copy, IDENTITY, group.cluster.host(slave).disk.read(IDENTITY))
            broker = await group.start_broker(copy)
            await trio.sleep(5)
            # then it waits, says why, and the other one is where it was
            assert broker.led is not None
            assert f"BrokerId: {own_id} in broker-set: g is alive at {address}" in broker.led.ids.problem
            facts = group.facts()
            assert facts is not None
            assert facts.replicas[own_id].address == address
            assert set(group.members()) == {first, slave}
            assert await group.send(first, b"more") == 0
            # and once that one is gone, it has moved
            await group.kill(slave)
            await until(lambda: set(group.members()) == {first, copy})
            await until(
                lambda: group.bodies(copy) == [*SENT, b"more"]
            )  # it has the bytes, and is to be told what counts

    run_seed(scenario, 4)
