"""``mqbroker``: one broker as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from understudy.runtime.quick_imports import quick_imports


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqbroker``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    with quick_imports("mqbroker"):
        from understudy.programs import one_broker

    return one_broker.main(argv)


if __name__ == "__main__":
    sys.exit(main())
