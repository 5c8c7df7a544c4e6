"""What a new master tells slaves that do not follow it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from understudy.broker.led.controllers import Controllers, RefusedError, UnansweredError
from understudy.broker.led.following import State, Word
from understudy.broker.led.replication import LedReplication
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.remoting.errors import RemotingError

if TYPE_CHECKING:
    from understudy.broker.broker import Broker

ASK_MASTER_MS = 1_000
CALL_PAUSES = (0.3, 0.7, 1.0, 2.0, 3.0, 5.0, 5.0, 10.0, 10.0)
"""Seconds before each call of slaves that do not follow a new master yet."""


async def call_slaves(
    broker: Broker,
    replication: LedReplication,
    controllers: Controllers,
    word: Word,
    state_now: Callable[[], State | None],
) -> None:
    """Tell slaves that do not follow this new master where its log is (906), as a returning master does.

    Slaves of ours ask for it themselves. A real one learns it from a name server when it registers, which it does as
    soon as it is told of the new master, and so often before that one is registered, and then every 30 s.

    Args:
        broker: the new master.
        replication: of the broker.
        controllers: who know where slaves are.
        word: of the role; another one ends the calls.
        state_now: returns what is known of the group.
    """
    fields = {
        "masterAddress": broker.identity.address,
        "masterHaAddress": broker.identity.ha_address,
        "masterFlushOffset": str(broker.replication.initial_offset),
    }
    for pause in CALL_PAUSES:
        await broker.world.clock.sleep(pause)
        state = state_now()
        if state is None or state.role is None or state.role.epoch != word.epoch:
            return
        try:
            addresses = await controllers.addresses(state.leader)
        except (UnansweredError, RefusedError):
            continue
        for broker_id, address in addresses.items():
            if broker_id != replication.own_id and broker_id not in replication.followers():
                question = request(RequestCode.EXCHANGE_BROKER_HA_INFO, fields, oneway=True)
                with contextlib.suppress(RemotingError):
                    await broker.client.invoke_oneway(address, question, ASK_MASTER_MS)
