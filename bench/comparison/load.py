"""The load client of `bench/java` as a child process, and the steps it plays against each side."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOL = str(Path(__file__).resolve().parents[1] / "java" / "rocketmq")
SETUP = str(Path(TOOL).with_name("setup.sh"))
RESULT_LIMIT_S = 400
CONSUME, CONSUME_SQL, POP = "consume_backlog", "consume_sql", "pop_backlog"
"""Steps that take what `send_async` has left."""


def load(*arguments: object, limit_s: float = 600) -> dict[str, Any]:
    """Runs the load client to its end; returns its JSON line, or {"failed": reason}."""
    command = [TOOL, "load", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit_s} s"}
    except (IndexError, ValueError):
        return {"failed": f"no result: {done.stderr.strip()[-200:]}"}
    return result


class Watch:
    """A load client started before what it watches: it looks once this object exists, `result` is its JSON line."""

    def __init__(self, *arguments: object) -> None:
        command = [TOOL, "load", *map(str, arguments)]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._child.stdout is not None
        first = json.loads(self._child.stdout.readline() or "{}")
        if "looping" not in first:
            self._child.kill()
            raise RuntimeError(f"the load client did not start: {first}")

    def result(self) -> dict[str, Any]:
        out, _ = self._child.communicate(timeout=RESULT_LIMIT_S)
        answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return answer


class SteadyLoad:
    """A load client that sends until it is told to end.

    Args:
        arguments: after `send`.
    """

    def __init__(self, *arguments: object) -> None:
        command = [TOOL, "load", "send", *map(str, arguments), "--until-closed"]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def await_warm(self) -> None:
        """Waits until its warm-up is over. Raises RuntimeError when it ends before."""
        assert self._child.stdout is not None
        if not any("measuring" in line for line in self._child.stdout):
            raise RuntimeError("the load client did not start")

    def result(self) -> dict[str, Any]:
        """Ends it; returns its JSON line, or {"failed": reason}."""
        out, _ = self._child.communicate("", timeout=RESULT_LIMIT_S)
        try:
            answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        except (IndexError, ValueError):
            return {"failed": "the load client ended without a result"}
        return answer

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        self._child.kill()
        self._child.wait()


@contextmanager
def steady_load(*arguments: object) -> Iterator[SteadyLoad]:
    """Sends while the block runs, and until :meth:`SteadyLoad.result`; its warm-up is over when the block begins."""
    sending = SteadyLoad(*arguments)
    try:
        sending.await_warm()
        yield sending
    finally:
        sending.kill()


@dataclass(frozen=True)
class Step:
    """One measurement under load: its key in the figures and the load client's arguments."""

    key: str
    arguments: tuple[str, ...]


def _step(key: str, *arguments: object) -> Step:
    return Step(key, tuple(map(str, arguments)))


def load_steps(threads: Iterable[int], seconds: int, warmup: int, size: int) -> list[Step]:
    """Returns the steps in their order; a backlog is consumed after the step that made it."""
    timing = ("--seconds", seconds, "--warmup", warmup)
    sending = (*timing, "--size", size)
    steps = [_step(f"send_sync_{n}", "send", "--topic", f"BaseSync{n}", "--threads", n, *sending) for n in threads]
    return [
        *steps,
        _step(
            "send_async",
            "send",
            "--topic",
            "BaseAsync",
            "--mode",
            "async",
            "--threads",
            2,
            "--inflight",
            1024,
            *sending,
        ),
        _step("send_batch32", "send", "--topic", "BaseBatch", "--batch", 32, "--threads", 4, *sending),
        _step(CONSUME, "consume", "--topic", "BaseAsync", "--timeout", 180),
        _step("pull_one_queue", "pull", "--topic", "BaseAsync", "--seconds", seconds, "--warmup", warmup // 2),
        # One message in flight shows every pause of a client that still compiles itself: it gets twice the time for it.
        _step(
            "latency",
            "latency",
            "--topic",
            "BaseLatency",
            "--seconds",
            2 * seconds,
            "--warmup",
            2 * warmup,
            "--size",
            size,
        ),
    ]


def feature_steps(seconds: int, warmup: int, size: int, timers: int) -> list[Step]:
    """Returns the steps that a broker does more for than for a plain message; what is popped another step has sent."""
    timing = ("--seconds", seconds, "--warmup", warmup)
    committing = ("--topic", "BaseTransactions", "--mode", "transaction", "--threads", 64)
    return [
        _step("send_transaction", "send", *committing, *timing, "--size", size),
        _step("timer_minute", "timer", "--topic", "BaseTimer", "--count", timers, "--within", 60, "--size", size),
        # The last: what a pop leaves to be looked at when its invisible time ends falls into the next minute.
        _step(POP, "consume", "--pop", "--topic", "BaseAsync", "--pull-batch", 32, "--timeout", 180),
    ]


def replicated_step(seconds: int, warmup: int, size: int, threads: int = 64) -> Step:
    """Returns the step for a master alone, and for one that waits for its slave's copy of every message."""
    timing = ("--seconds", seconds, "--warmup", warmup)
    return _step("sync_master", "send", "--topic", "BaseCopies", "--threads", threads, *timing, "--size", size)


def steady_arguments(rate: int, warmup: int, size: int) -> tuple[object, ...]:
    """Returns what lets `send` send so many messages a second, until it is told to end."""
    timing = ("--rate", rate, "--warmup", warmup, "--seconds", RESULT_LIMIT_S)
    return ("--topic", "BaseSteady", "--threads", 16, *timing, "--size", size)


def sync_flush_step(seconds: int, warmup: int, size: int, threads: int = 64) -> Step:
    """Returns the step for brokers that flush every message before they acknowledge it."""
    timing = ("--seconds", seconds, "--warmup", warmup)
    return _step(
        f"send_sync_flush_{threads}", "send", "--topic", "BaseFlush", "--threads", threads, *timing, "--size", size
    )


ONE_IN = 10
SQL_QUEUES = 8
"""Of the topic that is consumed by a condition: as many as brokers give a topic that is made by an administrator."""
WIDEST_SPAN = 65_535
"""The most that the client allows between the first and the last offset of a queue that wait in it."""


def condition_steps(seconds: int, warmup: int, size: int) -> tuple[Step, Step]:
    """Returns the step that fills a topic, and the one that consumes a tenth of it by a condition.

    A consumer's limits are made for topics of which it takes all: where it takes one in ten, it holds a queue up when
    200 messages of it wait (an offset span of 2,000), and one pull a queue is soon its limit. Neither is measured here.
    """
    timing = ("--seconds", seconds, "--warmup", warmup)
    topic = ("--topic", "BaseSql")
    return (
        _step(
            "send_numbered",
            "send",
            *topic,
            "--batch",
            32,
            "--threads",
            4,
            "--numbered",
            ONE_IN,
            "--queues",
            SQL_QUEUES,
            *timing,
            "--size",
            size,
        ),
        _step(CONSUME_SQL, "consume", *topic, "--sql", "a = 3", "--span", WIDEST_SPAN, "--timeout", 180),
    )
