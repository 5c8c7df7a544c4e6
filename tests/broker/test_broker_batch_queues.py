"""A topic with batch queues, however its row came here, takes no messages: they would be stored as something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import open_rig

from understudy.broker.topics import TopicConfig


@pytest.mark.parametrize("stored_before", [False, True])
async def test_sends_to_a_topic_with_batch_queues_are_refused(stored_before: bool, tmp_path: Path) -> None:
    row = TopicConfig("T", 4, 4, attributes={"queue.type": "BatchCQ"})
    async with open_rig(str(tmp_path)) as rig:
        if stored_before:
            assert rig.send("T", b"before").code == 0
        # when the row comes from another replica
        rig.broker.topics.take([row], None, delete=False, overwrite=True)
        answer = rig.send("T", b"after")
        assert answer.code == 13
        assert answer.remark is not None
        assert "topic T has batch queues (queue.type=BatchCQ)" in answer.remark
        await rig.broker.persistence.save("topics")
    # and when it is in the file at the start
    async with open_rig(str(tmp_path)) as rig:
        assert rig.send("T", b"after").code == 13
        assert not (tmp_path / "consumequeue" / "T").exists()
        assert rig.broker.store.max_queue_offset("T", 0) == stored_before
