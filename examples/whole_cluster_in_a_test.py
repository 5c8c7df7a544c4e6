"""A test of your own code against a whole cluster inside the process; pytest-trio runs it (`trio_mode = true`).

.venv/bin/pytest examples/whole_cluster_in_a_test.py
"""

from __future__ import annotations

from understudy.mqclient.api import SendStatus, message, open_producer, real_world
from understudy.testkit.local_cluster import LocalCluster


async def test_my_code_can_send() -> None:
    async with LocalCluster() as cluster, open_producer(real_world(), cluster.namesrv_address, "my_code") as producer:
        result = await producer.send(message("MyTopic", b"hello"))
        assert result.status is SendStatus.OK
