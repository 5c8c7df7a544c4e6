"""Where the name servers of a broker or container are: as listed, or what their host names stand for at the moment.

Source: BrokerOuterAPI.java (dnsLookupAddressByDomain), BrokerController.java (updateNamesrvAddr).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.runtime.log import get_logger
from understudy.runtime.network import Network
from understudy.runtime.world import World

log = get_logger("broker.name_servers")

LOOK_UP_SECONDS = 5


def listed(text: str | None) -> list[str]:
    """Return the addresses of a ``namesrvAddr``, ``host:port`` each."""
    return [address.strip() for address in (text or "").split(";") if address.strip()]


async def look_up(network: Network, text: str | None) -> list[str]:
    """Return ``ip:port`` of every machine that the names of a ``namesrvAddr`` stand for, without repeats.

    Differs: the reference looks up a single name; here a list may hold several, and plain addresses stay as they are.

    Errors: ``OSError`` when a name is unknown or nobody can be asked.
    """
    found: dict[str, None] = {}
    for address in listed(text):
        host, _, port = address.rpartition(":")
        for machine in await network.resolve(host.strip("[]"), LOOK_UP_SECONDS):
            found[f"[{machine}]:{port}" if ":" in machine else f"{machine}:{port}"] = None
    return list(found)


class NameServers:
    """The name servers in force.

    Args:
        world: clock and network.
        text: reads ``namesrvAddr`` as it is configured at the moment.
        by_name: reads ``fetchNameSrvAddrByDnsLookup`` at the moment.
        period_ms: reads how long names stand for the same machines.

    Attributes:
        on_change: called when names stand for other machines than before.
    """

    def __init__(
        self, world: World, text: Callable[[], str | None], by_name: Callable[[], bool], period_ms: Callable[[], int]
    ) -> None:
        self._world = world
        self._text = text
        self._by_name = by_name
        self._period_ms = period_ms
        self._looked_up: list[str] = []
        self._of: str | None = None
        self.on_change: list[Callable[[], None]] = []

    @property
    def addresses(self) -> list[str]:
        """Where to ask, ``host:port`` each; the names themselves until they could be looked up."""
        text = self._text()
        return list(self._looked_up) if self._by_name() and self._of == text else listed(text)

    async def refresh(self) -> None:
        """Look the names up, if that is configured; what was known stays when nobody can be asked."""
        text = self._text()
        if not self._by_name() or not text:
            return
        before = self.addresses
        try:
            found = await look_up(self._world.network, text)
        except OSError as error:
            log.warning("name servers cannot be looked up", names=text, why=error, used=";".join(before))
            return
        self._looked_up, self._of = found, text
        if found != before:
            log.info("name servers looked up", names=text, addresses=";".join(found))
            for tell in self.on_change:
                tell()

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            await self._world.clock.sleep(self._period_ms() / 1000)
            await self.refresh()
