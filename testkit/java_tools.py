"""Whether the real system and its clients can be run from here: they need a checkout of the sources and a JDK."""

from __future__ import annotations

import subprocess
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "bench" / "java"
LAUNCHER = _FOLDER / "rocketmq"
_CHECK_LIMIT_SECONDS = 60


def missing() -> str | None:
    """Return in one line what is missing and what to do, ``None`` when everything is there."""
    if not LAUNCHER.exists():
        return "Java clients and servers are run from a checkout of the sources (bench/java), this is an installation"
    setup = _FOLDER / "setup.sh"
    checked = subprocess.run(
        ["bash", str(setup), "--check"], capture_output=True, text=True, timeout=_CHECK_LIMIT_SECONDS
    )
    if checked.returncode == 0:
        return None
    return f"{' '.join(checked.stderr.split())}; run {setup}"
