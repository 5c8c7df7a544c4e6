"""Where ``understudy up`` listens and keeps its data, checked before anything is made."""

from __future__ import annotations

import ipaddress
import os
import socket

import attrs

from understudy.controller.configuration import raft_port
from understudy.runtime.network import ListenError, Network
from understudy.runtime.program import UsageError

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"
BROKERS = ("broker-a", "broker-b")
LED_GROUP = "broker-a"
REPLICAS = ("broker-a-1", "broker-a-2", "broker-a-3")
_PORTS_PER_BROKER = 10
_FAST_PORT, _HA_PORT = -2, 1
_HIGHEST_PORT = 65_535


@attrs.frozen
class Places:
    """Folder, addresses and ports of one ``understudy up``.

    Attributes:
        folder: where everything is kept, absolute.
        host: address that clients reach.
        namesrv_port, container_port, broker_port: of the name server, the container and the first broker; the next
            broker follows ten ports later.
        proxy_port: of the proxy for gRPC clients; 0 for none.
        console_port: of the page in the browser, on this machine alone; 0 for none, ``None`` for the usual one, or a
            free one when another program has that.
        led: three replicas of one group, which a controller in the name server leads, in the place of two masters.
        controller_port: of that controller, for brokers and tools.
    """

    folder: str
    host: str = LOOPBACK
    namesrv_port: int = 9876
    container_port: int = 10811
    broker_port: int = 10911
    proxy_port: int = 0
    console_port: int | None = 0
    led: bool = False
    controller_port: int = 9878

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers' folders and files."""
        return REPLICAS if self.led else BROKERS

    @property
    def listen_address(self) -> str:
        """The address that is listened on: every one of the machine, unless clients are on it, too."""
        return self.host if self.host == "localhost" or _is_loopback(self.host) else EVERY_ADDRESS

    @property
    def name_server(self) -> str:
        """Where clients find the name server, ``host:port``."""
        return f"{self.host}:{self.namesrv_port}"

    @property
    def controller(self) -> str:
        """Where brokers and tools find the controller, ``host:port``."""
        return f"{self.host}:{self.controller_port}"

    def port_of(self, broker: str) -> int:
        """Return the port on which clients reach *broker*."""
        return self.broker_port + self.brokers.index(broker) * _PORTS_PER_BROKER

    def ports(self) -> list[tuple[int, str, str]]:
        """Return every port with who listens on it and the option that moves it."""
        found = [
            (self.namesrv_port, "the name server", "--namesrv-port"),
            (self.container_port, "the container", "--container-port"),
        ]
        if self.proxy_port:
            found.append((self.proxy_port, "the proxy", "--proxy-port"))
        if self.console_port:
            found.append((self.console_port, "the console", "--console-port"))
        if self.led:
            found += [
                (self.controller_port, "the controller", "--controller-port"),
                (raft_port(self.controller_port), "the controller (for other controllers)", "--controller-port"),
            ]
        for name in self.brokers:
            port = self.port_of(name)
            found += [
                (port, name, "--broker-port"),
                (port + _FAST_PORT, f"{name} (second port)", "--broker-port"),
                (port + _HA_PORT, f"{name} (replication)", "--broker-port"),
            ]
        return found

    def check(self) -> None:
        """Check that the host has an address, every port is one, and no two are the same.

        Raises:
            UsageError: what is wrong and which option changes it.
        """
        if not _has_address(self.host):
            raise UsageError(f"--host: {self.host!r} is no IP address, and no host name that this machine can resolve")
        taken: dict[int, tuple[str, str]] = {}
        for port, who, option in self.ports():
            if not 1 <= port <= _HIGHEST_PORT:
                raise UsageError(
                    f"{option}: {who} would listen on port {port}; choose one so that all lie from 1 to {_HIGHEST_PORT}"
                )
            if port in taken:
                other, other_option = taken[port]
                raise UsageError(
                    f"{other} and {who} would both listen on port {port}; change {other_option} or {option}"
                )
            taken[port] = who, option


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):  # UnicodeError: a text that is no host name at all
            return False
    return bool(host)


def folder_of(text: str | None, *, led: bool = False) -> str:
    """Return the absolute path of the folder that ``--data`` names; ``None`` is the usual one, of a *led* group or not.

    Raises:
        UsageError: the text is empty.
    """
    if text is None:
        text = os.path.join("data", "led") if led else "data"
    if not text.strip():
        raise UsageError("--data is empty; name the folder for messages, or leave the option out for ./data")
    return os.path.abspath(text)


async def check_free(network: Network, places: Places) -> None:
    """Look whether every port can be had, before a file is made.

    Raises:
        UsageError: one cannot be had; it names it and the option that moves it.
    """
    for port, who, option in places.ports():
        try:
            host = LOOPBACK if option == "--console-port" else places.listen_address
            listener = await network.listen(host, port)
        except ListenError as error:
            raise UsageError(
                f"{error} (that of {who}, moved by {option}); if 'understudy up' runs already, use it or stop it"
            ) from None
        await listener.aclose()
