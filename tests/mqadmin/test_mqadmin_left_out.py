"""Commands that reach less than their words: whom they left out, and what nobody has, is said."""

from __future__ import annotations

import io
import random

import pytest
from mqadmin_rig import shell

from understudy.mqadmin.command import CommandFailedError, Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.mqclient.errors import BrokerError
from understudy.runtime.world import real_world
from understudy.testkit.led.group import CONTROLLERS, led_group
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.quorum.settings import API_PORT
from understudy.testkit.sim.determinism import run_seed


async def printed(cluster: LocalCluster, line: str, *, as_json: bool = False) -> str:
    """Return what the command *line* prints to its output."""
    words, stream = line.split(), io.StringIO()
    command = load_commands()[words[0]]
    values = parse(command.all_options, words[1:])
    await run_command(command, values, cluster.namesrv_address, Output(as_json, stream), real_world())
    return stream.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_group_without_master_is_told_when_a_whole_cluster_is_meant(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    # Given a cluster in which one group has only a slave
    async with LocalCluster() as cluster:
        await cluster.add_broker("broker-b", {"brokerId": "1", "brokerRole": "SLAVE"})
        for line, leaves_out in (
            ("updateTopic -c DefaultCluster -t Orders", True),
            ("deleteTopic -c DefaultCluster -t Orders", True),
            ("brokerStatus -c DefaultCluster", False),
        ):
            # When something is done with the cluster
            result = await printed(cluster, line, as_json=as_json)
            # Then who is left out is said, beside the result
            said = "warning: left out, for they have no master now: broker-b; repeat it for them later\n"
            assert capsys.readouterr().err == (said if leaves_out else "")
            assert "left out" not in result


async def test_a_group_without_topics_is_told_when_its_permission_is_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with LocalCluster() as cluster:
        for name in ("broker-a", "nobody"):
            for word in ("wipeWritePerm", "addWritePerm"):
                assert await printed(cluster, f"{word} -b {name}")
                told = "warning: no name server has a topic of a broker group nobody; clusterList shows the groups\n"
                assert capsys.readouterr().err == (told if name == "nobody" else "")


def test_what_controllers_do_not_know_is_said() -> None:
    async def scenario(source: random.Random) -> None:
        async with led_group(source, {"allAckInSyncStateSet": "true"}) as group:
            await group.ready(3)
            address = f"{group.cluster.address(CONTROLLERS[0])}:{API_PORT}"
            told = await shell(
                group.cluster, f"updateControllerConfig -a {address} -k scanNotActiveBrokerInterval -v 900"
            )
            assert "update controller config success!" in told
            with pytest.raises(CommandFailedError, match="has no key scanNotActiveBrokerIntervall, the nearest one is"):
                await shell(
                    group.cluster, f"updateControllerConfig -a {address} -k scanNotActiveBrokerIntervall -v 900"
                )
            with pytest.raises(BrokerError, match=rf"2012: .*; mqadmin explainMaster -a {address} -b g says who may"):
                await shell(group.cluster, f"electMaster -a {address} -c DefaultCluster -bn g -b 9")

    run_seed(scenario, 4)
