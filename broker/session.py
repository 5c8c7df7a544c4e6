"""One role of a broker while it has it: one nursery, whose services are the rows of the table.

The session ends when the role changes; the broker, its store, its tables and the connections of its clients stay.
Whatever the decisions depend on wakes one task, which decides anew and starts and stops what differs. So no event can
be missed, and none can leave half a role behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import trio

from understudy.broker.inner import InnerMessage
from understudy.broker.pop.popped import Popped
from understudy.broker.redelivery import Redelivery
from understudy.broker.role import Role
from understudy.broker.services import BrokerServices, Decisions, Run, Service, ServiceKeeper, role_rows
from understudy.broker.topics import TopicConfig
from understudy.broker.transactions import judgement
from understudy.runtime.log import get_logger
from understudy.runtime.signal import Signal
from understudy.runtime.supervisor import open_supervisor
from understudy.store.status import PutStatus

if TYPE_CHECKING:
    from understudy.broker.broker import Broker


class RoleRules(Redelivery, Protocol):
    """Decides which services of one role run, and takes what falls due if the broker may put it now.

    It is brought by the host of a broker, so that a broker knows of no other.
    """

    @property
    def active(self) -> bool:
        """Whether the broker looks after what is stored: a master, or a slave that acts for it."""
        ...

    @property
    def acting(self) -> bool:
        """Whether the broker is a slave that acts at this moment, and was not away."""
        ...

    @property
    def may_store(self) -> bool:
        """Whether what the broker itself decides now belongs into its own log: nobody else may act for it."""
        ...

    @property
    def reason(self) -> str:
        """Why it does or does not."""
        ...

    @property
    def summary(self) -> str:
        """The newest give-back in one line, ``""`` when there was none."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What an operator has to know or to mend, a sentence each."""
        ...

    def finish_pre_online(self) -> bool:
        """End a give-back under way now, without what is missing, or wait no longer for that; return whether it was."""
        ...

    def services(self) -> Mapping[Service, Run]:
        """Return what runs those services that only the host knows."""
        ...

    def attached(self) -> AbstractContextManager[None]:
        """Hear of everything that the decisions depend on, inside the block."""
        ...

    def decide(self) -> Decisions:
        """Return what must run now, and take note of it."""
        ...

    async def end_transaction(self, decision: judgement.Decision) -> judgement.Refusal | None:
        """Have a decision about a half message carried out by a slave that acts; return why it cannot be now."""
        ...

    async def put_beside(self, topics: Sequence[TopicConfig], message: InnerMessage) -> PutStatus | None:
        """Put *message* to a master that runs beside the broker and learns *topics*; ``None`` when there is none."""
        ...

    async def read_elsewhere(self, broker_name: str, topic: str, queue_id: int, offset: int) -> Popped:
        """Return the message at queue offset *offset* of another group of brokers.

        Args:
            broker_name: of the group whose log has it.
            topic: of the message.
            queue_id: of the message.
            offset: its queue offset.
        """
        ...

    async def give_back(self) -> Mapping[str, Any] | None:
        """Return the report of the newest give-back, of a former life if need be; ``None`` when there is none."""
        ...


log = get_logger("broker.session")

STOP_SECONDS = 5.0
"""The longest end of a service, a put to another broker that is under way, takes less."""

OpenRules = Callable[["Broker", Callable[[], None]], RoleRules]
"""From a broker, and what asks for a new decision, to the rules of its role; called once for each session."""


class RoleSession:
    """A broker in one role.

    Args:
        broker: its parts exist; its role is the one of this session.
        open_rules: opens the rules.

    Attributes:
        role: the role.
        rules: what decides.
    """

    def __init__(self, broker: Broker, open_rules: OpenRules) -> None:
        self._broker = broker
        self._wake = Signal()
        self.role: Role = broker.identity.role
        self.rules = open_rules(broker, self.look)

    def look(self) -> None:
        """Have the decisions made anew soon."""
        self._wake.set()

    async def run(self, services: BrokerServices) -> None:
        """Keep the services of the role as decided until cancelled; they are listed in *services* meanwhile.

        They end in the order of the table, what delivers before what copies, within :data:`STOP_SECONDS`.
        """
        broker, name = self._broker, self._broker.identity.canonical_name
        async with open_supervisor(broker.world.clock, name) as supervisor:
            keeper = ServiceKeeper(role_rows(broker, self.rules), supervisor, name)
            services.add(keeper)
            try:
                with self.rules.attached():
                    while True:
                        looked = self._wake.count
                        await keeper.apply(self.rules.decide())
                        await self._wake.wait(looked)
            finally:
                with trio.move_on_after(STOP_SECONDS, shield=True) as bound:
                    await keeper.stop()
                if bound.cancelled_caught:
                    log.error("services of a role did not end in time", broker=name, role=self.role)
                services.remove(keeper)
