"""``mqbrokercontainer``: many brokers in one process."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from understudy.runtime.quick_imports import quick_imports


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqbrokercontainer``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    with quick_imports("mqbrokercontainer"):
        from understudy.programs import many_brokers

    return many_brokers.main(argv)


if __name__ == "__main__":
    sys.exit(main())
