"""A timer over a store of its own, without services, and what other replicas tell it."""

from __future__ import annotations

import random
from collections import Counter

from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.replicated.table import Answer, FilePlan
from understudy.broker.replicated.timer import READ_PHYSICAL, ReplicatedTimer, told
from understudy.broker.timer.timer import Timer
from understudy.format.names import TIMER_TOPIC
from understudy.runtime.tcp import TcpNetwork
from understudy.runtime.world import World
from understudy.store.config import StoreConfig
from understudy.store.message_store import MessageStore
from understudy.store.timer_check import TimerCheck
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

KEYS = MessageStoreConfig(store_path_root_dir="/store", mapped_file_size_timer_log=4096)
START_MS = 1_700_000_000_000


class Rig:
    """A timer over a store of its own, without services."""

    def __init__(self, world: World, store: MessageStore) -> None:
        self.world = world
        self.store = store
        self.timer = Timer(world, store, KEYS)
        self.timer.open()
        self.table = ReplicatedTimer(self.timer, FilePlan("timerProgress.json"))

    def keep(self, *seconds: int) -> None:
        """Store a message for each of *seconds* from the start on."""
        for second in seconds:
            text = f"TIMER_OUT_MS\x01{START_MS + second * 1000}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02".encode()
            self.store.append(TIMER_TOPIC, 0, b"x", text, 1, b"\0" * 8)

    def enqueue(self) -> None:
        while self.timer.enqueue():
            pass

    def flush(self) -> None:
        work = self.timer.begin_flush()
        assert work is not None
        self.timer.flush(work)
        self.timer.end_flush(work, True)

    def tells(self) -> Answer:
        """Return what another replica is told."""
        check = self.timer.check(resting=False)
        return Answer(told(self.timer, check), check.encode())

    def asks(self, other: Rig) -> None:
        """Take over the progress of *other*."""
        self.table.put(self.table.merge(other.tells(), lambda key, queue_id: None))

    def hears(self, second: int, settled: int, physical: int = 0) -> None:
        """Take over the progress of another replica."""
        check = TimerCheck(START_MS + second * 1000, 0, settled, settled)
        answer = Answer({READ_PHYSICAL: str(physical)}, check.encode())
        self.table.put(self.table.merge(answer, lambda key, queue_id: None))

    def waiting(self) -> Counter[int]:
        """Return how many messages wait for each second from the start on."""
        seconds = {second: self.timer.waiting_at(START_MS + second * 1000) for second in range(60)}
        first = (self.timer.progress.read.second_ms - START_MS) // 1000
        return Counter({second: count for second, count in seconds.items() if count and second >= first})


async def rig() -> Rig:
    clock = VirtualClock(START_MS)
    disk = SimDisk(random.Random(1), now_ms=clock.wall_ms)
    world = World(clock, TcpNetwork(), disk, random.Random(1))
    config = StoreConfig("/store", mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000)
    return Rig(world, await MessageStore.open(world, config, ("127.0.0.1", 10911)))
