"""The real mqadmin and ours, side by side."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from controller_processes import BIN

from understudy.testkit.java_tools import LAUNCHER


class BothTools:
    """The real mqadmin in one JVM for all its commands, and ours in a process each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        #: The real tool wants one; whoever answers at all will do where none is given.
        self.name_server = ""

    async def real(self, command: str, name_server: str = "") -> list[str]:
        """Return what the real tool prints, without blank lines."""
        return await trio.to_thread.run_sync(self._run, f"{command} -n {name_server or self.name_server}")

    def _run(self, command: str) -> list[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert not answer["timed_out"], answer
        return lines_of(answer["output"] + answer["errors"])

    @staticmethod
    async def ours(command: str) -> list[str]:
        """Return what our tool prints, without blank lines."""
        words = [str(BIN / "mqadmin"), *command.split()]
        done = await trio.run_process(words, capture_stdout=True, capture_stderr=True, check=False)
        return lines_of(done.stdout.decode() + done.stderr.decode())

    async def same(self, command: str) -> list[str]:
        """Run a command with both tools and return what both print."""
        real, ours = await self.real(command), await self.ours(command)
        assert ours == real
        return real


def lines_of(text: str) -> list[str]:
    """Return the lines of a text that are not blank."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@contextmanager
def both_tools() -> Iterator[BothTools]:
    with subprocess.Popen(
        [LAUNCHER, "admin-batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield BothTools(process)
        finally:
            process.kill()
