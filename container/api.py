"""Everything that a program needs to host brokers in itself, in one place to import from."""

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.broker.role_change import RoleChangeError
from understudy.container.broker_files import AddBrokerError
from understudy.container.config import ContainerOptions
from understudy.container.container import BootHook, BrokerContainer
from understudy.container.hosted import BrokerIdentity, HostedBroker
from understudy.runtime.network import ListenError
from understudy.runtime.properties import ConfigError
from understudy.runtime.world import World, real_world

__all__ = [
    "AddBrokerError",
    "BootHook",
    "Broker",
    "BrokerContainer",
    "BrokerIdentity",
    "BrokerOptions",
    "ConfigError",
    "ContainerOptions",
    "HostedBroker",
    "ListenError",
    "Machine",
    "RoleChangeError",
    "World",
    "real_world",
]
