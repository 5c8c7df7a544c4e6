"""Stores our own broker writes: a plan set through its name server, and every job on what it left behind."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from spark_plans import CREATED_MS, write_test_plan

from understudy.broker.groups import GroupConfig
from understudy.mqclient.message import Message
from understudy.mqclient.producer import open_producer
from understudy.runtime.world import real_world
from understudy.spark_tools import exits
from understudy.spark_tools.admin import AdminClient
from understudy.spark_tools.faults import log_part_faults, part_faults, small_file_parts
from understudy.spark_tools.kernels.damage import DAMAGE
from understudy.spark_tools.layout import Store, read_layout
from understudy.spark_tools.main import main
from understudy.spark_tools.plan import Change
from understudy.testkit.local_cluster import LocalCluster

MESSAGES = 60
GROUP = "readers"


def run(*arguments: object) -> tuple[int, list[str]]:
    said: list[str] = []
    return main([str(argument) for argument in arguments], CREATED_MS, said.append), said


async def send_some(cluster: LocalCluster) -> list[str]:
    """Makes a group and sends messages to the topic `orders`; returns their unique keys in order."""
    cluster.brokers["broker-a"].groups.update([GroupConfig(GROUP)])
    keys = []
    async with open_producer(real_world(), cluster.namesrv_address, "writers") as producer:
        for number in range(MESSAGES):
            body = b"b" * (50 + 13 * (number % 7))
            result = await producer.send(
                Message("orders", body, {"TAGS": f"Tag{number % 3}", "KEYS": f"order-{number}"})
            )
            assert result.status.value == "SEND_OK"
            keys.append(result.message_id)
    return keys


def held(address: str, queue_id: int) -> int:
    with AdminClient(address) as client:
        return client.all_offsets()["orders", GROUP, queue_id]


async def test_a_plan_is_applied_to_the_broker_its_name_server_knows_and_taken_back(tmp_path: Path) -> None:
    async with LocalCluster(folder=str(tmp_path)) as cluster:
        await send_some(cluster)
        address = f"127.0.0.1:{cluster.brokers['broker-a'].identity.port}"

        def commit(queue_id: int, offset: int) -> None:
            with AdminClient(address) as client:
                client.commit("orders", GROUP, queue_id, offset)

        await trio.to_thread.run_sync(commit, 0, 2)
        made = [Change(1, "orders", GROUP, 0, "behind", 7, {"a": 2, "b": 7}, "why", 0, 0, 5)]
        store = tmp_path / "broker-a"
        plan = write_test_plan({"a": store, "b": store}, tmp_path / "plan.json", made)
        live = ("--namesrv", cluster.namesrv_address, "--broker-name", "broker-a")

        async def step(name: str, *more: object) -> tuple[int, list[str]]:
            return await trio.to_thread.run_sync(partial(run, "plan", name, plan, *live, *more))

        assert (await step("verify"))[0] == exits.AGREE
        assert (await step("apply", "--dry-run"))[0] == exits.AGREE
        assert await trio.to_thread.run_sync(held, address, 0) == 2
        code, said = await step("apply")
        assert code == exits.AGREE, said
        assert await trio.to_thread.run_sync(held, address, 0) == 7
        code, said = await step("undo")
        assert code == exits.AGREE, said
        assert await trio.to_thread.run_sync(held, address, 0) == 2

        code, said = await trio.to_thread.run_sync(
            partial(run, "plan", "apply", plan, "--namesrv", cluster.namesrv_address, "--broker-name", "broker-x")
        )
        assert code == exits.REFUSED
        assert "has no master of broker-x (it has: broker-a)" in said[0]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Two copies of the store of a broker that was stopped, and the unique keys of its messages."""
    root = tmp_path_factory.mktemp("own")

    async def fill() -> list[str]:
        async with LocalCluster(folder=str(root)) as cluster:
            keys = await send_some(cluster)
            address = f"127.0.0.1:{cluster.brokers['broker-a'].identity.port}"

            def commit() -> None:
                with AdminClient(address) as client:
                    for queue_id in range(2):
                        client.commit("orders", GROUP, queue_id, 5)

            await trio.to_thread.run_sync(commit)
        return keys

    keys = trio.run(fill)
    shutil.copytree(root / "broker-a", root / "copy")
    return root, keys


def test_a_store_of_our_broker_gives_no_false_alarm(written: tuple[Path, list[str]]) -> None:
    store = Store("a", str(written[0] / "broker-a"))
    found = read_layout(store)
    alarms = [item for part in ("layout", *small_file_parts(found)) for item in part_faults(store, part)]
    for file in found.commit_log:
        alarms += log_part_faults(file, 0, file.size_bytes, None, verify=True)

    assert found.commit_log
    assert [str(item) for item in alarms if item.severity == DAMAGE] == []


@pytest.mark.slow
def test_every_job_reads_what_our_broker_wrote(spark: Any, written: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, keys = written
    pair = ("--store", f"a={root / 'broker-a'}", "--store", f"b={root / 'copy'}")
    one = pair[:2]
    sent = tmp_path / "sent.jsonl"
    acknowledged = [{"topic": "orders", "uniq_key": key} for key in [*keys, "F" * 32]]
    sent.write_text("".join(json.dumps(row) + "\n" for row in acknowledged))

    def job(name: str, *options: object) -> tuple[int, dict[str, Any]]:
        out = tmp_path / name
        code, said = run(name, *options, "--out", out, "--quiet", "--master", "local[2]")
        assert code in (exits.AGREE, exits.DIFFER), said
        return code, json.loads((out / "report.json").read_text())

    def rows(report: dict[str, Any], title: str) -> list[list[Any]]:
        found: list[list[Any]] = next(table["rows"] for table in report["tables"] if table["title"] == title)
        return found

    assert job("reconcile", *pair, "--verify")[0] == exits.AGREE
    assert job("verify-replicas", *pair, "--verify")[0] == exits.AGREE
    _, lag = job("lag", *one)
    waiting = {(row[1], row[2], row[3]): row[6] for row in rows(lag, "Backlog by queue")}
    committed = {row[3]: row[4] for row in rows(lag, "Backlog by queue") if row[1:3] == ["orders", GROUP]}
    assert sum(count for (topic, group, _), count in waiting.items() if (topic, group) == ("orders", GROUP)) > 0
    assert committed == dict.fromkeys(committed, 5)
    assert job("duplicates", *pair)[0] == exits.AGREE
    code, gaps = job("gaps", *one, "--acknowledged", sent)
    assert code == exits.DIFFER
    assert rows(gaps, "Acknowledged but missing") == [["orders", "F" * 32]]
    code, translated = job("translate", *one, "--target", f"m={root / 'copy'}")
    for row in rows(translated, "Translated offsets"):
        assert (row[5], row[6], row[8]) == (5 if row[3] < 2 else 0, 0, "uniq-key")
