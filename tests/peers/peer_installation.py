"""Installs the real clients and servers that tests run against us, from their registries, into a cache folder.

Standard library only: `./understudy test` runs it before pytest, and the tests ask it what is there.  Each peer is
installed into a folder of its own and counts as installed only with its marker file, written last.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
JAVA_TOOLS = HERE.parents[1] / "bench" / "java"
NODE_CLIENT = "ali-ons@3.12.0"
CPP_CLIENT = "rocketmq==0.4.4"
GRPC_PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
GRPC_JAVA_CLIENT = "org.apache.rocketmq:rocketmq-client-java:5.2.0"
GRPC_NODE_CLIENT = "rocketmq-client-nodejs@1.0.8"
INSTALL_LIMIT_S = 600
MISSING_TOOL, NOT_INSTALLED = 3, 4


@dataclass(frozen=True)
class Peer:
    """One peer's state: `place` is where it lives when it is ready, `reason` why it is not otherwise."""

    name: str
    place: Path | None
    reason: str = ""

    @property
    def is_ready(self) -> bool:
        return self.place is not None


class Unavailable(Exception):
    """The peer cannot be installed on this machine; the message says why and what to install."""


def peers_home() -> Path:
    """The cache folder: $UNDERSTUDY_PEERS_HOME, or one below the user's cache folder, or one inside the checkout."""
    chosen = os.environ.get("UNDERSTUDY_PEERS_HOME")
    if chosen:
        return Path(chosen).resolve()
    home = Path(os.path.expanduser("~"))
    if home.is_dir() and os.access(home, os.W_OK):
        return home / ".cache" / "understudy-peers"
    return HERE.parents[1] / "build" / "peers"


