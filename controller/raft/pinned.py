"""pysyncobj, accepted only with the sources whose internals were audited, in an instance of our own.

The core is driven through name-mangled internals, so another version is not "probably fine": it is refused at import.

Clock and pickle of its module are replaced. So its modules are loaded once more, under names of ours: a program that
embeds a controller and uses pysyncobj itself has the library as it is.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

VERSION = "0.3.17"
SOURCE_SHA256 = {
    "syncobj.py": "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    "config.py": "fbbc7ff9f18e4d15a7fd563376e42f5bd192956879d4b810b056d5248b955698",
    "fast_queue.py": "8477fe5fdf36d9766df933310d3d66ee953d1afc195b1e6482b3a1498fc517bd",
    "journal.py": "9cf1eaf6acc704581a4cf7d3de330a404403913107adc91c929778b7e3f35edf",
    "node.py": "e4a3f027cd8291f558334bb9c977e952f6b6989e7e1fa1588d3005ef0b990e2c",
    "transport.py": "0c9d89f9c4781ec9772df8011d7975a1a4a1a5f541357e12eae85a813e92b50b",
}


class ConsensusLibraryError(ImportError):
    """The installed pysyncobj is not the audited one; the message says what is installed and what to do."""


def check_sources(folder: Path, expected: dict[str, str]) -> None:
    """Compare the library's files with their audited digests.

    Raises:
        ConsensusLibraryError: naming the first file that differs.
    """
    for name, digest in expected.items():
        path = folder / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
        if found != digest:
            raise ConsensusLibraryError(
                f"pysyncobj file {path} is not the audited one of {VERSION} (sha256 {found[:16]}, expected "
                f"{digest[:16]}); run: pip install --force-reinstall pysyncobj=={VERSION}"
            )


def _folder() -> Path:
    spec = importlib.util.find_spec("pysyncobj")
    if spec is None or not spec.submodule_search_locations:
        raise ConsensusLibraryError(f"pysyncobj is not installed; run: pip install pysyncobj=={VERSION}")
    return Path(spec.submodule_search_locations[0])


def _own_instance(folder: Path) -> str:
    """Make a package of our own of the library's folder, without its ``__init__``; return its name."""
    name = f"{__package__}.pysyncobj"
    package = ModuleType(name, "Modules of pysyncobj that belong to the quorum alone.")
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    return name


check_sources(_folder(), SOURCE_SHA256)
_name = _own_instance(_folder())
_syncobj: Any = importlib.import_module(f"{_name}.syncobj")
_config: Any = importlib.import_module(f"{_name}.config")
_journal: Any = importlib.import_module(f"{_name}.journal")
_node: Any = importlib.import_module(f"{_name}.node")
_transport: Any = importlib.import_module(f"{_name}.transport")


class _Refused:
    """Stands where the library would unpickle or pickle something."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"pickle.{name} is never used by this quorum")


class TurnClock:
    """The time the core sees: set once per turn, so that a turn is a function of its inputs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# The library reads a module-global clock; every entry into a core sets it first.
turn_clock = TurnClock()
_syncobj.monotonicTime = turn_clock
_syncobj.pickle = _Refused()

SyncObj: Any = _syncobj.SyncObj
SyncObjConf: Any = _syncobj.SyncObjConf
FailReason: Any = _config.FAIL_REASON
SerializerState: Any = _config.SERIALIZER_STATE
Journal: Any = _journal.Journal
Node: Any = _node.Node
Transport: Any = _transport.Transport
