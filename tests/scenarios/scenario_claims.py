"""Words that anyone may say to a slave: that its master comes back, or that a slave comes which acts from now on."""

from __future__ import annotations

from scenario_links import Links
from scenario_members import Broker

from understudy.broker.absence import MASTER_ID
from understudy.broker.announcement import Claim, contradiction
from understudy.container.preonline import handshake


class Claims(Links):
    """Members that are told such things by somebody who is none of them."""

    def claim_master(self, broker: Broker, address: str) -> bool:
        """Tell *broker* that its master comes back at *address*; return whether it believes it."""
        shown = None if broker.presence.contact_lost else broker.view.members
        why = contradiction(Claim(address, f"{address}:ha"), shown) or self._stranger(broker, address, 0)
        believed = self._heard(broker, f"its master is at {address}", why)
        broker.follows = address if believed else broker.follows
        return believed

    def claim_successor(self, broker: Broker, address: str, broker_id: int) -> bool:
        """Tell *broker* that slave *broker_id* at *address* comes; return whether it believes it."""
        why = self._stranger(broker, address, broker_id)
        if not why and not broker.patience.lasts(self.now):
            why = "slaves have come for too long, and none is there"
        return self._heard(broker, f"slave {broker_id} comes at {address}", why, broker_id)

    def _stranger(self, broker: Broker, address: str, broker_id: int) -> str:
        """Return what is wrong with who answers at *address*, ``""`` when it is that member."""
        known = int(address[1:]) < len(self.brokers)
        found = self._reachable(broker, address) if known else None
        if found is None:
            return f"nobody answers at {address}"
        return "" if found.broker_id == broker_id else f"{address} answers that it is {found.broker_id}"

    def _heard(self, broker: Broker, what: str, why: str, of: int = MASTER_ID) -> bool:
        if why:
            self.say_once(broker, "believed", f"does not believe that {what}: {why}")
            return False
        self._tell(broker, of)
        self.say_once(broker, "believed", f"believes that {what}")
        return True

    def _tell(self, told: Broker, broker_id: int) -> None:
        """Let *told* wait for its master, or for the slave *broker_id*."""
        told.announced_at, told.successor = self.now, None if broker_id == MASTER_ID else broker_id

    def _remind(self, broker: Broker, state: handshake.State) -> None:
        for member in state.told:
            told = self._reachable(broker, member.address)
            if told is not None:
                self._tell(told, broker.broker_id)