def peer_environment() -> dict[str, str]:
    """The environment of everything a peer runs: a home of their own keeps logs and caches out of the user's."""
    home = peers_home()
    environment = dict(os.environ)
    environment.pop("JDK_JAVA_OPTIONS", None)  # every server is started with options of its own
    if not environment.get("HOME") or not os.access(environment["HOME"], os.W_OK):
        environment["HOME"] = str(home / "home")
        environment.setdefault("UNDERSTUDY_PEERS_HOME", str(home))
        (home / "home").mkdir(parents=True, exist_ok=True)
    return environment


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, so that two runs do not install the same peer at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: list[str], folder: Path, **environment: str) -> None:
    """Runs one installation step; a failure carries the end of what it printed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=peer_environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {' '.join(done.stdout.split()[-40:])}")


def need(tool: str, why: str) -> None:
    if shutil.which(tool) is None:
        raise Unavailable(f"'{tool}' is not on PATH ({why})")


def is_current(folder: Path, wanted: str) -> bool:
    marker = folder / ".complete"
    return marker.is_file() and marker.read_text() == wanted


# ------------------------------------------------------------------------------------------------------ the peers


def java_setup(*arguments: str) -> Path:
    done = subprocess.run(
        ["bash", str(JAVA_TOOLS / "setup.sh"), *arguments],
        env=peer_environment(),
        capture_output=True,
        text=True,
        timeout=INSTALL_LIMIT_S,
    )
    if done.returncode:
        raise Unavailable(" ".join(done.stderr.split()[-60:]))
    return Path(done.stdout.strip().splitlines()[-1])


def find_java() -> Path:
    need("java", "the real servers, mqadmin and the Java client run on a JDK 17 or newer")
    return java_setup("--check")


def install_java() -> Path:
    return java_setup()


def go_program(name: str, sources: str) -> Path:
    """Where the program of our own with a Go client is built: its name changes with its sources."""
    digest = hashlib.sha256()
    for file in ("go.mod", "go.sum", "main.go"):
        digest.update((HERE / sources / file).read_bytes())
    return peers_home() / name / f"{name}-smoke-{digest.hexdigest()[:16]}"


def find_go(name: str, sources: str) -> Path:
    smoke = go_program(name, sources)
    if not smoke.is_file():
        need("go", "builds the smokes with the Go clients")
        raise Unavailable(f"the smoke of {name} is not built")
    return smoke


def install_go(name: str, sources: str) -> Path:
    need("go", "builds the smokes with the Go clients")
    smoke = go_program(name, sources)
    with one_at_a_time(smoke.parent):
        part = smoke.with_suffix(".part")
        run(["go", "build", "-o", str(part), "."], HERE / sources, GOFLAGS="-buildvcs=false")
        part.replace(smoke)
    return smoke


def find_npm_package(name: str, package: str) -> Path:
    need("node", "runs the JavaScript clients")
    folder = peers_home() / name
    if not is_current(folder, package):
        raise Unavailable(f"the npm package {package} is not installed")
    return folder / "node_modules"


def install_npm_package(name: str, package: str) -> Path:
    need("node", "runs the JavaScript clients")
    need("npm", "installs the JavaScript clients")
    folder = peers_home() / name
    with one_at_a_time(folder):
        (folder / ".complete").unlink(missing_ok=True)
        (folder / "package.json").write_text(json.dumps({"name": "understudy-peer", "private": True}))
        run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", package],
            folder,
            npm_config_cache=str(peers_home() / "npm-cache"),
        )
        (folder / ".complete").write_text(package)
    return folder / "node_modules"


def find_pypi_package(name: str, package: str) -> Path:
    folder = peers_home() / name
    if not is_current(folder, package):
        raise Unavailable(f"the PyPI package {package} is not installed")
    return folder / "bin" / "python"


def install_pypi_package(name: str, package: str, module: str) -> Path:
    """Installs into a virtual environment of its own: two of these clients are imported by the same name."""
    folder = peers_home() / name
    python = folder / "bin" / "python"
    with one_at_a_time(folder):
        (folder / ".complete").unlink(missing_ok=True)
        run([sys.executable, "-m", "venv", "--clear", str(folder)], folder.parent)
        run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package], folder)
        run([str(python), "-c", f"import {module}"], folder)
        (folder / ".complete").write_text(package)
    return python


def find_grpc_java() -> Path:
    need("java", "runs the gRPC client for Java")
    folder = peers_home() / "grpc-java"
    if not is_current(folder, GRPC_JAVA_CLIENT):
        raise Unavailable(f"{GRPC_JAVA_CLIENT} is not installed")
    return next(folder.glob("*.jar"))


def install_grpc_java() -> Path:
    need("java", "runs the gRPC client for Java")
    need("mvn", "resolves it")
    folder = peers_home() / "grpc-java"
    with one_at_a_time(folder):
        (folder / ".complete").unlink(missing_ok=True)
        command = ["mvn", "-q", "-B", "-Dstyle.color=never", "dependency:copy", f"-Dartifact={GRPC_JAVA_CLIENT}"]
        run([*command, f"-DoutputDirectory={folder}"], folder)
        (folder / ".complete").write_text(GRPC_JAVA_CLIENT)
    return next(folder.glob("*.jar"))


PEERS: dict[str, tuple[Callable[[], Path], Callable[[], Path]]] = {
    "java": (find_java, install_java),
    "go": (partial(find_go, "go", "go"), partial(install_go, "go", "go")),
    "cpp": (
        partial(find_pypi_package, "cpp", CPP_CLIENT),
        partial(install_pypi_package, "cpp", CPP_CLIENT, "rocketmq.client"),
    ),
    "node": (partial(find_npm_package, "node", NODE_CLIENT), partial(install_npm_package, "node", NODE_CLIENT)),
    "grpc-python": (
        partial(find_pypi_package, "grpc-python", GRPC_PYTHON_CLIENT),
        partial(install_pypi_package, "grpc-python", GRPC_PYTHON_CLIENT, "rocketmq"),
    ),
    "grpc-go": (partial(find_go, "grpc-go", "go_grpc"), partial(install_go, "grpc-go", "go_grpc")),
    "grpc-java": (find_grpc_java, install_grpc_java),
    "grpc-node": (
        partial(find_npm_package, "grpc-node", GRPC_NODE_CLIENT),
        partial(install_npm_package, "grpc-node", GRPC_NODE_CLIENT),
    ),
}


def find(name: str) -> Peer:
    """Says whether a peer is installed, without installing it."""
    try:
        return Peer(name, PEERS[name][0]())
    except (Unavailable, OSError, subprocess.TimeoutExpired) as error:
        return Peer(name, None, f"{error} (`./understudy test` installs what it can)")


def install(name: str) -> Peer:
    """Installs a peer unless it is there; on failure the reason says what is missing."""
    try:
        place = PEERS[name][0]()
        # Jars are enough for its tests; archives of classes, which an older installation lacks, make them quicker.
        return Peer(name, java_setup() if name == "java" else place)
    except (Unavailable, OSError, subprocess.TimeoutExpired):
        pass  # not there yet, which is what this function is for
    try:
        return Peer(name, PEERS[name][1]())
    except (Unavailable, OSError, subprocess.TimeoutExpired) as error:
        return Peer(name, None, str(error))
