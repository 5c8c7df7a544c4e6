"""What a Java broker left popped in the middle is finished by ours: only what was not acknowledged comes back."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from broker_rig import NoNetwork, open_rig
from pop_rig import ACK, POP, ack_header, pop_header, receipts
from test_broker_timer_golden import STORES, SetClock

from understudy.format import names
from understudy.runtime.disk import RealDisk
from understudy.runtime.world import World
from understudy.testkit.waiting import until

AFTER_EVERYTHING_MS = 1_795_249_900_000
RETRY = "%RETRY%g_pop_OrderTopic"


@pytest.mark.covers("PP-03")
async def test_what_a_java_broker_left_popped_is_finished(tmp_path: Path) -> None:
    # Given a store in which a Java broker left check points and acknowledgements, in its revive log and in its timer
    content: dict[str, Any] = json.loads(gzip.decompress((STORES / "pop.json.gz").read_bytes()))
    with tarfile.open(STORES / "pop.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    original = {(each["topic"], each["queueId"], each["queueOffset"]): each["bodyText"] for each in content["messages"]}
    came_back = [body for (topic, _, _), body in original.items() if topic == RETRY]
    open_at_java = [original["OrderTopic", queue, offset] for queue, offset in ((1, 3), (1, 5), (0, 8))]
    sizes = {
        key: text for key, text in content["config"].items() if "appedFileSize" in key or key.startswith("maxHash")
    }
    keys = {**sizes, "maxIndexNum": "400", "reviveQueueNum": "2", "timerWheelEnable": "true"}
    clock = SetClock(AFTER_EVERYTHING_MS)
    world = World(clock, cast(Any, NoNetwork()), RealDisk(), Random(7))

    # When ours opens it after all times are over
    async with open_rig(str(tmp_path / "pop"), keys, world=world) as rig:
        end = len(came_back) + len(open_at_java)
        await until(lambda: rig.broker.store.max_queue_offset(RETRY, 0) >= end, 30)
        copies = rig.stored(RETRY)
        revived = rig.broker.offsets.queues(names.REVIVE_GROUP, rig.broker.pops.log.topic)

        # Then exactly what nobody acknowledged came back, as Java brings it back
        assert [record.body.decode() for record in copies[: len(came_back)]] == came_back
        assert sorted(record.body.decode() for record in copies[len(came_back) :]) == sorted(open_at_java)
        java, ours = copies[0], copies[-1]
        assert set(java.properties) == set(ours.properties)
        assert (ours.reconsume_times, ours.properties["ORIGIN_GROUP"]) == (1, "g_pop")
        ends = [rig.broker.store.max_queue_offset(rig.broker.pops.log.topic, queue) for queue in (0, 1)]
        await until(lambda: [rig.broker.pops.queues.position(queue) for queue in (0, 1)] == ends, 10)
        assert revived.keys() == {0, 1}

        # And the group goes on where it was: it gets them, and nothing that it had acknowledged
        popped = receipts(rig.ask(POP, pop_header("OrderTopic", "g_pop")))
        assert sorted(record.body.decode() for record, _ in popped if _.retry == "1") == sorted(
            came_back + open_at_java
        )
        for _, receipt in popped:
            assert rig.ask(ACK, ack_header(receipt, "OrderTopic", "g_pop")).code == 0
