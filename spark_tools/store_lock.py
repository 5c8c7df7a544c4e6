"""The lock a broker takes on its store, held while files of a stopped one are changed: none starts on it meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from understudy.runtime.file_lock import HELD_ERRORS, hold
from understudy.spark_tools.plan import PlanError

LOCK_FILE = "lock"


@contextmanager
def store_lock(path: str, *, create: bool = True) -> Iterator[None]:
    """Holds the lock of the store in a local directory as a broker does, of either kind.

    A directory that does not exist has nothing to hold.

    Args:
        create: make the lock file where no broker has made it yet; without it such a store is not held.

    Raises:
        PlanError: when a broker, or another apply, holds it.
        OSError: when the lock file cannot be opened.
    """
    lock = os.path.join(path, LOCK_FILE)
    if not os.path.exists(lock) and not (create and os.path.isdir(path)):
        yield
        return
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            hold(handle)
        except OSError as error:
            if error.errno not in HELD_ERRORS:
                raise
            raise PlanError(
                f"a broker is running on {path}: stop it, or apply to the live broker with --broker"
            ) from None
        yield
    finally:
        os.close(handle)


def check_stopped(path: str) -> None:
    """Makes sure that no broker has the store open, without leaving a trace.

    Raises:
        PlanError: when one holds its lock.
    """
    with store_lock(path, create=False):
        return
