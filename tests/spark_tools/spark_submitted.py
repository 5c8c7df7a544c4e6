"""The package as an archive, and the environment of a program that runs Spark, for tests that start real ones."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def package(into: Path, name: str) -> Path:
    """The importable package as one archive, laid out as in the wheel."""
    path = into / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(ROOT / "src" / "understudy" / "__init__.py", "understudy/__init__.py")
        for room in ("format", "runtime", "spark_tools", "remoting"):
            for file in (ROOT / room).rglob("*.py"):
                archive.write(file, f"understudy/{room}/{file.relative_to(ROOT / room)}")
    return path


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable} | more
