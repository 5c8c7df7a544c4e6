"""Who this broker is to others."""

from __future__ import annotations

import ipaddress
import struct

import attrs

from understudy.broker.role import Role
from understudy.format.record import encode_host

_UNKNOWN_HOST = b"\0" * 8
_PORT = struct.Struct(">i")


@attrs.define
class Identity:
    """Names and addresses of one broker, and its role: the one place that knows it.

    There is one for the life of a broker. :attr:`role` and :attr:`ha_address` change with the role; read them when you
    need them.

    Attributes:
        cluster: cluster name.
        name: broker name, shared by a master and its slaves.
        role: what the broker is in its group now.
        host: address clients reach (``brokerIP1``).
        port: the port clients reach.
        ha_address: where slaves connect, ``host:port``.
        ip: the IP address of *host*, which may be a name; *host* itself when not given.
        container: address of the container that hosts it, ``host:port``; ``""`` when its process is its own.
    """

    cluster: str
    name: str
    role: Role
    host: str
    port: int
    ha_address: str
    ip: str = attrs.field(default=attrs.Factory(lambda self: self.host, takes_self=True))
    container: str = ""

    @property
    def broker_id(self) -> int:
        """The id in the group, 0 for a master."""
        return self.role.broker_id

    @property
    def address(self) -> str:
        """The broker's address as name servers list it."""
        return f"{self.host}:{self.port}"

    @property
    def canonical_name(self) -> str:
        """A name for logs and file names that no other broker of a host has."""
        return f"{self.cluster}_{self.name}_{self.broker_id}"


def host_bytes(host: str, port: int) -> bytes:
    """Return address and port as a record holds them; zeros for something that is no IP address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _UNKNOWN_HOST
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed + _PORT.pack(port)
    return encode_host(host, port)
