"""Settings in force that change while a program runs, and the file that keeps them (Configuration.java)."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs
import trio

from understudy.runtime.configuration import Change, read_change, shown
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.properties import Properties, rewrite_properties


class BlackListedError(Exception):
    """A key may not be changed over the network; nothing was changed."""


class StartOnlyError(Exception):
    """A key has its effect at the start only; nothing was changed."""


class NotStoredError(Exception):
    """The file could not be written; nothing was changed."""


class LiveSettings(Protocol):
    """The settings of one program in force, whichever classes hold them."""

    def properties(self) -> dict[str, str]:
        """Return the text of every key that has a value, sorted by key."""
        ...

    def read_change(self, values: Properties) -> Change:
        """Read new values, checked as at the start; unknown keys are left out. Raises ``ConfigError``."""
        ...

    def apply(self, change: Change) -> None:
        """Have what :meth:`read_change` returned in force."""
        ...

    def kept_at(self) -> str | None:
        """Return the file that changes are written to; ``None`` when the program was started without one."""
        ...

    def black_list(self) -> frozenset[str]:
        """Return the keys that may never be changed over the network."""
        ...

    def start_only(self) -> frozenset[str]:
        """Return the keys whose value a running program cannot change."""
        ...


class OneClass(attrs.AttrsInstance, Protocol):
    """A class of settings that says where it is kept, and which of its keys stay as they are."""

    @property
    def config_store_path(self) -> str:
        """The file."""
        ...

    @property
    def config_black_list(self) -> str:
        """Keys, divided by semicolons."""
        ...


Settings = TypeVar("Settings", bound=OneClass)


class SettingsInForce(Generic[Settings]):
    """Live settings of one frozen class: :attr:`current` is replaced as a whole.

    Args:
        settings: those of the start.
        always_black: keys that may never be changed over the network, whatever ``configBlackList`` says.
        check: raises ``ConfigError`` when values do not fit together.
        start_only: keys that a running program cannot change, and that may keep it from its next start.
    """

    def __init__(
        self,
        settings: Settings,
        always_black: frozenset[str],
        check: Callable[[Settings], None] = lambda settings: None,
        start_only: frozenset[str] = frozenset(),
    ) -> None:
        self.current = settings
        self._always_black = always_black
        self._check = check
        self._start_only = start_only

    def properties(self) -> dict[str, str]:
        return dict(sorted(shown(self.current).items()))

    def read_change(self, values: Properties) -> Change:
        change = read_change(values, type(self.current))
        self._check(self._with(change.values[0]))
        return change

    def apply(self, change: Change) -> None:
        self.current = self._with(change.values[0])

    def kept_at(self) -> str | None:
        return self.current.config_store_path

    def black_list(self) -> frozenset[str]:
        return self._always_black | listed_keys(self.current.config_black_list)

    def start_only(self) -> frozenset[str]:
        return self._start_only

    def _with(self, values: Mapping[str, Any]) -> Settings:
        return attrs.evolve(self.current, **values)  # type: ignore[misc]  # the plugin cannot see through a variable


def listed_keys(text: str) -> frozenset[str]:
    """Return the keys of a list such as ``configBlackList``, divided by semicolons."""
    return frozenset(key.strip() for key in text.split(";") if key.strip())


class StoredSettings:
    """Changes settings in force: a change shows when it is durable.

    Args:
        live: what changes.
        disk: of the file that keeps them.
    """

    def __init__(self, live: LiveSettings, disk: Disk) -> None:
        self.live = live
        self._disk = disk
        self._one_writer = trio.Lock()

    async def update(self, values: Mapping[str, str]) -> dict[str, str]:
        """Take over the known keys of *values*, all or none; unknown ones are left out, as in the reference.

        Differs: the reference writes a file of all keys over the user's, and answers success to a bad value. Here
        the changed keys are changed in place, and comments stay.

        Returns:
            The known keys with their text.

        Raises:
            BlackListedError: a key that may not be changed.
            StartOnlyError: a key that cannot change while the program runs.
            ConfigError: a value that cannot be read.
            NotStoredError: the file could not be written.
        """
        async with self._one_writer:
            if not self.live.black_list().isdisjoint(values):
                raise BlackListedError("Can not update config in black list.")
            before = self.live.properties()
            fixed = sorted(key for key in self.live.start_only() & values.keys() if values[key] != before.get(key))
            if fixed:
                # Differs because the reference shows the new value from then on and goes on with the old one.
                raise StartOnlyError(
                    f"{', '.join(fixed)} cannot change while the server runs; change the file and start it again"
                )
            change = self.live.read_change(Properties(values, "request"))  # it stands in no line of a file
            news = {key: text for key, text in change.texts.items() if before.get(key) != text}
            path = self.live.kept_at()
            if path is not None and news:
                await self._write(path, news)
            self.live.apply(change)
            return change.texts

    async def _write(self, path: str, changes: Mapping[str, str]) -> None:
        """Change keys of the property file *path* in place, durably; a missing file is made."""

        def save() -> None:
            self._disk.make_folder(os.path.dirname(path) or ".")
            data = self._disk.read(path) if self._disk.exists(path) else b""
            write_durably(self._disk, path, rewrite_properties(data, changes))

        try:
            await self._disk.in_thread(save)
        except OSError as error:
            raise NotStoredError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
