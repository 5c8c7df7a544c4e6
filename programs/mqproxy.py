"""``mqproxy``: a proxy for gRPC clients as a process of its own (ProxyStartup.java)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from understudy.runtime.quick_imports import no_looks_for_garbage, quick_imports


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mqproxy``.

    Args:
        argv: options; those of the process when ``None``.

    Returns:
        0 after a clean stop, 1 after one line on standard error, 2 for unknown options.
    """
    with quick_imports("mqproxy"), no_looks_for_garbage():
        from understudy.programs import one_proxy, proxy_options

        if not proxy_options.missing_libraries():  # else the settings are not read either, and it is said why
            proxy_options.load()

    return one_proxy.main(argv)


if __name__ == "__main__":
    sys.exit(main())
