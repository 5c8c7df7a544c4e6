"""A broker's configuration: the reference's keys, types and defaults, read from a user's existing ``.conf``.

Laws of this module:

* every key of the reference is known, has its type and its default, and is answered by GET_BROKER_CONFIG;
* a file that the reference starts with starts here: a key that is unknown, or that changes nothing here although it is
  set to something else than its default, is one warning line;
* a value that does not fit its key is an error that names file, key, value and what was expected (differs because the
  reference silently keeps its default).
"""

from __future__ import annotations

import ipaddress
import math
import os
import socket
from collections.abc import Callable, Mapping

import attrs

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.config_values import delay_levels_ms, parse_value
from understudy.broker.inert_keys import INERT, OUTSIDE
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.netty_config import NettyClientConfig, NettyServerConfig
from understudy.runtime.configuration import value_text
from understudy.runtime.network import outgoing_address
from understudy.runtime.properties import ConfigError, nearest_name

__all__ = [
    "INERT",
    "BrokerConfig",
    "BrokerOptions",
    "Machine",
    "MessageStoreConfig",
    "NettyClientConfig",
    "NettyServerConfig",
    "delay_levels_ms",
    "this_machine",
]

DEFAULT_LISTEN_PORT = 10911
_SECTIONS = ("broker", "store", "server", "client")
_ALIASES = {"inBrokerContainer": "isInBrokerContainer", "scanAvailableNameSrv": "isScanAvailableNameSrv"}


@attrs.frozen
class Machine:
    """What defaults take from the machine: names and places that a simulated host chooses itself.

    Args:
        host_name: default of brokerName.
        address: default of brokerIP1 and brokerIP2, an IP address that clients can reach.
        store_root: default of storePathRootDir.
        home: default of rocketmqHome.
        name_servers: default of namesrvAddr.
        resolve: from a host name to its IP address; raises OSError when there is none.
    """

    host_name: str
    address: str
    store_root: str
    home: str | None = None
    name_servers: str | None = None
    resolve: Callable[[str], str] = socket.gethostbyname


def this_machine() -> Machine:
    """Return the defaults of the machine this process runs on (NetworkUtil.java, MixAll.java)."""
    return Machine(
        host_name=socket.gethostname() or "DEFAULT_BROKER",
        address=outgoing_address(),
        store_root=os.path.join(os.path.expanduser("~"), "store"),
        home=os.environ.get("ROCKETMQ_HOME"),
        name_servers=os.environ.get("NAMESRV_ADDR"),
    )


