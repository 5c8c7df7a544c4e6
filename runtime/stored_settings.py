"""Settings in force that change while a program runs, and the file that keeps them (Configuration.java)."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from understudy.runtime.configuration import shown, with_values
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.properties import rewrite_properties


class Changeable(attrs.AttrsInstance, Protocol):
    """Settings that say where they are kept, and which of their keys stay as they are."""

    @property
    def config_store_path(self) -> str:
        """The file."""
        ...

    @property
    def config_black_list(self) -> str:
        """Keys, divided by semicolons."""
        ...


Settings = TypeVar("Settings", bound=Changeable)


class BlackListedError(Exception):
    """A key may not be changed over the network; nothing was changed."""


class NotStoredError(Exception):
    """The file could not be written; nothing was changed."""


async def store_changes(disk: Disk, path: str, changes: Mapping[str, str]) -> None:
    """Change keys of the property file *path* in place, durably; a missing file is made. One caller at a time.

    Errors: :class:`NotStoredError`.
    """

    def save() -> None:
        disk.make_folder(os.path.dirname(path) or ".")
        data = disk.read(path) if disk.exists(path) else b""
        write_durably(disk, path, rewrite_properties(data, changes))

    try:
        await disk.in_thread(save)
    except OSError as error:
        raise NotStoredError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error


class StoredSettings(Generic[Settings]):
    """Holds the settings in force as :attr:`current`; a change shows when it is durable.

    Args:
        settings: those of the start.
        disk: of their file, ``configStorePath``.
        always_black: keys that may never be changed over the network, whatever ``configBlackList`` says.
        check: raises ``ConfigError`` when values do not fit together.
    """

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        always_black: frozenset[str],
        check: Callable[[Settings], None] = lambda settings: None,
    ) -> None:
        self.current = settings
        self._disk = disk
        self._always_black = always_black
        self._check = check
        self._one_writer = trio.Lock()

    async def update(self, values: Mapping[str, str]) -> None:
        """Take over the known keys of *values*; unknown ones are left out, as in the reference.

        Differs: the reference writes a file of all keys over the user's, and answers success to a bad value. Here
        the changed keys are changed in place, and comments stay.

        Raises:
            BlackListedError: a key that may not be changed.
            ConfigError: a value that cannot be read.
            NotStoredError: the file could not be written.
        """
        async with self._one_writer:
            before = self.current
            black = self._always_black | {key.strip() for key in before.config_black_list.split(";")}
            if black.intersection(values):
                raise BlackListedError("Can not update config in black list.")
            settings = with_values(before, values, "request")
            was = shown(before)
            changes = {key: text for key, text in shown(settings).items() if was.get(key) != text}
            if not changes:
                return
            self._check(settings)
            await store_changes(self._disk, before.config_store_path, changes)
            self.current = settings
