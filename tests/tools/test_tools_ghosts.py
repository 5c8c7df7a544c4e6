"""Nothing of the package is there for tests alone, and a ghost would be found."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Mapping

import pytest
from ghosts import ROOT, Named, Uses, defined, ghosts

from understudy.broker.inert_keys import INERT
from understudy.container.config import _INERT
from understudy.controller.file_warnings import NO_EFFECT as INERT_FOR_CONTROLLERS
from understudy.namesrv.config import NO_EFFECT as INERT_FOR_NAME_SERVERS
from understudy.runtime.configuration import fields_of

CALLED_BY_LIBRARIES = {"SyncObj", "JournalInterface", "H2Connection", "trio.abc.Instrument", "trio.abc.Stream"} | {
    "logging.Handler",
    "fs.FileSystemHandler",
    "io.RawIOBase",
}
"""Bases outside the package, which call what their children override."""
INERT_KEYS: Mapping[str, Mapping[str, str]] = {
    "understudy.broker.inert_settings": INERT,
    "understudy.container.config": _INERT,
    "understudy.controller.configuration": INERT_FOR_CONTROLLERS,
    "understudy.namesrv.config": INERT_FOR_NAME_SERVERS,
    "understudy.remoting.netty_config": INERT,
}
"""Settings that are accepted and say that they have no effect."""
ALLOWED = {
    # whole by nature
    "understudy.remoting.access:MESSAGING": "every request code has a class, and a test compares",
    "understudy.remoting.access:CALLS_TO_CLIENTS": "every request code has a class, and a test compares",
    "understudy.security.settings:_Keys.*": "names and types of keys, which are read by their names",
    "understudy.spark_tools.kernels.progress:Checkpoint.*": "fields of a file of the store",
    "understudy.spark_tools.kernels.progress:TimerCheck.*": "fields of a file of the store",
    "understudy.controller.election:Live.confirm_offset_bytes": "a field of an entry of the quorum's log",
    # called from outside
    "understudy.controller.raft.snapshot:SnapshotStore.*": "pysyncobj calls it as its serializer",
    "understudy.spark_tools.job_commands:verify_replicas": "a command, found by its name with another hyphen",
    "understudy.testkit.bench.micro:main": "a benchmark, found by its name",
    "understudy.testkit.pytest_plugin:pytest_addoption": "pytest calls it",
    "understudy.testkit.sim.mutations:in_copy": "named in the program that another process is given",
    # what a running server says of itself, without a door of its own
    "understudy.controller.raft.links:LinkCounters.rejected_connections": "who was turned away",
    "understudy.store.message_store:MessageStore.writable": "whether appends are taken",
    "understudy.store.timer_files:Opened.anew": "whether the timer log began anew",
}
"""Names that nothing of the package uses, and why they are there."""


def public_modules() -> set[str]:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(understudy\.[\w.]+)` \|", text, re.MULTILINE))


def is_inert(name: Named) -> bool:
    """Whether *name* is a setting that has no effect, and says so."""
    inert = INERT_KEYS.get(name.module)
    if inert is None:
        return False
    keys = fields_of(getattr(importlib.import_module(name.module), name.owner))
    return any(field.name == name.name and key in inert for key, field in keys.items())


def test_nothing_is_there_for_tests_alone() -> None:
    public, used, left = public_modules(), set[str](), list[str]()
    assert {"understudy.mqclient.api", "understudy.testkit.sim.cluster"} <= public
    for name in ghosts():
        text = str(name)
        allowed = next((each for each in (text, f"{name.module}:{name.owner}.*") if each in ALLOWED), None)
        if allowed is not None:
            used.add(allowed)
        elif name.module not in public and not CALLED_BY_LIBRARIES & set(name.bases) and not is_inert(name):
            left.append(text)
    assert [] == left
    assert ALLOWED.keys() == used, "take what is no ghost any more out of ALLOWED"


@pytest.mark.parametrize(
    ("source", "elsewhere", "found"),
    [
        ("def lost():\n    return lost()", "", ["lost"]),
        ("def used():\n    return 1\n\n\nWHAT = used()", "from m import WHAT", []),
        ("def imported():\n    pass", "from m import imported", []),
        ("def asked():\n    pass", "import m\nm.asked()", []),
        ("def same_name():\n    pass", "from other import same_name", ["same_name"]),
        ("def named():\n    '''See named.'''", "getattr(m, 'm.named')", []),
        ("LIMIT = 3", "other.LIMIT", ["LIMIT"]),
        ("@command('x')\ndef taken():\n    pass", "", []),
        ("@contextmanager\ndef plain():\n    yield", "", ["plain"]),
        ("class A:\n    def lost(self):\n        self.lost()", "from m import A", ["A.lost"]),
        ("class A:\n    field: int\n    other: int = 1", "from m import A\nA().field", ["A.other"]),
        ("class A:\n    def __enter__(self):\n        pass", "from m import A", []),
    ],
)
def test_a_ghost_is_found_and_what_is_used_is_not(source: str, elsewhere: str, found: list[str]) -> None:
    uses, tree = Uses(), ast.parse(source)
    uses.read("m", tree)
    uses.read("n", ast.parse(elsewhere))
    assert found == [str(each).partition(":")[2] for each in defined("m", tree) if not uses.uses(each)]
