"""Wrong, old, half-written and hostile HA peers: refused with a line in the log, and not a stored byte changes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
import trio
from slave_rig import Pair, bodies, log_of, open_pair, run

from understudy.mqclient.message import Message
from understudy.runtime.background import open_background
from understudy.testkit.waiting import until

FRAME = struct.Struct(">qi")  # where the bytes belong, how many follow
HA_PORT = 10912
OF_SLAVES = {
    "an offset beyond the log": struct.pack(">q", 1 << 40),
    "one byte beyond the log": None,
    "a negative offset": struct.pack(">q", -1),
    "text of another protocol": b"GET / HTTP/1.1\r\n\r\n",
}
OF_MASTERS: dict[str, Callable[[int], bytes]] = {
    "a length of two gigabytes": lambda end: FRAME.pack(end, (1 << 31) - 1) + b"x" * 100,
    "a negative length": lambda end: FRAME.pack(end, -5),
    "a negative offset": lambda end: FRAME.pack(-3, 4) + b"abcd",
    "an offset beyond the log": lambda end: FRAME.pack(end + 4096, 4) + b"abcd",
    "bytes that are there already": lambda end: FRAME.pack(0, 64) + b"\xff" * 64,
    "text of another protocol": lambda end: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an answer of controller mode": lambda end: struct.pack(">iiqi", 1, 28, end, 3) + bytes(28),
}


async def in_step(pair: Pair) -> None:
    await pair.send(8)
    await until(lambda: bodies(pair.slave) == bodies(pair.master), 10)


@pytest.mark.parametrize("claim", OF_SLAVES)
def test_a_master_refuses_a_hostile_slave_and_keeps_the_honest_one(
    claim: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await in_step(pair)
            master = pair.master.replication.master
            assert master is not None
            before = log_of(pair.master)
            data = OF_SLAVES[claim] or struct.pack(">q", len(before) + 1)
            caplog.clear()
            # when somebody connects to the HA port and says that
            network = pair.cluster.client_world("hostile").network
            stream = await network.connect(pair.cluster.address("c1"), HA_PORT, 1)
            await stream.send_all(data)
            with trio.fail_after(30):
                while await stream.receive_some(65536):
                    pass
            # then its connection ends with one line, it counts for nothing, and the honest slave goes on
            hostile = pair.cluster.address("hostile")
            lines = [each for each in caplog.records if hostile in each.getMessage() and each.levelname != "INFO"]
            assert len(lines) == 1, [each.getMessage() for each in caplog.records]
            assert before == log_of(pair.master)
            assert [pair.cluster.address("c2")] == [each.address.partition(":")[0] for each in master.status()]
            assert (2, len(before)) == (master.in_sync_count(), pair.master.replication.copied(2))
            await pair.producer.send(Message("orders", b"more"))
            await until(lambda: bodies(pair.slave) == bodies(pair.master), 5)

    run(scenario)


@pytest.mark.parametrize("answer", OF_MASTERS)
def test_a_slave_takes_nothing_from_a_hostile_master(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await in_step(pair)
            slave = pair.slave
            follower = slave.replication.slave
            assert follower is not None
            before = log_of(slave)
            await pair.cluster.kill("c1")
            world = pair.cluster.client_world("hostile")
            listener = await world.network.listen("0.0.0.0", 7000)
            told = trio.Event()

            async def serve() -> None:
                while True:
                    stream = await listener.accept()
                    await stream.send_all(OF_MASTERS[answer](len(before)))
                    told.set()
                    while await stream.receive_some(65536):
                        pass
                    await stream.aclose()

            async with open_background() as nursery:
                nursery.start_soon(serve)
                caplog.clear()
                # when the slave is sent to somebody who says that
                follower.set_master(f"{pair.cluster.address('hostile')}:7000")
                with trio.fail_after(30):
                    await told.wait()
                await trio.sleep(3)
                # then what it has is as it was, and it says so
                assert before == log_of(slave)[: len(before)]
                assert slave.store.max_physical_offset == len(before)
                told_of = [each.getMessage() for each in caplog.records if ":7000" in each.getMessage()]
                assert any(each.levelname in ("WARNING", "ERROR") for each in caplog.records), told_of
                nursery.cancel_scope.cancel()

    run(scenario)


def test_half_a_frame_is_no_data() -> None:
    async def scenario(source: random.Random) -> None:
        async with open_pair(source) as pair:
            await in_step(pair)
            slave = pair.slave
            assert slave.replication.slave is not None
            before = log_of(slave)
            await pair.cluster.kill("c1")
            listener = await pair.cluster.client_world("dying").network.listen("0.0.0.0", 7000)
            slave.replication.slave.set_master(f"{pair.cluster.address('dying')}:7000")
            # when a master dies in the middle of a frame
            for part in (5, 12, 40):
                stream = await listener.accept()
                await stream.send_all((FRAME.pack(len(before), 1000) + b"x" * 1000)[:part])
                await stream.aclose()
            await trio.sleep(1)
            # then nothing of it is in the log
            assert before == log_of(slave)

    run(scenario)
