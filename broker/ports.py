"""The ports of a broker: taken first, so that a second broker on them fails before it touches a store."""

from __future__ import annotations

import attrs

from understudy.broker.config import BrokerOptions
from understudy.broker.identity import Identity
from understudy.broker.replication import Replication
from understudy.broker.role import Role
from understudy.remoting.access import ranges_of
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import World

FAST_PORT_DISTANCE = 2
UNLED = Role("SLAVE", 1, reason="no controller has said it yet")
"""What a broker of controller mode is until then, whatever ``brokerRole`` and ``brokerId`` say."""


@attrs.frozen
class Ports:
    """Where one broker listens.

    Attributes:
        identity: names and addresses, with the real ports.
        server: the port of clients.
        fast_server: a second one that serves no pulls; ``None`` where the first one has no fixed number.
        replication: has the HA port of a master.
    """

    identity: Identity
    server: RemotingServer
    fast_server: RemotingServer | None
    replication: Replication

    async def unbind(self) -> None:
        """Give the ports back; without effect on those that were given back."""
        await self.server.unbind()
        await self.replication.unbind()
        if self.fast_server is not None:
            await self.fast_server.unbind()


async def bind_ports(world: World, options: BrokerOptions) -> Ports:
    """Take the ports that *options* name, for the role that they give.

    Raises ``ListenError``: one of them cannot be had; none is kept then.
    """
    config, keys, server_keys = options.broker, options.store, options.server
    host, port, name = server_keys.bind_address, server_keys.listen_port, config.broker_name
    role = Role(keys.broker_role, config.broker_id) if not config.enable_controller_mode else UNLED
    server = RemotingServer(world, host, port, name=f"broker {name}", limits=server_keys.limits)
    server.administrators = ranges_of(options.server.admin_addresses)
    fast_server = None
    if port > FAST_PORT_DISTANCE:
        fast_server = RemotingServer(
            world, host, port - FAST_PORT_DISTANCE, name=f"broker {name} (fast port)", limits=server_keys.limits
        )
    identity = Identity(
        cluster=config.broker_cluster_name,
        name=name,
        role=role,
        host=config.broker_ip1 or "127.0.0.1",
        port=port,
        ha_address="",
        ip=options.store_address,
        container=options.container,
    )
    ports = Ports(identity, server, fast_server, _replication_of(world, options, identity))
    try:
        _, identity.port = await server.bind()
        await ports.replication.bind(role)
        if fast_server is not None:
            await fast_server.bind()
    except BaseException:
        await ports.unbind()
        raise
    return ports


def _replication_of(world: World, options: BrokerOptions, identity: Identity) -> Replication:
    if not options.broker.enable_controller_mode:
        return Replication(world, options, identity)
    from understudy.broker.switch_replication import SwitchReplication  # others start without it

    return SwitchReplication(world, options, identity)
