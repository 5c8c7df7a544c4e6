"""``mqconsole`` and ``understudy console``: a page in the browser that shows a cluster, of ours or of the reference."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from understudy.console.guard import listed_names
from understudy.console.report_files import ReportFolder
from understudy.console.server import Console, ConsoleOptions, others_reach
from understudy.mqadmin.credentials import credentials
from understudy.mqadmin.options import UsageError as BadCredentialsError
from understudy.mqclient.session import SessionOptions, split_addresses
from understudy.programs import command_line
from understudy.programs.version import ShowVersion
from understudy.runtime.network import ListenError
from understudy.runtime.program import EXIT_FAILED, UsageError, run_program
from understudy.runtime.world import World
from understudy.security.tls import ClientFiles

DEFAULT_PORT = 8082
TOKEN_VARIABLE = "UNDERSTUDY_CONSOLE_TOKEN"
_LEAST_TOKEN = 8
_HIGHEST_PORT = 65_535


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqconsole``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    arguments = _parser().parse_args(argv)
    try:
        options = _options(arguments)
        command_line.start_logging()
        world = command_line.server_world()
    except (UsageError, BadCredentialsError) as error:
        print(f"mqconsole: {error}", file=sys.stderr)
        return EXIT_FAILED
    return run_program("mqconsole", lambda: serve(world, options), refusals=(ListenError,))


async def serve(world: World, options: ConsoleOptions) -> None:
    """Run a console until cancelled and print its address when it is up."""
    console = Console(world, options)
    await console.bind()
    command_line.boot_line(f"The console of {options.name_servers} is at {console.address}")
    await console.run()


def given_token(option: str | None) -> str:
    """Return the token of the option or of the environment, ``""`` for none.

    Raises:
        UsageError: it is too short to protect anything.
    """
    token = option if option is not None else os.environ.get(TOKEN_VARIABLE, "")
    if token and len(token) < _LEAST_TOKEN:
        raise UsageError(f"the token has {len(token)} characters; take {_LEAST_TOKEN} or more, it opens the cluster")
    return token


def given_folder(option: str | None) -> ReportFolder | None:
    """Return the folder of Spark reports that was named, ``None`` when none was.

    Raises:
        UsageError: it is no folder.
    """
    if option is None:
        return None
    if not os.path.isdir(option):
        raise UsageError(f"{option!r} is no folder; name the one that the Spark jobs write to (their --out)")
    return ReportFolder(os.path.abspath(option))


def _options(arguments: argparse.Namespace) -> ConsoleOptions:
    servers = ";".join(split_addresses(arguments.namesrvAddr or os.environ.get("NAMESRV_ADDR", "")))
    if not servers:
        raise UsageError("no name server: add -n host:port or set NAMESRV_ADDR")
    if not 0 <= arguments.port <= _HIGHEST_PORT:
        raise UsageError(f"--port {arguments.port}: expected a port from 0 to {_HIGHEST_PORT}")
    token = given_token(arguments.token)
    names = listed_names(arguments.name)
    if arguments.users and token:
        raise UsageError("--users and a token: take one; users sign in with their own passwords")
    if not token and not arguments.users and others_reach(arguments.host, names):
        called = f"--host {arguments.host}" if others_reach(arguments.host, ()) else f"--name {', '.join(names)}"
        raise UsageError(
            f"{called}: other hosts would see the cluster and its messages; give --users or --token, or set "
            f"{TOKEN_VARIABLE}"
        )
    tls = ClientFiles().context() if arguments.tls else None
    session = SessionOptions(credentials=None if arguments.users else credentials(), tls=tls)
    reports = given_folder(arguments.spark_reports)
    return ConsoleOptions(arguments.host, arguments.port, servers, token, names, session, arguments.users, reports)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mqconsole", description=__doc__, add_help=False, allow_abbrev=False)
    parser.add_argument("-n", "--namesrvAddr", metavar="LIST", help="name servers, host:port separated by ';'")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="IP",
        help="address to listen on (default: 127.0.0.1, this machine alone)",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"port of the page, 0 for a free one (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help=f"who gives it on the page may change something; better in ${TOKEN_VARIABLE}, where no list of processes "
        "shows it (default: nobody may)",
    )
    parser.add_argument(
        "--users",
        action="store_true",
        help="whoever opens the page signs in as a user of the cluster (ACL), and sees and changes what that one may",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="NAME",
        help="a further name the page is called by, host or host:port",
    )
    parser.add_argument(
        "--spark-reports", metavar="DIR", help="show the reports that understudy-spark has written below this folder"
    )
    parser.add_argument(
        "-tls", "--tls", action="store_true", help="speak TLS with servers; certificates are not checked"
    )
    parser.add_argument("-h", "--help", action="help", help="print this and end")
    parser.add_argument("--version", action=ShowVersion)
    return parser


if __name__ == "__main__":
    sys.exit(main())
