"""Imports of a program that are done sooner: what is kept of them is right, or not used."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import marshal
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from understudy.runtime import quick_imports
from understudy.runtime.quick_imports import (
    has_gnu_library,
    kept_methods,
    known_threads,
    no_looks_for_garbage,
    read_methods,
    write_methods,
)

START = """
import builtins, sys
from understudy.runtime.quick_imports import quick_imports
usual, compiled = builtins.compile, []
def noted(source, filename, *rest, **more):
    compiled.append(filename)
    return usual(source, filename, *rest, **more)
builtins.compile = noted
with quick_imports("program", sys.argv[1]):
    import understudy.programs.one_broker
print(sum("attrs generated methods" in str(name) for name in compiled))
"""


def compiled_at_a_start(folder: Path, seed: str) -> int:
    """Return of how many classes a broker's program compiles the methods when it is imported."""
    command = [sys.executable, "-c", START, str(folder)]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": ""}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def point(third: bool = False) -> type:
    if third:

        @attrs.frozen
        class Point:
            x: int
            y: int = 2
            z: int = 3

        return Point

    @attrs.frozen
    class Point:  # type: ignore[no-redef]  # the same name, as after an upgrade
        x: int
        y: int = 2

    return Point


def made(path: Path, third: bool = False) -> type:
    with kept_methods(str(path)) as helped:
        found = point(third)
    assert helped, "this version of attrs makes its methods in another way: starts take longer"
    return found


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods are written in these tests, whatever the suite's own environment says of caches."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def test_a_second_start_compiles_no_class_again(tmp_path: Path) -> None:
    assert compiled_at_a_start(tmp_path, "1") > 200
    assert compiled_at_a_start(tmp_path, "2") == 0


def test_classes_with_kept_methods_are_as_they_are_without(tmp_path: Path) -> None:
    # given methods that were kept by one class; when another one is made of them
    made(tmp_path / "methods")
    assert read_methods(str(tmp_path / "methods"))
    again = made(tmp_path / "methods")
    # then it does what such a class does
    assert again(1) == again(1, 2) != again(2)
    assert hash(again(1)) == hash(again(1, 2))
    assert repr(again(1)).endswith("Point(x=1, y=2)")
    assert again.__init__.__code__.co_varnames[:3] == ("self", "x", "y")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        again(1).x = 3


def test_a_class_that_has_changed_gets_its_own_methods(tmp_path: Path) -> None:
    made(tmp_path / "methods")
    assert repr(made(tmp_path / "methods", third=True)(1)).endswith("Point(x=1, y=2, z=3)")
    assert len(read_methods(str(tmp_path / "methods"))) == 1, "what no class uses any more is not kept"


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "of another Python"])
def test_a_file_that_cannot_be_used_is_written_again(tmp_path: Path, damage: str) -> None:
    # given a file that something has happened to
    path = tmp_path / "methods"
    made(path)
    good = path.read_bytes()
    bad = {
        "empty": b"",
        "cut": good[:-1],
        "flipped": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
        "of another Python": bytes([good[0] ^ 1]) + good[1:],
    }
    path.write_bytes(bad[damage])
    # when classes are made
    assert repr(made(path)(1)).endswith("Point(x=1, y=2)")
    # then the file is whole again
    assert path.read_bytes() == good


def test_a_folder_that_takes_no_file_changes_nothing(tmp_path: Path) -> None:
    assert repr(made(tmp_path / "missing" / "methods")(1)).endswith("Point(x=1, y=2)")
    (tmp_path / "taken").mkdir()
    write_methods(str(tmp_path / "taken"), {b"key": marshal.dumps(None)})
    assert [each.name for each in tmp_path.iterdir()] == ["taken"], "no temporary file is left"


def test_nothing_is_written_where_python_writes_no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made(tmp_path / "methods")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not has_gnu_library(), reason="the system has another C library, whose name is looked for as ever")
def test_the_library_of_threads_is_found_without_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise AssertionError("another program was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    usual = ctypes.util.find_library
    with known_threads():
        name = ctypes.util.find_library("pthread")
    assert ctypes.CDLL(name).pthread_setname_np
    assert ctypes.util.find_library is usual


def test_other_systems_look_for_the_library_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_imports, "has_gnu_library", lambda: False)
    usual = ctypes.util.find_library
    with known_threads():
        assert ctypes.util.find_library is usual


@pytest.mark.parametrize("looks", [True, False])
def test_nobody_looks_for_garbage_meanwhile_and_afterwards_as_before(looks: bool) -> None:
    before = gc.isenabled()
    (gc.enable if looks else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), no_looks_for_garbage():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert looks == gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
