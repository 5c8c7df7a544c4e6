"""A controller inside the name server's process (``enableControllerInNamesrv=true``)."""

from __future__ import annotations

import trio

from understudy.controller.configuration import check, read_config
from understudy.controller.file_warnings import unused_keys
from understudy.controller.log_file import open_log_file
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.security import SecurityError
from understudy.controller.server import Controller
from understudy.remoting import netty_config
from understudy.runtime.disk import DiskLockedError
from understudy.runtime.log import get_logger
from understudy.runtime.metrics import Collect
from understudy.runtime.program import first_cause, one_line, single_cause
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.world import World
from understudy.security.gate import Gate
from understudy.security.settings import read_security

log = get_logger("controller.embed")


class EmbeddedController:
    """A controller whose end does not end the name server: routes and traffic go on, elections do not.

    Args:
        controller: what is embedded.
        world: of this process; its disk holds the log file.
    """

    def __init__(self, controller: Controller, world: World) -> None:
        self.controller = controller
        self._world = world

    def show_also(self, collect: Collect) -> None:
        """Serve these metrics beside the controller's, if it serves any."""
        self.controller.more_metrics.append(collect)

    def guard(self, gate: Gate) -> None:
        """Have its requests pass the name server's *gate*, whose users are its users."""
        self.controller.gate = gate

    async def run(self) -> None:
        """Serve until cancelled; a controller that must stop is reported and leaves the name server running.

        So does one whose disk cannot be read or written.

        Raises:
            ListenError, DiskLockedError: mistakes of the operator who starts the process.
        """
        try:
            async with open_log_file(self._world.disk, self._world.clock, self.controller.settings.current):
                await self._run()
        except* DiskLockedError as locked:
            raise OSError(one_line(single_cause(locked))) from None

    async def _run(self) -> None:
        try:
            await self.controller.run()
        except* (FatalError, SecurityError, OSError) as errors:
            log.error(
                "embedded controller stopped; routes go on, elections do not", reason=one_line(first_cause(errors))
            )
        await trio.sleep_forever()


def open_controller(world: World, values: Properties) -> EmbeddedController:
    """Make the controller described by a name server's settings file.

    Args:
        world: the outside world.
        values: what stands in the file.

    Raises:
        ConfigError: for settings that cannot be used.
    """
    config = read_config(values)
    try:
        check(config)
    except ConfigError as error:
        raise values.locate(error) from None
    for warning in unused_keys(values, config, netty_config.NO_EFFECT):  # of those the name server warns
        log.warning(warning)
    return EmbeddedController(Controller(world, config, read_security(values)), world)
