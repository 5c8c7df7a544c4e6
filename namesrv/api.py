"""Everything that a program needs to run a name server in itself, in one place to import from."""

from understudy.namesrv.config import NamesrvConfig
from understudy.namesrv.server import NameServer
from understudy.runtime.network import ListenError
from understudy.runtime.table import TableDamagedError
from understudy.runtime.world import World, real_world

__all__ = ["ListenError", "NameServer", "NamesrvConfig", "TableDamagedError", "World", "real_world"]
