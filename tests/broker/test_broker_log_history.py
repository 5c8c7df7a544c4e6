"""The lives of a log, where two histories part, and what of a table counts beyond: the pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.log_history import Life, LogHistory
from understudy.broker.merge import Reason, merge, stamped, table_of

# --- the value -----------------------------------------------------------------------------------------------------

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "lose", "restart", "copy a", "copy b"]), st.integers(0, 5)), max_size=25
)


@given(STEPS)
def test_what_two_logs_have_in_common_is_never_less_than_their_histories_say(steps: list[Step]) -> None:
    log: list[int] = []
    history = LogHistory().begun("0", 0)
    slaves: dict[str, tuple[list[int], LogHistory]] = {"a": ([], LogHistory()), "b": ([], LogHistory())}
    for number, (what, count) in enumerate(steps, start=1):
        if what == "append":
            log += [number * 10 + each for each in range(count)]
        elif what in ("lose", "restart"):
            log = log[: len(log) - count] if what == "lose" and count else log
            history = history.begun(str(number), len(log))
        else:
            copy, _ = slaves[what[-1]]
            if log[: len(copy)] == copy:  # it continues: only then it follows
                slaves[what[-1]] = (log[: len(copy) + count], history)
    for copy, known in slaves.values():
        assert LogHistory.from_text(known.to_text()) == LogHistory.from_json(known.to_json()) == known
        parting = history.parting(known)
        if parting is None:
            continue  # a log that lost everything began anew; then bytes are compared
        for at in range(int(min(parting.at, len(copy), len(log)))):
            assert copy[at] == log[at]
        # everything else of the copy is lost, unless nothing was lost at all
        if parting.at < min(len(copy), len(log)):
            assert copy[int(parting.at)] != log[int(parting.at)] or parting.other_goes_on is False
        back = known.parting(history)
        assert back is not None
        assert (back.at, back.own_goes_on, back.other_goes_on) == (
            parting.at,
            parting.other_goes_on,
            parting.own_goes_on,
        )


@pytest.mark.parametrize("text", ["x", "a@b", "a@-1", "@", "a@1,b"])
def test_a_history_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no id@start"):
        LogHistory.from_text(text)
    for value in ({}, [{"id": "a"}], [5], [{"id": "a", "start": "x"}]):
        with pytest.raises(ValueError, match="lives"):
            LogHistory.from_json(value)


def test_a_life_that_begins_before_others_takes_them_away() -> None:
    history = LogHistory((Life("a", 0), Life("b", 100)))
    assert history.begun("c", 90) == LogHistory((Life("a", 0), Life("c", 90)))
    parting = history.begun("c", 90).parting(history)
    assert parting is not None
    assert (parting.at, parting.own_goes_on, parting.other_goes_on) == (90, True, True)
    assert history.parting(LogHistory((Life("x", 0),))) is None


# --- the cut -------------------------------------------------------------------------------------------------------

TABLE = st.dictionaries(st.sampled_from(["t@a", "t@b"]), st.dictionaries(st.integers(0, 2), st.integers(0, 20)))


@given(TABLE, TABLE, st.integers(0, 20))
def test_nothing_beyond_the_common_point_is_taken_and_nothing_before_it_is_lost(
    own: dict[str, dict[int, int]], other: dict[str, dict[int, int]], most: int
) -> None:
    rows = merge(stamped(own), stamped(other), lambda key, queue_id: most)
    for row in rows:
        before = -1 if row.own is None else row.own.offset
        theirs = -1 if row.other is None else row.other.offset
        assert row.merged.offset == max(before, min(theirs, most))
        assert (row.reason is Reason.OTHER_HISTORY) == (theirs > max(before, most))
    # once more changes nothing
    merged = table_of(rows)
    again = merge(merged, stamped(other), lambda key, queue_id: most)
    assert not any(row.changed for row in again)
