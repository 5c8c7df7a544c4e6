"""How often, and by what, a store's random lives end."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.store.config import ASYNC_FLUSH, SYNC_FLUSH
from understudy.testkit.sim.disk import SimDisk


def with_accidents(test: Callable[[int, str, list[str]], None]) -> Callable[[], None]:
    """Play *test* with a seed, a kind of flush, and the accident that ends each life of a store."""
    lives = given(
        seed=st.integers(0, 1 << 32),
        flush=st.sampled_from([SYNC_FLUSH, ASYNC_FLUSH]),
        accidents=st.lists(st.sampled_from(["power", "cut", "kill", "close"]), min_size=1, max_size=4),
    )
    return settings(max_examples=int(os.environ.get("UNDERSTUDY_EXAMPLES", "60")))(lives(test))


def befall(disk: SimDisk, accident: str) -> None:
    """Have *accident* happen to *disk*, whose process has stopped to work."""
    if accident == "kill":
        disk.kill_process()
    elif accident in ("power", "cut"):
        disk.lose_power()
