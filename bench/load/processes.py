"""What commands and the processes that they start cost: time, processor time, and the most memory of each kind."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def processor_seconds() -> float:
    """Processor time used so far by this process and everything it started: Spark and its workers."""
    ticks: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            ticks[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    mine, pending = 0, [os.getpid()]
    while pending:
        process = pending.pop()
        mine += ticks[process][1]
        pending += [child for child, (parent, _) in ticks.items() if parent == process]
    return mine / os.sysconf("SC_CLK_TCK")


@contextmanager
def timed() -> Iterator[list[float]]:
    """Wall time of a block, in seconds, as the only element of the list once it ended."""
    result: list[float] = []
    begin = time.perf_counter()
    yield result
    result.append(time.perf_counter() - begin)


def own_orphans() -> None:
    """Makes what the commands leave behind children of this process, so that their processor time is known here."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def cold_run(command: list[str]) -> tuple[int, float, float]:
    """Exit code and wall time of a command in a process of its own, and processor time of it and all it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with timed() as took:
        code = subprocess.call(command, stdout=subprocess.DEVNULL)
    while True:  # Spark's JVM ends by itself once the command has
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return code, took[0], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_memory(command: list[str], environment: dict[str, str]) -> tuple[int, float, dict[str, int]]:
    """Exit code and wall time of a command, and the largest resident memory in MB of each kind of process it had."""
    peaks: dict[str, int] = {}
    with timed() as took:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
        while process.poll() is None:
            for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
                try:
                    if os.getsid(pid) != process.pid:
                        continue
                    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:  # it ended meanwhile
                    continue
                kind = "worker" if any("daemon" in word for word in words) else "driver"
                kind = "java" if words[0].endswith("java") else kind
                for line in status.splitlines():
                    if line.startswith("VmHWM"):  # one that has ended has none
                        peaks[kind] = max(peaks.get(kind, 0), int(line.split()[1]) // 1024)
            time.sleep(0.2)
    return process.returncode, took[0], peaks
