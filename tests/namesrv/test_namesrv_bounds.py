"""What peers can have a name server keep is bounded, and what it keeps costs one write for many changes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from namesrv_wire import config_in, connected, registration_body, running
from trio.testing import wait_all_tasks_blocked

from understudy.namesrv import key_values, route_table
from understudy.namesrv import registration_body as bodies
from understudy.namesrv.key_values import KeyValueConfig, StoreError
from understudy.namesrv.registration_body import BodyError, read_registration
from understudy.runtime.disk import File, RealDisk

T = TypeVar("T")


class SlowDisk(RealDisk):
    """A disk that opens no file while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.written = 0

    def open(self, path: str, **more: bool) -> File:
        assert self.go.wait(20)
        self.written += 1
        return super().open(path, **more)


def stored(path: Path) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = json.loads(path.read_bytes())["configTable"]
    return table


async def test_changes_that_wait_share_a_write_and_each_is_durable_before_it_is_answered(tmp_path: Path) -> None:
    disk, path = SlowDisk(), tmp_path / "kv.json"
    config = KeyValueConfig(disk, str(path))
    await config.put("n", "old", "v")
    disk.go.clear()
    answered = disk.written = 0

    async def put(number: int) -> None:
        nonlocal answered
        await config.put("n", str(number), "v")
        assert stored(path)["n"][str(number)] == "v"
        answered += 1

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(put, number)
        nursery.start_soon(config.delete, "n", "old")
        await wait_all_tasks_blocked(0.05)
        assert (answered, config.namespace("n")) == (0, {"old": "v"})
        disk.go.set()
    assert answered == 50 and 1 <= disk.written <= 2
    assert stored(path) == {"n": dict.fromkeys(map(str, range(50)), "v")}


async def test_a_request_that_is_cancelled_takes_no_other_with_it(tmp_path: Path) -> None:
    disk, path = SlowDisk(), tmp_path / "kv.json"
    config = KeyValueConfig(disk, str(path))
    disk.go.clear()
    scopes = [trio.CancelScope() for _ in range(3)]

    async def put(number: int) -> None:
        with scopes[number]:
            await config.put("n", str(number), "v")

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(put, number)
        await wait_all_tasks_blocked(0.05)
        scopes[0].cancel()
        scopes[1].cancel()
        disk.go.set()
    assert stored(path)["n"]["2"] == "v"


async def test_a_value_that_cannot_be_written_is_refused_alone(tmp_path: Path) -> None:
    disk, path = SlowDisk(), tmp_path / "kv.json"
    config = KeyValueConfig(disk, str(path))
    disk.go.clear()
    refused: list[str] = []

    async def put(key: str, value: str) -> None:
        try:
            await config.put("n", key, value)
        except StoreError as error:
            refused.append(key)
            assert "nothing was changed" in str(error)

    async with trio.open_nursery() as nursery:
        for key, value in (("first", "v"), ("good", "v"), ("bad", "\ud800"), ("also good", "v")):
            nursery.start_soon(put, key, value)
        await wait_all_tasks_blocked(0.05)
        disk.go.set()
    assert refused == ["bad"]
    assert stored(path) == {"n": dict.fromkeys(("first", "good", "also good"), "v")}


async def test_keys_and_characters_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_values, "MOST_KEYS", 4)  # one namespace and three keys
    monkeypatch.setattr(key_values, "MOST_CHARACTERS", 100)
    async with running(config_in(tmp_path)) as server, connected(server) as peer:

        async def put(key: str, value: str, namespace: str = "n") -> str | None:
            return (await peer.ask(100, {"namespace": namespace, "key": key, "value": value})).remark

        assert [await put(key, "v") for key in "abc"] == [None] * 3
        assert "keeps 4 keys and namespaces of 100 characters in all, and has 4 of 7" in (await put("d", "v") or "")
        assert (await put("d", "v", "other")) is not None
        assert (await peer.ask(219, {"namespace": "other"})).code == 22
        assert await put("a", "w" * 90) is None
        assert "nothing was changed" in (await put("a", "w" * 95) or "")
        assert (await peer.ask(101, {"namespace": "n", "key": "a"})).ext == {"value": "w" * 90}
        assert (await peer.ask(102, {"namespace": "n", "key": "a"})).code == 0
        assert await put("d", "v") is None
    # what a file holds that is above the bounds stays, and may become less
    monkeypatch.setattr(key_values, "MOST_KEYS", 1)
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        assert (await peer.ask(100, {"namespace": "n", "key": "b", "value": "x"})).code == 0
        assert (await peer.ask(102, {"namespace": "n", "key": "b"})).code == 0
        assert (await peer.ask(100, {"namespace": "n", "key": "b", "value": "x"})).code == 1


async def test_brokers_groups_and_clusters_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "MOST_BROKERS", 2)
    async with running(config_in(tmp_path)) as server, connected(server) as peer:
        for name in ("a", "b"):
            assert (await peer.register(name, 0, f"{name}:1", {"T": 6, "U": 6})).code == 0
        for name, broker_id, cluster in (("c", 0, "C"), ("a", 1, "C"), ("c", 0, "D")):
            answer = await peer.register(name, broker_id, "new:1", {"T": 6, "U": 6}, clusterName=cluster)
            assert (answer.code, "2 brokers are registered here" in (answer.remark or "")) == (1, True)
        assert set(server.table.groups) == {"a", "b"} and set(server.table.clusters) == {"C"}
        assert (await peer.register("a", 0, "a:1", {"T": 6, "U": 6})).code == 0


def test_topics_of_a_registration_are_bounded_in_any_form(monkeypatch: pytest.MonkeyPatch) -> None:
    body = registration_body({f"T{number}": 6 for number in range(4)})
    assert len(read_registration(body, 400, "a").topics) == 4
    monkeypatch.setattr(bodies, "TOPICS_LIMIT", 3)
    with pytest.raises(BodyError, match="4 topics are above the limit of 3"):
        read_registration(body, 400, "a")
