"""Which second a timer message waits for, who takes it back, and how handles are spelled."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.broker.timer import rules
from understudy.broker.timer.done import MOST_PARTS, Again, Done, Read, joined
from understudy.broker.timer.progress import TimerProgress
from understudy.broker.timer.request import TimerRefusedError, is_congested, redirect
from understudy.format.names import TIMER_TOPIC
from understudy.format.properties import format_properties
from understudy.format.recall_handle import Handle, decode_handle, encode_handle
from understudy.format.record import FLAG_TRANSACTION_COMMIT, FLAG_TRANSACTION_PREPARED, Record

NOW_MS = 1_795_245_655_993


@attrs.define
class Door:
    enabled: bool = True
    precision_ms: int = 1000
    max_delay_seconds: int = 259_200
    read_ms: int = 0
    full: str | None = None

    def refusal(self, time_ms: int) -> str | None:
        return self.full


def record(store_ms: int = NOW_MS, **pairs: str) -> Record:
    return Record(TIMER_TOPIC, 0, 5, 100, b"x", format_properties(pairs), store_ms=store_ms, size_bytes=90)


class TestRequest:
    @pytest.mark.parametrize(
        ("pairs", "second"),
        [
            ({"TIMER_DELAY_SEC": "2"}, 1795245657000),  # these are captured
            ({"TIMER_DELIVER_MS": "1795332057000"}, 1795332056000),
            ({"TIMER_DELAY_MS": "1"}, 1795245655000),
            ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "9000", "TIMER_DELIVER_MS": "1"}, 1795245657000),
        ],
    )
    def test_the_second_is_over_at_the_asked_time_or_right_after(self, pairs: dict[str, str], second: int) -> None:
        assert redirect("T", 3, pairs, 0, NOW_MS, Door()) == (TIMER_TOPIC, 0)
        assert (pairs["TIMER_OUT_MS"], pairs["REAL_TOPIC"], pairs["REAL_QID"]) == (str(second), "T", "3")

    @given(st.integers(1, 10**9), st.sampled_from((100, 200, 500, 1000)))
    def test_never_early_and_late_by_less_than_a_slot(self, wait_ms: int, precision_ms: int) -> None:
        pairs = {"TIMER_DELAY_MS": str(wait_ms)}
        redirect("T", 0, pairs, 0, NOW_MS, Door(precision_ms=precision_ms, max_delay_seconds=10**9))
        over_ms = int(pairs["TIMER_OUT_MS"]) + precision_ms
        assert 0 <= over_ms - (NOW_MS + wait_ms) < precision_ms

    @pytest.mark.parametrize(
        ("pairs", "sys_flag"),
        [
            ({}, 0),
            ({"TIMER_DELIVER_MS": "999"}, 0),
            ({"TIMER_DELAY_SEC": "-5"}, 0),
            ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"}, 0),
            ({"TIMER_DELAY_SEC": "5", "DELAY": "1"}, 0),
            ({"TIMER_DELAY_SEC": "5"}, FLAG_TRANSACTION_PREPARED),
        ],
    )
    def test_what_is_not_kept(self, pairs: dict[str, str], sys_flag: int) -> None:
        assert redirect("T", 3, pairs, sys_flag, NOW_MS, Door()) == ("T", 3)

    def test_a_committed_message_is_kept_and_one_of_the_timer_topic_is_not_kept_again(self) -> None:
        assert redirect("T", 3, {"TIMER_DELAY_SEC": "1"}, FLAG_TRANSACTION_COMMIT, NOW_MS, Door())[0] == TIMER_TOPIC
        assert redirect(TIMER_TOPIC, 0, pairs := {"TIMER_DELAY_SEC": "1"}, 0, NOW_MS, Door()) == (TIMER_TOPIC, 0)
        assert "REAL_TOPIC" not in pairs

    @pytest.mark.parametrize(
        "pairs",
        [
            {"TIMER_DELAY_SEC": "259201"},
            {"TIMER_DELIVER_MS": "soon"},
            {"TIMER_DELIVER_MS": "9" * 5000},
            {"TIMER_DELAY_MS": "٣"},
            {"TIMER_DELAY_MS": "1_0"},
            {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "k"},
        ],
    )
    def test_illegal_requests(self, pairs: dict[str, str]) -> None:
        with pytest.raises(TimerRefusedError, match="bigger than the max delay 259200000ms") as refused:
            redirect("T", 0, pairs, 0, NOW_MS, Door())
        assert refused.value.illegal

    @pytest.mark.parametrize(
        ("door", "why"),
        [(Door(enabled=False), "timerWheelEnable is false"), (Door(full="flow control"), "flow control")],
    )
    def test_requests_that_this_broker_cannot_keep(self, door: Door, why: str) -> None:
        with pytest.raises(TimerRefusedError, match=why) as refused:
            redirect("T", 0, {"TIMER_DELAY_SEC": "1"}, 0, NOW_MS, door)
        assert not refused.value.illegal

    def test_nothing_is_kept_for_a_second_that_is_passed_over(self) -> None:
        # Given a clock that was set back: the wheel is at a later second than the clock
        pairs = {"TIMER_DELAY_SEC": "1"}
        redirect("T", 0, pairs, 0, NOW_MS, Door(read_ms=NOW_MS // 1000 * 1000 + 60_000))
        assert int(pairs["TIMER_OUT_MS"]) == NOW_MS // 1000 * 1000 + 60_000

    def test_congestion(self) -> None:
        source = random.Random(1)
        assert not any(is_congested(count, 10, source) for count in range(11))
        assert all(is_congested(count, 10, source) for count in range(20, 30))
        refused = sum(is_congested(12, 10, source) for _ in range(1000))
        assert 700 < refused < 900


class TestSlots:
    @given(st.integers(0, 5 * 86_400_000), st.integers(0, 10**6), st.sampled_from((100, 1000)))
    @example(172_800_000, 0, 1000)
    def test_a_message_comes_to_its_second_through_rests_of_a_window_at_most(
        self, ahead_ms: int, odd_ms: int, precision_ms: int
    ) -> None:
        window = rules.window_slots(172_800)
        stored_ms, rests = NOW_MS + odd_ms, 0
        wanted_ms = (stored_ms + ahead_ms) // precision_ms * precision_ms
        while True:
            place = rules.waits(record(stored_ms, TIMER_OUT_MS=str(wanted_ms)), precision_ms, window)
            assert place is not None
            assert 0 <= place.slot_ms - place.write_ms <= window * precision_ms
            if not place.rolls:
                assert place.slot_ms == max(wanted_ms, place.write_ms)
                break
            assert place.slot_ms > stored_ms
            stored_ms, rests = place.slot_ms + precision_ms, rests + 1
        assert rests <= ahead_ms // (window * precision_ms // 3) + 1

    def test_the_captured_rests(self) -> None:
        # as the reference chose them for a message 2.4 days ahead
        place = rules.waits(record(1795245656630, TIMER_OUT_MS="1795454455000"), 1000, 172_800)
        assert place is not None
        assert (place.write_ms, place.slot_ms, place.rolls) == (1795245656000, 1795332056000, True)

    @pytest.mark.parametrize("text", ["", "x", "-5", "1.5", "٣"])
    def test_a_message_without_its_time_waits_nowhere(self, text: str) -> None:
        assert rules.waits(record(TIMER_OUT_MS=text, REAL_TOPIC="T"), 1000, 172_800) is None

    def test_a_time_out_of_this_world_only_rests(self) -> None:
        place = rules.waits(record(TIMER_OUT_MS="9" * 4000), 1000, 172_800)
        assert place is not None
        assert place.rolls

    def test_settings_of_the_wheel(self) -> None:
        assert [rules.window_slots(each) for each in (1, 2, 604_740, 604_741)] == [604_740, 2, 604_740, 604_740]
        assert [rules.slot_length_ms(each) for each in (1, 100, 250, 999, 1000, 60_000)] == [
            100, 100, 200, 500, 1000, 1000,
        ]  # fmt: skip


class TestTakenBack:
    @pytest.mark.parametrize(("named", "gone"), [("k", True), ("T+k", True), ("j", False), ("U+k", False)])
    def test_both_forms_count_for_messages_of_their_topic_only(self, named: str, gone: bool) -> None:
        requests = rules.TakenBack()
        requests.add(record(TIMER_DEL_UNIQKEY=named, REAL_TOPIC="T"))
        assert (record(UNIQ_KEY="k", REAL_TOPIC="T") in requests) is gone
        assert record(UNIQ_KEY="k", REAL_TOPIC="U") not in requests

    def test_the_form_follows_the_setting(self) -> None:
        assert rules.delete_key("T", "k", with_topic=False) == "k"
        assert rules.delete_key("T", "k", with_topic=True) == "T+k"


class TestDelivery:
    def test_identity_is_kept_and_times_are_told(self) -> None:
        message = rules.delivered(record(REAL_TOPIC="T", REAL_QID="3", UNIQ_KEY="k", TIMER_OUT_MS="9"), 7, 8)
        assert message is not None
        assert (message.topic, message.queue_id, message.body) == ("T", 3, b"x")
        assert message.properties.decode() == format_properties(
            {
                "REAL_TOPIC": "T",
                "REAL_QID": "3",
                "UNIQ_KEY": "k",
                "TIMER_OUT_MS": "9",
                "TIMER_ENQUEUE_MS": "7",
                "TIMER_DEQUEUE_MS": "8",
            }
        )

    @pytest.mark.parametrize(
        "pairs",
        [{}, {"REAL_TOPIC": "T"}, {"REAL_TOPIC": "T", "REAL_QID": "-1"}, {"REAL_TOPIC": "T", "REAL_QID": "9" * 99}],
    )
    def test_what_belongs_nowhere_goes_nowhere(self, pairs: dict[str, str]) -> None:
        assert rules.delivered(record(**pairs), 7, 8) is None

    def test_rolls_are_counted(self) -> None:
        once = rules.rolled(record(REAL_TOPIC="T", TIMER_OUT_MS="9"), 7, 8)
        assert (once.topic, b"TIMER_ROLL_TIMES\x011\x02" in once.properties) == (TIMER_TOPIC, True)
        assert b"TIMER_ROLL_TIMES\x015\x02" in rules.rolled(record(TIMER_ROLL_TIMES="4"), 7, 8).properties

    def test_properties_that_are_full_are_delivered_as_they_are(self) -> None:
        full = record(REAL_TOPIC="T", REAL_QID="0", K="x" * 32_730)
        message = rules.delivered(full, 7, 8)
        assert message is not None
        assert message.properties.decode() == full.properties_text


class TestHandle:
    def test_a_captured_handle(self) -> None:
        text = (
            "djEgVG9waWNUZXN0IGJyb2tlci1hIDE3OTUyNDQ3OTIwMDEgRkQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDI0NDRDNEUwRTJGMkE2"
            "ODg0QzZBRDAwMTM="
        )
        handle = Handle(
            "TopicTest", "broker-a", 1795244792001, "FD000000000000000000000000000002444C4E0E2F2A6884C6AD0013"
        )
        assert (encode_handle(handle), decode_handle(text)) == (text, handle)

    @pytest.mark.parametrize("text", ["", "???", "x", "djI=", "djEgYSBi", "é", "A" * 100_000, "djEgVCBiIDE="])
    def test_what_is_no_handle(self, text: str) -> None:
        with pytest.raises(ValueError, match="recall handle is invalid"):
            decode_handle(text)

    @given(st.text(max_size=60))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        try:
            decode_handle(text)
        except ValueError as error:
            assert str(error) == "recall handle is invalid"


class TestProgress:
    def test_it_comes_back_as_it_was_saved(self) -> None:
        progress = TimerProgress(lambda: 7)
        progress.move(Read(5000, 12))
        progress.todo = (Again(3, 9, Read(4000, 1)), Again(12, 13, Read(4500, 0)))
        other = TimerProgress(lambda: 8)
        other.merge_json(progress.to_json())
        assert (other.read, other.todo) == (Read(5000, 12), progress.todo)

    def test_one_part_alone_is_read_as_former_versions_saved_it(self) -> None:
        progress = TimerProgress(lambda: 7)
        progress.merge_json({"again": {"first": 3, "end": 9, "readTimeMs": 4000, "readPhysicalOffset": 1}})
        assert progress.todo == (Again(3, 9, Read(4000, 1)),)

    @pytest.mark.parametrize(
        "value",
        [
            {"readTimeMs": "x"},
            {"readTimeMs": -1},
            {"readPhysicalOffset": []},
            {"again": {"first": 1}},
            {"again": [7]},
            {"again": 7},
        ],
    )
    def test_what_is_none_is_refused(self, value: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="whole numbers"):
            TimerProgress(lambda: 7).merge_json(value)

    reads = st.builds(Read, st.integers(0, 5), st.integers(0, 5))
    replicas = st.lists(st.tuples(reads, st.integers(0, 9)), min_size=1, max_size=5)

    @given(replicas, st.lists(reads, min_size=9, max_size=9))
    def test_take_overs_leave_nothing_undone_and_repeat_nothing(
        self, replicas: list[tuple[Read, int]], messages: list[Read]
    ) -> None:
        # Given messages by queue offset, each with its place in the wheel; and what each of several replicas has done
        done = {n for read, known in replicas for n, place in enumerate(messages) if n < known and place < read}
        # When one takes over from the others, one after the other
        (own, *others) = [Done(read, known) for read, known in replicas]
        for other in others:
            own = own.merged(other)
        # Then what is delivered from now on is what none of them has done
        later = {n for n, place in enumerate(messages) if place >= own.read or n >= own.known}
        later |= {n for each in own.left for n in range(each.first, each.end) if each.was <= messages[n] < own.read}
        assert later == set(range(len(messages))) - done
        # and who knows less adds nothing
        assert own.merged(Done()) == own.merged(own) == own
        assert own.within(own.known) == own
        assert own.within(4).known <= 4

    parts = st.lists(
        st.builds(lambda first, size, was: Again(first, first + size, was), st.integers(0, 9), st.integers(0, 5), reads)
    )

    @given(parts, parts)
    def test_what_either_leaves_to_do_is_left(self, one: list[Again], other: list[Again]) -> None:
        both, every = joined(one, other), [*one, *other]
        for offset in range(16):
            was = [each.was for each in every if each.first <= offset < each.end]
            assert Done(Read(9), 99, both).before(offset) == min(was, default=Read(9))

    def test_of_very_many_parts_the_last_ones_become_one(self) -> None:
        parts = [Again(2 * n, 2 * n + 1, Read(n)) for n in range(MOST_PARTS + 5)]
        found = joined(parts)
        assert len(found) == MOST_PARTS
        assert found[:-1] == tuple(parts[: MOST_PARTS - 1])
        assert found[-1] == Again(2 * MOST_PARTS - 2, parts[-1].end, Read(MOST_PARTS - 1))
