"""What is in a store directory, by name and size only: files of the log, queues, indexes and tables, and what is odd.

Nothing here reads a file's contents, so the layout of a store of any size is known after a few directory listings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from understudy.spark_tools.kernels.damage import WARNING, Damage
from understudy.spark_tools.storage import Entry, join, list_directory
from understudy.spark_tools.unread import rocksdb_parts

_NOT_LOGS = {
    "consumequeue",
    "batchconsumequeue",
    "consumequeue_ext",
    "index",
    "config",
    "timerlog",
    "compaction",
    "rocksdbstore",
}
TABLES = (
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "topics.json",
    "subscriptionGroup.json",
    "delayOffset.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "messageRequestMode.json",
    "topicQueueMapping.json",
)


@dataclass(frozen=True, slots=True)
class Store:
    """A store as named on the command line: `name=path`, or `set/name=path` for one of several replica sets."""

    name: str
    path: str

    @property
    def replica_set(self) -> str:
        """Name of the broker (the set of replicas that hold the same log)."""
        return self.name.rpartition("/")[0] or "default"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a file queue, named by the byte offset it starts at."""

    path: str
    start_offset: int
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Queue:
    """Files of one queue of one topic."""

    topic: str
    queue_id: int
    batched: bool
    files: tuple[LogFile, ...]


@dataclass(slots=True)
class Layout:
    """Everything found in one store directory."""

    store: Store
    commit_log: list[LogFile] = field(default_factory=list)
    indexes: list[Entry] = field(default_factory=list)
    tables: dict[str, Entry] = field(default_factory=dict)
    small_files: dict[str, Entry] = field(default_factory=dict)
    timer_log: list[LogFile] = field(default_factory=list)
    unclean: bool = False
    damages: list[Damage] = field(default_factory=list)

    @property
    def log_min_offset(self) -> int:
        """Physical offset of the first byte the log still has, 0 for an empty log."""
        return self.commit_log[0].start_offset if self.commit_log else 0


def _is_offset_name(name: str) -> bool:
    return len(name) == 20 and name.isdecimal()


def log_files(entries: list[Entry], where: str, damages: list[Damage], *, gaps: bool = True) -> list[LogFile]:
    """The files of a file queue in order; missing ones in the middle, short ones and foreign ones are noted.

    Args:
        entries: of the directory.
        where: what the files are of, for the notes.
        damages: takes the notes.
        gaps: note missing and short files.
    """
    files: list[LogFile] = []
    for entry in entries:
        if _is_offset_name(entry.name):
            files.append(LogFile(entry.path, int(entry.name), entry.size_bytes, entry.modified_ns))
        else:
            damages.append(Damage(entry.path, 0, entry.size_bytes, "foreign-file", f"not a file of {where}", WARNING))
    files.sort(key=lambda file: file.start_offset)
    if not gaps:
        return files
    check_sequence(files, damages)
    return files


def check_sequence(files: list[LogFile], damages: list[Damage]) -> None:
    """Notes missing, short and overlapping files of a file queue whose files are in order."""
    if not files:
        return
    sizes = [file.size_bytes for file in files]
    usual = max(set(sizes), key=lambda size: (sizes.count(size), size))
    for number, file in enumerate(files):
        following = files[number + 1].start_offset if number + 1 < len(files) else None
        if following is None:
            if file.size_bytes not in (0, usual) and len(files) > 1:
                damages.append(
                    Damage(
                        file.path, file.size_bytes, usual - file.size_bytes, "short-file", f"others have {usual} bytes"
                    )
                )
            continue
        end = file.start_offset + file.size_bytes
        if end < following:
            span = files[number + 1].start_offset - file.start_offset
            if file.size_bytes < usual and file.start_offset + usual == following:
                detail = f"{file.size_bytes} bytes, the file should have {usual}"
                damages.append(Damage(file.path, file.size_bytes, usual - file.size_bytes, "short-file", detail))
            else:
                detail = f"offsets {end} to {following} are missing: no file for {following - end} of {span} bytes"
                damages.append(Damage(file.path, file.size_bytes, following - end, "missing-file", detail))
        elif end > following:
            damages.append(
                Damage(
                    file.path, following - file.start_offset, end - following, "overlap", "the next file starts inside"
                )
            )


def read_layout(store: Store, commit_log_paths: list[str] | None = None) -> Layout:
    """Lists a store directory.

    Args:
        commit_log_paths: directories of the log when it is not in `commitlog/`; otherwise every directory of the store
            that holds only files named by 20 digits counts (several directories of one log).
    """
    layout = Layout(store)
    files, directories = list_directory(store.path)
    for entry in files:
        layout.small_files[entry.name] = entry
    layout.unclean = "abort" in layout.small_files
    if not files and not directories:
        layout.damages.append(Damage(store.path, 0, 0, "no-store", "the directory is missing or empty"))
        return layout
    layout.damages += rocksdb_parts(store.path, directories)
    paths = commit_log_paths or _log_directories(store.path, directories)
    found: list[Entry] = []
    for path in paths:
        found += list_directory(path)[0]
    found.sort(key=lambda entry: entry.name)
    layout.commit_log = log_files(found, "a commit log", layout.damages)
    if not layout.commit_log:
        layout.damages.append(
            Damage(store.path, 0, 0, "no-commit-log", "no file named by 20 digits in " + ", ".join(paths))
        )
    for entry in list_directory(join(store.path, "index"))[0]:
        if len(entry.name) == 17 and entry.name.isdecimal():
            layout.indexes.append(entry)
        else:
            layout.damages.append(Damage(entry.path, 0, entry.size_bytes, "foreign-file", "not an index file", WARNING))
    layout.timer_log = log_files(list_directory(join(store.path, "timerlog"))[0], "a timer log", layout.damages)
    for entry in list_directory(join(store.path, "config"))[0]:
        layout.tables[entry.name] = entry
    return layout


def _log_directories(path: str, directories: list[str]) -> list[str]:
    if "commitlog" in directories:
        return [join(path, "commitlog")]
    paths = []
    for name in directories:
        if name in _NOT_LOGS:
            continue
        files, inner = list_directory(join(path, name))
        if files and not inner and all(_is_offset_name(entry.name) for entry in files):
            paths.append(join(path, name))
    return paths or [join(path, "commitlog")]


def topics(store: Store) -> list[tuple[str, bool]]:
    """Topics that have queue directories, with whether they are of the batch kind."""
    found = [(name, False) for name in list_directory(join(store.path, "consumequeue"))[1]]
    return found + [(name, True) for name in list_directory(join(store.path, "batchconsumequeue"))[1]]


def queues(store: Store, topic: str, batched: bool, damages: list[Damage]) -> Iterator[Queue]:
    """The queues of one topic; directories that are no queue numbers are noted.

    Args:
        store: that they are in.
        topic: of the queues.
        batched: whether they are batch queues.
        damages: takes the notes.
    """
    base = join(store.path, "batchconsumequeue" if batched else "consumequeue", topic)
    for name in list_directory(base)[1]:
        path = join(base, name)
        if not name.isdecimal():
            damages.append(Damage(path, 0, 0, "foreign-file", "not a queue directory", WARNING))
            continue
        found = log_files(list_directory(path)[0], "a consume queue", damages)
        yield Queue(topic, int(name), batched, tuple(found))
