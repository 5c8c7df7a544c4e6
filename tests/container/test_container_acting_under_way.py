"""What a slave that acts still puts elsewhere when its master comes back: nobody reads its progress beside that."""

from __future__ import annotations

import random

import trio
from container_ring import HOSTS, acting, delivered, open_ring, run, send_delayed

from understudy.broker.services import Decision, Service, ServiceKeeper, ServiceRow
from understudy.remoting.codes import RequestCode
from understudy.runtime.supervisor import open_supervisor
from understudy.testkit.drills.acting_faults import Accident, Fault
from understudy.testkit.waiting import until

THIRTY_SECONDS = 4  # delay level


def test_a_master_reads_the_progress_of_its_slave_when_nothing_is_under_way_there() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"flushDiskType": "SYNC_FLUSH"}) as ring:
            # given a master that only the name servers have lost: slave 1 acts, slave 2 goes on copying from the master
            beside = ring.cluster.host("c2").container
            assert beside is not None
            assert await beside.remove_broker(next(each.identity for each in beside.brokers() if each.is_master))
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            cut = Accident(ring.cluster, Fault("cut-off-servers", "c1"), HOSTS)
            keys = await send_delayed(ring, 6, THIRTY_SECONDS, pause_seconds=0.05)
            await cut.begin()
            await until(lambda: slave in acting(ring), 25)
            # when it is heard again just while the messages are on their way to a disk elsewhere that is slow
            target, disk = ring.broker("g2", 0).store, ring.cluster.host("c3").disk
            end = target.max_physical_offset
            disk.sync_seconds = 2.5
            await until(lambda: target.max_physical_offset > end, 40)
            await cut.end()
            await until(lambda: master.presence.isolated, 10)
            await until(lambda: not master.registration.isolated, 10)
            disk.sync_seconds = 0.001
            await trio.sleep(15)
            # then each is delivered once
            assert delivered(ring) == dict.fromkeys(keys, 1)

    run(scenario)


def test_a_disk_that_hangs_elsewhere_keeps_no_master_from_coming_back() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source, {"flushDiskType": "SYNC_FLUSH"}) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)
            cut = Accident(ring.cluster, Fault("cut-off-servers", "c1"), HOSTS)
            keys = await send_delayed(ring, 6, THIRTY_SECONDS)
            await cut.begin()
            await until(lambda: acting(ring) == [slave], 25)
            # given puts that never end, for the disks of all other hosts hang
            stores = [ring.broker(group, 0).store for group in ("g1", "g2")]
            ends = [store.max_physical_offset for store in stores]
            for host in ("c2", "c3"):
                ring.cluster.host(host).disk.sync_seconds = 60.0
            await until(lambda: ends != [store.max_physical_offset for store in stores], 40)
            # when the master comes back, then it is online a moment after the slave has given them up
            await cut.end()
            await until(lambda: master.presence.isolated, 10)
            await until(lambda: not master.registration.isolated, 10)
            assert acting(ring) == []
            for host in ("c2", "c3"):
                ring.cluster.host(host).disk.sync_seconds = 0.001
            await trio.sleep(15)
            assert delivered(ring).keys() == keys.keys()

    run(scenario)


def test_a_service_that_does_not_end_is_waited_for_no_longer_than_five_seconds() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_ring(source) as ring:
            master, slave = ring.broker("g0", 0), ring.broker("g0", 1)

            async def endless() -> None:
                with trio.CancelScope(shield=True):
                    await released.wait()

            released = trio.Event()
            row = ServiceRow(Service.TRANSACTIONS.value, lambda decisions: Decision(True, ""), endless)
            async with open_supervisor(slave.world.clock, "a service that does not end") as supervisor:
                keeper = ServiceKeeper([row], supervisor, "a service that does not end")
                slave.services.add(keeper)
                await keeper.apply({})
                # when a master says that it comes back, then it is answered all the same
                began = trio.current_time()
                ext = {"masterAddress": master.identity.address, "masterHaAddress": master.identity.ha_address}
                try:
                    answer = await ring.ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, ext, timeout_ms=10_000)
                finally:
                    slave.services.remove(keeper)
                    released.set()
                assert answer.code == 0
                assert 5 <= trio.current_time() - began < 6

    run(scenario)
