"""HDFS as one of Arrow's file systems, by the package hdfs-native: no JVM and no libhdfs.

Name services, Kerberos and the like come from the Hadoop configuration in HADOOP_CONF_DIR, or else below HADOOP_HOME.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyarrow import PythonFile, fs

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus, FileWriter

# an address that refuses is told after some ten seconds; the client's own 15 attempts take minutes
CONNECT_ATTEMPTS = 3
REMOTE_EXCEPTION = re.compile(r'RPCError\("(?:[\w$]+\.)*([\w$]+)", "(.*)')

# A client belongs to the process that made it: its threads do not live on in a fork.
_systems: dict[tuple[int, str, str], fs.FileSystem] = {}


def connect(scheme: str, authority: str) -> fs.FileSystem:
    """This process's file system for `hdfs://authority` or `viewfs://authority`; the default one without an authority.

    Raises:
        ModuleNotFoundError: without the package hdfs-native.
        OSError: in one line, when the address has no meaning.
    """
    from hdfs_native import Client

    key = (os.getpid(), scheme, authority)
    if key not in _systems:
        with _told(f"{scheme}://{authority}"):
            settings = {}
            if ":" in authority:  # one name node; where there are several, their configuration says how to go on
                settings["dfs.client.failover.max.attempts"] = str(CONNECT_ATTEMPTS)
            client = Client(f"{scheme}://{authority}", settings)
        _systems[key] = fs.PyFileSystem(HdfsHandler(client, scheme, authority))
    return _systems[key]


@contextmanager
def _told(place: str) -> Iterator[None]:
    """Makes every error of the client an OSError of one line; its own ones bring a Java stack trace along."""
    try:
        yield
    except OSError as error:
        raise type(error)(f"{place}: {str(error).splitlines()[0]}") from None
    except RuntimeError as error:
        line = str(error).replace("\\n", "\n").splitlines()[0]
        found = REMOTE_EXCEPTION.match(line)
        reason = f"{found[1]}: {found[2]}".replace('\\"', '"') if found else line
        raise OSError(f"{place}: {reason}") from None


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """What Arrow asks of a file system, answered by a client of HDFS; renaming replaces a file in one step."""

    def __init__(self, client: Client, scheme: str, authority: str) -> None:
        self._client = client
        self._scheme = scheme
        self._root = f"{scheme}://{authority}"

    def get_type_name(self) -> str:
        return self._scheme

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        found = []
        for path in paths:
            try:
                with self._told(path):
                    found.append(_file_info(self._client.get_file_info(path)))
            except FileNotFoundError:
                found.append(fs.FileInfo(path, fs.FileType.NotFound))
        return found

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        base = selector.base_dir
        try:
            with self._told(base):
                found = [_file_info(status) for status in self._client.list_status(base, selector.recursive)]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if [item.path for item in found] == [base]:  # a file is listed as itself
            raise NotADirectoryError(f"{self._root}{base}: not a directory")
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        with self._told(path):
            self._client.mkdirs(path, create_parent=recursive)

    def delete_dir(self, path: str) -> None:
        self._delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:
        for item in self.get_file_info_selector(fs.FileSelector(path, allow_not_found=missing_dir_ok)):
            self.delete_dir(item.path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("/", False)

    def delete_file(self, path: str) -> None:
        self._delete(path, recursive=False)

    def move(self, source: str, target: str) -> None:
        with self._told(source):
            self._client.rename(source, target, overwrite=True)

    def copy_file(self, source: str, target: str) -> None:
        with self.open_input_stream(source) as reader, self.open_output_stream(target, None) as writer:
            while piece := reader.read(1 << 20):
                writer.write(piece)

    def open_input_stream(self, path: str) -> PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> PythonFile:
        with self._told(path):
            return PythonFile(_Reader(self._client.read(path), self._root + path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> PythonFile:
        from hdfs_native import WriteOptions

        with self._told(path):
            return PythonFile(_Writer(self._client.create(path, WriteOptions(overwrite=True)), self._root + path), "w")

    def open_append_stream(self, path: str, metadata: Any) -> PythonFile:
        with self._told(path):
            return PythonFile(_Writer(self._client.append(path), self._root + path), mode="w")

    def _told(self, path: str) -> Any:
        return _told(self._root + path)

    def _delete(self, path: str, recursive: bool) -> None:
        with self._told(path):
            if not self._client.delete(path, recursive):
                raise FileNotFoundError("not found")


def _file_info(status: FileStatus) -> fs.FileInfo:
    if status.isdir:
        return fs.FileInfo(status.path, fs.FileType.Directory, mtime_ns=status.modification_time * 1_000_000)
    return fs.FileInfo(status.path, fs.FileType.File, size=status.length, mtime_ns=status.modification_time * 1_000_000)


class _Reader(io.RawIOBase):
    """A file read from wherever it is asked; the client itself ends the thread when asked for more than there is."""

    def __init__(self, file: FileReader, place: str) -> None:
        self._file = file
        self._place = place
        self._size_bytes = len(file)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size_bytes - self._position)
        with _told(self._place):
            data: bytes = self._file.read_range(self._position, left if size < 0 else min(size, left)) if left else b""
        self._position += len(data)
        return data


class _Writer(io.RawIOBase):
    """A file that is written once, from its begin to its end."""

    def __init__(self, file: FileWriter, place: str) -> None:
        self._file = file
        self._place = place

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with _told(self._place):
            written: int = self._file.write(data)
        return written

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _told(self._place):
                self._file.close()
