"""``understudy``: the commands of an installation, as far as they need no checkout."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence

import understudy

COMMANDS = {
    "up": ("understudy.programs.up", "", "run a name server and two broker groups, or a led one, on this machine"),
    "console": ("understudy.programs.mqconsole", "", "show a cluster in the browser"),
    "drill": ("understudy.testkit.drills.main", "", "play a failover in a simulated cluster"),
    "bench": ("understudy.testkit.bench.main", "", "measure what needs no checkout: micro, doors"),
    "spark": ("understudy.spark_tools.main", "spark", "reconcile offsets of replicas with Spark"),
}
"""Name to module with a ``main``, the extra that it needs, and a line of help."""
_PROOF_OF_EXTRA = {"spark": "pyspark"}


def usage() -> str:
    """Return the help text."""
    lines = ["usage: understudy COMMAND [ARGUMENTS]", ""]
    lines += [f"  {name:8} {text}" for name, (_, _, text) in COMMANDS.items()]
    lines += ["", "  --version", "  --help   (also after a command)", ""]
    lines += [
        "Servers and administration: mqnamesrv, mqbroker, mqbrokercontainer, mqcontroller, mqproxy, mqconsole, mqadmin"
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the command and its arguments; those of the process when ``None``.

    Returns:
        The command's exit code; 2 when there is no such command, 1 when what it needs is not installed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name in ("--version", "-V") or (name in COMMANDS and rest == ["--version"]):
        print(f"understudy {understudy.__version__}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else "there are: " + ", ".join(COMMANDS)
        print(f"understudy: unknown command '{name}'; {hint}", file=sys.stderr)
        return 2
    module, extra, _ = COMMANDS[name]
    if extra and importlib.util.find_spec(_PROOF_OF_EXTRA[extra]) is None:
        print(
            f"understudy {name}: needs more packages; install them with: pip install 'understudy[{extra}]'",
            file=sys.stderr,
        )
        return 1
    sys.argv = [f"understudy {name}", *rest]  # what the command calls itself in its help
    return int(importlib.import_module(module).main(rest) or 0)


if __name__ == "__main__":
    sys.exit(main())
