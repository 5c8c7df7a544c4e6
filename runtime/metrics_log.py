"""Metrics into the log: one line for each sample, at each interval. Off unless the settings ask for it."""

from __future__ import annotations

import trio

from understudy.runtime.log import get_logger
from understudy.runtime.metrics import PIECE_SAMPLES, LogSettings, Pieces
from understudy.runtime.metrics_export import Intervals, contained
from understudy.runtime.pace import Pace
from understudy.runtime.world import World

log = get_logger("runtime.metrics")


class MetricsLog:
    """Writes all samples of a server.

    Args:
        world: clock, and whose turns it takes.
        settings: how often.
        collect: makes the families, in pieces.
    """

    def __init__(self, world: World, settings: LogSettings, collect: Pieces) -> None:
        self._world = world
        self._settings = settings
        self._collect = collect

    async def bind(self) -> None:
        """Say that it is done."""
        log.info("metrics go into this log", seconds=self._settings.interval_seconds)
        await trio.lowlevel.checkpoint()

    async def unbind(self) -> None:
        """Nothing is held."""
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Write until cancelled."""
        clock = self._world.clock
        intervals = Intervals(clock, self._settings.interval_seconds)
        while True:
            await clock.sleep(intervals.left_seconds())
            await contained(self._write, log)

    async def _write(self) -> None:
        async with Pace(self._world) as pace:
            for family in self._collect():
                await pace.breathe()
                for number, sample in enumerate(family.samples if family is not None else ()):
                    if number % PIECE_SAMPLES == PIECE_SAMPLES - 1:
                        await pace.breathe()
                    assert family is not None
                    labels = {**self._settings.labels, **sample.labels}
                    told = ",".join(f"{label}={value}" for label, value in labels.items())
                    log.info(family.name + sample.suffix, value=sample.value, labels=told)
