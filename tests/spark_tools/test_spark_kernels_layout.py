"""The columns of the kernels lie where the one layout of a record says."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numpy")

from understudy.format.record import FIXED, HEAD, STORE_TIME_AT
from understudy.spark_tools.kernels.window import HEADER


def test_columns_lie_where_a_record_has_its_fields() -> None:
    assert HEADER.fields is not None and HEADER.names is not None
    offsets = {name: HEADER.fields[name][1] for name in HEADER.names}
    assert (FIXED[8, 8].size, HEAD.size) == (HEADER.itemsize, offsets["born_host"])
    assert STORE_TIME_AT[0] == offsets["store_timestamp"]
    # a record packed by the one layout is read by the other
    values: tuple[Any, ...] = (101, 0xDAA320A7, 7, 3, 5, 11, 13, 17, 19, b"bornhost", 23, b"storehst", 29, 31, 37)
    row = memoryview(FIXED[8, 8].pack(*values))
    found = [row[at : at + HEADER[name].itemsize].tobytes() for name, at in offsets.items()]
    widths = [len(cell) for cell in found]
    expected = [
        value if isinstance(value, bytes) else value.to_bytes(width, "big")
        for value, width in zip(values, widths, strict=True)
    ]
    assert expected == found
