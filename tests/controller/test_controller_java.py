"""Real Java brokers in controller mode and the real Java mqadmin against our controllers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
from controller_processes import BIN, Installation, ask, installation, received, send_many, until_true
from controller_relay import asked_by

from understudy.format.json_dialect import loads
from understudy.mqclient.api import open_producer, real_world
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError
from understudy.testkit.drills import controller as drill
from understudy.testkit.drills.controller_processes import find_launcher, java_broker_settings, properties
from understudy.testkit.drills.request_relay import RELAYED_HOST, Relays

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@pytest.mark.covers("R151", "R164", "R165", "R169", "R124", "R127", "R135", "R335")
def test_java_brokers_register_elect_and_fail_over(capsys: pytest.CaptureFixture[str]) -> None:
    launcher = find_launcher(None)
    if launcher is None:
        pytest.skip("the Java system is not installed: run bench/java/setup.sh")
    assert drill.main(["--java", str(launcher)]) == 0
    said = capsys.readouterr().out
    assert "two Java brokers" in said
    for step in ("LEADER", "METADATA", "DECIDED", "TOLD", "REJOINED", "REFUSED", "RESTORED"):
        assert step in said


class JavaGroup:
    """Two real brokers in controller mode, led by our controllers and registered at two of our name servers."""

    def __init__(self, made: Installation, launcher: Path) -> None:
        self.made = made
        self.launcher = launcher
        self.ports = made.java_brokers

    def start(self, number: int) -> None:
        store = self.made.folder / f"store{number}"
        controllers = ";".join(f"{RELAYED_HOST}:{port}" for port in self.made.api.values())
        name_servers = ";".join(f"{RELAYED_HOST}:{port}" for port in self.made.name_servers)
        settings = java_broker_settings("a", self.ports[number], name_servers, controllers, store)
        settings |= {
            "brokerClusterName": "C",
            "autoCreateTopicEnable": "true",
            "defaultTopicQueueNums": "1",
            "controllerHeartBeatTimeoutMills": "6000",
            "haMaxTimeSlaveNotCatchup": "8000",
            "registerNameServerPeriod": "10000",
        }
        path = self.made.folder / f"java{number}.conf"
        path.write_text(properties(settings))
        home = str(self.made.folder / f"home{number}")
        with (self.made.folder / f"java{number}.out").open("ab") as out:
            self.made.running[f"java{number}"] = subprocess.Popen(
                [str(self.launcher), "broker", "--conf", str(path), "--heap", "384m", "--home", home],
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def kill(self, number: int) -> None:
        self.made.kill(f"java{number}")

    def identity(self, number: int) -> str:
        return (self.made.folder / f"store{number}" / "brokerIdentity").read_text()

    def id_of(self, number: int) -> int:
        return int(self.identity(number).split("#")[2])

    def number_of(self, broker_id: int) -> int:
        return next(number for number in (0, 1) if self.id_of(number) == broker_id)


async def group_facts(client: RemotingClient, made: Installation) -> dict[str, Any]:
    """Return the group as the active controller has it, or nothing when there is none."""
    for port in made.api.values():
        try:
            leader = ((await ask(client, port, 1005)).ext or {}).get("controllerLeaderAddress")
            if leader:
                answer = await client.invoke(leader, request(1006, None, b'["a"]'), 3000)
                if answer.code == 0 and answer.body:
                    return dict(loads(answer.body)["replicasInfoTable"].get("a", {}))
        except RemotingError:
            continue
    return {}


REGISTER_AT_NAME_SERVER = 103
ALTER, ELECT, REGISTER, HEARTBEAT, NEXT_ID, APPLY_ID = 1001, 1002, 1003, 904, 1012, 1013


def check_first_requests(relays: Relays, address: str, since: int, *, fresh: bool) -> None:
    """The broker that started last at *address* registered at the controllers and had its role before anything else."""
    asked = asked_by(relays, address, since)
    codes = [each.code for each in asked]
    to_controllers = [code for code in codes if code in (ALTER, ELECT, REGISTER, HEARTBEAT, NEXT_ID, APPLY_ID)]
    assert to_controllers[0] == (NEXT_ID if fresh else REGISTER)
    assert fresh or not {NEXT_ID, APPLY_ID} & set(codes)
    if fresh:
        assert codes.index(NEXT_ID) < codes.index(APPLY_ID) < codes.index(REGISTER)
        applied = next(each.ext for each in asked if each.code == APPLY_ID)
        assert (applied["clusterName"], applied["brokerName"]) == ("C", "a")
        assert applied["appliedBrokerId"] in ("1", "2")
        assert applied["registerCheckCode"].startswith(f"{address};")
    assert codes.index(REGISTER) < codes.index(HEARTBEAT)
    assert codes.index(REGISTER) < codes.index(REGISTER_AT_NAME_SERVER)
    if ELECT in codes:
        assert codes.index(ELECT) < codes.index(REGISTER_AT_NAME_SERVER)


def in_sync(facts: dict[str, Any]) -> list[int]:
    return sorted(member["brokerId"] for member in facts.get("inSyncReplicas", []))


async def shown_roles(client: RemotingClient, port: int) -> dict[str, str]:
    """Return address by id as a name server shows the group."""
    answer = await ask(client, port, 106)
    table = loads(answer.body).get("brokerAddrTable") or {}
    return {str(key): address for key, address in (table.get("a") or {}).get("brokerAddrs", {}).items()}


async def somebody(client: RemotingClient, port: int) -> bool:
    """Whether a name server shows a master."""
    return "0" in await shown_roles(client, port)


async def mqadmin(*words: str) -> str:
    command = [str(BIN / "mqadmin"), *words]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    return done.stdout.decode() + done.stderr.decode()


async def repeated(*words: str, wanted: str, times: int) -> bool:
    """Run a command that prints again and again; return whether it printed *wanted* so many times."""
    process = await trio.lowlevel.open_process([str(BIN / "mqadmin"), *words], stdout=subprocess.PIPE)
    assert process.stdout is not None
    text = b""
    with trio.move_on_after(60):
        async with process.stdout as output:
            async for part in output:
                text += part
                if text.count(wanted.encode()) >= times:
                    break
    process.kill()
    await process.wait()
    return text.count(wanted.encode()) >= times


@pytest.mark.covers("R123", "R152", "R158", "R175", "R193", "R202", "R203", "R205", "R249", "R260", "R262", "R264")
@pytest.mark.covers("R187", "R190", "R246", "R251", "R332", "R344")
async def test_java_brokers_live_through_outages_of_the_controllers_beside_our_name_servers(tmp_path: Path) -> None:
    launcher = find_launcher(None)
    if launcher is None:
        pytest.skip("the Java system is not installed: run bench/java/setup.sh")
    with installation(tmp_path) as made, trio.fail_after(900):
        made.name_servers = made.name_servers[:2]  # the first embeds n0, the second has no controller
        plain = made.name_servers[1]
        made.shown_host = RELAYED_HOST
        made.start_servers()
        group = JavaGroup(made, launcher)
        relays = Relays(real_world())
        async with open_client(real_world()) as client, trio.open_nursery() as nursery:
            await relays.start(nursery, [*made.name_servers, *made.api.values()])

            async def settled(master: int | None, members: list[int]) -> bool:
                facts = await group_facts(client, made)
                right = facts.get("masterBrokerId") == master if master else facts.get("masterBrokerId") is not None
                return bool(right) and in_sync(facts) == members

            async def shown(number: int) -> bool:
                return (await shown_roles(client, plain)).get("0") == f"127.0.0.1:{group.ports[number]}"

            async def both_shown(master: int, slave: int, slave_id: int) -> bool:
                wanted = {key: f"127.0.0.1:{group.ports[n]}" for key, n in (("0", master), (str(slave_id), slave))}
                return wanted.items() <= (await shown_roles(client, plain)).items()

            # two fresh brokers start at once: ids 1 and 2, one master, the other joins the set when it has caught up
            group.start(0)
            group.start(1)
            await until_true(lambda: settled(None, [1, 2]))
            assert sorted(group.identity(number) for number in (0, 1)) == ["C#a#1", "C#a#2"]
            facts = await group_facts(client, made)
            assert all(member["alive"] for member in facts["inSyncReplicas"])
            for number in (0, 1):
                check_first_requests(relays, f"127.0.0.1:{group.ports[number]}", 0, fresh=True)
            first = int(facts["masterBrokerId"])
            second = 3 - first
            master, slave = group.number_of(first), group.number_of(second)
            # the master is shown as 0 by a name server without a controller, its own id stays in the file
            await until_true(lambda: both_shown(master, slave, second))

            any_controller, servers = f"127.0.0.1:{made.api['n1']}", f"127.0.0.1:{plain}"
            by_name = await mqadmin("getSyncStateSet", "-a", any_controller, "-b", "a")
            assert f"#MasterBrokerId\t{first}" in by_name
            assert f"#MasterEpoch\t{facts['masterEpoch']}" in by_name
            assert by_name.count("alive=true") == 2
            by_cluster = await mqadmin("getSyncStateSet", "-a", any_controller, "-c", "C", "-n", servers)
            assert f"#MasterBrokerId\t{first}" in by_cluster
            assert by_cluster.count("ReplicaIdentity{") == 2
            assert "usage" in (await mqadmin("getSyncStateSet", "-h")).lower()
            assert await repeated(
                "getSyncStateSet", "-a", any_controller, "-b", "a", "-i", "1", wanted="#MasterBrokerId", times=2
            )
            epochs = await mqadmin("getBrokerEpoch", "-b", "a", "-n", servers)
            assert "#brokerId\t0\n" in epochs  # the master says 0 of itself, too
            assert f"#brokerId\t{second}\n" in epochs
            assert await mqadmin("getBrokerEpoch", "-c", "C", "-n", servers)
            assert "usage" in (await mqadmin("getBrokerEpoch", "-h")).lower()
            assert await repeated("getBrokerEpoch", "-b", "a", "-n", servers, "-i", "1", wanted="#brokerId", times=4)

            async with open_producer(real_world(), servers, "senders") as producer:
                await send_many(producer, "before", 20)
                # every controller is stopped, the name server that embeds one too: messages flow on
                for name in ("n1", "n2", "namesrv0"):
                    made.kill(name)
                await send_many(producer, "without", 20)
            # the master dies meanwhile: nobody is promoted
            group.kill(master)
            await trio.sleep(4)
            assert (await shown_roles(client, plain)).get("0") != f"127.0.0.1:{group.ports[slave]}"

            # the controllers return with all they knew, and the failover happens
            made.start_servers()
            await until_true(lambda: settled(second, [second]))
            await until_true(lambda: shown(slave))
            async with open_producer(real_world(), servers, "senders") as producer:
                await send_many(producer, "after", 20)
            # the old master returns under its old id, without asking for one, as a slave
            before = len(relays.asked)
            group.start(master)
            await until_true(lambda: settled(second, [1, 2]))
            assert group.id_of(master) == first
            await until_true(lambda: both_shown(slave, master, first))
            check_first_requests(relays, f"127.0.0.1:{group.ports[master]}", before, fresh=False)
            epochs = await mqadmin("getBrokerEpoch", "-b", "a", "-n", servers)
            newest = (await group_facts(client, made))["masterEpoch"]
            assert epochs.count(f"Epoch: EpochEntry{{epoch={newest}") == 2

            # down: slave, master; up: master, slave; the relation stays
            group.kill(master)
            await until_true(lambda: settled(second, [second]))
            group.kill(slave)
            group.start(slave)
            await until_true(lambda: settled(second, [second]))
            group.start(master)
            await until_true(lambda: settled(second, [1, 2]))
            # both die at once and come back: a member of the set leads
            group.kill(slave)
            group.kill(master)
            group.start(master)
            group.start(slave)
            await until_true(lambda: settled(None, [1, 2]))
            await until_true(lambda: somebody(client, plain))
            bodies = await received(servers, 60, 90)
            assert {f"{label}-{number}" for label in ("before", "without", "after") for number in range(20)} <= bodies
            nursery.cancel_scope.cancel()
