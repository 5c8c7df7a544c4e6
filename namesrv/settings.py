"""The settings in force and their change at run time (Configuration.java)."""

from __future__ import annotations

import os.path

import trio

from understudy.namesrv.config import NamesrvConfig, black_listed, merge, show
from understudy.namesrv.key_values import StoreError
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.properties import parse_properties


class BlackListedError(Exception):
    """A key may not be changed over the network; nothing was changed."""


class Settings:
    """Holds the current :class:`NamesrvConfig` as :attr:`current` and stores every change before it shows."""

    def __init__(self, config: NamesrvConfig, disk: Disk) -> None:
        self.current = config
        self._disk = disk
        self._one_writer = trio.Lock()

    async def update(self, text: str) -> None:
        """Take over the known keys of property lines and store all settings in ``configStorePath``.

        Args:
            text: property lines; unknown keys are left out, as in the reference.

        Raises:
            BlackListedError: a key that may not be changed.
            ConfigError: a line or value that cannot be read. Differs: the reference answers success to a bad value.
            StoreError: the file could not be written.
        """
        values = dict(parse_properties(text, "request"))  # what came over the network stands in no line
        async with self._one_writer:
            if black_listed(self.current, values):
                raise BlackListedError("Can not update config in black list.")
            config = merge(self.current, values, "request")
            if config == self.current:
                return
            await self._store(config)
            self.current = config

    async def _store(self, config: NamesrvConfig) -> None:
        path = config.config_store_path

        def save() -> None:
            self._disk.make_folder(os.path.dirname(path) or ".")
            write_durably(self._disk, path, show(config).encode())

        try:
            await self._disk.in_thread(save)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
