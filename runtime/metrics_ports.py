"""Ports of metrics that servers of one process share: who is given the same address is served on one port.

The laws:

* Each server keeps its own labels, its own limit of series and its own settings of what is measured; on the port all
  samples of one name stand together, as readers of the text want it.
* The first to come takes the port, one of those that are there serves it, and the last to go gives it back.
* One whose metrics cannot be made is left out of that text, with a line in the log; the others are in it.

Differs because in the reference the first broker of a container gets the port, and the others have no metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs
import trio

from understudy.runtime.log import get_logger
from understudy.runtime.metrics import PIECE_SAMPLES, Family, Labels, MetricsSettings, Pieces, Sample
from understudy.runtime.network import ListenError

if TYPE_CHECKING:
    from understudy.runtime.metrics_endpoint import MetricsEndpoint
    from understudy.runtime.world import World

log = get_logger("runtime.metrics")

_Address = tuple[str, int]


class Source:
    """Metrics of one server.

    Args:
        collect: makes its families, in pieces.
        labels: that all its samples have.
    """

    __slots__ = ("collect", "labels")  # plain classes here: every program's start imports them

    def __init__(self, collect: Pieces, labels: Labels) -> None:
        self.collect = collect
        self.labels = labels


class MetricsPorts:
    """The shared ports of one process, by the address that the settings name."""

    def __init__(self) -> None:
        self._ports: dict[_Address, _Port] = {}
        self._changing = trio.Lock()

    def exporter(self, world: World, settings: MetricsSettings, collect: Pieces) -> SharedEndpoint:
        """Return what serves the metrics of one server.

        Args:
            world: network.
            settings: where.
            collect: makes the families, in pieces.
        """
        return SharedEndpoint(self, world, settings, Source(collect, settings.labels))

    async def join(self, world: World, settings: MetricsSettings, source: Source) -> _Port:
        """Have *source* served on its port, which is taken if nobody has it yet. Raises ``ListenError``."""
        from understudy.runtime.metrics_endpoint import MetricsEndpoint

        address = settings.host, settings.port
        async with self._changing:
            port = self._ports.get(address)
            if port is None:
                sources = list[Source]()
                endpoint = MetricsEndpoint(world, attrs.evolve(settings, labels={}), lambda: together(tuple(sources)))
                port = _Port(address, endpoint, sources)
                try:
                    await endpoint.bind()
                except ListenError as error:
                    raise ListenError(f"metricsPromExporterPort={settings.port}: {error}") from error
                if settings.port:  # whoever asks for any free port wants one of its own
                    self._ports[address] = port
            port.sources.append(source)
        return port

    async def leave(self, port: _Port, source: Source) -> None:
        """Have *source* served no more; the last one's port is given back."""
        with trio.CancelScope(shield=True):
            async with self._changing:
                if source in port.sources:
                    port.sources.remove(source)
                    if not port.sources:
                        self._ports.pop(port.address, None)
                        await port.endpoint.unbind()


class _Port:
    """One port; *serving* is held by the server that serves it for all."""

    __slots__ = ("address", "endpoint", "serving", "sources")

    def __init__(self, address: _Address, endpoint: MetricsEndpoint, sources: list[Source]) -> None:
        self.address = address
        self.endpoint = endpoint
        self.sources = sources
        self.serving = trio.Lock()


class SharedEndpoint:
    """The metrics of one server on a port that others may have, too.

    Args:
        ports: of the process.
        world: network.
        settings: where.
        source: the metrics.
    """

    def __init__(self, ports: MetricsPorts, world: World, settings: MetricsSettings, source: Source) -> None:
        self._ports = ports
        self._world = world
        self._settings = settings
        self._source = source
        self._port: _Port | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the real port once bound."""
        return (self._settings.host, self._settings.port) if self._port is None else self._port.endpoint.address

    async def bind(self) -> None:
        """Take the port, or a place on it. Raises ``ListenError``."""
        self._port = await self._ports.join(self._world, self._settings, self._source)

    async def unbind(self) -> None:
        """Give the place back, and the port with the last of them."""
        if self._port is not None:
            await self._ports.leave(self._port, self._source)

    async def run(self) -> None:
        """Serve, or stand by to, until cancelled; :meth:`bind` first."""
        port = self._port
        assert port is not None
        try:
            async with port.serving:
                await port.endpoint.serve()
        finally:
            await self.unbind()


def together(sources: Iterable[Source]) -> Iterator[Family | None]:
    """Give the families of *sources*, those of one name as one, with ``None`` where others may have their turn.

    Raises whatever the last of them did, when there is nothing to give.
    """
    failed: Exception | None = None
    found: dict[str, Family] = {}
    samples: dict[str, list[Sample]] = {}
    for source in sources:
        families = iter(source.collect())
        while True:
            try:
                family = next(families)
            except StopIteration:
                break
            except Exception as error:
                failed = error
                why = f"{type(error).__name__}: {error}"
                log.error("metrics of one server could not be made", labels=dict(source.labels), why=why, exc=error)
                break
            if family is None:
                yield None
                continue
            found.setdefault(family.name, family)
            those = samples.setdefault(family.name, [])
            for number, sample in enumerate(family.samples):
                if number and number % PIECE_SAMPLES == 0:
                    yield None
                those.append(Sample(sample.value, {**source.labels, **sample.labels}, sample.suffix))
    if failed is not None and not found:
        raise failed
    for name, family in found.items():
        yield attrs.evolve(family, samples=samples[name])
