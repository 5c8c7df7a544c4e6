"""How many connections may wake in one turn of a server's event loop.

trio wakes every task whose socket has something, all of them in one turn: thousands of clients that speak or close at
once would hold the loop until the last of them is served. With a limit the others stay in the system's queue, which is
served in order, and whatever else is to be done has its turn between them. One more question to the system for so many
connections costs nothing that can be measured.

trio has no setting for that, so its own way of asking the system is asked for less. Where a trio has another way (not
Linux, or a later version), its turns are as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trio._core import _run

AT_ONCE = 32
"""Connections that wake in one turn: some 20 us for each that speaks, and ten times as much for each that ends."""

_CHOSEN = "TheIOManager"


@contextmanager
def wake_limit(at_once: int = AT_ONCE) -> Iterator[bool]:
    """Limit event loops that start inside the block.

    Args:
        at_once: sockets that may wake tasks in one turn.

    Yields:
        Whether this trio can be limited.
    """
    usual = getattr(_run, _CHOSEN, None)
    if sys.platform != "linux" or usual is None or not hasattr(usual, "get_events"):
        yield False
        return
    from trio._core._io_epoll import EpollIOManager

    class Limited(EpollIOManager):
        def get_events(self, timeout: float) -> list[tuple[int, int]]:
            return self._epoll.poll(timeout, max(1, min(len(self._registered), at_once)))

    chosen = vars(_run)  # where trio notes once what the system has
    chosen[_CHOSEN] = Limited
    try:
        yield True
    finally:
        chosen[_CHOSEN] = usual
