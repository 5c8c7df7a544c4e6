"""Offsets of a slave whose log a Java broker wrote count as far as that log and its master's are the same."""

from __future__ import annotations

import os.path
import random
import sys
import tarfile
from pathlib import Path

import pytest

from understudy.broker.log_history import LogHistory
from understudy.broker.merge import Reason
from understudy.container.preonline.service import rows_of
from understudy.container.role_services import RoleServices
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.client import open_client
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.waiting import until

sys.path.append(str(Path(__file__).parent.parent / "broker_slave"))
sys.path.append(str(Path(__file__).parent.parent / "store"))
from golden_stores import DATA, manifest
from slave_rig import GROUP, SLAVE, Pair, run

NAME, TOPIC, CONSUMERS = "basic", "OrderTopic", "g_order"
CONTENT = manifest(NAME)
SIZES = {
    key: CONTENT["config"][key]
    for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
}
KEYS = {**SIZES, "enableSlaveActingMaster": "true", "totalReplicas": "2"}
AT_THE_MASTER, COMMON, AT_THE_SLAVE = 3, 12, 17
"""Where the group is in queue 0: when the master wrote it last, where its log was lost, and as Java left it."""


def lay_out(disk: SimDisk, root: str, lost_from: int | None = None) -> None:
    """Put the store that Java wrote on *disk* at *root*; of its log only what stands before *lost_from* (bytes)."""
    with tarfile.open(DATA / f"{NAME}.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None:
                continue
            path, content = member.name.partition("/")[2], bytearray(file.read())
            if lost_from is not None and path.startswith("commitlog/"):
                kept = max(lost_from - int(os.path.basename(path)), 0)
                content[kept:] = bytes(len(content[kept:]))
            elif lost_from is not None and path == "config/consumerOffset.json":
                content = bytearray(content.replace(b"0:%d" % AT_THE_SLAVE, b"0:%d" % AT_THE_MASTER))
            elif lost_from is not None and path == "checkpoint":
                continue
            disk.make_folder(f"{root}/{os.path.dirname(path)}".rstrip("/"))
            disk.open(f"{root}/{path}").write_at(0, content)
    if lost_from is not None:
        disk.open(f"{root}/abort")
    disk.sync_everything("/")


@pytest.mark.parametrize(("sent", "why"), [(0, Reason.BEYOND_LOG), (20, Reason.OTHER_HISTORY)])
def test_what_was_consumed_of_a_lost_end_is_not_skipped_in_what_came_after_it(sent: int, why: Reason) -> None:
    async def scenario(source: random.Random) -> None:
        async with SimCluster(source) as cluster:
            # given a master that lost the end of the log that Java wrote, and has gone on with other messages
            (lost_from,) = (
                each["physicalOffset"]
                for each in CONTENT["messages"]
                if (each["topic"], each["queueId"], each["queueOffset"]) == (TOPIC, 0, COMMON)
            )
            lay_out(cluster.host("c1").disk, "/data/broker-a-0", lost_from)
            lay_out(cluster.host("c2").disk, "/data/broker-a-1")
            await cluster.start_name_server("n1")
            await cluster.start_container("c1", [{**GROUP, **KEYS}])
            async with (
                open_client(cluster.client_world()) as client,
                open_producer(cluster.client_world(), cluster.name_servers, "writers") as producer,
            ):
                pair = Pair(cluster, client, producer)
                await until(lambda: not pair.master.registration.isolated, 40)
                assert pair.master.store.max_queue_offset(TOPIC, 0) == COMMON
                for number in range(sent):
                    await producer.send(Message(TOPIC, b"new %d" % number), queue=MessageQueue(TOPIC, "broker-a", 0))
                await cluster.kill("c1")
                # and a slave that has all of it, told of no history by Java, where the group went on in what was lost
                await cluster.start_container("c2", [{**SLAVE, **KEYS}])
                assert pair.slave.history.value == LogHistory()
                assert pair.slave.offsets.query(CONSUMERS, TOPIC, 0) == AT_THE_SLAVE
                assert pair.slave.store.max_physical_offset == CONTENT["commitLogMaxOffset"]
                # when the master takes over what that one knows better
                await cluster.restart("c1")
                await until(lambda: not pair.master.registration.isolated, 60)
                # then the group goes on where the logs part, and the report says why
                assert pair.master.offsets.query(CONSUMERS, TOPIC, 0) == COMMON
                rules = pair.master.session.rules
                assert isinstance(rules, RoleServices)
                assert rules.report is not None
                rows = {(row.key, row.queue_id): row for row in rows_of(rules.report)}
                row = rows[f"{TOPIC}@{CONSUMERS}", 0]
                assert row.own is not None
                assert (row.own.offset, row.merged.offset, row.reason) == (AT_THE_MASTER, COMMON, why)

    run(scenario)
