"""The examples do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import trio

from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_what_is_sent_is_consumed_and_polled(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def seen(text: str) -> bool:
        printed.append(capsys.readouterr().out)
        return text in "".join(printed)

    async with LocalCluster() as cluster:
        servers = cluster.namesrv_address
        await load("send").main(servers)
        assert seen(" offset 0")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load("consume").main, servers)
            await until(lambda: seen("part 9"))
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load("poll").main, servers)
            await until(lambda: seen("messages of MessageQueue"))
            nursery.cancel_scope.cancel()


async def test_a_test_of_ones_own() -> None:
    await load("whole_cluster_in_a_test").test_my_code_can_send()
