"""What a server imports is most of its start: nothing big comes in that it does not need to serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.testkit.port_blocks import PortBlocks

NEVER = {
    "asyncio",
    "concurrent",
    "email",
    "http",
    "hypothesis",
    "lz4",
    "multiprocessing",
    "numpy",
    "pandas",
    "pyarrow",
    "pytest",
    "rich",
    "xml",
    "zstandard",
    "understudy.mqadmin",
    "understudy.spark_tools",
    "understudy.testkit",
}
BROKER = {"understudy.broker", "understudy.container", "understudy.ha", "understudy.mqclient", "understudy.store"}
FAILOVER = {"understudy.container.escape.bridge", "understudy.container.preonline.service", "understudy.mqclient"}
OF_A_SLAVE = {"understudy.ha.slave"}
OF_SOME = {"understudy.broker.switch_replication", "understudy.ha.switch", "understudy.security.authority"}
"""Where controllers lead a broker, or its users sign."""
CONTROLLER = {"pysyncobj", "understudy.controller", "understudy.namesrv"}
LIBRARIES = {
    "_cffi_backend",  # with trio, where it is installed
    "attr",
    "attrs",
    "cattrs",
    "idna",
    "msgspec",
    "outcome",
    "sniffio",
    "sortedcontainers",
    "trio",
    "typing_extensions",  # with cattrs
    "understudy",
}
WITH_RAFT = {"pysyncobj", "cryptography", "_openssl"}  # pysyncobj takes the latter two where they are installed
OF_THE_MACHINE = {"__main__", "_distutils_hack", "sitecustomize", "usercustomize"}


def modules_of_a_life(program: str, settings: Path) -> set[str]:
    """Return all that a server has imported when it ends after it has served."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, sep='\\n'))\n"
        f"from {program} import main\n"
        "sys.exit(main(['-c', sys.argv[1]]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(settings.parent), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "boot success" in line:
            process.send_signal(signal.SIGTERM)
        loaded, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert "boot success" in line, errors
    assert process.returncode == 0, errors
    return set(loaded.split())


def settings_of(program: str, folder: Path, blocks: PortBlocks) -> str:
    ports = blocks.middles(3)
    match program.rpartition(".")[2]:
        case "mqbroker":
            return f"listenPort={ports[2]}\nhaListenPort={ports[0]}\nstorePathRootDir={folder / 'store'}\n"
        case "mqbrokercontainer":
            return f"listenPort={ports[2]}\n"
    if "controller" in program:
        return (
            f"controllerDLegerPeers=n0-127.0.0.1:{ports[0]}\ncontrollerDLegerSelfId=n0\n"
            f"controllerRaftPeers=n0-127.0.0.1:{ports[1]}\ncontrollerStorePath={folder / 'controller'}\n"
        )
    return f"listenPort={ports[0]}\n"


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("understudy.programs.mqnamesrv", NEVER | BROKER | {"json", "pysyncobj", "understudy.controller"}),
        ("understudy.programs.mqcontroller", NEVER | BROKER | {"understudy.namesrv.server"}),
        ("understudy.programs.mqbroker", NEVER | CONTROLLER | FAILOVER | OF_A_SLAVE | OF_SOME | {"json"}),
        ("understudy.programs.mqbrokercontainer", NEVER | CONTROLLER | FAILOVER | OF_A_SLAVE | OF_SOME | {"json"}),
    ],
)
def test_a_server_imports_nothing_big_that_it_does_not_need(
    program: str, unneeded: set[str], tmp_path: Path, port_blocks: PortBlocks
) -> None:
    # given a server on its own settings
    settings = tmp_path / "server.conf"
    settings.write_text(settings_of(program, tmp_path, port_blocks))
    # when it has started, served and stopped
    loaded = modules_of_a_life(program, settings)
    # then none of these came with it, and no library that is not known to be needed
    assert set() == loaded & unneeded
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - OF_THE_MACHINE
    assert foreign <= LIBRARIES | (WITH_RAFT if "controller" in program else set()), foreign - LIBRARIES


def test_a_name_server_listens_before_it_imports_what_answers() -> None:
    # given a fresh interpreter; when it imports the program
    code = "import sys, understudy.programs.mqnamesrv; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    # then next to nothing came with it
    assert set() == loaded & {"attrs", "cattrs", "inspect", "logging", "msgspec", "ssl", "subprocess", "trio"}
