"""The quorum changes its Raft library; a program that uses the library itself must not notice."""

from __future__ import annotations

import pysyncobj.syncobj
import pytest

from understudy.controller.raft import pinned


def test_the_library_of_others_is_as_it_is() -> None:
    assert pysyncobj.syncobj.monotonicTime is not pinned.turn_clock
    assert pysyncobj.syncobj.monotonicTime() > 0
    assert [1] == pysyncobj.syncobj.pickle.loads(pysyncobj.syncobj.pickle.dumps([1]))
    assert not issubclass(pinned.SyncObj, pysyncobj.syncobj.SyncObj)
    # but ours has what it needs
    assert pinned.SyncObj.__module__ == "understudy.controller.raft.pysyncobj.syncobj"
    with pytest.raises(AssertionError, match=r"pickle\.dumps is never used by this quorum"):
        pinned._syncobj.pickle.dumps([1])
    assert pinned._syncobj.monotonicTime is pinned.turn_clock
