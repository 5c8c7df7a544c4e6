"""The pure cores of pop: handles, bytes of the revive topic, matching, order, choice."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.pop import choice, revive_log
from understudy.broker.pop.choice import Queue
from understudy.broker.pop.order import STALE, UNKNOWN, OrderTable, next_record, read_order_table
from understudy.broker.pop.revive_log import Ack, CheckPoint, ReviveLogError, read_entry
from understudy.broker.pop.stepped_clock import ClockSteps
from understudy.broker.pop.window import FAR_BEHIND, LATE_MS, QUIET_MS, ReviveWindow
from understudy.format import json_dialect, names, receipts
from understudy.format.receipts import Receipt, ReceiptError, read_receipt

DATA = Path(__file__).parent.parent / "data" / "broker_pop"
TIMES = st.integers(0, 1 << 42)
OFFSETS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=32, unique=True).map(sorted)
NAMES = st.text("abcXYZ_-%", min_size=1, max_size=9)


def captured_entries() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((DATA / "revive_log.json").read_text())
    return loaded


class TestHandles:
    @given(
        st.builds(
            Receipt, TIMES, TIMES, TIMES, st.integers(0, 999), st.sampled_from("012"), NAMES, st.integers(0, 99), TIMES
        )
    )
    def test_a_handle_is_read_as_it_was_written(self, receipt: Receipt) -> None:
        assert read_receipt(receipt.text) == receipt

    def test_a_captured_one(self) -> None:
        receipt = read_receipt("0 1795245192873 15000 4 1 broker-a 0 2")
        assert (receipt.retry, receipt.broker_name, receipt.offset) == ("1", "broker-a", 2)
        assert receipt.revive_ms == 1795245192873 + 15000

    @pytest.mark.parametrize(
        "text",
        ["", "1 2 3", "a 1 1 1 0 b 0 0", "1 1 1 1 7 b 0 0", "1 1 1 1 0  0 0", "-1 1 1 1 0 b 0 0", "1 1 1 1 0 b 0 ²",
         "1 99999999999999999999 1 1 0 b 0 0"],
    )  # fmt: skip
    def test_anything_else_is_refused_in_one_sentence(self, text: str) -> None:
        with pytest.raises(ReceiptError, match="receipt handle"):
            read_receipt(text)

    def test_kinds_of_topics(self) -> None:
        assert receipts.retry_mark("T") == "0"
        assert receipts.retry_mark(names.pop_retry_topic("g", "T")) == "1"
        assert receipts.retry_mark(names.pop_retry_topic("g", "T", second_form=True)) == "2"

    @given(NAMES, NAMES, st.booleans())
    def test_the_topic_behind_a_retry_topic(self, group: str, topic: str, second: bool) -> None:
        retry = names.pop_retry_topic(group, topic, second_form=second)
        assert names.popped_topic(retry, group) == topic
        assert names.popped_topic("plain", group) == "plain"


class TestReviveLog:
    @pytest.mark.covers("PP-03")
    def test_captured_entries_are_written_byte_for_byte(self) -> None:
        for each in captured_entries():
            pairs, body = each["properties"], each["body"].encode()
            entry = read_entry(pairs["TAGS"], body, "other")
            assert entry.body == body
            assert entry.unique_key == pairs["UNIQ_KEY"]

    def test_when_captured_entries_come_out(self) -> None:
        for each in captured_entries():
            pairs = each["properties"]
            entry = read_entry(pairs["TAGS"], each["body"].encode(), "other")
            if isinstance(entry, CheckPoint):
                assert entry.revive_ms - revive_log.AHEAD_MS == int(pairs["TIMER_DELIVER_MS"])

    @given(OFFSETS, st.integers(0, (1 << 32) - 1), TIMES, TIMES, NAMES, NAMES)
    def test_a_check_point_is_read_as_it_was_written(
        self, offsets: list[int], done: int, pop_ms: int, invisible_ms: int, topic: str, group: str
    ) -> None:
        point = CheckPoint(topic, group, 3, offsets[0], pop_ms, invisible_ms, "b", tuple(offsets), done)
        assert read_entry("ck", point.body, "other") == point
        assert -(1 << 31) <= json_dialect.loads(point.body)["bm"] < 1 << 31

    @given(OFFSETS, TIMES, st.booleans())
    def test_an_acknowledgement_is_read_as_it_was_written(self, offsets: list[int], pop_ms: int, batch: bool) -> None:
        ack = Ack(("T", "g", 1, 5, pop_ms, "b"), tuple(offsets) if batch else (offsets[0],), batch)
        assert read_entry(ack.tag, ack.body, "other") == ack

    def test_old_ones_without_a_broker_and_without_a_list(self) -> None:
        body = b'{"c":"g","t":"T","so":7,"n":3,"pt":5,"it":9,"q":1,"extra":{}}'
        assert read_entry("ck", body, "mine") == CheckPoint("T", "g", 1, 7, 5, 9, "mine", (7, 8, 9))

    @given(st.sampled_from(["ck", "ack", "bAck", "x", None]), st.binary(max_size=60))
    def test_garbage_is_refused(self, tag: str | None, body: bytes) -> None:
        with pytest.raises(ReviveLogError):
            read_entry(tag, body, "mine")

    @pytest.mark.parametrize(
        "body", [b'{"t":"T"}', b'{"t":"T","c":"g","n":33}', b'{"t":"T","c":"g","q":-1}', b'{"t":"T","c":"g","d":{}}',
                 b'{"t":"T","c":"g","n":1,"d":["x"]}', b'{"t":7,"c":"g"}', b'[]', b'{"t":"T","c":"g","pt":1e99}']
    )  # fmt: skip
    def test_fields_that_are_none_are_refused(self, body: bytes) -> None:
        with pytest.raises(ReviveLogError):
            read_entry("ck", body, "mine")

    def test_bits_of_a_batch(self) -> None:
        assert list(revive_log.offsets_of_bits(100, bytes([0b1011, 0, 0b10000000]))) == [100, 101, 103, 123]

    def test_a_check_point_that_goes_around_again_waits_longer_each_time(self) -> None:
        point = CheckPoint("T", "g", 0, 5, 1_000, 500, "b", (5, 6))
        waits = []
        for _ in range(20):
            point = revive_log.again(point, 6, point.revive_ms + 2_000)
            waits.append(point.revive_ms)
            assert point.offsets == (6,)
        gaps = [after - before for before, after in itertools.pairwise(waits)]
        assert gaps == sorted(gaps)
        assert gaps[-1] == 7_202_000
        assert point.re_puts == 20


def point_at(pop_ms: int, offsets: tuple[int, ...] = (1, 2, 3), invisible_ms: int = 1_000) -> CheckPoint:
    return CheckPoint("T", "g", 0, offsets[0], pop_ms, invisible_ms, "b", offsets)


class TestWindow:
    def feed(self, window: ReviveWindow, *entries: CheckPoint | Ack | None) -> None:
        for entry in entries:
            deliver = entry.revive_ms - revive_log.AHEAD_MS if isinstance(entry, CheckPoint) else 0
            if isinstance(entry, Ack):
                deliver = entry.key[4] + 1_000
            window.add(window.next, entry, deliver)

    def test_ripe_two_seconds_after_its_time_by_the_times_of_others(self) -> None:
        window = ReviveWindow(0, ClockSteps())
        self.feed(window, point_at(10_000), point_at(13_000))
        assert [each.point.pop_ms for each in window.ripe(9)] == []
        window.add(2, None, 13_001)
        assert [each.point.pop_ms for each in window.ripe(9)] == [10_000]
        assert window.after(window.ripe(9)) == 1

    def test_a_clock_that_was_set_back_makes_nothing_ripe_before_its_acknowledgements_come(self) -> None:
        window, point = ReviveWindow(0, ClockSteps()), point_at(10_000)
        window.add(0, None, 60_000)
        window.not_beyond(10_000)
        self.feed(window, point)
        assert window.ripe(9) == []
        window.not_beyond(14_000)
        window.add(2, Ack(point.key, point.offsets, True), point.revive_ms)
        assert [each.point.open_offsets for each in window.ripe(9)] == []

    def test_one_that_comes_after_its_time_waits_for_its_acknowledgements(self) -> None:
        # given a timer that was ahead of a clock that was set back: all that waited in it comes at the end
        window, acked, left = ReviveWindow(0, ClockSteps()), point_at(10_000), point_at(10_001)
        window.not_beyond(60_000)
        window.add(0, None, 60_000)
        self.feed(window, acked, left)
        # when, then nothing is ripe before what comes a second later is there, and then what is open
        assert window.ripe(9) == []
        assert window.due_ms() == 60_000 + LATE_MS + 1
        window.not_beyond(61_000)
        self.feed(window, Ack(acked.key, acked.offsets, True))
        assert window.ripe(9) == []
        window.not_beyond(60_000 + LATE_MS)
        assert [each.point.open_offsets for each in window.ripe(9)] == [[], [1, 2, 3]]

    def test_one_that_comes_late_and_last_waits_for_its_acknowledgements(self) -> None:
        # given a timer that was ahead of a clock that was set back, and a queue that was not
        window, acked = ReviveWindow(0, ClockSteps()), point_at(10_000)
        window.not_beyond(60_000)
        self.feed(window, acked)
        window.reached_end(60_000, False)
        # when, then it is not ripe by the clock before nothing has come for a while
        assert (window.ripe(9), window.due_ms()) == ([], 60_000 + QUIET_MS + 1)
        window.not_beyond(60_000 + QUIET_MS)
        window.reached_end(60_000 + QUIET_MS, False)
        assert window.ripe(9) == []
        self.feed(window, Ack(acked.key, acked.offsets, True))
        window.not_beyond(60_000 + 2 * QUIET_MS + 1)
        window.reached_end(60_000 + 2 * QUIET_MS + 1, False)
        assert [each.point.open_offsets for each in window.ripe(9)] == [[]]

    def test_ripe_by_the_clock_when_nothing_comes(self) -> None:
        window = ReviveWindow(0, ClockSteps())
        self.feed(window, point_at(10_000))
        window.reached_end(10_000 + QUIET_MS, False)
        assert not window.ripe(9)
        assert window.due_ms() == 13_001
        window.reached_end(13_001, True)
        assert not window.ripe(9)
        window.reached_end(13_001, False)
        assert window.ripe(9)

    @pytest.mark.parametrize(("end", "ripe_at"), [(6, 6), (FAR_BEHIND + 9, FAR_BEHIND)])
    def test_ripe_when_what_was_there_at_its_time_is_read_or_much_of_it(self, end: int, ripe_at: int) -> None:
        window = ReviveWindow(0, ClockSteps())
        self.feed(window, point_at(10_000))
        window.add(1, None, 20_000)
        window.queue_end = end
        assert window.ripe(9) == []
        window.queue_end += 1  # the queue grows as it is read
        window.skip_to(ripe_at - 1)
        assert window.ripe(9) == []
        window.skip_to(ripe_at)
        assert window.ripe(9)

    def test_acknowledged_before_and_after(self) -> None:
        window, point = ReviveWindow(0, ClockSteps()), point_at(10_000)
        self.feed(window, Ack(point.key, (2,)), point, Ack(point.key, (1, 99), True))
        window.reached_end(99_999, False)
        (ripe,) = window.ripe(9)
        assert ripe.point.open_offsets == [3]

    @pytest.mark.covers("PP-01")
    def test_acknowledgements_alone_hold_up_nothing(self) -> None:
        window = ReviveWindow(0, ClockSteps())
        self.feed(window, *(Ack(point_at(10_000, (each,)).key, (each,)) for each in range(100)))
        assert (window.resume, len(window)) == (100, 0)

    def test_the_same_check_point_twice_is_one(self) -> None:
        window, point = ReviveWindow(0, ClockSteps()), point_at(10_000)
        self.feed(window, point, Ack(point.key, (1,)), point)
        window.reached_end(99_999, False)
        (ripe,) = window.ripe(9)
        assert (ripe.position, ripe.point.open_offsets) == (0, [2, 3])

    def test_one_that_came_far_too_early_holds_up_nothing(self) -> None:
        window = ReviveWindow(0, ClockSteps())
        window.add(0, point_at(10_000, (7,), invisible_ms=1 << 50), 10_000)
        self.feed(window, point_at(10_000))
        window.reached_end(99_999, False)
        assert [each.early for each in window.ripe(9)] == [True, False]

    def test_progress_never_passes_an_open_one(self) -> None:
        window = ReviveWindow(5, ClockSteps())
        self.feed(window, None, point_at(10_000), point_at(90_000), None)
        assert window.resume == 6
        window.pass_to(7)
        assert (window.resume, window.next, len(window)) == (7, 9, 1)
        window.pass_to(8)
        assert (window.resume, len(window)) == (9, 0)

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=40), st.integers(0, 3))
    def test_whatever_the_order_everything_open_is_found_once(self, acks: list[tuple[int, int]], position: int) -> None:
        """Acknowledgements land before or after their check points: what has one never comes back, all else does."""
        points = {each: point_at(10_000 + each, (0, 1, 2, 3)) for each in range(10)}
        window = ReviveWindow(0, ClockSteps())
        half = len(acks) // 2
        entries: list[CheckPoint | Ack] = [Ack(points[each].key, (offset,)) for each, offset in acks[:half]]
        entries += [*points.values(), *(Ack(points[each].key, (offset,)) for each, offset in acks[half:])]
        self.feed(window, *entries)
        window.reached_end(99_999, False)
        found = {(each.point.pop_ms - 10_000, offset) for each in window.ripe(99) for offset in each.point.open_offsets}
        assert found == {(each, offset) for each in range(10) for offset in range(4)} - set(acks)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class TestOrder:
    def test_the_captured_story(self) -> None:
        """The steps of the captured ordered pop: what blocks, what counts, what the offset is."""
        clock = Clock()
        table = OrderTable(clock)
        assert not table.blocks("T", "g", 0, "at1")
        table.put("T", "g", 0, next_record(None, "at1", clock.ms, 6_000, [0, 1], clock.ms))
        assert table.blocks("T", "g", 0, "at2")
        assert not table.blocks("T", "g", 0, "at1")
        again = next_record(table.get("T", "g", 0), "at1", clock.ms + 38, 6_000, [0, 1], clock.ms + 38)
        assert (again.counts, again.least_count) == ({}, 0)
        table.put("T", "g", 0, again)
        assert table.ack("T", "g", 0, 0, clock.ms, 0) == STALE
        pop_ms, clock.ms = clock.ms + 38, clock.ms + 100
        assert table.ack("T", "g", 0, 0, pop_ms, 0) == 1
        assert table.change_visible("T", "g", 0, 1, pop_ms, clock.ms + 1_500)
        assert table.blocks("T", "g", 0, "at3")
        clock.ms += 1_500
        assert not table.blocks("T", "g", 0, "at3")
        third = next_record(table.get("T", "g", 0), "at3", clock.ms, 6_000, [1], clock.ms)
        assert receipts.count_info("0", 0, dict(third.counts), third.least_count) == ["0 qo0%1 1", "0 0 1"]
        table.put("T", "g", 0, third)
        assert table.ack("T", "g", 0, 1, clock.ms, 0) == 2
        assert table.ack("T", "g", 0, 2, clock.ms, 0) == UNKNOWN

    @pytest.mark.covers("PP-15")
    def test_partial_acknowledgements(self) -> None:
        clock = Clock()
        table = OrderTable(clock)
        assert [table.ack("T", "g", 0, 7, 5, committed) for committed in (7, 6, -1)] == [8, STALE, STALE]  # no record
        table.put("T", "g", 0, next_record(None, None, clock.ms, 3_000, [3, 4, 7], clock.ms))
        assert table.ack("T", "g", 0, 4, clock.ms, 0) == 3
        assert table.ack("T", "g", 0, 3, clock.ms, 0) == 7
        assert table.blocks("T", "g", 0, None)
        assert table.ack("T", "g", 0, 7, clock.ms, 0) == 8
        assert not table.blocks("T", "g", 0, None)

    @given(
        st.lists(st.integers(0, 999), min_size=1, max_size=32, unique=True).map(sorted),
        st.integers(0, (1 << 64) - 1),
        st.dictionaries(st.integers(0, 999), st.integers(0, 1 << 41), max_size=4),
        st.none() | st.text("ab", min_size=1),
    )
    def test_the_file_is_read_as_it_was_written(
        self, offsets: list[int], acked: int, times: dict[int, int], attempt: str | None
    ) -> None:
        table = OrderTable(Clock())
        record = next_record(None, attempt, 5, 6, offsets, 7)
        table.put("T", "g", 2, attrs.evolve(record, acked=acked, visible_ms=times, counts={1: 2}))
        assert read_order_table(json_dialect.loads(json_dialect.dumps(table.to_json()))) == table.rows

    @pytest.mark.parametrize(
        "table", [[], {"T@g": {"0": 1}}, {"Tg": {}}, {"T@g": {"0": {"o": "x"}}}, {"T@g": {"0": {"o": [True]}}}]
    )
    def test_a_damaged_file_is_named(self, table: Any) -> None:
        with pytest.raises(ValueError, match="table"):
            read_order_table({"table": table})

    def test_forgotten_when_nobody_needs_it(self) -> None:
        clock = Clock()
        table = OrderTable(clock)
        for queue_id in range(3):
            table.put("T", "g", queue_id, next_record(None, None, 0, 1, [1], clock.ms))
        table.forget(lambda topic, group, queue_id: queue_id != 1)
        assert set(table.rows["T@g"]) == {0, 2}
        clock.ms += 24 * 3600 * 1000 + 1
        table.forget(lambda topic, group, queue_id: True)
        assert table.rows == {}


class TestChoice:
    @given(st.integers(0, 99), st.integers(1, 16), st.integers(0, 100), st.booleans())
    def test_every_queue_once_and_the_retry_topic_first_or_last(
        self, draw: int, queues: int, percent: int, in_order: bool
    ) -> None:
        retry = [Queue("R", 0)]
        found = choice.queues_to_read("T", -1, queues, retry, draw, retry_percent=percent, in_order=in_order)
        assert sorted(each.queue_id for each in found if each.topic == "T") == list(range(queues))
        if in_order:
            assert len(found) == queues
        else:
            assert found[0 if draw < percent else -1] == retry[0]

    def test_where_a_new_group_begins(self) -> None:
        def begin(topic: str = "T", low: int = 0, high: int = 9, *, least: bool = False, resident: bool = True) -> int:
            return choice.initial_offset(topic, least, low, high, resident)

        assert begin() == 0
        assert begin(resident=False) == 8
        assert begin(low=3) == 8
        assert begin(low=3, least=True) == 3
        assert begin("%RETRY%g_T", low=2) == 2
        assert begin(high=0, resident=False) == 0

    def test_half_of_the_pops_look_into_the_first_form(self) -> None:
        def topic(draw: int, second: bool, first_too: bool = True) -> str:
            return choice.retry_topic_to_read("g", "T", draw, second_form=second, first_form_too=first_too)

        assert [topic(draw, True) for draw in (2, 3)] == ["%RETRY%g_T", "%RETRY%g+T"]
        assert topic(2, True, False) == "%RETRY%g+T"
        assert topic(3, False) == "%RETRY%g_T"


@pytest.mark.parametrize("queues", [1, 8, choice.MOST_QUEUES, choice.MOST_QUEUES + 1, 65_535])
def test_pops_together_reach_every_queue_and_each_looks_at_no_more_than_it_has_time_for(queues: int) -> None:
    reached: set[int] = set()
    for draw in range(choice.DICE):
        found = [each.queue_id for each in choice.queues_of("T", queues, draw)]
        assert min(queues, choice.MOST_QUEUES) == len(found) == len(set(found))
        reached.update(found)
    assert set(range(queues)) == reached
