"""A controller inside the name server's process (``enableControllerInNamesrv=true``)."""

from __future__ import annotations

import trio

from understudy.controller.configuration import read_config
from understudy.controller.raft.errors import FatalError
from understudy.controller.raft.security import SecurityError
from understudy.controller.server import Controller
from understudy.remoting.dispatch import Dispatcher
from understudy.runtime.disk import DiskLockedError
from understudy.runtime.log import get_logger
from understudy.runtime.metrics_endpoint import Collect
from understudy.runtime.world import World

log = get_logger("controller.embed")


class EmbeddedController:
    """A controller whose end does not end the name server: routes and traffic go on, elections do not.

    Args:
        controller: what is embedded.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def register(self, server: Dispatcher) -> None:
        """The controller answers on its own port only."""
        self.controller.register(server)

    def show_also(self, collect: Collect) -> None:
        """Serve these metrics beside the controller's, if it serves any."""
        self.controller.more_metrics.append(collect)

    async def run(self) -> None:
        """Serve until cancelled; a controller that must stop is reported and leaves the name server running.

        *Errors*: ``ListenError`` and ``DiskLockedError``, which are mistakes of whoever starts the process.
        """
        try:
            await self.controller.run()
        except* (FatalError, SecurityError) as errors:
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            log.error("embedded controller stopped; routes go on, elections do not", reason=error)
        except* DiskLockedError as locked:
            raise OSError(str(locked.exceptions[0])) from None
        await trio.sleep_forever()


def open_controller(world: World, text: str) -> EmbeddedController:
    """Make the controller described by a name server's settings file.

    Args:
        world: the outside world.
        text: the properties file.

    *Errors*: ``ConfigError`` for settings that cannot be used.
    """
    config = read_config(text, "name server settings")
    return EmbeddedController(Controller(world, config))
