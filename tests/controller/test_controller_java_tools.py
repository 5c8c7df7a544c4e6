"""The real mqadmin and ours ask the same controllers: both print the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from controller_tools import both_tools

from understudy.controller.configuration import ControllerConfig, read_config
from understudy.controller.server import Controller
from understudy.mqclient.api import real_world
from understudy.runtime.properties import parse_properties
from understudy.testkit.java_tools import missing
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.quorum.stub_broker import StubBroker, StubSettings
from understudy.testkit.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.slow]


def config_of(number: int, ports: list[int], folder: Path) -> ControllerConfig:
    text = (
        "controllerDLegerGroup=tools\n"
        f"controllerDLegerPeers={';'.join(f'n{n}-127.0.0.1:{ports[n]}' for n in range(3))}\n"
        f"controllerRaftPeers={';'.join(f'n{n}-127.0.0.1:{ports[3 + n]}' for n in range(3))}\n"
        f"controllerDLegerSelfId=n{number}\ncontrollerStorePath={folder / str(number)}\n"
        f"configStorePath={folder / str(number)}.properties\nbindAddress=127.0.0.1\n"
        "controllerRaftElectionMin=2000\ncontrollerRaftElectionMax=3000\ncontrollerRaftHeartbeat=500\n"
    )
    return read_config(parse_properties(text))


@pytest.mark.covers("R129", "R130", "R133", "R134", "R166", "R202", "R345")
async def test_the_real_mqadmin_prints_the_same_as_ours(tmp_path: Path, port_blocks: PortBlocks) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    ports = port_blocks.middles(8)
    world = real_world()
    controllers = [Controller(world, config_of(number, ports, tmp_path)) for number in range(3)]
    addresses = tuple(f"127.0.0.1:{port}" for port in ports[:3])
    brokers = [
        StubBroker(
            world,
            StubSettings("C", "a", "127.0.0.1", port, addresses, f"127.0.0.1:{port};1", timeout_seconds=20),
        )
        for port in ports[6:]
    ]
    with both_tools() as tools, trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for controller in controllers:
                nursery.start_soon(controller.run)
            await until(lambda: any(controller.member.leads() for controller in controllers))
            active = next(controller for controller in controllers if controller.member.leads())
            standby = next(controller for controller in controllers if controller is not active)

            tools.name_server = active.address

            def settled(members: int) -> bool:
                group = active.metadata.groups.get("a")
                return group is not None and group.master_id is not None and len(group.sync_state_set) == members

            for number, broker in enumerate(brokers):
                nursery.start_soon(broker.run)
                await until(lambda number=number: settled(number + 1))

            # any controller says who leads and who there is
            shown = await tools.same(f"getControllerMetaData -a {standby.address}")
            assert shown[0] == "#ControllerGroup\ttools"
            assert f"#ControllerLeaderAddress\t{active.address}" in shown
            assert [line for line in shown if line.startswith("#Peer")] == [
                f"#Peer:\tn{number}:{address}" for number, address in enumerate(addresses)
            ]
            # the set, asked of any controller
            shown = await tools.same(f"getSyncStateSet -a {standby.address} -b a")
            assert shown[0] == "#brokerName\ta"
            assert "#SyncStateSetNums\t2" in shown

            # settings: the reference's keys are there under their names, a change shows at once
            of_real = await tools.real(f"getControllerConfig -a {active.address}")
            assert sorted(of_real) == sorted(await tools.ours(f"getControllerConfig -a {active.address}"))
            for key, value in (("enableElectUncleanMaster", "false"), ("notifyBrokerRoleChanged", "true")):
                assert f"{key:<50}=  {value}" in of_real
            changed = await tools.same(
                f"updateControllerConfig -a {active.address} -k scanInactiveMasterInterval -v 4000"
            )
            assert changed == [
                f"update controller config success![{active.address}]",
                "scanInactiveMasterInterval : 4000",
            ]
            assert active.settings.current.scan_inactive_master_interval == 4000

            # the role is moved by the real tool, which fails after the same request to the reference
            former = active.metadata.groups["a"].master_id
            other = 3 - (former or 0)
            epoch = active.metadata.groups["a"].master_epoch
            moved = await tools.real(f"electMaster -a {standby.address} -b {other} -bn a -c C")
            group = active.metadata.groups["a"]
            assert (group.master_id, group.master_epoch) == (other, epoch + 1)
            for line in ("#ClusterName\tC", "#BrokerName\ta", f"#MasterEpoch\t{epoch + 1}"):
                assert line in moved
            assert f"#BrokerMasterAddr\t{group.master_address()}" in moved
            await until(lambda: settled(2))
            # and back by ours, which also lists the members
            back = await tools.ours(f"electMaster -a {standby.address} -b {former} -bn a -c C")
            assert active.metadata.groups["a"].master_id == former
            assert [line.partition("\t")[0] for line in back[: len(moved)]] == [
                line.partition("\t")[0] for line in moved
            ]
            assert sum(line.startswith("\t#Broker\t") for line in back) == 2
            await until(lambda: settled(2))

            # what is refused is refused with the same words
            for command in (
                f"electMaster -a {standby.address} -b {former} -bn a -c C",
                f"cleanBrokerMetadata -a {standby.address} -b {other} -bn a -c C",
                f"cleanBrokerMetadata -a {standby.address} -b 1 -bn zz -c C",
            ):
                real, ours = "\n".join(await tools.real(command)), await tools.ours(command)
                code, _, remark = real.partition("CODE: ")[2].splitlines()[0].partition("DESC: ")
                assert code.strip() in ("2011", "2009")
                assert f"{code.strip()}: {' '.join(remark.split())}" in ours[0]

            # a living replica is removed when the operator says so
            cleaned = await tools.real(f"cleanBrokerMetadata -a {standby.address} -b {other} -bn a -c C -l true")
            assert cleaned == ["clear broker a metadata from controller success!"]
            assert list(active.metadata.groups["a"].replicas) == [former]
            nursery.cancel_scope.cancel()
