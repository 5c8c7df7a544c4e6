"""One controller in this process: what heartbeats cost, how long a start takes, how soon a new master is told.

As a program: the brokers that send the heartbeats, ``one_controller.py ADDRESS GROUPS``.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import trio

from bench.quorum.figures import load, median_ms
from understudy.controller.commands import ApplyBrokerId, ElectMaster, encode
from understudy.controller.configuration import ControllerConfig
from understudy.controller.server import Controller
from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.runtime.world import real_world
from understudy.testkit.quorum.stub_broker import StubBroker, StubSettings
from understudy.testkit.waiting import until

ROOT = Path(__file__).resolve().parents[2]
WINDOW_SECONDS = 20.0


def _config(folder: str, ports: list[int]) -> ControllerConfig:
    api, raft, *_ = ports
    return ControllerConfig(
        bind_address="127.0.0.1",
        controller_d_leger_group="bench",
        controller_d_leger_peers=f"n0-127.0.0.1:{api}",
        controller_raft_peers=f"n0-127.0.0.1:{raft}",
        controller_d_leger_self_id="n0",
        controller_store_path=folder + "/store",
        config_store_path=folder + "/controller.properties",
    )


async def _fill(controller: Controller, groups: int, brokers: int) -> None:
    limiter = trio.CapacityLimiter(200)

    async def one(number: int) -> None:
        async with limiter:
            name = f"group-{number}"
            for broker_id in range(1, brokers + 1):
                command = ApplyBrokerId("C", name, broker_id, f"127.0.0.1:{broker_id};{number}")
                await controller.member.propose(f"fill-{number}", 2 * broker_id, encode(command), 30)
            elect = ElectMaster(name, 1, False, {}, False)
            await controller.member.propose(f"fill-{number}", 100, encode(elect), 30)

    async with trio.open_nursery() as nursery:
        for number in range(groups):
            nursery.start_soon(one, number)


async def _until_leading(controller: Controller) -> None:
    while not controller.member.leads():
        await controller.member.wait_change()


async def heartbeats(folder: str, ports: list[int], groups: int) -> None:
    """Measure what heartbeats of two brokers a group cost, one a second each."""
    controller = Controller(real_world(), _config(folder, ports))
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        await _until_leading(controller)
        await _fill(controller, groups, 2)
        address = controller.address
        sender = await trio.lowlevel.open_process(  # brokers cost time too: they run elsewhere
            [sys.executable, "-m", "bench.quorum.one_controller", address, str(groups)], cwd=ROOT
        )
        await trio.sleep(5)
        before, began = time.process_time(), time.monotonic()
        count = _heartbeat_count(controller)
        await trio.sleep(WINDOW_SECONDS)
        share = (time.process_time() - before) / (time.monotonic() - began)
        heard = _heartbeat_count(controller) - count
        print(
            f"{groups} groups, {2 * groups} brokers at one heartbeat a second: {heard / WINDOW_SECONDS:.0f}/s, "
            f"{controller.liveness.count()} alive, {share * 100:.1f} % of a core; {load()}"
        )
        sender.kill()
        nursery.cancel_scope.cancel()


def _heartbeat_count(controller: Controller) -> int:
    assert controller.requests is not None
    return controller.requests.heartbeat_count


async def _senders(address: str, groups: int) -> None:
    async with open_client(real_world()) as client, trio.open_nursery() as nursery:

        async def broker(number: int, broker_id: int) -> None:
            await trio.sleep(random.random())
            while True:
                fields = {
                    "clusterName": "C",
                    "brokerAddr": f"127.0.0.1:{broker_id}",
                    "brokerName": f"group-{number}",
                    "brokerId": str(broker_id),
                    "epoch": "1",
                    "maxOffset": "1000",
                    "confirmOffset": "1000",
                    "heartbeatTimeoutMills": "10000",
                    "electionPriority": "2147483647",
                }
                await client.invoke_oneway(address, request(904, fields, oneway=True), 3000)
                await trio.sleep(1)

        for number in range(groups):
            for broker_id in (1, 2):
                nursery.start_soon(broker, number, broker_id)


async def recovery(folder: str, ports: list[int], groups: int) -> None:
    """Measure the start of a controller that knows many groups."""
    config = _config(folder, ports)
    controller = Controller(real_world(), config)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        await _until_leading(controller)
        began = time.monotonic()
        await _fill(controller, groups, 2)
        filled = time.monotonic() - began
        state = controller.metadata.snapshot()
        nursery.cancel_scope.cancel()
    began = time.monotonic()
    again = Controller(real_world(), config)
    async with trio.open_nursery() as nursery:
        await nursery.start(again.run)
        loaded = time.monotonic() - began
        await _until_leading(again)
        leading = time.monotonic() - began
        assert again.metadata.snapshot() == state
        size = _folder_bytes(folder + "/store")
        print(
            f"{groups} groups ({len(state)} bytes of state, {size} bytes of files, filled in {filled:.1f} s): loaded "
            f"in {loaded:.2f} s, active again after {leading:.2f} s; {load()}"
        )
        nursery.cancel_scope.cancel()


def _folder_bytes(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).iterdir())


async def role(folder: str, ports: list[int], rounds: int) -> None:
    """Measure how long after its master's connection closed a broker is told that it leads."""
    controller = Controller(real_world(), _config(folder, ports))
    told: list[float] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        brokers: dict[int, tuple[trio.CancelScope, StubBroker]] = {}

        def start(number: int) -> None:
            former = brokers.get(number)
            port = ports[2 + number]
            settings = StubSettings("C", "a", "127.0.0.1", port, (controller.address,), f"127.0.0.1:{port};{number}")
            broker = StubBroker(real_world(), settings, former[1].broker_id if former else None)
            scope = trio.CancelScope()
            brokers[number] = (scope, broker)

            async def live() -> None:
                with scope:
                    await broker.run()

            nursery.start_soon(live)

        def in_sync() -> bool:
            group = controller.metadata.groups.get("a")
            return group is not None and group.master_id is not None and len(group.sync_state_set) == 2

        start(0)
        start(1)
        for _ in range(rounds):
            await until(in_sync, 60, 0.05)
            await trio.sleep(0.5)
            master = next(number for number, (_, broker) in brokers.items() if broker.is_master)
            other = brokers[1 - master][1]
            began = time.monotonic()
            brokers[master][0].cancel()
            while not other.is_master:
                await other.changed.wait()
            told.append(time.monotonic() - began)
            start(master)
        print(
            f"master lost {rounds} times: new master told p50 {median_ms(told)} ms max {max(told) * 1000:.0f} ms; "
            f"{load()}"
        )
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_senders, sys.argv[1], int(sys.argv[2]))
