"""What a server imports is most of its start: nothing big comes in that it does not need to serve."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEVER = {
    "asyncio",
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


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("understudy.namesrv.main", NEVER | BROKER | {"json", "pysyncobj", "understudy.controller"}),
        ("understudy.controller.main", NEVER | BROKER | {"understudy.namesrv.server"}),
        ("understudy.container.mqbroker", NEVER | {"pysyncobj", "understudy.controller", "understudy.namesrv"}),
        (
            "understudy.container.mqbrokercontainer",
            NEVER | {"pysyncobj", "understudy.controller", "understudy.namesrv"},
        ),
    ],
)
def test_a_server_imports_nothing_big_that_it_does_not_need(program: str, unneeded: set[str]) -> None:
    # given a fresh interpreter; when it imports the program
    code = f"import sys, {program}; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    # then none of these came with it
    assert set() == loaded & unneeded