@attrs.define(eq=False)
class BrokerOptions:
    """The whole configuration of one broker; the four sections are mutable, so that a live update is seen at once.

    Args:
        broker: keys of BrokerConfig.
        store: keys of MessageStoreConfig.
        server: keys of NettyServerConfig.
        client: keys of NettyClientConfig.
        extra: unknown keys of the file, kept because GET_BROKER_CONFIG answers them too.
        path: file that a live update is written back to; None when the broker was started without one.
        store_address: the IP address of brokerIP1, which may be a host name; it stands in records and message ids.
    """

    broker: BrokerConfig = attrs.Factory(BrokerConfig)
    store: MessageStoreConfig = attrs.Factory(MessageStoreConfig)
    server: NettyServerConfig = attrs.Factory(NettyServerConfig)
    client: NettyClientConfig = attrs.Factory(NettyClientConfig)
    extra: dict[str, str] = attrs.Factory(dict)
    path: str | None = None
    store_address: str = "127.0.0.1"

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], source: str = "configuration", *, machine: Machine | None = None
    ) -> tuple[BrokerOptions, list[str]]:
        """Build options from the text values of a file.

        Args:
            properties: key to text, as :func:`parse_properties` returns.
            source: name of the file, for messages.
            machine: where defaults come from; the real machine when None.

        Returns:
            The options and one warning line for each key that is unknown or changes nothing here.

        Errors:
            ConfigError: a value does not fit its key, or keys contradict each other; nothing is built.
        """
        machine = machine if machine is not None else this_machine()
        options = cls()
        options.broker.brokerName = machine.host_name
        options.broker.brokerIP1 = options.broker.brokerIP2 = machine.address
        options.broker.rocketmqHome = machine.home
        options.broker.namesrvAddr = machine.name_servers
        options.broker.listenPort = options.server.listenPort = DEFAULT_LISTEN_PORT
        options.store.storePathRootDir = machine.store_root
        options.store.haListenPort = 0
        defaults = options.properties()
        warnings = []
        for key, text in properties.items():
            name = _ALIASES.get(key, key)
            sections = options._sections_of(name)
            if not sections:
                options.extra[key] = text
                if key not in OUTSIDE:
                    warnings.append(_unknown_line(source, key))
                elif text.strip().lower() not in ("", "false"):
                    warnings.append(_inert_line(source, key, text))
                continue
            value = parse_value(source, key, text, _type_of(sections[0], name))
            for section in sections:
                setattr(section, name, value)
            if name in INERT and value_text(value) != defaults.get(name):
                warnings.append(_inert_line(source, key, text))
        options._settle(source)
        options.store_address = _ip_address(source, options.broker.brokerIP1 or "127.0.0.1", machine.resolve)
        return options, warnings

    def update(self, properties: Mapping[str, str], source: str = "update") -> dict[str, str]:
        """Change keys of a running broker, all or none.

        Args:
            properties: key to text; keys that are not known are skipped, as the reference does.
            source: name for messages.

        Returns:
            The known keys with the text that was stored for each.

        Errors:
            ConfigError: a value does not fit its key; nothing is changed.
        """
        parsed = []
        for key, text in properties.items():
            name = _ALIASES.get(key, key)
            sections = self._sections_of(name)
            if sections:
                parsed.append((sections, name, parse_value(source, key, text, _type_of(sections[0], name))))
            elif key in self.extra:
                self.extra[key] = text
        for sections, name, value in parsed:
            for section in sections:
                setattr(section, name, value)
        return {name: value_text(value) for _, name, value in parsed}

    def properties(self) -> dict[str, str]:
        """Return every key that has a value with its text, sorted, as GET_BROKER_CONFIG (26) answers it."""
        found = dict(self.extra)
        for section_name in _SECTIONS:
            section = getattr(self, section_name)
            for field in attrs.fields(type(section)):
                value = getattr(section, field.name)
                if value is not None:
                    found[field.name] = value_text(value)
        return dict(sorted(found.items()))

    def _sections_of(self, name: str) -> list[object]:
        return [section for each in _SECTIONS if hasattr(section := getattr(self, each), name)]

    def _settle(self, source: str) -> None:
        """Derive and check what depends on several keys (BrokerStartup.java)."""
        broker, store = self.broker, self.store
        if broker.enableControllerMode:
            # Started as an ordinary broker it would be a second master beside the one its controller chose.
            raise ConfigError(
                f"{source}: enableControllerMode=true: brokers of this version cannot be led by a controller; take the "
                "key out and give brokerRole and brokerId, with enableSlaveActingMaster for failover"
            )
        if store.brokerRole == "SLAVE":
            if broker.brokerId <= 0:
                raise ConfigError(
                    f"{source}: brokerId={broker.brokerId}: expected more than 0, because brokerRole is SLAVE"
                )
        else:
            broker.brokerId = 0
        if store.haListenPort <= 0 and self.server.listenPort > 0:
            store.haListenPort = self.server.listenPort + 1
        if store.brokerRole == "SLAVE":
            store.accessMessageInMemoryMaxRatio -= 10
        store.bitMapLengthConsumeQueueExt = _bloom_bits(
            broker.maxErrorRateOfBloomFilter, broker.expectConsumerNumUseFilter
        )


def _ip_address(source: str, host: str, resolve: Callable[[str], str]) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return resolve(host)
    except (OSError, UnicodeError):  # UnicodeError: a text that is no host name at all
        expected = "expected an IP address, or a host name that this machine can resolve"
        raise ConfigError(f"{source}: brokerIP1={host}: {expected}") from None


def _type_of(section: object, name: str) -> str:
    return str(attrs.fields_dict(type(section))[name].type)  # type: ignore[arg-type]


def _inert_line(source: str, key: str, text: str) -> str:
    return f"{source}: {key}={text} has no effect here: {INERT[_ALIASES.get(key, key)]}"


def _unknown_line(source: str, key: str) -> str:
    nearest = nearest_name(key, [name for section in _section_types() for name in attrs.fields_dict(section)])
    hint = f", the nearest known key is {nearest}" if nearest else ""
    return f"{source}: unknown key {key} is ignored{hint}"


def _section_types() -> tuple[type[attrs.AttrsInstance], ...]:
    return (BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig)


def _bloom_bits(error_percent: int, expected: int) -> int:
    """Return the bitmap length the reference derives at start and answers as bitMapLengthConsumeQueueExt."""
    if not 0 < error_percent < 100 or expected < 1:
        return 0
    bits = math.ceil(expected * math.log2(100 / error_percent) * math.log2(math.e))
    return (bits + 7) // 8 * 8
