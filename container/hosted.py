"""One broker of a container: its name in the tables, its place, and what it is run by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
from understudy.broker.life import run_broker
from understudy.container.role_services import RoleServices
from understudy.remoting.client import RemotingClient
from understudy.runtime.world import World

if TYPE_CHECKING:
    from understudy.container.escape.neighbour import Beside


@attrs.frozen(order=True)
class BrokerIdentity:
    """What must be unique in a container (and in a cluster): cluster, broker name, broker id."""

    cluster: str
    name: str
    broker_id: int

    def __str__(self) -> str:
        return f"{self.cluster}_{self.name}_{self.broker_id}"


async def host_broker(
    world: World,
    options: BrokerOptions,
    client: RemotingClient | None = None,
    beside: Callable[[], Sequence[Beside]] = list,
    *,
    task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a broker whose role is looked after; see :func:`~understudy.broker.life.run_broker`.

    Args:
        world, options, client, task_status: of the broker.
        beside: returns the brokers that run beside it now, masters first; none by default.
    """
    await run_broker(
        world, options, lambda broker, look: RoleServices(broker, look, beside), client, task_status=task_status
    )


@attrs.define(eq=False)
class HostedBroker:
    """One broker of a container.

    Attributes:
        identity: its name in the tables, from its configuration.
        broker: the broker itself.
        scope: cancelling it stops the broker.
        stopped: set when the broker is gone.
        failure: why it ended by itself, ``""`` otherwise.
        serves: it has not begun to stop.
    """

    identity: BrokerIdentity
    broker: Broker
    scope: trio.CancelScope = attrs.field(repr=False)
    stopped: trio.Event = attrs.field(factory=trio.Event, repr=False)
    failure: str = ""
    serves: bool = True

    @property
    def is_master(self) -> bool:
        """Whether the broker is the master of its group now."""
        return not self.broker.role.is_slave


def free_id(options: BrokerOptions, hosted: Iterable[HostedBroker]) -> int:
    """Return the id that names a broker in its container which controllers lead, when its file has none.

    Replicas of such a group have files that are alike, and none of them needs an id to be led.

    Args:
        options: of the broker.
        hosted: what the container has.

    Returns:
        The smallest id that no replica beside it has; of a store that is open here the id that it has.
    """
    config = options.broker
    group = [
        each
        for each in hosted
        if (each.identity.cluster, each.identity.name) == (config.broker_cluster_name, config.broker_name)
    ]
    for each in group:
        if each.broker.options.store.store_path_root_dir == options.store.store_path_root_dir:
            return each.identity.broker_id
    taken = {each.identity.broker_id for each in group}
    return next(number for number in range(len(taken) + 1) if number not in taken)
