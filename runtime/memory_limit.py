"""How much memory this process may use: the least of what control groups, its own limits and the machine say."""

from __future__ import annotations

import os
import resource

from understudy.runtime.files import Files, RealFiles

_GROUPS = "/sys/fs/cgroup"


def memory_limit_bytes(files: Files | None = None) -> int:
    """Return the memory, in bytes, that this process may use.

    Args:
        files: where the system tells about control groups; the machine's own if not given.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits + _group_limits(files or RealFiles()))


def _group_limits(files: Files) -> list[int]:
    """Return what the control groups above this process allow, of both versions; each bounds all below it."""
    try:
        lines = files.read("/proc/self/cgroup").decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            folder, name = _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = f"{_GROUPS}/memory", "memory.limit_in_bytes"
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            limit = _number(files, "/".join([folder, *parts[:depth], name]))
            if limit is not None:
                found.append(limit)
    return found


def _number(files: Files, path: str) -> int | None:
    try:
        text = files.read(path).decode("ascii", "replace").strip()
    except OSError:
        return None  # a group without a limit of its own, or one that is not shown in this container
    return int(text) if text.isdecimal() and int(text) > 0 else None  # "max" is none
