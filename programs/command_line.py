"""Options, configuration files and printing shared by the broker and container programs."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import attrs

from understudy.programs.tls_file import with_tls_file
from understudy.programs.version import ShowVersion
from understudy.remoting.netty_config import NettyServerConfig
from understudy.runtime.disk import RealDisk
from understudy.runtime.log import configure
from understudy.runtime.program import EXIT_FAILED, UsageError, booted
from understudy.runtime.properties import ConfigError, Properties, printable
from understudy.runtime.property_file import HOME_VARIABLE, read_properties_file
from understudy.runtime.world import World, real_world

_IDLE_POLL_MOST_US = 10_000


class Options(Protocol):
    """What a configuration file says, of a broker or of a container."""

    path: str | None
    server: NettyServerConfig

    def properties(self) -> dict[str, str]:
        """Return every key with its value."""
        ...


T = TypeVar("T", bound=Options)


@attrs.frozen
class Start(Generic[T]):
    """What a program begins with.

    Attributes:
        options: as its file and its command line say.
        world: the machine's own.
    """

    options: T
    world: World


def parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every server of the reference takes."""
    result = argparse.ArgumentParser(prog=program, description=description, add_help=False, allow_abbrev=False)
    result.add_argument("-c", "--configFile", metavar="FILE", help="configuration, key=value lines")
    result.add_argument("-n", "--namesrvAddr", metavar="LIST", help="name servers, host:port separated by ';'")
    result.add_argument("-p", "--printConfigItem", action="store_true", help="print every key with its value and end")
    result.add_argument("-m", "--printImportantConfig", action="store_true", help="print the important keys and end")
    result.add_argument("-h", "--help", action="help", help="print this and end")
    result.add_argument("--version", action=ShowVersion)
    return result


def begin(
    program: str,
    arguments: argparse.Namespace,
    read: Callable[[Properties], tuple[T, list[str]]],
    important: Collection[str],
    more: Mapping[str, Mapping[str, str]] | None = None,
) -> Start[T] | int:
    """Read the configuration of a program and begin to log, or print keys, as its options say.

    Args:
        program: its name, before what is wrong.
        arguments: what its :func:`parser` made.
        read: makes its options of the keys of a file, and warnings.
        important: the keys that ``-m`` prints.
        more: an option of its own, such as ``-b``, to the keys and values that it gives.

    Returns:
        What it begins with; its exit code when it ends at once, with one line on standard error if that is a failure.
    """
    try:
        values = read_properties(arguments.configFile, arguments.namesrvAddr)
        for option, changes in (more or {}).items():
            values = values.changed(changes, f"option {option}")
        options, warnings = read(values)
        options.path = values.source if arguments.configFile else None
        if arguments.printConfigItem or arguments.printImportantConfig:
            warn(warnings)
            print_keys(options.properties(), None if arguments.printConfigItem else important)
            return 0
        start_logging()
        world = server_world()
        world.load.limit(options.server)
    except (UsageError, ConfigError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_FAILED
    warn(warnings)
    return Start(options, world)


def read_properties(path: str | None, name_servers: str | None) -> Properties:
    """Return the keys of a configuration file, with ``namesrvAddr`` as the option gave it, if it did.

    Args:
        path: the file; without one there are no keys.
        name_servers: text of the option ``-n``.

    Raises:
        ConfigError: the file cannot be read.
    """
    if path is None:
        values = Properties({}, "command line")
    else:
        values = read_properties_file(RealDisk(), path, os.environ.get(HOME_VARIABLE))
    values = with_tls_file(values)
    return values.changed({"namesrvAddr": name_servers}, "option -n") if name_servers else values


def print_keys(values: Mapping[str, str], only: Iterable[str] | None = None) -> None:
    """Print ``key=value`` lines, sorted, as the reference's ``-p`` and ``-m`` do."""
    wanted = set(only) if only is not None else None
    show("\n".join(f"{key}={values[key]}" for key in sorted(values) if wanted is None or key in wanted))


def show(text: str) -> None:
    """Print all that was asked for; a reader that has seen enough, for example ``head``, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _say_no_more()


def start_logging() -> None:
    """Send log lines to standard error at the level of ``UNDERSTUDY_LOG`` (default INFO).

    Raises:
        UsageError: there is no such level.
    """
    level = os.environ.get("UNDERSTUDY_LOG", "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise UsageError(f"UNDERSTUDY_LOG={level}: expected one of DEBUG, INFO, WARNING, ERROR")
    configure(level)


def server_world() -> World:
    """Return the world of a program that serves clients; ``UNDERSTUDY_IDLE_POLL`` are microseconds (default 400).

    Raises:
        UsageError: there are no such microseconds.
    """
    text = os.environ.get("UNDERSTUDY_IDLE_POLL", "400")
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _IDLE_POLL_MOST_US):
        raise UsageError(
            f"UNDERSTUDY_IDLE_POLL={printable(text)}: expected microseconds from 0 (never) to {_IDLE_POLL_MOST_US}"
        )
    return real_world(int(text) / 1e6)


def say(line: str) -> None:
    """Print *line* on standard output, at once.

    Raises:
        UsageError: its reader, for example ``head``, is gone.
    """
    try:
        print(line, flush=True)
    except BrokenPipeError:
        _say_no_more()
        raise UsageError(
            "stopped, because the reader of its output is gone; send the output to a file, or to /dev/null"
        ) from None


def _say_no_more() -> None:
    """Have what is not printed yet go nowhere, when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def boot_line(line: str) -> None:
    """Print a boot line where scripts look for it, see :func:`say`. What is loaded then is for lasting."""
    say(line)
    booted()


def warn_without_name_server(name_servers: str | None, by_dns: bool) -> None:
    """Say that no client will find the brokers of this program, unless it knows a name server."""
    if not name_servers and not by_dns:
        warn(
            [
                "namesrvAddr is not set: no name server learns of this broker, so no client finds it; add "
                "namesrvAddr=HOST:9876 to its file, or give -n HOST:9876"
            ]
        )


def warn(warnings: Sequence[str]) -> None:
    """Print one line for each warning on standard error."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr, flush=True)
