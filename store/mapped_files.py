"""A bounded set of mapped files: mapping one more gives the oldest back.

Each mapping holds a file descriptor, so thousands of queues cannot all stay mapped. What a reader holds of a file that
was given back stays readable (the memory goes with the last slice).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from understudy.runtime.descriptors import is_shortage
from understudy.runtime.disk import Disk, Mapping


class Owner(Protocol):
    """Somebody who keeps a view of a mapped file."""

    def unmapped(self, start: int) -> None:
        """Forget the view of the file that starts at *start*."""
        ...


class MappedFiles:
    """Files mapped now, in the order they were mapped.

    Args:
        disk: where the files are.
        maximum: most files mapped at the same time, at least 1.
    """

    def __init__(self, disk: Disk, maximum: int) -> None:
        self._disk = disk
        self._maximum = max(1, maximum)
        self._files: dict[str, tuple[Mapping, Owner, int]] = {}
        self._read_ahead = True

    def __len__(self) -> int:
        return len(self._files)

    def view(self, path: str, size: int, owner: Owner, start: int, *, create: bool = True) -> memoryview:
        """Return the view of the file at *path*, mapped (and created or grown with zeros) if it is not.

        Args:
            size: length of the file in bytes.
            owner: told when the file is given back.
            start: what the owner knows the file by.
            create: whether a file that is not there is made; otherwise ``FileNotFoundError`` is raised.
        """
        entry = self._files.get(path)
        if entry is None:
            while len(self._files) >= self._maximum:
                self.drop(next(iter(self._files)))
            entry = self._files[path] = (self._map(path, size, create), owner, start)
            if not self._read_ahead:
                entry[0].read_ahead(False)
        return entry[0].view

    def read_ahead(self, on: bool) -> None:
        """Have the system read ahead in these files and in those to come, or not."""
        self._read_ahead = on
        for mapping, _, _ in self._files.values():
            mapping.read_ahead(on)

    def take(self, path: str) -> Mapping | None:
        """Forget one file and leave it to the caller to give it back, which takes a moment for a large one.

        Returns:
            The file; ``None`` when it is not mapped.
        """
        if path not in self._files:
            return None
        mapping, owner, start = self._files.pop(path)
        owner.unmapped(start)
        return mapping

    def drop(self, path: str) -> None:
        """Give one file back; one that is not mapped is fine."""
        mapping = self.take(path)
        if mapping is not None:
            mapping.close()

    def take_all(self, owners: Set[Owner]) -> list[Mapping]:
        """Forget every file of *owners* and leave it to the caller to give them back, see :meth:`take`."""
        paths = [path for path, (_, owner, _) in self._files.items() if owner in owners]
        return [mapping for path in paths if (mapping := self.take(path)) is not None]

    def close(self) -> None:
        """Give every file back."""
        for path in list(self._files):
            self.drop(path)

    def _map(self, path: str, size: int, create: bool) -> Mapping:
        """Map one more file; where the process may not have so many, the oldest ones make room."""
        while True:
            try:
                return self._disk.map(path, size, create=create)
            except OSError as error:
                if not self._files or not is_shortage(error):
                    raise
                self.drop(next(iter(self._files)))


def remove_mapped(disk: Disk, path: str, mapping: Mapping | None) -> None:
    """Remove a file that was taken with :meth:`MappedFiles.take`. Blocking. Raises ``OSError``."""
    if mapping is not None:
        mapping.close()
    disk.remove(path)
