"""Runs the test suite: `./understudy test [--no-peers | --install-only] [PYTEST ARGUMENTS]`.

First installs the real clients and servers that tests talk to (Java, Go, C++, JavaScript), as far as their tools are on
this machine, and says what will be skipped and why; then becomes pytest, so that pytest's last line is the last line.

    --no-peers       leave the tests with real clients and servers out, and install nothing for them
    --install-only   install what the tests need and run none
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEER_TESTS = ROOT / "tests" / "peers"
sys.path.insert(0, str(PEER_TESTS))

import peer_installation  # noqa: E402 - lives beside the tests that use it

HANG_DUMP_S = 300
MOST_WORKERS = 6
FEW_FILES = 50
"""So many test files are compiled by whichever worker comes to them first."""


def say(text: str) -> None:
    print(f"understudy test: {text}", file=sys.stderr, flush=True)


def names_paths(arguments: list[str]) -> list[Path]:
    """Returns the test files and folders among pytest's arguments."""
    words = [argument.partition("::")[0] for argument in arguments if not argument.startswith("-")]
    return [Path(word).resolve() for word in words if Path(word).exists()]


def needs_peers(arguments: list[str]) -> bool:
    """Whether a run with these arguments can reach the tests with real clients."""
    paths = names_paths(arguments)
    related = (path == PEER_TESTS or path in PEER_TESTS.parents or PEER_TESTS in path.parents for path in paths)
    return not paths or any(related)


def workers(arguments: list[str]) -> list[str]:
    """Returns pytest's options that spread the whole suite over the processors, by file, unless told otherwise.

    Tests with processes of their own wait for most of their time: two workers more than processors use it.
    """
    if any(
        argument.startswith(("-n", "--numprocesses", "--dist", "-x", "--pdb", "--last-failed"))
        for argument in arguments
    ):
        return []
    return [
        "-n",
        str(min(len(os.sched_getaffinity(0)) + 2, MOST_WORKERS)),
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
    ]


def uncompiled(tests: Path) -> list[Path]:
    """Returns the files below *tests* that pytest has not compiled since they were written."""
    tail = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"  # as pytest names what it has compiled
    found = []
    for path in sorted(tests.rglob("test_*.py")):
        compiled = path.parent / "__pycache__" / f"{path.stem}.{tail}"
        if not compiled.is_file() or compiled.stat().st_mtime < path.stat().st_mtime:
            found.append(path)
    return found


def compile_tests(options: list[str], tests: Path) -> None:
    """Has pytest compile the tests once, on all processors, if many are new: each worker would compile all of them."""
    files = uncompiled(tests)
    if len(files) <= FEW_FILES:
        return
    say(f"compiling {len(files)} test files")
    count = len(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "pytest", *options, "--collect-only", "-q", "-p", "no:xdist"]
    parts = [
        subprocess.Popen([*command, *files[first::count]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for first in range(count)
    ]
    for part in parts:
        part.wait()  # what cannot be collected is told by the run itself


def install_peers() -> None:
    for name in peer_installation.PEERS:
        if not peer_installation.find(name).is_ready:
            say(f"installing the {name} peer into {peer_installation.peers_home()}")
        peer = peer_installation.install(name)
        say(f"{name}: {peer.place}" if peer.is_ready else f"{name}: its tests are skipped: {peer.reason}")


def main(arguments: list[str]) -> None:
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        print("pytest's own options: .venv/bin/pytest --help")
        return
    if "--install-only" in arguments:
        install_peers()
        return
    without_peers = "--no-peers" in arguments
    arguments = [argument for argument in arguments if argument != "--no-peers"]
    if without_peers:
        say("real clients and servers are left out, as asked")
        arguments.append(f"--ignore={PEER_TESTS}")
    elif needs_peers(arguments):
        install_peers()
    # Each of the hundreds of processes that tests start would compile the whole program for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-o", f"faulthandler_timeout={HANG_DUMP_S}"]
    if not names_paths(arguments):
        os.chdir(ROOT)
        compile_tests(options, ROOT / "tests")
        arguments = [*workers(arguments), *arguments]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *options, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
