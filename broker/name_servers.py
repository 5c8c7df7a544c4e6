"""Where the name servers of a broker or container are: as listed, or what their host names stand for at the moment.

Source: BrokerOuterAPI.java (dnsLookupAddressByDomain), BrokerController.java (updateNamesrvAddr).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import trio

from understudy.runtime.log import get_logger
from understudy.runtime.network import Network
from understudy.runtime.signal import Signal
from understudy.runtime.world import World

log = get_logger("broker.name_servers")

LOOK_UP_SECONDS = 5


def listed(text: str | None) -> list[str]:
    """Return the addresses of a ``namesrvAddr``, ``host:port`` each."""
    return [address.strip() for address in (text or "").split(";") if address.strip()]


async def look_up(network: Network, addresses: Iterable[str]) -> dict[str, list[str] | OSError]:
    """Ask for the names in all *addresses* at the same time.

    Differs: the reference looks up a single name; here a list may hold several, and plain addresses stay as they are.

    Returns:
        For each ``host:port`` the ``ip:port`` of every machine it stands for, or why nobody knows.
    """
    answers: dict[str, list[str] | OSError] = {}

    async def ask(address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            machines = await network.resolve(host.strip("[]"), LOOK_UP_SECONDS)
        except OSError as error:
            answers[address] = error
        else:
            answers[address] = [
                f"[{machine}]:{port}" if ":" in machine else f"{machine}:{port}" for machine in machines
            ]

    async with trio.open_nursery() as nursery:
        for address in dict.fromkeys(addresses):
            nursery.start_soon(ask, address)
    return answers


class NameServers:
    """The name servers in force.

    Args:
        world: clock and network.
        text: reads ``namesrvAddr`` as it is configured at the moment.
        by_name: reads ``fetchNameSrvAddrByDnsLookup`` at the moment.
        period_ms: reads how long names stand for the same machines.

    Attributes:
        on_change: called when there are other addresses than before.
    """

    def __init__(
        self, world: World, text: Callable[[], str | None], by_name: Callable[[], bool], period_ms: Callable[[], int]
    ) -> None:
        self._world = world
        self._text = text
        self._by_name = by_name
        self._period_ms = period_ms
        self._machines: dict[str, list[str]] = {}
        self._of: str | None = None
        self._told: list[str] | None = None
        self._wake = Signal()
        self.on_change: list[Callable[[], None]] = []

    @property
    def addresses(self) -> list[str]:
        """Where to ask, ``host:port`` each; the names themselves until one of them could be looked up."""
        text = self._text()
        names = listed(text)
        if not self._by_name() or self._of != text:
            return names
        machines = [machine for name in names for machine in self._machines.get(name, ())]
        return list(dict.fromkeys(machines)) or names

    def changed(self) -> None:
        """Tell that a setting was changed: names are looked up at once."""
        self._wake.set()

    async def refresh(self) -> None:
        """Look the names up, if that is configured; what was known of a name stays when nobody can be asked for it."""
        text = self._text()
        if self._by_name() and text:
            answers = await look_up(self._world.network, listed(text))
            known, self._machines, self._of = self._machines, {}, text
            for name, answer in answers.items():
                if isinstance(answer, OSError):
                    self._machines[name] = known.get(name, [])
                    used = ";".join(self._machines[name]) or "none"
                    log.warning("a name server cannot be looked up", name=name, why=answer, used=used)
                else:
                    self._machines[name] = answer
        before, self._told = self._told, self.addresses
        if before is not None and before != self._told:
            log.info("other name servers", names=text, addresses=";".join(self._told))
            for tell in self.on_change:
                tell()

    async def run(self) -> None:
        """Refresh until cancelled: in turn while names are looked up, otherwise only when told of a change."""
        handled = 0
        while True:
            period_seconds = self._period_ms() / 1000 if self._by_name() else math.inf
            with self._world.clock.move_on_after(period_seconds):
                await self._wake.wait(handled)
            handled = self._wake.count
            await self.refresh()
