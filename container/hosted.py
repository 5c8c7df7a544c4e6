"""One broker of a container: its name in the tables, its place, and how its start is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions
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


def host_broker(
    world: World, options: BrokerOptions, client: RemotingClient | None, beside: Callable[[], Sequence[Beside]]
) -> Broker:
    """Make a broker whose role is looked after, whoever hosts it.

    Args:
        world, options, client: of the broker.
        beside: returns the brokers that run beside it now, masters first.
    """
    if options.broker.enable_controller_mode:  # the controller gives the role
        return Broker(world, options, client=client)
    return Broker(world, options, client=client, role=lambda broker: RoleServices(broker, beside))


@attrs.define(eq=False)
class HostedBroker:
    """One broker of a container.

    Attributes:
        identity: its name in the tables.
        broker: the broker itself.
        scope: cancelling it stops the broker.
        stopped: set when the broker is gone.
        failure: why it ended by itself, ``""`` otherwise.
        serves: it has started and not begun to stop.
    """

    identity: BrokerIdentity
    broker: Broker
    # Shielded once it has started: the end of the container stops its brokers in their order, not all at once.
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    stopped: trio.Event = attrs.field(factory=trio.Event, repr=False)
    failure: str = ""
    serves: bool = False

    @property
    def is_master(self) -> bool:
        """Whether the broker is configured as the master of its group."""
        return self.identity.broker_id == 0


class Started:
    """A task status that remembers whether the start was reported, and shields *scope* from then on."""

    def __init__(self, inner: trio.TaskStatus[None], scope: trio.CancelScope) -> None:
        self._inner = inner
        self._scope = scope
        self.happened = False

    def started(self, value: None = None) -> None:
        self.happened = True
        self._scope.shield = True
        self._inner.started(value)
