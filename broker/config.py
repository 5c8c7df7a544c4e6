"""A broker's configuration: the reference's keys, types and defaults, read from a user's existing ``.conf``.

Laws of this module:

* every key of the reference is known, has its type and its default, and is answered by GET_BROKER_CONFIG;
* a file that the reference starts with starts here: a key that is unknown, or that changes nothing here although it is
  set to something else than its default, is one warning line;
* a value that does not fit its key is an error that names file, line, key, value and what was expected (differs because
  the reference silently keeps its default).
"""

from __future__ import annotations

import copy
import ipaddress
import math
import os
import socket
from collections.abc import Callable, Mapping

import attrs

from understudy.broker.broker_config import BrokerConfig
from understudy.broker.config_values import delay_levels_ms
from understudy.broker.inert_keys import INERT, OUTSIDE
from understudy.broker.message_store_config import MessageStoreConfig
from understudy.broker.name_servers import listed
from understudy.remoting.access import ADMIN_KEY
from understudy.remoting.metrics_keys import read_metrics_settings
from understudy.remoting.netty_config import WAITING_KEYS, NettyClientConfig, NettyServerConfig
from understudy.remoting.shared_keys import refuse_lost, unread_key_line
from understudy.runtime.configuration import Change, fields_of, read_change, shown
from understudy.runtime.network import outgoing_address
from understudy.runtime.properties import ConfigError, Properties, located, printable
from understudy.runtime.stored_settings import listed_keys
from understudy.security.settings import KEYS as SECURITY_KEYS
from understudy.security.settings import SecuritySettings, check_acl_enable, read_security
from understudy.security.tls import idle_keys

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
ALWAYS_BLACK = (
    frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList", ADMIN_KEY})
    | {"haSlaveAddresses", "haRegisteredSlavesOnly"}
    | WAITING_KEYS
)
START_ONLY = frozenset(
    {
        "bindAddress",
        "brokerClusterName",
        "brokerIP1",
        "brokerIP2",
        "brokerId",
        "brokerName",
        "brokerRole",
        "enableCompaction",
        "enableConsumeQueueExt",
        "enableControllerMode",
        "enableLmq",
        "enableMultiDispatch",
        "expectConsumerNumUseFilter",
        "flushDiskType",
        "haListenPort",
        "listenPort",
        "mappedFileSizeConsumeQueueExt",
        "mappedFileSizeTimerLog",
        "maxErrorRateOfBloomFilter",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "reviveQueueNum",
        "storePathBrokerIdentity",
        "storePathCommitLog",
        "storePathEpochFile",
        "storePathRootDir",
        "timerPrecisionMs",
        "timerRollWindowSlot",
        "timerWheelEnable",
    }
)
"""Who and where a broker is, and what it promises senders, and how files are cut: none of it changes while it runs."""
_SECTIONS: tuple[type[attrs.AttrsInstance], ...] = (
    BrokerConfig,
    MessageStoreConfig,
    NettyServerConfig,
    NettyClientConfig,
)
_ALIASES = {"inBrokerContainer": "isInBrokerContainer", "scanAvailableNameSrv": "isScanAvailableNameSrv"}


