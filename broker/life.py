"""The life of one broker: how it starts, serves and stops.

:func:`run_broker` is the whole of it. It takes the ports, recovers the store, makes the :class:`Broker` of them, loads
its tables and runs its services until it is cancelled. A failure leaves it as an exception and touches no other broker.

Source: BrokerController.java, BrokerStartup.java.
"""

from __future__ import annotations

import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.ports import Ports, bind_ports
from understudy.broker.saved_tables import load_tables
from understudy.broker.services import ServiceKeeper, broker_rows
from understudy.broker.session import OpenRules
from understudy.broker.storage import living_topics, store_settings
from understudy.broker.twin import refuse_twin
from understudy.remoting.client import RemotingClient, open_client
from understudy.runtime.background import open_background
from understudy.runtime.log import get_logger
from understudy.runtime.supervisor import open_supervisor
from understudy.runtime.world import World
from understudy.security.settings import secure_calls
from understudy.store.message_store import MessageStore

log = get_logger("broker")

STOP_SECONDS = 10.0
FIRST_REGISTRATION_MS = 1_000


async def run_broker(
    world: World,
    options: BrokerOptions,
    open_rules: OpenRules,
    client: RemotingClient | None = None,
    *,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker until cancelled; then sign off, flush and save, within :data:`STOP_SECONDS`.

    Ports, the store's folder and every task are given back when this returns or raises.

    Args:
        world: clock, network, disk and randomness.
        options: its configuration; read while it runs, so that live changes count.
        open_rules: opens what decides which services run, once for each role.
        client: shared connections to other servers; the broker opens its own when ``None``, and when controllers lead
            it: they take the end of a connection for the end of whoever used it.
        task_status: gets the broker when its port is bound, its store recovered, requests are answered, and the name
            servers that answer quickly know it.

    Raises:
        ListenError, DiskLockedError, BrokerStartError, TableDamagedError, OSError: it cannot serve; one clear line.
        BaseExceptionGroup: an essential service failed later.
    """
    ports = await bind_ports(world, options)
    identity = ports.identity
    try:
        living = await living_topics(world.disk, options.store)
        store = await MessageStore.open(
            world, store_settings(options.store, identity.role), (identity.ip, identity.port), living
        )
        try:
            await _run_on(world, options, open_rules, client, ports, store, task_status)
        finally:
            with trio.CancelScope(shield=True):
                await store.close()  # bounded by itself
    finally:
        with trio.CancelScope(shield=True):
            await ports.unbind()
    log.info("broker stopped", name=identity.canonical_name)


async def _run_on(
    world: World,
    options: BrokerOptions,
    open_rules: OpenRules,
    client: RemotingClient | None,
    ports: Ports,
    store: MessageStore,
    task_status: trio.TaskStatus[Broker],
) -> None:
    broker: Broker | None = None
    serving = trio.CancelScope()

    async def serve(*, task_status: trio.TaskStatus[Broker]) -> None:
        with serving:
            async with open_client(world) as own_client:
                secure_calls(own_client, options.security)
                shared = client if client is not None and not options.broker.enable_controller_mode else own_client
                made = Broker(world, options, ports, store, shared, open_rules)
                await _serve(made, serving, task_status)

    async with open_background() as nursery:
        try:
            broker = await nursery.start(serve)
            await trio.lowlevel.checkpoint_if_cancelled()
            task_status.started(broker)
            await trio.sleep_forever()
        finally:
            try:
                if broker is not None:
                    with trio.move_on_after(STOP_SECONDS / 2, shield=True):
                        await broker.retire()
            finally:
                serving.cancel()


async def _serve(broker: Broker, scope: trio.CancelScope, task_status: trio.TaskStatus[Broker]) -> None:
    """Load the tables of *broker* and run its services; save the tables at the end."""
    clock, identity, servers = broker.world.clock, broker.identity, broker.registration.servers
    await load_tables(broker)
    if broker.metrics is not None:
        await broker.metrics.bind()
    try:
        await servers.refresh()
        if broker.led is None:  # the controllers see to it that no id is there twice
            await refuse_twin(clock, broker.member_group, broker.client, identity)
        async with open_supervisor(clock, identity.canonical_name) as supervisor:
            keeper = ServiceKeeper(broker_rows(broker), supervisor, identity.canonical_name)
            broker.services.add(keeper)
            await keeper.apply({})
            if servers.addresses:
                await broker.registration.settled(FIRST_REGISTRATION_MS)
            log.info(
                "broker serves",
                name=identity.canonical_name,
                address=identity.address,
                role=broker.role,
                name_servers=";".join(servers.addresses) or "none",
            )
            await trio.lowlevel.checkpoint_if_cancelled()
            scope.shield = True  # only now: a stop during the start ends it at once, a later one in its order
            task_status.started(broker)
            await trio.sleep_forever()
    finally:
        with trio.move_on_after(STOP_SECONDS, shield=True):
            if broker.metrics is not None:
                await broker.metrics.unbind()
            await broker.timing.close()
            await broker.persistence.save_all()
