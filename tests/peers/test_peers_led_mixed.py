"""Groups of real brokers and ours whose masters controllers choose: the drill's own parts, played short.

Each kind leads the other while clients send and consume. At the end all replicas have the same log and the same offsets
(the drill waits for both), and what each has on its disk is whole, as the kernels of ``understudy-spark`` read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from understudy.format.json_dialect import loads
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.world import real_world
from understudy.testkit.drills.controller import MEMBERS
from understudy.testkit.drills.led_replicas import JOIN_SECONDS, KINDS, PORTS, REPLICAS
from understudy.testkit.drills.led_runs import tell, tell_repeats
from understudy.testkit.drills.migrate_processes import ProcessMigration
from understudy.testkit.drills.process_traffic import Traffic
from understudy.testkit.java_tools import LAUNCHER
from understudy.testkit.port_blocks import PortBlocks

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from understudy.spark_tools.crosscheck import log_against_queues
from understudy.spark_tools.faults import log_part_faults, part_faults, small_file_parts
from understudy.spark_tools.kernels.damage import DAMAGE
from understudy.spark_tools.layout import Store, read_layout

pytestmark = pytest.mark.slow


class MixedDrill(ProcessMigration):
    """The drill whose real slaves ask name servers for a new master sooner than every half minute."""

    def settings(self, number: int) -> dict[str, str]:
        return super().settings(number) | {"registerNameServerPeriod": "10000"}

    async def start(self) -> None:
        """Start everything; return when replica 0 leads: the others come while clients begin."""
        for member in MEMBERS:
            self.start_controller(member)
        await self.wait_leader(MEMBERS, JOIN_SECONDS)
        self.start_name_server()
        self.start_replica(0)
        await self.in_sync(1)
        for number in range(1, REPLICAS):
            self.start_replica(number)
        await self.make_topic()

    async def elect(self, count: int) -> None:
        """Have *count* masters elected, each kind in turn."""
        for elected in range(count):
            await self.hand_over(self.next_master(elected))

    async def all_know_the_topics(self) -> bool:
        """Whether each replica has all topics of the master."""
        tables = []
        for number in range(REPLICAS):
            answer = await self.ask_replica(number, request(RequestCode.GET_ALL_TOPIC_CONFIG))
            tables.append(set() if answer is None else set(loads(answer.body)["topicConfigTable"]))
        return bool(tables[0]) and all(tables[0] <= each for each in tables)

    async def stop(self) -> None:
        """Stop all replicas, so that their stores are closed."""
        async with trio.open_nursery() as nursery:
            for number in range(REPLICAS):
                nursery.start_soon(self.processes.stop, f"broker{number}")


@asynccontextmanager
async def mixed_drill(
    folder: Path, ports: PortBlocks, kinds: Sequence[str], *, real_controllers: bool = False
) -> AsyncIterator[tuple[MixedDrill, Traffic]]:
    """A group that is in sync, with clients that work at it; its processes end with the block."""
    async with open_client(real_world()) as client:
        drill = MixedDrill(folder, ports.middles(PORTS), client, LAUNCHER, real_world(), kinds, real_controllers)
        try:
            await drill.start()
            async with drill.watched_traffic() as traffic:
                await drill.in_sync(REPLICAS)
                # A real broker that leads before it has copied anything lacks the epoch of whatever came before, and
                # clients would wait for a topic that it does not have.
                await drill._clients_send()
                await drill.until("the topic at all replicas", drill.all_know_the_topics, 60)
                yield drill, traffic
        finally:
            drill.processes.kill_all()


async def check_end(drill: MixedDrill, traffic: Traffic, masters: list[int], said: pytest.CaptureFixture[str]) -> None:
    """Nothing was lost, these were master one after the other, and every store is whole.

    Args:
        drill: whose.
        traffic: of its clients.
        masters: the numbers of the replicas.
        said: what the drill printed.
    """
    verdict = await drill.end(traffic)
    assert masters == [drill.broker_ports.index(reign.port) for reign in drill.reigns]
    await drill.stop()
    right, _ = tell(drill, verdict), tell_repeats(drill)
    told = said.readouterr().out
    assert right, told
    assert verdict.sent > 50
    assert "offsets of all replicas: equal" in told
    assert "in the log: 0 stored a second time by ours" in told
    for number in range(REPLICAS):
        assert [] == damages(Store(f"{number}", str(drill.store(number)))), drill.kinds[number]


def damages(store: Store) -> list[str]:
    """Return what is damaged in a store, and where queues and log differ."""
    layout = read_layout(store)
    found = [each for part in ("layout", *small_file_parts(layout)) for each in part_faults(store, part)]
    files = layout.commit_log
    assert files
    for file, following in zip(files, [*files[1:], None], strict=True):
        found += log_part_faults(file, 0, file.size_bytes, following, verify=True)
    differing = [str(each) for file in files for each in log_against_queues(store, file, 0, file.size_bytes)]
    return [str(each) for each in found if each.severity == DAMAGE] + differing


@pytest.mark.covers("R166")
async def test_each_kind_leads_the_other_in_both_mixtures(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mixed_drill(tmp_path, port_blocks, KINDS["mixed-java"]) as (drill, traffic):
        # given two real brokers and one of ours, then a real one leads, and ours again
        await drill.elect(2)
        # when one of the real ones gives way to ours, then they do with two of ours as well
        await drill.replace(2, "ours")
        assert ["ours", "java", "ours"] == drill.kinds
        await drill.elect(2)
        await check_end(drill, traffic, [0, 1, 0, 1, 2], capsys)


@pytest.mark.covers("R166")
async def test_each_kind_leads_the_other_under_real_controllers(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mixed_drill(tmp_path, port_blocks, KINDS["mixed"], real_controllers=True) as (drill, traffic):
        await drill.elect(2)
        await check_end(drill, traffic, [0, 2, 1], capsys)
