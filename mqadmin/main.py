"""The program ``mqadmin``."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import sys
from collections.abc import Sequence

import trio

import understudy
from understudy.mqadmin.command import COMMANDS, Command, CommandFailedError, Context, Output
from understudy.mqadmin.credentials import credentials
from understudy.mqadmin.options import Option, UsageError, Values, parse
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.mqclient.session import SessionOptions, open_session
from understudy.remoting.codes import ResponseCode
from understudy.runtime.world import World, real_world
from understudy.security.tls import ClientFiles

_MODULES = (
    "clusters",
    "topics",
    "static_topics",
    "groups",
    "members",
    "progress",
    "offsets",
    "message_queries",
    "message_reading",
    "message_sending",
    "traces",
    "name_servers",
    "statistics",
    "maintenance",
    "controllers",
    "roles",
    "stuck_work",
    "users",
    "plain_acl",
    "exports",
    "compaction_log",
)
# Options with the address of whom to ask: commands that must have one need no name server.
_ADDRESSES = frozenset({"controllerAddress", "brokerContainerAddr", "brokerAddr", "broker", "fromBroker"})


def load_commands() -> dict[str, Command]:
    """Return all commands by name."""
    for module in _MODULES:
        importlib.import_module(f"understudy.mqadmin.{module}")
    return COMMANDS


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; those of the process when ``None``.

    Returns:
        0 when it was done, 1 when it failed, 2 when the command line is wrong, 130 when it was interrupted.
    """
    try:
        code = _main(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output, for example head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _main(arguments: list[str]) -> int:
    # What the client logs on its way to an error is in the error: without a handler it would be printed too.
    logging.getLogger("understudy").addHandler(logging.NullHandler())
    commands = load_commands()
    if not arguments or arguments[0] in ("help", "-h", "--help"):
        return _help(commands, arguments[1:])
    name = arguments[0]
    if name == "--version":
        print(f"mqadmin {understudy.__version__}")
        return 0
    command = commands.get(name)
    if command is None:
        return _complain(_no_command(commands, name), 2)
    try:
        values = parse(command.all_options, arguments[1:])
        if "h" in values:
            print("\n".join(help_lines(command)))
            return 0
        if command.one_of and not any(key in values for key in command.one_of):
            raise UsageError(f"missing option: {_alternatives(command)}")
        servers = _name_servers(command, values)
        return trio.run(_run, command, values, servers, _session(values))
    except UsageError as error:
        return _complain(f"mqadmin {name}: {error} (see 'mqadmin help {name}')", 2)
    except BrokerError as error:
        return _complain(f"mqadmin {name}: {error}{_unsupported(error)}", 1)
    except (CommandFailedError, ClientError) as error:
        return _complain(f"mqadmin {name}: {error}", 1)
    except KeyboardInterrupt:
        return 130


def _unsupported(error: BrokerError) -> str:
    if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return ""
    return "; it is another kind of server, or lacks a setting that this needs, as authenticationEnabled=true for users"


def _session(values: Values) -> SessionOptions:
    tls = ClientFiles().context() if "tls" in values else None
    return SessionOptions(credentials=credentials(), tls=tls)


def _name_servers(command: Command, values: Values) -> str:
    servers = values.get("n") or os.environ.get("NAMESRV_ADDR", "")
    addressed = any(option.required and option.long in _ADDRESSES for option in command.options)
    if not servers and not command.offline and not addressed and not ("b" in values and "b" in command.one_of):
        raise UsageError("no name server: add -n host:port or set NAMESRV_ADDR")
    return servers


async def _run(command: Command, values: Values, servers: str, options: SessionOptions) -> int:
    await run_command(command, values, servers, Output("json" in values), real_world(), options)
    return 0


async def run_command(
    command: Command,
    values: Values,
    servers: str,
    output: Output,
    world: World,
    options: SessionOptions | None = None,
) -> None:
    """Run *command* once, or every ``-i`` seconds where it has that option as an interval.

    Args:
        command: what to run.
        values: its options.
        servers: name servers, ``host:port`` separated by semicolons.
        output: where to write.
        world: clock, network and the rest.
        options: what requests are signed with, and how long they wait.

    Raises:
        UsageError, CommandFailedError, ClientError: see there.
    """
    repeating = any(option.key == "i" and option.long == "interval" for option in command.options) and "i" in values
    interval = values.number("i", 1) if repeating else 0
    async with open_session(world, servers, options) as session:
        while True:
            output.finish(await command.run(Context(session, values, output)))
            if not repeating:
                return
            await world.clock.sleep(max(1, interval))


def _help(commands: dict[str, Command], names: Sequence[str]) -> int:
    if not names:
        print("The most commonly used mqadmin commands are:")
        for command in commands.values():
            print(f"   {command.name:<35} {command.summary}")
        print("\nOptions of all: -n name servers (or $NAMESRV_ADDR), --json, -h; --version of mqadmin itself.")
        print("See 'mqadmin help <command>' for more information on a specific command.")
        return 0
    command_named = commands.get(names[0])
    if command_named is None:
        return _complain(_no_command(commands, names[0]), 2)
    print("\n".join(help_lines(command_named)))
    return 0


def help_lines(command: Command) -> list[str]:
    """Return the help of *command*."""
    options = sorted(command.all_options, key=lambda option: (option.key.lower(), option.long))
    usage = " ".join(_usage(option) for option in options)
    lines = [f"usage: mqadmin {command.name} {usage}", command.summary]
    if command.one_of:
        lines.append(f"One of them is needed: {_alternatives(command)}")
    for option in options:
        shown = option.shown + (" <arg>" if option.takes_value else "")
        lines.append(f" {shown:<42} {option.summary}{' (required)' if option.required else ''}")
    return lines


def _alternatives(command: Command) -> str:
    return " or ".join(option.shown for option in command.options if option.key in command.one_of)


def _usage(option: Option) -> str:
    form = f"-{option.key}" if option.key != option.long else f"--{option.long}"
    form += " <arg>" if option.takes_value else ""
    return form if option.required else f"[{form}]"


def _no_command(commands: dict[str, Command], name: str) -> str:
    by_lower = {known.lower(): known for known in commands}
    near = difflib.get_close_matches(name.lower(), by_lower, 1)
    hint = f"; did you mean {by_lower[near[0]]}?" if near else ""
    return f"The sub command {name} not exist{hint} (see 'mqadmin help')"


def _complain(text: str, code: int) -> int:
    print(" ".join(text.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
