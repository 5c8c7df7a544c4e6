"""The suite runner: when it installs real clients, and where."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import run_suite
from run_suite import peer_installation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ([], True),
        (["-x", "-k", "anything"], True),
        (["tests"], True),
        (["tests/peers"], True),
        (["tests/peers/test_peers_go.py::test_the_go_client_works_unchanged"], True),
        (["tests/tools"], False),
        (["-q", "tests/tools/test_tools_layers.py"], False),
    ],
)
def test_only_runs_that_can_reach_them_install_real_clients(
    arguments: list[str], needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert needed == run_suite.needs_peers(arguments)


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNDERSTUDY_PEERS_HOME", str(tmp_path))
    assert tmp_path == peer_installation.peers_home()


def test_without_a_home_the_cache_lies_in_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("UNDERSTUDY_PEERS_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert ROOT / "build" / "peers" == peer_installation.peers_home()


def test_a_missing_tool_is_the_reason_of_a_peer_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # given a machine without Node; when its client is looked for and installed
    monkeypatch.setenv("UNDERSTUDY_PEERS_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    # then both say what is missing
    assert "'node' is not on PATH" in peer_installation.find("node").reason
    assert "'node' is not on PATH" in peer_installation.install("node").reason


def test_the_files_that_the_order_names_are_there(request: pytest.FixtureRequest) -> None:
    tests = ROOT / "tests"
    order = request.config.pluginmanager.get_plugin(str(tests / "conftest.py"))
    assert order is not None
    assert [] == [file for file in order.LONG_FILES if not (tests / file).is_file()]
    for family in order.FAMILIES:
        assert sum((tests / file).is_file() for file in family) >= 2


@pytest.mark.parametrize(("processors", "workers"), [(1, 3), (2, 4), (3, 5), (16, 6)])
def test_two_workers_more_than_processors_take_files(
    processors: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_suite.os, "sched_getaffinity", lambda pid: set(range(processors)))
    assert ["-n", str(workers), "--dist", "loadfile"] == run_suite.workers(["-q"])[:4]
    assert run_suite.workers(["-x"]) == []


def test_the_readme_of_the_tests_says_how_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_suite.os, "sched_getaffinity", lambda pid: {0})
    words = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"]
    more, most = words[int(run_suite.workers([])[1]) - 1], words[run_suite.MOST_WORKERS]
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    assert f"{more} workers more than processors, but {most} at most" in text


def test_many_new_tests_are_compiled_once_before_the_workers_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setattr(run_suite, "FEW_FILES", 2)
    options = ["--rootdir", str(tmp_path), "-c", os.devnull]
    files = [tmp_path / f"test_{number}.py" for number in range(3)]
    for file in files[:2]:
        file.write_text("def test_one():\n    assert True\n")
    run_suite.compile_tests(options, tmp_path)
    assert files[:2] == run_suite.uncompiled(tmp_path)  # they are few
    files[2].write_text("no python")
    run_suite.compile_tests(options, tmp_path)
    assert files[2:] == run_suite.uncompiled(tmp_path)
    os.utime(files[0], (time.time() + 60,) * 2)
    assert [files[0], files[2]] == run_suite.uncompiled(tmp_path)
