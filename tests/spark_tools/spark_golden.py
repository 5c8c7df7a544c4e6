"""Captured store directories of the Java broker, unpacked once per test session, and their manifests."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "store"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in DATA.glob("*.tar.gz"))


@cache
def manifest(name: str) -> dict[str, Any]:
    """What the Java classes say about a captured store."""
    with gzip.open(DATA / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def unpack(name: str, into: Path) -> Path:
    """Unpacks a captured store below a folder and returns its root."""
    if not (into / name).exists():
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            # Python knows filters from 3.11.4 on; 3.12 warns when none is chosen.
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
            archive.extractall(into)
    return into / name
