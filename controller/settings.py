"""The settings in force and their change at run time."""

from __future__ import annotations

import os.path

import trio

from understudy.controller.configuration import ControllerConfig, black_listed, check, merge, show
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably


class BlackListedError(Exception):
    """A key may not be changed over the network; nothing was changed."""


class SettingsError(Exception):
    """The settings could not be stored; nothing was changed."""


class ControllerSettings:
    """Holds the current :class:`ControllerConfig` as :attr:`current` and stores every change before it shows."""

    def __init__(self, config: ControllerConfig, disk: Disk) -> None:
        self.current = config
        self._disk = disk
        self._one_writer = trio.Lock()

    async def update(self, values: dict[str, str]) -> None:
        """Take over the known keys of *values* and store all settings in ``configStorePath``.

        *Errors*: :class:`BlackListedError`, ``ConfigError`` for a bad value, :class:`SettingsError`.
        """
        async with self._one_writer:
            if black_listed(self.current, values):
                raise BlackListedError("Can not update config in black list.")
            config = merge(self.current, values, "request")
            if config == self.current:
                return
            check(config)
            await self._store(config)
            self.current = config

    async def _store(self, config: ControllerConfig) -> None:
        path = config.config_store_path

        def save() -> None:
            self._disk.make_folder(os.path.dirname(path) or ".")
            write_durably(self._disk, path, show(config).encode())

        try:
            await self._disk.in_thread(save)
        except OSError as error:
            raise SettingsError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from None
