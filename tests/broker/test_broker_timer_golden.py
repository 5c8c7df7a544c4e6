"""What a Java broker left waiting in its timer is delivered by ours: that, all of it, and nothing else."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from broker_rig import NoNetwork, open_rig

from understudy.broker.timer.lateness import behind_ms
from understudy.format.names import TIMER_TOPIC
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import RealDisk
from understudy.runtime.world import World
from understudy.testkit.waiting import until

STORES = Path(__file__).parents[1] / "data" / "store"
WHOLE_ROUND_MS = 1_795_253_150_000
"""Before the second of the message that was taken back, after those of nineteen others."""
LATER_MS = 1_795_400_000_000
LAST_MS = 1_795_454_456_000
"""After the second of the message that rests."""


class SetClock(SystemClock):
    """Wall time that begins at a chosen moment and can be set."""

    def __init__(self, wall_ms: int) -> None:
        self._ahead_ms = wall_ms - super().wall_ms()

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def set(self, wall_ms: int) -> None:
        self._ahead_ms = wall_ms - super().wall_ms()


@pytest.mark.parametrize("lost", ["nothing", "timerwheel", "timerlog", "config/timercheck"])
@pytest.mark.covers("SC-05")
async def test_waiting_messages_of_a_java_broker_are_delivered(lost: str, tmp_path: Path) -> None:
    # Given a store that a Java broker left with delivered, waiting, resting and taken back timer messages
    content: dict[str, Any] = json.loads(gzip.decompress((STORES / "delayed.json.gz").read_bytes()))
    with tarfile.open(STORES / "delayed.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    folder = tmp_path / "delayed"
    for path in [folder / lost] if lost != "nothing" else []:
        for each in path.iterdir() if path.is_dir() else [path]:
            each.unlink()
    kept = [each for each in content["messages"] if each["topic"] == TIMER_TOPIC]
    taken_back = {each["properties"].get("TIMER_DEL_UNIQKEY") for each in kept}
    wanted = Counter(each["bodyText"] for each in kept if each["uniqKey"] not in taken_back)
    wanted["deliver in the past"] += 1
    if lost == "config/timercheck":  # then nobody knows what was delivered: it comes again, nothing is lost
        wanted += Counter(("timer sec 0", "timer sec 1", "timer sec 2"))
    sizes = {
        key: content["config"][key]
        for key in (
            "mappedFileSizeCommitLog",
            "mappedFileSizeConsumeQueue",
            "mappedFileSizeTimerLog",
            "maxHashSlotNum",
            "maxIndexNum",
        )
    }
    clock = SetClock(WHOLE_ROUND_MS)
    world = World(clock, cast(Any, NoNetwork()), RealDisk(), Random(7))

    # When ours opens it and time goes on past every second
    found: Counter[str] = Counter()
    for wall_ms in (WHOLE_ROUND_MS, LATER_MS, LAST_MS):
        clock.set(wall_ms)
        async with open_rig(str(folder), {**sizes, "brokerIP1": "127.0.0.1"}, world=world) as rig:
            timer = rig.broker.timer
            await until(lambda: not timer.behind and not behind_ms(timer, clock.wall_ms()), 10)  # noqa: B023
            records = [record for queue_id in (0, 1) for record in rig.stored("DelayTopic", queue_id)]
            found = Counter(record.body.decode() for record in records)

    # Then all came that were not taken back, each once
    assert found == wanted
    assert all(int(each.properties.get("TIMER_OUT_MS", "0")) < each.store_ms for each in records)
