"""Imports of a program that are done sooner: what each start would work out anew is kept, or known.

A server's start is imports, and two things in them are the same each time:

* attrs writes the methods of each class as text, and compiles it: a quarter of the start of a broker, which has 280 of
  them. What was compiled is kept beside what Python keeps of the modules themselves, in ``__pycache__``.
* trio looks for the system's library of threads, and has another program list all libraries for that. Where the system
  has the GNU C library, the name is known.

Neither attrs nor trio has a setting for that, so what they call is another function while a program imports. With a
version that calls something else, or a folder that cannot be written, imports take as long as they take.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import gc
import hashlib
import importlib.util
import marshal
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType

from attr import _make

_COMPILES = "_compile_and_eval"
_ITS_ARGUMENTS = ("script", "globs", "locs", "filename")
_FINDS = "find_library"
_CHECKSUM_BYTES = 4
_SALT = re.compile(r"(hash\(\(\s+)-?\d+,")
"""A number that attrs has all hashes of one class begin with: another one in each process, and any will do."""


@contextmanager
def quick_imports(program: str, folder: str | None = None) -> Iterator[None]:
    """Have what is imported inside the block done sooner. Blocking.

    Args:
        program: whose imports these are; each keeps what is its own.
        folder: where it is kept; by default where Python keeps this module.
    """
    folder = folder or os.path.dirname(importlib.util.cache_from_source(__file__))
    path = os.path.join(folder, f"{program}.{sys.implementation.cache_tag}.methods")
    with kept_methods(path), known_threads():
        yield


@contextmanager
def no_looks_for_garbage() -> Iterator[None]:
    """Have nobody look for garbage inside the block, for programs to whom a little memory is worth a sooner start."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


# --- compiled methods ------------------------------------------------------------------------------------------------


@contextmanager
def kept_methods(path: str) -> Iterator[bool]:
    """Have classes that attrs makes inside the block take their methods from a file, and write it when it lacks some.

    Args:
        path: the file. One that is damaged, or of another version of Python, counts as empty.

    Yields:
        Whether this version of attrs can be helped.
    """
    module = vars(_make)
    usual = module.get(_COMPILES)
    if usual is None or usual.__code__.co_varnames[: usual.__code__.co_argcount] != _ITS_ARGUMENTS:
        yield False
        return
    kept, used = read_methods(path), dict[bytes, bytes]()

    def compile_and_eval(
        script: str, globs: dict[str, object] | None, locs: Mapping[str, object] | None = None, filename: str = ""
    ) -> None:
        key = hashlib.sha256(_SALT.sub(r"\1", f"{filename}\0{script}").encode()).digest()
        compiled = kept.get(key)
        if compiled is None:
            compiled = marshal.dumps(compile(script, filename, "exec"))
        used[key] = compiled
        code: CodeType = marshal.loads(compiled)
        eval(code, globs, locs)

    module[_COMPILES] = compile_and_eval
    try:
        yield True
    finally:
        module[_COMPILES] = usual
    if used.keys() != kept.keys() and not sys.dont_write_bytecode:
        write_methods(path, used)


def read_methods(path: str) -> dict[bytes, bytes]:
    """Return what a file keeps, compiled methods by what they were compiled of; nothing when it cannot be used."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return {}
    magic = importlib.util.MAGIC_NUMBER
    begin = len(magic) + _CHECKSUM_BYTES
    kept = content[begin:]
    if content[:begin] != magic + _checksum(kept):
        return {}
    methods: dict[bytes, bytes] = marshal.loads(kept)
    return methods


def write_methods(path: str, methods: Mapping[bytes, bytes]) -> None:
    """Keep *methods* in a file, whole or not at all; a folder that takes none is left as it is."""
    content = marshal.dumps(dict(methods))
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + _checksum(content) + content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


# --- the library of threads ------------------------------------------------------------------------------------------


@contextmanager
def known_threads() -> Iterator[None]:
    """Have whoever asks inside the block for the library of threads told its name, where it is known."""
    module = vars(ctypes.util)
    usual: Callable[[str], str | None] = module[_FINDS]

    def find_library(name: str) -> str | None:
        return "libpthread.so.0" if name == "pthread" else usual(name)

    if has_gnu_library():
        module[_FINDS] = find_library
    try:
        yield
    finally:
        module[_FINDS] = usual


def has_gnu_library() -> bool:
    """Return whether the system has the GNU C library."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):  # asked on another system
        return False
