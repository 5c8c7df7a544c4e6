"""The container's own configuration: the reference's keys, types and defaults (BrokerContainerConfig.java)."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

import attrs

from understudy.broker.config import (
    Machine,
    NettyClientConfig,
    NettyServerConfig,
    this_machine,
)
from understudy.broker.config_values import NameServers, Positive
from understudy.remoting.access import ADMIN_KEY
from understudy.remoting.netty_config import WAITING_KEYS
from understudy.remoting.shared_keys import refuse_lost, unread_key_line
from understudy.runtime.configuration import Change, fields_of, keyed, read_change, shown
from understudy.runtime.properties import ConfigError, Properties, located, printable
from understudy.runtime.stored_settings import listed_keys
from understudy.security.settings import KEYS as SECURITY_KEYS
from understudy.security.settings import SecuritySettings, read_security
from understudy.security.tls import idle_keys

DEFAULT_LISTEN_PORT = 10811
ALWAYS_BLACK = (
    frozenset({"addBrokerFolders", "brokerConfigPaths", "rocketmqHome", "configBlackList", ADMIN_KEY}) | WAITING_KEYS
)
START_ONLY = frozenset({"bindAddress", "listenPort"})
"""Where it listens."""


@attrs.define(kw_only=True, eq=False, order=False, repr=False)
class BrokerContainerConfig:
    """Keys of a container file that belong to the container itself.

    Attributes:
        add_broker_folders: ours; folders, divided by ``:``, below which ``addBroker`` may name a file; else those of
            known files.
        broker_container_ip: the address of the container as its brokers tell it in their rosters.
        broker_config_paths: files of the brokers to start, divided by ``:``.
        config_black_list: keys, divided by ``;``, that nobody may change over the network, besides those that nobody
            ever may.
        fetch_name_srv_addr_by_dns_lookup: host names in ``namesrvAddr`` stand for all their machines.
        namesrv_addr: name servers of all brokers of the container, whatever their files say; host:port, divided by
            ``;``.
        rocketmq_home: the folder below which relative paths of broker files are looked for, and whose ``conf``
            ``addBroker`` may read.
        update_namesrv_addr_interval: with ``fetchNameSrvAddrByDnsLookup``: milliseconds between look-ups.
    """

    add_broker_folders: str | None = None
    broker_config_paths: str | None = None
    broker_container_ip: str = keyed("brokerContainerIP", "127.0.0.1")
    config_black_list: str = "configBlackList;brokerConfigPaths"
    fetch_name_srv_addr_by_dns_lookup: bool = False
    fetch_namesrv_addr_by_address_server: bool = False
    fetch_namesrv_addr_interval: int = 10000
    namesrv_addr: NameServers = None
    rocketmq_home: str | None = None
    update_namesrv_addr_interval: Positive = 120000


# Keys that are read and answered but change nothing, with the reason a user is told.
_INERT = {
    "fetchNamesrvAddrByAddressServer": "name servers are given by namesrvAddr only",
    "fetchNamesrvAddrInterval": "there is no address server to ask",
}


@attrs.define(eq=False)
class ContainerOptions:
    """The whole configuration of one container.

    Attributes:
        container: the container's own keys.
        server: keys of the listening side.
        client: keys of the calling side.
        path: file that a live update is written to; ``None`` when the container was started without one.
        security: who may ask it, and what its brokers sign their calls with.
    """

    container: BrokerContainerConfig = attrs.Factory(BrokerContainerConfig)
    server: NettyServerConfig = attrs.Factory(NettyServerConfig)
    client: NettyClientConfig = attrs.Factory(NettyClientConfig)
    path: str | None = None
    security: SecuritySettings = attrs.Factory(SecuritySettings)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], source: str = "configuration", *, machine: Machine | None = None
    ) -> tuple[ContainerOptions, list[str]]:
        """Build options from the text values of a file.

        Args:
            properties: key to text.
            source: name of the file, for messages.
            machine: where defaults come from; the real machine when ``None``.

        Returns:
            The options, and one warning line for each key that is unknown or changes nothing here.

        Raises:
            ConfigError: a value does not fit its key; one line for the user.
        """
        machine = machine if machine is not None else this_machine()
        options = cls()
        options.server.listen_port = DEFAULT_LISTEN_PORT
        options.container.broker_container_ip = machine.address
        options.container.namesrv_addr = machine.name_servers
        options.container.rocketmq_home = machine.home
        values = located(properties, source)
        refuse_lost(values)
        options.security = read_security(values)
        known = shown(options.container)
        inert = {key: known[key] for key in _INERT}
        options.apply(options.read_change(values))
        names = options._names()
        warnings = []
        for key, text in values.items():
            if key in SECURITY_KEYS:
                continue
            if key not in names:
                warnings.append(unread_key_line(values, key, names))
            elif key in _INERT and text not in ("", "false", inert[key]):
                reason = _INERT[key]
                warnings.append(f"{values.where(key)}: {key}={printable(text)} has no effect here: {reason}")
        paths = options.container.broker_config_paths
        if paths is not None and not paths.strip():
            place = values.where("brokerConfigPaths")
            raise ConfigError(
                f"{place}: brokerConfigPaths is empty: name broker files separated by ':', or "
                "leave the key out for a container without brokers"
            )
        return options, [*warnings, *idle_keys(values)]

    def read_change(self, values: Properties) -> Change:
        """Read new values for a running container; :meth:`apply` has them in force. Unknown keys are skipped.

        Raises:
            ConfigError: a value does not fit its key.
        """
        return read_change(values, *map(type, self._sections()))

    def apply(self, change: Change) -> None:
        """Have what :meth:`read_change` returned in force."""
        change.put_into(*self._sections())

    def properties(self) -> dict[str, str]:
        """Return every key that has a value with its text, sorted (what GET_BROKER_CONFIG answers)."""
        found: dict[str, str] = {}
        for section in self._sections():
            found |= shown(section)
        return dict(sorted(found.items()))

    def kept_at(self) -> str | None:
        """Return the file that a live update is written to."""
        return self.path

    def black_list(self) -> frozenset[str]:
        """Return the keys that may never be changed over the network."""
        return ALWAYS_BLACK | listed_keys(self.container.config_black_list)

    def start_only(self) -> frozenset[str]:
        """Return :data:`START_ONLY`."""
        return START_ONLY

    def broker_files(self) -> list[str]:
        """Return the configuration files of the brokers to start, in order."""
        return [path.strip() for path in (self.container.broker_config_paths or "").split(":") if path.strip()]

    def asked_folders(self) -> list[str]:
        """Return the folders below which ADD_BROKER may name a file.

        Those of ``addBrokerFolders``; without it those of the files of the container and its brokers and of
        ``ROCKETMQ_HOME/conf``, or the current folder when there is none of them.
        """
        listed = [part.strip() for part in (self.container.add_broker_folders or "").split(":") if part.strip()]
        if listed:
            return listed
        files = [path for path in (self.path, *self.broker_files()) if path]
        folders = [os.path.dirname(path) or "." for path in files]
        if self.container.rocketmq_home:
            folders.append(os.path.join(self.container.rocketmq_home, "conf"))
        return list(dict.fromkeys(folders)) or ["."]

    def _sections(self) -> tuple[attrs.AttrsInstance, ...]:
        return (self.container, self.server, self.client)

    def _names(self) -> list[str]:
        return [key for section in self._sections() for key in fields_of(type(section))]
