"""Everything that a program needs to run a controller beside its name server, in one place to import from."""

from understudy.controller.embed import EmbeddedController, open_controller
from understudy.runtime.disk import DiskLockedError
from understudy.runtime.network import ListenError
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.world import World, real_world

__all__ = [
    "ConfigError",
    "DiskLockedError",
    "EmbeddedController",
    "ListenError",
    "Properties",
    "World",
    "open_controller",
    "real_world",
]
