"""What a neighbour makes of every outcome of a read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.container.escape.local import LocalNeighbour
from understudy.container.escape.neighbour import Found
from understudy.format.record import encode_record
from understudy.store.status import GetResult, GetStatus

RECORD = encode_record("orders", 0, 0, 0, b"body", b"UNIQ_KEY\x01key\x02", born_ms=5)


async def read_with(status: GetStatus, parts: list[memoryview], min_offset: int = 0) -> Found:
    store = SimpleNamespace(get=lambda *_: GetResult(status, 0, min_offset, min_offset, parts, 0, len(parts)))
    nothing = cast(Any, None)
    neighbour = LocalNeighbour("g0", lambda: True, nothing, cast(Any, store), nothing, nothing, nothing, nothing)
    return await neighbour.read("orders", 0, 0)


@pytest.mark.covers("EB-04", "EB-05")
@pytest.mark.parametrize("status", [status for status in GetStatus if status is not GetStatus.FOUND])
async def test_a_read_that_finds_nothing_here_is_not_tried_again_but_where_more_may_come(status: GetStatus) -> None:
    assert await read_with(status, [], 1) == Found(None, "getMessageResult is null", False)
    assert await read_with(status, [], 0) == Found(None, "getMessageResult is null", False, lacks=True)


@pytest.mark.covers("EB-10")
async def test_a_good_record_is_read_and_a_damaged_one_is_said_to_be() -> None:
    found = await read_with(GetStatus.FOUND, [memoryview(RECORD)])
    assert found.record is not None
    assert (found.record.body, found.retry) == (b"body", False)
    for damaged in (RECORD[:-1], b"\0" * 100, RECORD[:4] + b"\xff" * 4 + RECORD[8:]):
        found = await read_with(GetStatus.FOUND, [memoryview(damaged)])
        assert (found.record, found.retry) == (None, False)
        assert found.why


@pytest.mark.covers("EB-10")
@given(st.binary(max_size=200))
def test_no_bytes_make_a_read_fail(data: bytes) -> None:
    import trio

    async def read() -> Found:
        return await read_with(GetStatus.FOUND, [memoryview(data)])

    found = trio.run(read)
    assert found.retry is False
