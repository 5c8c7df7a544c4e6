"""``mqnamesrv``: the name server as a program (NamesrvStartup.java).

It listens before it has imported what answers: whoever waits for the port starts meanwhile. Only then it imports more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from understudy.programs.tls_file import with_tls_file
from understudy.programs.version import ShowVersion
from understudy.runtime.files import RealFiles
from understudy.runtime.listen_ahead import listen_ahead
from understudy.runtime.os_failure import os_failure
from understudy.runtime.properties import ConfigError, Properties
from understudy.runtime.property_file import HOME_VARIABLE, read_properties_file

DEFAULT_ADDRESS = "0.0.0.0"
DEFAULT_PORT = "9876"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 after SIGTERM or SIGINT, 1 after one line about what is wrong."""
    options = _parser().parse_args(arguments)
    try:
        values = _values(options.config_file)
    except (ConfigError, OSError) as error:
        print(f"mqnamesrv: {os_failure(error) if isinstance(error, OSError) else error}", file=sys.stderr)
        return 1
    if options.print_all or options.print_important:
        from understudy.programs.name_server import print_settings

        return print_settings(values, important=not options.print_all)
    given = values if values is not None else {}
    ahead = listen_ahead(given.get("bindAddress", DEFAULT_ADDRESS), given.get("listenPort", DEFAULT_PORT))
    try:
        from understudy.runtime.quick_imports import quick_imports

        with quick_imports("mqnamesrv"):
            from understudy.programs.name_server import serve

        return serve(values, ahead)
    finally:
        if ahead is not None:
            ahead.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mqnamesrv", description="Name server of a RocketMQ cluster.")
    parser.add_argument("-c", "--configFile", dest="config_file", metavar="FILE", help="name server properties file")
    parser.add_argument(
        "-n", "--namesrvAddr", metavar="LIST", help="accepted as by the reference; a name server asks no other one"
    )
    parser.add_argument(
        "-p", "--printConfigItem", dest="print_all", action="store_true", help="print every setting and exit"
    )
    parser.add_argument(
        "-m", "--printImportantConfig", dest="print_important", action="store_true", help="print the main settings"
    )
    parser.add_argument("--version", action=ShowVersion)
    return parser


def _values(path: str | None) -> Properties | None:
    if path is None:
        return None
    return with_tls_file(read_properties_file(RealFiles(), path, os.environ.get(HOME_VARIABLE)))


if __name__ == "__main__":
    sys.exit(main())
