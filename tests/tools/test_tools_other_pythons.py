"""The wheel on every Python that the project file names and that can be had, with what it depends on from the registry.

Those of this machine are taken; one that it does not have comes from Debian's packages, where there are such.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import debian_python
import pytest
from wheel_rig import LIMIT_S, ROOT, SHORT_DRILL, build_wheel, run

pytestmark = pytest.mark.slow
NAMED = re.findall(
    r"Python :: (3\.\d+)$",
    "\n".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]),
    re.MULTILINE,
)


def interpreter(version: str) -> Path | None:
    """Return a Python of this version, on the path or among those of pyenv."""
    roots = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")]
    found = shutil.which(f"python{version}")
    if found:
        path = Path(found)
        if path.parent.name != "shims":
            return path
        roots.insert(0, path.parents[1])  # a shim starts only versions that are switched on
    return next((path for root in roots for path in sorted(root.glob(f"versions/{version}.*/bin/python3"))), None)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def debian_folder() -> Iterator[Path]:
    """Where a Python of Debian's is unpacked, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="understudy-python-") as folder:
        yield Path(folder) / "python"


def python_of_debian(version: str, folder: Path) -> Path:
    """Return it; skips the test when it cannot be had."""
    if shutil.which("apt-get") is None:
        pytest.skip(f"there is no Python {version} here, and no apt")
    try:
        return debian_python.make(version, folder)
    except SystemExit as error:
        pytest.skip(f"there is no Python {version} here, and Debian's cannot be had: {str(error)[-200:]}")


@pytest.mark.parametrize("version", [each for each in NAMED if each != platform.python_version().rpartition(".")[0]])
def test_a_failover_and_a_cluster_in_a_test_are_played_on_it(
    version: str, wheel: Path, tmp_path: Path, debian_folder: Path
) -> None:
    python = interpreter(version) or python_of_debian(version, debian_folder)
    programs = tmp_path / "venv" / "bin"
    run(python, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    # With the caller's settings, which say where packages come from; but not with what lies on the caller's path.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[pytest]"]
    done = subprocess.run(
        install, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, env=settings
    )
    if done.returncode and "connection broken" in done.stdout:
        pytest.skip("the registry of packages cannot be reached")
    assert done.returncode == 0, done.stdout
    assert run(programs / "python", "--version", cwd=tmp_path).startswith(f"Python {version}.")
    assert ": ok" in run(programs / "understudy", *SHORT_DRILL, cwd=tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    played = [tmp_path / "examples" / f"test_{name}.py" for name in ("web_service", "invoice_service")]
    strict = ["-W", "error", "-p", "no:cacheprovider", "-q", "-k", "web or 0"]  # one seed of the invoices
    assert "2 passed" in run(programs / "python", "-m", "pytest", *strict, *played, cwd=tmp_path)
