"""What a command is, and the register of all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TextIO

import attrs

from understudy.mqadmin.options import COMMON, Option, UsageError, Values
from understudy.mqclient.admin.cluster import ClusterInfo, cluster_info
from understudy.mqclient.producer import Producer, ProducerOptions
from understudy.mqclient.session import Session


class CommandFailedError(Exception):
    """The command could not do its work; the message is one line for the operator."""


class Output:
    """Where a command writes: lines for people as they come, or one JSON value at the end."""

    def __init__(self, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = stream if stream is not None else sys.stdout

    def line(self, text: str = "") -> None:
        """Print *text* unless JSON was asked for."""
        if not self.as_json:
            self._stream.write(text + "\n")

    def lines(self, texts: Sequence[str]) -> None:
        """Print each of *texts*, see :meth:`line`."""
        for text in texts:
            self.line(text)

    def warn(self, text: str) -> None:
        """Print *text* to standard error, with JSON, too: it is no part of the result."""
        print(f"warning: {text}", file=sys.stderr)

    def finish(self, data: Any) -> None:
        """Print *data* if JSON was asked for."""
        if self.as_json:
            json.dump(data, self._stream, ensure_ascii=False, indent=2, default=str)
            self._stream.write("\n")
        self._stream.flush()


@attrs.frozen
class Context:
    """What a command works with.

    Attributes:
        session: the open client.
        values: the options that were given.
        output: where to write.
    """

    session: Session
    values: Values
    output: Output

    def producer(self, options: ProducerOptions | None = None) -> Producer:
        """Return a producer on the session."""
        return Producer(self.session, "TOOLS_PRODUCER", options or ProducerOptions())

    async def masters(self) -> list[str]:
        """Return the broker that was named, or the masters of the cluster that was named; tell what groups lack one."""

        def of_cluster(info: ClusterInfo, name: str) -> list[str]:
            masters = info.masters_of(name)
            without = [group.name for group in info.groups_of(name) if group.master is None]
            if without:
                self.output.warn(
                    f"left out, for they have no master now: {', '.join(without)}; repeat it for them later"
                )
            return masters

        return await self._targets(of_cluster)

    async def brokers(self) -> list[str]:
        """Return the broker that was named, or all brokers of the cluster that was named."""
        return await self._targets(ClusterInfo.addresses_of)

    async def _targets(self, of_cluster: Callable[[ClusterInfo, str], list[str]]) -> list[str]:
        if "b" in self.values:
            return [self.values["b"]]
        if "c" in self.values:
            addresses = of_cluster(await cluster_info(self.session), self.values["c"])
            if not addresses:
                raise CommandFailedError(f"cluster {self.values['c']} has no broker at the moment")
            return addresses
        raise UsageError("name a broker (-b) or a cluster (-c)")


Run = Callable[[Context], Awaitable[Any]]


@attrs.frozen
class Command:
    """One command.

    Attributes:
        name: as on the command line.
        summary: one line for help.
        options: its own options.
        run: does the work, prints lines, returns the value that ``--json`` prints.
        one_of: keys of options of which at least one must be given.
        offline: asks no server, so none has to be named.
    """

    name: str
    summary: str
    options: tuple[Option, ...]
    run: Run
    one_of: tuple[str, ...] = ()
    offline: bool = False

    @property
    def all_options(self) -> tuple[Option, ...]:
        """Own and common options."""
        own = {option.key for option in self.options} | {option.long for option in self.options}
        return self.options + tuple(option for option in COMMON if option.key not in own)


COMMANDS: dict[str, Command] = {}


def command(
    name: str, summary: str, *options: Option, one_of: tuple[str, ...] = (), offline: bool = False
) -> Callable[[Run], Run]:
    """Register the decorated function as command *name*.

    Args:
        name, summary, options, one_of, offline: see :class:`Command`.
    """

    def register(run: Run) -> Run:
        COMMANDS[name] = Command(name, summary, options, run, one_of, offline)
        return run

    return register
