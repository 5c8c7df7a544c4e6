"""Tests of the web service with a cluster inside them: nothing to install, start or clean up.

.venv/bin/pytest examples/test_web_service.py
"""

from __future__ import annotations

import asyncio

from web_service import service

from understudy.mqclient.api import ConsumeFrom, PullConsumerOptions
from understudy.mqclient.asyncio import open_pull_consumer
from understudy.testkit.asyncio import local_cluster

FIRST = PullConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET)


async def post(port: int, body: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    answer = (await reader.read()).decode()
    writer.close()
    return answer


async def order_and_read() -> None:
    async with local_cluster() as cluster, service(cluster.namesrv_address, 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await post(port, b"two apples")).startswith("HTTP/1.1 201 ")
        assert "503 Service Unavailable" in await post(port, b"")
        async with open_pull_consumer(cluster.namesrv_address, "kitchen", FIRST) as kitchen:
            await kitchen.subscribe({"Orders": "*"})
            assert [order.body for order in await kitchen.poll(20_000)] == [b"two apples"]


def test_an_order_comes_through() -> None:
    asyncio.run(order_and_read())
