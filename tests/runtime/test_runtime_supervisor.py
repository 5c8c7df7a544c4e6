"""Services of one lifetime: started, listed, stopped, failed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from understudy.runtime.background import open_background
from understudy.runtime.network import ListenError
from understudy.runtime.supervisor import open_supervisor
from understudy.runtime.tcp import TcpNetwork
from understudy.testkit.sim.clock import VirtualClock


async def for_ever() -> None:
    await trio.sleep_forever()


async def broken() -> None:
    raise RuntimeError("out of order")


async def test_the_roster_says_what_runs_and_why(autojump_clock: MockClock) -> None:
    async with open_supervisor(VirtualClock(1000), "b1") as services:
        services.start("schedule", for_ever, reason="brokerId is 0")
        services.start("once", trio.lowlevel.checkpoint)
        await trio.testing.wait_all_tasks_blocked()

        assert {"schedule"} == services.running()
        rows = [(row.name, row.state, row.reason, row.started_ms) for row in services.roster()]
        assert [("once", "ended", "always on", 1000), ("schedule", "running", "brokerId is 0", 1000)] == rows
        with pytest.raises(ValueError, match="already running"):
            services.start("schedule", for_ever)

        await services.stop("schedule")
        assert frozenset() == services.running()
        services.start("schedule", for_ever)
        assert {"schedule"} == services.running()


async def test_a_failed_service_ends_its_lifetime_only_if_it_is_essential(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_supervisor(VirtualClock(), "b1") as services:
        services.start("side", broken, essential=False)
        await trio.testing.wait_all_tasks_blocked()
        (row,) = services.roster()
        assert ("failed", "RuntimeError: out of order") == (row.state, row.error)
        assert "out of order" in caplog.text

    with pytest.raises(ExceptionGroup) as failure:
        async with open_supervisor(VirtualClock(), "b2") as services:
            services.start("heart", broken)
            await trio.sleep_forever()
    assert failure.group_contains(RuntimeError, match="out of order")


async def test_an_error_of_the_block_leaves_it_unwrapped() -> None:
    with pytest.raises(KeyError):
        async with open_background() as nursery:
            nursery.start_soon(for_ever)
            raise KeyError("mine")


async def test_wall_time_follows_the_virtual_clock_and_jumps(autojump_clock: MockClock) -> None:
    clock = VirtualClock(5000)
    assert 5000 == clock.wall_ms()
    await clock.sleep(1.5)
    clock.jump(-10_000)
    assert -3500 == clock.wall_ms()


async def test_a_port_in_use_is_said_in_one_line() -> None:
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    port = listener.address[1]
    with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
        await network.listen("127.0.0.1", port)
    await listener.aclose()