@attrs.frozen
class Machine:
    """What defaults take from the machine: names and places that a simulated host chooses itself.

    Attributes:
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

    Attributes:
        broker: keys of BrokerConfig.
        store: keys of MessageStoreConfig.
        server: keys of NettyServerConfig.
        client: keys of NettyClientConfig.
        extra: unknown keys of the file, kept because GET_BROKER_CONFIG answers them too.
        path: file that a live update is written back to; None when the broker was started without one.
        store_address: the IP address of brokerIP1, which may be a host name; it stands in records and message ids.
        checks: what the place where it runs demands beside; each raises ``ConfigError``.
        security: who may ask it; never shown and never changed by peers.
        container: address of the container that hosts it, ``""`` for a process of its own.
    """

    broker: BrokerConfig = attrs.Factory(BrokerConfig)
    store: MessageStoreConfig = attrs.Factory(MessageStoreConfig)
    server: NettyServerConfig = attrs.Factory(NettyServerConfig)
    client: NettyClientConfig = attrs.Factory(NettyClientConfig)
    extra: dict[str, str] = attrs.Factory(dict)
    path: str | None = None
    store_address: str = "127.0.0.1"
    checks: list[Callable[[BrokerOptions, Properties], None]] = attrs.Factory(list)
    security: SecuritySettings = attrs.Factory(SecuritySettings)
    container: str = ""

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
            The options and one warning line for each key that is unknown, or means something else here than it says.

        Raises:
            ConfigError: a value does not fit its key, or keys contradict each other; nothing is built.
        """
        machine = machine if machine is not None else this_machine()
        options = cls()
        options.broker.broker_name = machine.host_name
        options.broker.broker_ip1 = options.broker.broker_ip2 = machine.address
        options.broker.rocketmq_home = machine.home
        options.broker.namesrv_addr = machine.name_servers
        options.broker.listen_port = options.server.listen_port = DEFAULT_LISTEN_PORT
        options.store.store_path_root_dir = machine.store_root
        options.store.ha_listen_port = 0
        values = located(properties, source)
        refuse_lost(values)
        options.security = read_security(values)
        defaults = {name: options._value(name) for name in map(_name, values) if name in INERT and options._knows(name)}
        options.apply(options._read(values))
        warnings = []
        for key, text in values.items():
            name = _name(key)
            if name in defaults:
                idle = options._value(name) != defaults[name]
            elif options._knows(name) or key in SECURITY_KEYS:
                continue
            else:
                options.extra[key] = text
                if key not in OUTSIDE:
                    warnings.append(_unknown_line(values, key))
                    continue
                idle = text.strip().lower() not in ("", "false")
            if idle:
                warnings.append(_inert_line(values, key))
        given_id = options.broker.broker_id
        options._settle(values)
        if given_id != options.broker.broker_id:
            warnings.append(
                f"{values.where('brokerId')}: brokerId={given_id} counts as 0, because brokerRole is "
                f"{options.store.broker_role}; a slave needs brokerRole=SLAVE"
            )
        options.store_address = _ip_address(values, options.broker.broker_ip1 or "127.0.0.1", machine.resolve)
        return options, [*warnings, *idle_keys(values)]

    def read_change(self, values: Properties) -> Change:
        """Read new values for a running broker; :meth:`apply` has them in force.

        Args:
            values: text by key; keys that are not known are skipped, as the reference does.

        Raises:
            ConfigError: a value does not fit its key, or the broker would not start with it.
        """
        refuse_lost(values)
        check_acl_enable(values, self.security)
        change = self._read(values)
        after = copy.deepcopy(self)
        after.apply(change)
        after._settle(values)
        for check in self.checks:
            check(after, values)
        return change

    def _read(self, values: Properties) -> Change:
        change = read_change(values.renamed(_ALIASES), *map(type, self._sections()))
        return attrs.evolve(change, others={key: text for key, text in values.items() if key in self.extra})

    def apply(self, change: Change) -> None:
        """Have what :meth:`read_change` returned in force."""
        change.put_into(*self._sections())
        self.extra |= change.others

    def properties(self) -> dict[str, str]:
        """Return every key that has a value with its text, sorted, as GET_BROKER_CONFIG (26) answers it."""
        found = dict(self.extra)
        for section in self._sections():
            found |= shown(section)
        return dict(sorted(found.items()))

    def kept_at(self) -> str | None:
        """Return the file that a live update is written to."""
        return self.broker.broker_config_path or self.path

    def black_list(self) -> frozenset[str]:
        """Return the keys that may never be changed over the network."""
        return ALWAYS_BLACK | listed_keys(self.broker.config_black_list)

    def start_only(self) -> frozenset[str]:
        """Return :data:`START_ONLY`."""
        return START_ONLY

    def _sections(self) -> tuple[attrs.AttrsInstance, ...]:
        return (self.broker, self.store, self.server, self.client)

    def _knows(self, key: str) -> bool:
        return any(key in fields_of(type(section)) for section in self._sections())

    def _value(self, key: str) -> object:
        return next(
            getattr(section, fields_of(type(section))[key].name)
            for section in self._sections()
            if key in fields_of(type(section))
        )

    def _check_controller_mode(self, values: Properties) -> None:
        place = values.where("enableControllerMode")
        if not listed(self.broker.controller_addr):
            raise ConfigError(f"{place}: enableControllerMode=true needs controllerAddr, host:port of the controllers")
        if self.broker.enable_slave_acting_master:
            raise ConfigError(
                f"{place}: enableControllerMode and enableSlaveActingMaster are two ways of failover: give one of them"
            )

    def _settle(self, values: Properties) -> None:
        """Derive and check what depends on several keys (BrokerStartup.java)."""
        broker, store = self.broker, self.store
        try:
            read_metrics_settings(broker)
        except ConfigError as error:
            raise values.locate(error) from None
        if broker.enable_controller_mode:
            self._check_controller_mode(values)
        elif store.broker_role == "SLAVE":
            if broker.broker_id <= 0:
                place = values.where("brokerId")
                raise ConfigError(
                    f"{place}: brokerId={broker.broker_id}: expected more than 0, because brokerRole is SLAVE"
                )
        else:
            broker.broker_id = 0
        if store.ha_listen_port <= 0 and self.server.listen_port > 0:
            store.ha_listen_port = self.server.listen_port + 1
        store.bit_map_length_consume_queue_ext = _bloom_bits(
            broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter
        )


def _ip_address(values: Properties, host: str, resolve: Callable[[str], str]) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return resolve(host)
    except (OSError, UnicodeError):  # UnicodeError: a text that is no host name at all
        expected = "expected an IP address, or a host name that this machine can resolve"
        raise ConfigError(f"{values.where('brokerIP1')}: brokerIP1={printable(host)}: {expected}") from None


def _name(key: str) -> str:
    return _ALIASES.get(key, key)


def _inert_line(values: Properties, key: str) -> str:
    reason = INERT[_name(key)]
    return f"{values.where(key)}: {key}={printable(values[key])} has no effect here: {reason}"


def _unknown_line(values: Properties, key: str) -> str:
    return unread_key_line(values, key, [name for section in _SECTIONS for name in fields_of(section)])


def _bloom_bits(error_percent: int, expected: int) -> int:
    """Return the bitmap length the reference derives at start and answers as bitMapLengthConsumeQueueExt."""
    if not 0 < error_percent < 100 or expected < 1:
        return 0
    bits = math.ceil(expected * math.log2(100 / error_percent) * math.log2(math.e))
    return (bits + 7) // 8 * 8
