"""Bits of ``sysFlag`` in the header of a pull (PullSysFlag.java)."""

from __future__ import annotations

COMMIT_OFFSET = 1
"""``commitOffset`` is to be taken, as of a group that consumes."""
SUSPEND = 2
"""The answer may wait for messages."""
SUBSCRIPTION = 4
"""The header says what is wanted; without it the heartbeats of the group do."""
LITE = 16
"""The consumer assigns queues itself."""
