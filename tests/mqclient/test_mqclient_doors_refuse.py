"""What the blocking and the asyncio client cannot call is refused before anything starts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from understudy.mqclient import asyncio as aio
from understudy.mqclient import blocking
from understudy.mqclient.errors import InvalidOptionError
from understudy.testkit.blocking import BlockingCluster, local_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with local_cluster() as running:
        yield running


def test_what_the_blocking_client_could_not_call_in_a_thread_is_refused_before_anything_starts(
    cluster: BlockingCluster,
) -> None:
    async def never(*_: object) -> None: ...

    wrong: Any
    for wrong, says in ((never, "is an async function"), (lambda: None, "argument"), (None, "cannot be called")):
        with pytest.raises(InvalidOptionError, match=says):
            blocking.open_push_consumer("127.0.0.1:1", "cg", {"T": "*"}, wrong).__enter__()
        with pytest.raises(InvalidOptionError, match=says):
            blocking.open_transaction_producer("127.0.0.1:1", "pg", wrong).__enter__()
        with (
            blocking.open_pop_consumer(cluster.namesrv_address, "wrong", {"Wrong": "*"}) as consumer,
            pytest.raises(InvalidOptionError, match=says),
        ):
            consumer.run_listener(wrong)


def test_what_the_asyncio_client_could_not_await_is_refused_before_anything_starts(cluster: BlockingCluster) -> None:
    async def none() -> None: ...

    async def main() -> None:
        wrong: Any
        for wrong, says in ((lambda *_: None, "async def"), (none, "argument"), (None, "cannot be called")):
            with pytest.raises(InvalidOptionError, match=says):
                await aio.open_push_consumer("127.0.0.1:1", "cg", {"T": "*"}, wrong).__aenter__()
            with pytest.raises(InvalidOptionError, match=says):
                await aio.open_transaction_producer("127.0.0.1:1", "pg", wrong).__aenter__()
            async with aio.open_pop_consumer(cluster.namesrv_address, "wrong", {"Wrong": "*"}) as consumer:
                with pytest.raises(InvalidOptionError, match=says):
                    await asyncio.wait_for(consumer.run_listener(wrong), 10)

    asyncio.run(main())
