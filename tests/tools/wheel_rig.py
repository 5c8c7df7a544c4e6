"""The wheel that users get, built from this checkout, and environments that hold it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
SHORT_DRILL = ("drill", "acting-master", "--seed", "1", "--timers")
"""Of a whole failover with a third of the traffic; with all of it it is played beside the README."""


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """Run a program; return what it printed."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        cwd=cwd,
        env=environment,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def copy_of_sources(place: Path) -> Path:
    """Copy the files that a wheel is made of to *place*: a build leaves folders behind. Returns *place*."""
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, place)
    return place


def build_wheel(folder: Path) -> Path:
    """Build the wheel in *folder*."""
    source = copy_of_sources(folder / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "-q"]
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*pip, "-w", str(folder), str(source)], capture_output=True, text=True, timeout=LIMIT_S, env=environment
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def needed(*names: str) -> set[str]:
    """Return the distributions that these requirements ask for on this machine, and those that they ask for."""
    found: set[str] = set()
    asked = [Requirement(name) for name in names]
    while asked:
        wanted = asked.pop()
        if wanted.name in found and not wanted.extras:
            continue
        found.add(wanted.name)
        for text in distribution(wanted.name).requires or ():
            further = Requirement(text)
            if any(
                further.marker is None or further.marker.evaluate({"extra": extra}) for extra in wanted.extras or {""}
            ):
                asked.append(further)
    return found


def environment(folder: Path, wheel: Path, *extras: str, beside: tuple[str, ...] = ()) -> Path:
    """Make a virtual environment with *wheel* and what it and its extras ask for, nothing else; return its programs.

    What they ask for is linked from the environment of the tests: nothing is loaded from a network.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
    run(*pip, "--disable-pip-version-check", "--no-deps", wheel, cwd=wheel.parent)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    for name in needed(f"understudy[{','.join(extras)}]" if extras else "understudy", *beside) - {"understudy"}:
        files = distribution(name).files or ()
        for top in {path.parts[0] for path in files} - {"..", "__pycache__"}:
            link, place = packages / top, Path(str(distribution(name).locate_file(top)))
            if place.exists() and not link.exists():
                link.symlink_to(place)
    return folder / "bin"
