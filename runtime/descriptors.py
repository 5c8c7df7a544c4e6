"""How many files and connections this process may have open, and which of them are kept for files.

The operating system gives every new file or connection the lowest free number. So a connection whose number is one of
the last :func:`reserved` tells, without any counting, that all the others are taken: it is refused, and files (of the
store, of saved tables) still find a number when connections no longer do.
"""

from __future__ import annotations

import errno
import resource

MOST = 1 << 20
"""A process asks for no more than that, whatever it may have: some systems say "unlimited" and mean a lot of memory."""

RESERVED_MOST = 4096
"""Kept for files where there are plenty: mapped files of about ten brokers."""

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def raise_limit() -> int:
    """Let this process open as many files and connections as its hard limit allows, at most :data:`MOST`.

    Returns:
        The limit from now on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a sandbox may forbid what the limits promise; the old limit holds then
            return soft
        return wanted
    return soft


def reserved(limit: int) -> int:
    """Return how many of *limit* descriptors are kept for files: half of few, :data:`RESERVED_MOST` of many."""
    return min(limit // 2, RESERVED_MOST)


def for_connections() -> int:
    """Return the number from which on a descriptor is too high for a connection that a peer opened."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST - RESERVED_MOST
    return soft - reserved(soft)


def is_shortage(error: OSError) -> bool:
    """Tell whether *error* says that the process or the machine lacks descriptors or memory: nothing about a disk."""
    return error.errno in _SHORTAGES
