"""Listens to name servers and slaves, so that a broker that nobody may hear holds back what is due.

What is decided by that is pure (:mod:`~understudy.container.silence`).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.broker.broker import Broker
from understudy.container import silence
from understudy.runtime.log import get_logger

log = get_logger("container.role")


class Listening:
    """What one broker hears for as long as it has one role.

    Args:
        broker: who listens.
        acts: returns whether it is a slave that acts.
    """

    def __init__(self, broker: Broker, acts: Callable[[], bool]) -> None:
        self._broker = broker
        self._acts = acts
        self._state = silence.State()

    def now(self) -> silence.State:
        """Return what is heard at this moment.

        Asked before each delivery, for what a slave never hears of it will deliver again.
        """
        broker, presence = self._broker, self._broker.presence
        master, state, keys = broker.replication.master, presence.state, broker.options.store
        group = broker.member_group
        others = {*(group.members or {}), *(group.memory.members or {})} - {broker.identity.broker_id}
        hearing = None if master is None else master.hearing((state.contact_ms or 0) / 1000)
        self._state, actions = silence.step(
            self._state,
            silence.Listened(state.guarded, state.contact_ms, len(others), hearing, self._acts()),
            broker.world.clock.monotonic() * 1000,
            silence.limits(
                keys.slave_timeout,
                presence.limits.silence,
                keys.ha_send_heartbeat_interval,
                broker.options.broker.sync_broker_member_group_period,
            ),
        )
        for action in actions:
            if isinstance(action, silence.HoldBack):
                log.warning("due messages are held back", broker=broker.identity.canonical_name, why=action.why)
            else:
                log.info("due messages go on", broker=broker.identity.canonical_name)
        return self._state
