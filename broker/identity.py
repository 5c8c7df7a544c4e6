"""Who this broker is to others."""

from __future__ import annotations

import ipaddress
import struct

import attrs

from understudy.format.record import encode_host

_UNKNOWN_HOST = b"\0" * 8
_PORT = struct.Struct(">i")


@attrs.frozen
class Identity:
    """Names and addresses of one broker.

    Attributes:
        cluster: cluster name.
        name: broker name, shared by a master and its slaves.
        broker_id: 0 for a master.
        host: address clients reach (``brokerIP1``).
        port: the port clients reach.
        ha_address: where slaves connect, ``host:port``.
        ip: the IP address of *host*, which may be a name; *host* itself when not given.
    """

    cluster: str
    name: str
    broker_id: int
    host: str
    port: int
    ha_address: str
    ip: str = attrs.field(default=attrs.Factory(lambda self: self.host, takes_self=True))

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
