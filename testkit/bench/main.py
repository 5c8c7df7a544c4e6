"""``understudy bench NAME``: measurements that need no checkout."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

BENCHMARKS = {
    "micro": "messages per second of one core without any client: decode, encode, append, batches, pull",
    "doors": "what the blocking and the asyncio client cost beside the trio client",
}


def module_of(name: str) -> str:
    """Return the module of a benchmark; it has a ``main``."""
    return f"understudy.testkit.bench.{name}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark.

    Args:
        argv: its name and options; those of the process when ``None``.

    Returns:
        Its exit code; 2 when there is no such benchmark.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print("usage: understudy bench NAME [OPTIONS]      (NAME --help lists a benchmark's options)\n")
        print("\n".join(f"  {name:8} {text}" for name, text in BENCHMARKS.items()))
        print("\nThose beside the real Java broker, under load or in a failover need a checkout: ./understudy bench")
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in BENCHMARKS:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else "there are: " + ", ".join(BENCHMARKS)
        print(f"understudy bench: unknown benchmark '{name}'; {hint}", file=sys.stderr)
        return 2
    return int(importlib.import_module(module_of(name)).main(rest) or 0)


if __name__ == "__main__":
    sys.exit(main())
