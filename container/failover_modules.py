"""What only a broker with ``enableSlaveActingMaster`` needs; a fifteenth of what the others import."""

from __future__ import annotations

import importlib
from functools import cache

OF_A_FAILOVER = ("escape.bridge", "escape.halves", "preonline.late", "preonline.report", "preonline.service")
"""Modules of the container."""


@cache
def import_for_failover() -> None:
    """Import what a failover needs, so that nothing is read from the disk in its middle."""
    for module in OF_A_FAILOVER:
        importlib.import_module(f"understudy.container.{module}")
