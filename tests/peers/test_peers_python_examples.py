"""The examples for other Python clients: a cluster of the plugin inside a test, and no Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peers,
    pytest.mark.skipif(sys.platform != "linux", reason="the packages hold libraries for Linux only"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("peer", "example"), [("cpp", "test_cpp_client.py"), ("grpc-python", "test_grpc_client.py")])
def test_an_example_for_another_client_passes(
    peer: str, example: str, place_of_peer: Callable[[str], Path], tmp_path: Path
) -> None:
    where = [str(place_of_peer(peer)), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    packages = subprocess.run(where, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    shutil.copy(EXAMPLES / example, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": packages, "HOME": str(tmp_path)},  # where these clients write their logs
    )  # fmt: skip
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
