"""Records of a log that hold a batch of messages: each counts as one message, and is named so in the report."""

from __future__ import annotations

import numpy as np

from understudy.spark_tools.kernels.damage import WARNING, Damage
from understudy.spark_tools.kernels.window import Chunk
from understudy.spark_tools.unread import NOT_READ

INNER_BATCH = 0x80  # MessageSysFlag.java


def inner_batches(base: int, chunk: Chunk) -> tuple[int, int]:
    """Byte of the first record that holds a batch of messages (-1: none) and how many such records a chunk has."""
    rows = np.flatnonzero(chunk.header["sys_flag"] & INNER_BATCH)
    return (base + int(chunk.positions[rows[0]]), len(rows)) if len(rows) else (-1, 0)


def inner_batch_fault(path: str, at: int, count: int) -> Damage:
    """The note about the batches of one part of a log, the first of which is at byte `at`."""
    detail = f"from here on {count} records hold batches; each counts as one message, those inside are not looked at"
    return Damage(path, at, -1, NOT_READ, detail, WARNING)
