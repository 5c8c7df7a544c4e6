"""Moves of logical queues during which a broker loses its power: the file of the plan finishes them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from mqadmin_rig import shell
from static_rig import HOSTS, TOPIC, open_groups, run

from understudy.mqclient.admin import static_topics
from understudy.mqclient.admin.static_plans import BrokerTopic
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import Session
from understudy.testkit.waiting import until


@pytest.mark.parametrize("before", [True, False], ids=["before it answers", "after it answered"])
@pytest.mark.parametrize("step", range(4))
def test_a_move_during_which_a_broker_loses_its_power_is_finished_by_its_file(
    step: int, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that is to take its part in this *step* dies: new leader, old one, both again."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    save, calls = static_topics.save_static_topic, 0

    async def scenario(source: random.Random) -> None:
        async with open_groups(source) as client:
            cluster = client.cluster
            hosts = {client.broker(name).identity.address: host for name, host in HOSTS.items()}

            async def dying(session: Session, address: str, topic: BrokerTopic, *, force: bool) -> None:
                nonlocal calls
                if calls == step and before:
                    await cluster.kill(hosts[address], power=True)
                    calls += 1
                await save(session, address, topic, force=force)
                calls += 1
                if calls == step + 1:
                    await cluster.kill(hosts[address], power=True)
                    raise ClientError("the broker is gone")

            await shell(cluster, f"updateStaticTopic -t {TOPIC} -qn 2 -b broker-a")
            for number in range(3):
                await client.send(0, b"%d" % number)
            await trio.sleep(15)  # the log is on the disk
            with monkeypatch.context() as patched:
                patched.setattr(static_topics, "save_static_topic", dying)
                with pytest.raises(ClientError):
                    await shell(cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b")
            for host in hosts.values():
                if not cluster.brokers(host):
                    await cluster.restart(host)
            await until(lambda: not any(client.broker(name).registration.isolated for name in HOSTS), 120)
            await trio.sleep(60)
            await shell(cluster, f"remappingStaticTopic -t {TOPIC} -b broker-b -mf {newest(tmp_path)}")
            await client.send(0, b"3")
            assert await client.read_all(0) == [(0, b"0"), (1, b"1"), (2, b"2"), (10_000, b"3")]
            assert await client.leader(1) == "broker-b"

    run(scenario)


def newest(folder: Path) -> Path:
    """Return the file of the last plan."""
    return max(folder.glob(f"{TOPIC}-*.after"))
