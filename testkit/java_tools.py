"""Whether the real system and its clients can be run from here: they need a checkout of the sources and a JDK."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "bench" / "java"
LAUNCHER = _FOLDER / "rocketmq"
PROXY_TRAFFIC = _FOLDER / "grpc" / "ProxyTraffic.java"
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


def grpc_client() -> Path | None:
    """Return where the official gRPC client for Java is, ``None`` when the tests with real clients installed none."""
    home = os.environ.get("UNDERSTUDY_PEERS_HOME") or Path.home() / ".cache" / "understudy-peers"
    return next((Path(home) / "grpc-java").glob("*.jar"), None)


def missing_grpc() -> str | None:
    """Return in one line what gRPC clients lack and what to do, ``None`` when everything is there."""
    if not PROXY_TRAFFIC.exists():
        return "gRPC clients are run from a checkout of the sources (bench/java/grpc), this is an installation"
    if shutil.which("java") is None:
        return "'java' is not on PATH: install a JDK 17 or newer"
    return None if grpc_client() else "the gRPC client for Java is not installed: run ./understudy test --install-only"
