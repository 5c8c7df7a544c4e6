"""``python -m understudy.testkit.cuttable_container -c FILE``: a container whose network can be cut off by a signal.

SIGUSR1 cuts, SIGUSR2 mends. For :mod:`understudy.testkit.acting_pair`; the servers that people run know nothing of it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import trio

from understudy.container.config import ContainerOptions
from understudy.container.container import BrokerContainer
from understudy.runtime.disk import RealDisk
from understudy.runtime.log import configure, get_logger
from understudy.runtime.program import run_program
from understudy.runtime.property_file import read_properties_file
from understudy.runtime.world import real_world
from understudy.testkit.cut_network import Cable, CutNetwork

log = get_logger("testkit.cuttable_container")

CUT, MEND = signal.SIGUSR1, signal.SIGUSR2
CUT_LINE, MENDED_LINE = "cut off the network", "connected to the network again"
"""What is logged once a signal has had its effect."""


@contextmanager
def held_back() -> Iterator[None]:
    """Let what is started in the block keep both signals until it can take them: by default they would end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (CUT, MEND))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a container.

    Args:
        argv: ``-c`` and its configuration file; those of the process when ``None``.

    Returns:
        0 after a clean stop.
    """
    _, path = sys.argv[1:] if argv is None else argv
    options, _ = ContainerOptions.from_properties(read_properties_file(RealDisk(), path, None))
    options.path = path
    configure("INFO")
    return run_program("container", lambda: _serve(options))


async def _serve(options: ContainerOptions) -> None:
    cable = Cable()
    world = real_world()
    world = attrs.evolve(world, network=CutNetwork(world.network, cable))
    with trio.open_signal_receiver(CUT, MEND) as received:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (CUT, MEND))  # what was sent before has waited, see `held_back`
        async with trio.open_nursery() as nursery:
            nursery.start_soon(BrokerContainer(world, options).run)
            async for number in received:
                if number == CUT:
                    cable.cut()
                    log.warning(CUT_LINE)
                else:
                    cable.mend()
                    log.warning(MENDED_LINE)


if __name__ == "__main__":
    sys.exit(main())
