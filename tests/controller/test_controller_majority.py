"""The majority of the controllers is gone: messages flow through the name server that embeds one, elections wait."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import trio
from controller_processes import BOOT_SECONDS, ask, installation, received, send_many, until_true

from understudy.mqclient.api import (
    Producer,
    SessionOptions,
    open_producer,
    real_world,
)
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import Command, request
from understudy.testkit.waiting import until


@pytest.mark.slow
@pytest.mark.covers("R123", "R124", "R126", "R173", "R174", "R205")
async def test_messages_flow_and_elections_wait_while_two_of_three_controllers_are_dead(tmp_path: Path) -> None:
    with installation(tmp_path) as made:
        made.start_all()
        async with open_client(real_world()) as client:
            with trio.fail_after(BOOT_SECONDS):
                for name in ("namesrv0", "namesrv1", "namesrv2", "n1", "n2", "broker"):
                    await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)

                async def leader() -> str:
                    return ((await ask(client, made.api["n0"], 1005)).ext or {}).get("controllerLeaderId", "")

                await until_true(leader)
            # nothing else runs: no coordination service
            assert sorted(made.running) == ["broker", "n1", "n2", "namesrv0", "namesrv1", "namesrv2"]
            # a controller of its own answers no client: only name servers have routes
            assert (await ask(client, made.api["n1"], 105, topic="Traffic")).code == 3
            # the embedded controller alone: the other name servers have none and need none
            async with open_producer(real_world(), made.servers, "senders") as producer:
                before = await send_many(producer, "before", 200)

                # when both stand-alone controllers die
                made.kill("n1")
                made.kill("n2")
                with trio.fail_after(20):
                    await until_true(leader, wanted=False)

                # then sends through routes of the embedding name server go on as fast as before
                after = await send_many(producer, "after", 200)
            embedding = f"127.0.0.1:{made.name_servers[0]}"
            route = await ask(client, made.name_servers[0], 105, topic="Traffic")
            assert route.code == 0
            assert b'"brokerName":"a"' in route.body
            bodies = await received(embedding)
            assert len(bodies) == 400
            # (what waited for a controller, or asked it in vain, would take as long as a request may)
            assert statistics.median(after) < statistics.median(before) + SessionOptions().request_timeout_ms / 3_000

            # and no election happens, which it says to who asks and in its log
            fields = {"clusterName": "C", "brokerName": "a", "brokerId": "1", "designateElect": "false"}
            refused = await ask(client, made.api["n0"], 1002, **fields)
            assert (refused.code, refused.remark) == (2007, "The controller is not in leader state")
            shown = await ask(client, made.api["n0"], 1051)
            assert b"#Leader\tunknown" in shown.body
            assert b"#Connected\tnobody" in shown.body
            await until(lambda: "no controller is active" in made.said("namesrv0"))
            assert "elections wait, routes and traffic go on" in made.said("namesrv0")

            # when one of them is back
            made.start_controller("n1")
            with trio.fail_after(BOOT_SECONDS):
                await until_true(leader)
            await until(lambda: "a controller is active again" in made.said("namesrv0"))

            # each controller has kept what happened in a file of its own, the name server's lines are not in it
            await until(lambda: "a controller is active again" in made.logged("n0"))
            for member in ("n0", "n1", "n2"):
                assert "serving" in made.logged(member)
                assert "the quorum has a leader" in made.logged(member) or "outcome=won" in made.logged(member)
            everything = "".join(made.logged(member) for member in ("n0", "n1", "n2"))
            assert everything.count("outcome=won") >= 2
            assert everything.count("-> LEADER") == everything.count("controller is active member=") >= 2
            assert "no controller is active" in made.logged("n0")
            assert "understudy.namesrv" not in made.logged("n0")


@pytest.mark.slow
@pytest.mark.covers("R154")
async def test_name_servers_are_restarted_one_by_one_under_traffic(tmp_path: Path) -> None:
    with installation(tmp_path) as made:
        made.start_all()
        for name in made.running:
            await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)
        sent: list[float] = []
        stopping = trio.Event()

        async def traffic(producer: Producer) -> None:
            while not stopping.is_set():
                sent.extend(await send_many(producer, f"rolling-{len(sent)}", 1))
                await trio.sleep(0.01)

        async with open_producer(real_world(), made.servers, "senders") as producer, trio.open_nursery() as nursery:
            nursery.start_soon(traffic, producer)
            await until(lambda: len(sent) > 20)
            for index in range(3):
                name = f"namesrv{index}"
                process = made.running.pop(name)
                process.terminate()
                assert await trio.to_thread.run_sync(process.wait) == 0
                (made.folder / f"{name}.out").unlink()
                embedded = "enableControllerInNamesrv=true\n" + made.controller_keys("n0") if index == 0 else ""
                made.start_name_server(index, embedded)
                await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)
                async with open_client(real_world()) as client:

                    async def registered(client: RemotingClient = client, port: int = made.name_servers[index]) -> bool:
                        return (await ask(client, port, 105, topic="Traffic")).code == 0

                    with trio.fail_after(BOOT_SECONDS):
                        await until_true(registered)
            seen = len(sent)
            await until(lambda: len(sent) > seen + 20)
            stopping.set()
        # every send of the whole time was acknowledged: a refused one would have raised


COLUMNS = {
    "old name server": (False, "", ()),
    "old name server and controllers of their own": (False, "", ("n0", "n1", "n2")),
    "new name server with a controller": (True, "enableControllerInNamesrv=true\n", ("n1", "n2")),
    "new name server without": (True, "enableControllerInNamesrv=false\n", ()),
}


@pytest.mark.slow
@pytest.mark.covers("R149", "R153", "R172")
@pytest.mark.parametrize("column", COLUMNS)
async def test_a_broker_without_controller_mode_runs_everywhere_and_never_switches(column: str, tmp_path: Path) -> None:
    keyed, switch, controllers = COLUMNS[column]
    with installation(tmp_path) as made:
        made.name_servers = made.name_servers[:1]
        made.start_name_server(0, switch + made.controller_keys("n0") if keyed else "")
        for member in controllers:
            made.start_controller(member)
        made.start_broker()
        for name in made.running:
            await until(lambda name=name: "boot success" in made.said(name), BOOT_SECONDS)
        async with open_producer(real_world(), made.servers, "senders") as producer:
            await send_many(producer, "column", 10)
        async with open_client(real_world()) as client:
            if controllers:
                active = made.api[controllers[-1]]

                async def explained() -> Command:
                    leader = ((await ask(client, active, 1005)).ext or {}).get("controllerLeaderAddress")
                    if not leader:
                        return await ask(client, active, 1005)
                    return await client.invoke(leader, request(1050, {"brokerName": "a"}), 3000)

                async def unknown() -> bool:
                    return (await explained()).code == 2008

                with trio.fail_after(BOOT_SECONDS):
                    await until_true(unknown)  # no controller ever heard of the group: nobody can switch it
            made.kill("broker")

            async def gone() -> bool:
                return (await ask(client, made.name_servers[0], 105, topic="Traffic")).code == 17

            with trio.fail_after(BOOT_SECONDS):
                await until_true(gone)
