"""``understudy drill NAME``: plays a failover and tells what happened."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

DRILLS = {
    "acting-master": "a slave acts for its dead master and gives everything back",
    "controller": "kills the active controller and a broker master",
    "migrate": "a running group comes to be led by controllers, and goes back",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a drill.

    Args:
        argv: name of the drill and its options; those of the process when ``None``.

    Returns:
        The drill's exit code; 2 when there is no such drill.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: understudy drill NAME [OPTIONS]\n")
        for name, text in DRILLS.items():
            print(f"  {name:14} {text}")
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in DRILLS:
        near = difflib.get_close_matches(name, DRILLS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"drill: there is no drill {name}; there are: {', '.join(DRILLS)}{hint}", file=sys.stderr)
        return 2
    if name == "acting-master":
        from understudy.testkit.drills import acting_master

        return acting_master.main(rest)
    if name == "migrate":
        from understudy.testkit.drills import migrate

        return migrate.main(rest)
    from understudy.testkit.drills import controller

    return controller.main(rest)


if __name__ == "__main__":
    sys.exit(main())
