"""Plants a fault in a copy of the product and looks whether simulated runs notice it.

A judge that finds nothing may be blind. Each mutation takes away one thing that the product does on purpose; a
simulation that stays clean with it is missing a check, or the thing is not needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import attrs

import understudy
from understudy.testkit.sim.seeds import SeedResult, first_failing

PRODUCT = Path(understudy.__path__[0])
"""The package: a link to each room."""


class MutationError(ValueError):
    """A mutation that cannot be planted: its text is not where it says, or stands there twice."""


@attrs.frozen
class Mutation:
    """One planted fault.

    Attributes:
        name: what the product no longer does.
        file: the module, below the package.
        old, new: the text that is replaced, which stands there once, and what it becomes.
        seed: one that noticed it when it was hunted last; played first.
        first: added to each seed of a hunt; where those histories begin which have what it takes to notice it.
    """

    name: str
    file: str
    old: str
    new: str
    seed: int | None = None
    first: int = 0

    def apply(self, package: Path) -> None:
        """Plant it in the tree at *package*. Raises :class:`MutationError`."""
        path = package / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(self.old) != 1:
            raise MutationError(f"{self.name}: {self.file} holds the text to be replaced {text.count(self.old)} times")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def read_mutations(path: Path) -> list[Mutation]:
    """Return the mutations of the TOML file at *path*, in its order."""
    return [Mutation(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]]


def copy_of_product(folder: Path) -> Path:
    """Copy the package into *folder*, links followed; return where it is."""
    target = folder / PRODUCT.name
    shutil.copytree(PRODUCT, target, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
    return target


def copied_product() -> AbstractContextManager[str]:
    """Return a temporary folder for a copy."""
    return tempfile.TemporaryDirectory(prefix="understudy-mutation-")


def hunt_listed(
    path: Path,
    names: Sequence[str],
    play: Callable[[int], SeedResult],
    seeds: Sequence[int],
    processes: int,
    *,
    fresh: bool = False,
) -> int:
    """Plant the mutations of the file at *path*, those of *names* or all, one after the other, and print who notices.

    One that cannot be planted, or played, is not found: nobody has seen that it is noticed. The others go on.

    Args:
        path: a TOML file.
        names: of some of them; empty for all.
        play, processes: as for :func:`hunt`.
        seeds: played for each mutation, counted from where its histories begin.
        fresh: play *seeds* as they are, and not first the seed that has noticed a mutation before.

    Returns:
        0 when each is noticed, 1 when one is not, 2 when a name is unknown.
    """
    known = read_mutations(path)
    unknown = set(names) - {each.name for each in known}
    if unknown:
        print(f"no such mutation: {', '.join(sorted(unknown))}; {path} lists them", file=sys.stderr)
        return 2
    missed = played = 0
    for mutation in known:
        if names and mutation.name not in names:
            continue
        own = () if fresh or mutation.seed is None else (mutation.seed,)
        others = [mutation.first + each for each in seeds]
        try:
            found = hunt(mutation, play, [*own, *(each for each in others if each not in own)], processes)
            told = f"NOT FOUND within {len(seeds)} seeds" if found is None else f"seed {found[0]}: {found[1]}"
        except MutationError as error:
            found, told = None, f"NOT PLANTED: {error}"
        except subprocess.CalledProcessError as error:
            found, told = None, f"NOT PLAYED: the copy ended with {error.returncode}"
        missed += found is None
        print(f"  {mutation.name:76} {told[:200]}", flush=True)
        played += 1
    print(f"{played} mutations, {missed} not found")
    return int(missed > 0)


def hunt(
    mutation: Mutation, play: Callable[[int], SeedResult], seeds: Sequence[int], processes: int
) -> tuple[int, str] | None:
    """Return the first seed that notices *mutation* and what it says; ``None`` when none of *seeds* does.

    Args:
        mutation: planted in a copy; the product itself is not touched.
        play: plays one seed; a function of a module of the package.
        seeds: played in this order.
        processes: how many at a time.

    Raises:
        MutationError: it cannot be planted.
        subprocess.CalledProcessError: the mutated product cannot even be imported.
    """
    with copied_product() as folder:
        mutation.apply(copy_of_product(Path(folder)))
        left = list(seeds)
        while left:
            found = _play_copy(Path(folder), play, left, processes)
            if found is None:
                return None
            seed, violation = found
            # In a process of its own, as every seed: a simulation silences the log of its process.
            if first_failing(play, [seed], 1) is None:  # else it is not the mutation that is seen
                return seed, violation
            left = left[left.index(seed) + 1 :]
        return None


def _play_copy(
    folder: Path, play: Callable[[int], SeedResult], seeds: Sequence[int], processes: int
) -> tuple[int, str] | None:
    call = (
        f"from {__name__} import in_copy; in_copy({play.__module__!r}, {play.__name__!r}, {list(seeds)}, {processes})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", call],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    return None if found is None else (found[0], found[1])


def in_copy(module: str, function: str, seeds: Sequence[int], processes: int) -> None:
    """Play *seeds* in the process of a copy and print what was found, as JSON.

    Args:
        module: that has the function.
        function: plays one seed and returns what was violated.
        seeds: to be played, in this order.
        processes: how many play at a time.
    """
    import importlib

    found = first_failing(getattr(importlib.import_module(module), function), seeds, processes)
    print(json.dumps(None if found is None else [found.seed, found.violations[0]]))
