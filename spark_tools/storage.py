"""Where store files lie and how a part of one is read: local paths mapped, `hdfs:` and `s3a:` paths by ranges.

Local files are never read as a whole: only the asked range is mapped, so that a task's memory does not grow with the
size of its file. Other schemes go through Arrow's file systems, HDFS by way of hdfs-native; every executor needs them.

In `file:` URIs names are percent-encoded, as in every URI. Elsewhere a path is what stands there, as Hadoop and S3 have
it: names of topics such as `%RETRY%group` are no encoding of anything.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlparse


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One file of a directory."""

    name: str
    path: str
    size_bytes: int
    modified_ns: int


def local_path(path: str) -> str | None:
    """The path on this machine, None when `path` is on another file system."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    return None if len(parts.scheme) > 1 else path


def remote(path: str) -> tuple[Any, str]:
    """Arrow's file system for a URI, and the path in it.

    Raises:
        OSError: in one line, also where a package is missing.
    """
    from pyarrow import fs

    scheme, _, rest = path.partition(":")
    authority, _, inner = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
    inner = inner.rstrip("/")
    if scheme in ("hdfs", "viewfs"):
        try:
            from understudy.spark_tools import hdfs

            return hdfs.connect(scheme, authority), f"/{inner}"
        except ModuleNotFoundError as error:
            package = (error.name or "").replace("_", "-")
            raise OSError(
                f"{path}: {package} missing: install the extra with: pip install 'understudy[hdfs]'"
            ) from None
    if scheme in ("s3a", "s3n"):
        scheme = "s3"
    try:
        system, base = fs.FileSystem.from_uri(f"{scheme}://{authority}")
    except OSError as error:
        raise OSError(f"{path}: {str(error).splitlines()[0]}") from None
    return system, join(base, inner) if inner else base


def join(path: str, *names: str) -> str:
    """A path below another one, for local paths and URIs alike."""
    if path.startswith("file:"):
        names = tuple(quote(name) for name in names)
    return "/".join([path.rstrip("/"), *names])


def list_directory(path: str) -> tuple[list[Entry], list[str]]:
    """Files (sorted by name) and names of the directories in `path`; both empty when it does not exist."""
    local = local_path(path)
    files: list[Entry] = []
    directories: list[str] = []
    if local is not None:
        if not os.path.isdir(local):
            return files, directories
        with os.scandir(local) as entries:
            for entry in entries:
                if entry.is_dir():
                    directories.append(entry.name)
                else:
                    status = entry.stat()
                    files.append(Entry(entry.name, join(path, entry.name), status.st_size, status.st_mtime_ns))
    else:
        from pyarrow import fs

        system, inner = remote(path)
        for info in system.get_file_info(fs.FileSelector(inner, allow_not_found=True)):
            if info.type == fs.FileType.Directory:
                directories.append(info.base_name)
            else:
                files.append(Entry(info.base_name, join(path, info.base_name), info.size, info.mtime_ns or 0))
    return sorted(files), sorted(directories)


def read_file(path: str, limit_bytes: int | None = None) -> bytes:
    """The file's bytes, at most `limit_bytes` of them.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: of the file system.
    """
    local = local_path(path)
    if local is not None:
        with open(local, "rb") as file:
            return file.read() if limit_bytes is None else file.read(limit_bytes)
    system, inner = remote(path)
    with system.open_input_stream(inner) as stream:
        return bytes(stream.read() if limit_bytes is None else stream.read(limit_bytes))


@contextmanager
def open_file(path: str) -> Iterator[Any]:
    """A file to read from at any position, wherever it lies.

    Raises:
        OSError: of the file system.
    """
    local = local_path(path)
    if local is not None:
        with open(local, "rb") as file:
            yield file
        return
    system, inner = remote(path)
    with system.open_input_file(inner) as stream:
        yield stream


def empty_directory(path: str) -> None:
    """Makes a directory, or removes the files of one that is there."""
    local = local_path(path)
    if local is not None:
        os.makedirs(local, exist_ok=True)
        for entry in list(os.scandir(local)):
            if entry.is_file():
                os.unlink(entry.path)
        return
    from pyarrow import fs

    system, inner = remote(path)
    if system.get_file_info(inner).type == fs.FileType.Directory:
        system.delete_dir_contents(inner)
    else:
        system.create_dir(inner, recursive=True)


@contextmanager
def new_file(path: str) -> Iterator[Any]:
    """A file to write to that bears its name only once it is whole; it replaces one of that name.

    A name with an underscore in front is what readers of Parquet directories pass over.
    """
    local = local_path(path)
    folder, _, name = (local or path).rpartition("/")
    if local is not None:
        temporary = f"{folder}/_{name}.{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                yield file
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        os.replace(temporary, local)
        return
    system, inner = remote(path)
    temporary = f"{inner.rpartition('/')[0]}/_{name}.{os.getpid()}"
    try:
        # closing publishes what was written, on S3 too, also when an error ends it
        with system.open_output_stream(temporary) as stream:
            yield stream
    except BaseException:
        with suppress(OSError):  # the error that ended it is the one to tell
            system.delete_file(temporary)
        raise
    system.move(temporary, inner)


def map_range(path: str, start: int, length: int) -> tuple[Any, int]:
    """A range of a file and the position its first byte has in the file (local maps begin at a page border).

    Resources: a local range is a memory map that goes away with the last reference to it.
    """
    local = local_path(path)
    if local is None:
        system, inner = remote(path)
        with system.open_input_file(inner) as file:
            size = file.size()
            wanted = min(length, size - start)
            return bytes(file.read_at(wanted, start)) if wanted > 0 else b"", start
    with open(local, "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        begin = start - start % mmap.ALLOCATIONGRANULARITY
        wanted = min(start + length, size) - begin
        if wanted <= 0:
            return b"", begin
        return mmap.mmap(handle.fileno(), wanted, offset=begin, access=mmap.ACCESS_READ), begin


def data_end(path: str, size_bytes: int) -> int:
    """Position after the last byte that was ever written; a preallocated file's untouched end is a hole.

    Returns `size_bytes` where the file system cannot tell.
    """
    local = local_path(path)
    if local is None or not hasattr(os, "SEEK_DATA"):
        return size_bytes
    end = 0
    with open(local, "rb") as handle:
        try:
            while end < size_bytes:
                end = os.lseek(handle.fileno(), os.lseek(handle.fileno(), end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return end
            return size_bytes
    return min(end, size_bytes)
