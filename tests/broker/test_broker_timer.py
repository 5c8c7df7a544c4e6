"""Timer messages of one broker: kept, delivered once and not before their time, taken back, and through crashes."""

from __future__ import annotations

import base64
import random
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from broker_rig import NoNetwork, Rig, code_and_remark, open_rig, properties
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from understudy.broker.timer.figures import BOUNDS_SECONDS, families
from understudy.broker.timer.lateness import behind_ms
from understudy.broker.timer.slot import BATCH
from understudy.broker.timer.timer import Timer
from understudy.format import json_dialect
from understudy.format.names import TIMER_TOPIC
from understudy.format.recall_handle import Handle, encode_handle
from understudy.format.record import Record
from understudy.runtime.world import World
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.sim.disk import SimDisk
from understudy.testkit.waiting import until

LABELS = ("topic", "timer_bound_s")
UNAVAILABLE = "recall failed, broker service not available"
ELSEWHERE = ": the handle is not of broker-a; send it to the broker that gave it"
FORBIDDEN = "recall failed, operation is forbidden: set recallMessageEnable=true at this broker to allow it"
OUT_OF_TIME = (
    "recall failed, timestamp invalid: only what is due later, and within timerMaxDelaySec, can be recalled; send the "
    "handle as it came, before its message is due"
)
KEYS = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": "1024"}


def simulated(seed: int = 1) -> World:
    clock = VirtualClock()
    disk = SimDisk(random.Random(seed), now_ms=clock.wall_ms)
    return World(clock, cast(Any, NoNetwork()), disk, random.Random(seed))


def keep(rig: Rig, body: bytes, topic: str = "T", **pairs: str) -> dict[str, str]:
    answer = rig.send(topic, body, properties(UNIQ_KEY=body.decode(), **pairs))
    assert answer.code == 0, answer.remark
    assert answer.ext is not None
    return answer.ext


def bodies(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in rig.stored(topic, queue_id)]


def lateness(record: Record) -> int:
    """Return how long after its asked time a message was put where it belongs, in milliseconds."""
    pairs = record.properties
    return record.store_ms - (record.born_ms + int(pairs["TIMER_DELAY_MS"]))


@pytest.mark.covers("SC-05")
async def test_messages_come_once_in_their_second(autojump_clock: MockClock) -> None:
    world = simulated()
    async with open_rig("/store", KEYS, world=world) as rig:
        # Given messages that ask in each of the three ways, at odd times
        started_ms = world.clock.wall_ms()
        for number in range(100):
            born = {"header": {"g": str(world.clock.wall_ms())}}
            pairs = properties(UNIQ_KEY=f"k{number}", TIMER_DELAY_MS=str(37 * number + 1))
            answer = rig.send("T", b"%d" % number, pairs, **born)
            assert answer.ext is not None
            assert answer.ext["queueOffset"] == str(number)
        keep(rig, b"sec", "S", TIMER_DELAY_SEC="3")
        keep(rig, b"at", "S", TIMER_DELIVER_MS=str(started_ms + 3_500))
        keep(rig, b"past", "S", TIMER_DELIVER_MS=str(started_ms - 1))
        assert bodies(rig, "S") == [b"past"]
        assert rig.broker.timer.waiting_of == Counter()  # counted when they are in their slots

        # When their time has come
        await trio.sleep(6)

        # Then each is there once, in order, never early and late by less than a second
        found = rig.stored("T")
        assert [record.body for record in found] == [b"%d" % number for number in range(100)]
        assert all(0 <= lateness(record) <= 1_000 for record in found)
        assert bodies(rig, "S") == [b"past", b"sec", b"at"]
        pairs = found[5].properties
        assert (pairs["REAL_TOPIC"], pairs["REAL_QID"], pairs["UNIQ_KEY"]) == ("T", "0", "k5")
        assert int(pairs["TIMER_ENQUEUE_MS"]) <= int(pairs["TIMER_OUT_MS"]) < int(pairs["TIMER_DEQUEUE_MS"])
        assert rig.broker.timer.waiting_of == Counter()
        assert (rig.broker.timer.waiting, rig.broker.timer.behind) == (0, 0)


@pytest.mark.covers("SC-05")
async def test_what_is_taken_back_does_not_come(autojump_clock: MockClock) -> None:
    async with open_rig("/store", KEYS, world=simulated()) as rig:
        handles = [keep(rig, b"%d" % number, TIMER_DELAY_SEC="5")["recallHandle"] for number in range(10)]
        same_key = keep(rig, b"3", "Other", TIMER_DELAY_SEC="5")
        await trio.sleep(2)
        for handle in handles[:8]:
            answer = rig.ask(370, {"topic": "T", "recallHandle": handle, "producerGroup": "pg"})
            assert (answer.code, answer.remark) == (0, "not set any response code")  # captured
        assert (answer.ext or {})["msgId"] == "7"
        await trio.sleep(6)
        assert bodies(rig) == [b"8", b"9"]
        assert (bodies(rig, "Other"), "recallHandle" in same_key) == ([b"3"], True)
        assert rig.broker.timer.waiting == 0


@pytest.mark.covers("SC-05")
async def test_taking_back_is_refused_as_the_real_system_does(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path)) as rig:
        assert code_and_remark(rig.ask(370)) == (16, FORBIDDEN)
    async with open_rig(str(tmp_path), KEYS) as rig:
        handle = keep(rig, b"k", TIMER_DELAY_SEC="30")["recallHandle"]
        now_ms = rig.broker.world.clock.wall_ms()
        far, past, never = (
            encode_handle(Handle("T", "broker-a", time_ms, "k")) for time_ms in (now_ms + 10**9, now_ms - 1, -1)
        )
        elsewhere = encode_handle(Handle("T", "other", now_ms + 9, "k"))
        rig.send("U")
        for topic, text, expected in [
            ("NoT", "x", (17, "recall failed, the topic[NoT] not exist")),
            ("", handle, (17, "recall failed, the topic[] not exist")),
            ("T", "???", (604, "recall handle is invalid")),
            ("T", "", (604, "recall handle is invalid")),
            ("U", handle, (604, "recall failed, topic not match")),
            ("T", elsewhere, (604, f"{UNAVAILABLE}{ELSEWHERE}")),
            *(("T", each, (604, OUT_OF_TIME)) for each in (past, never, far)),
        ]:
            assert code_and_remark(rig.ask(370, {"topic": topic, "recallHandle": text})) == expected
        assert len(rig.stored(TIMER_TOPIC)) == 1
    read_only = {**KEYS, "brokerPermission": "4", "allowRecallWhenBrokerNotWriteable": "false"}
    async with open_rig(str(tmp_path), read_only) as rig:
        refused = rig.ask(370, {"topic": "T", "recallHandle": handle})
        again = f"{UNAVAILABLE}: it takes no messages now; try again when it does"
        assert (refused.code, (refused.remark or "").startswith(again)) == (14, True)


async def test_refusals_of_sends_are_captured_ones(tmp_path: Path) -> None:
    async with open_rig(str(tmp_path), {"timerCongestNumEachSlot": "3"}) as rig:
        illegal = (
            13,
            "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; "
            "or if set del msg, the delay time should be bigger than the current time",
        )
        assert code_and_remark(rig.send("T", properties=properties(TIMER_DELAY_SEC="2592000"))) == illegal
        assert code_and_remark(rig.send("T", properties=properties(TIMER_DELAY_SEC="x"))) == illegal
        at_ms = rig.broker.world.clock.wall_ms() + 60_000
        codes = []
        for _ in range(20):
            codes.append(rig.send("T", properties=properties(TIMER_DELIVER_MS=str(at_ms))).code)
            await until(lambda: rig.broker.timer.waiting_at(at_ms) == codes.count(0))  # it is in its slot
        assert codes[:4] == [0] * 4
        assert 4 <= codes.count(0) <= 6
    async with open_rig(str(tmp_path), {"timerWheelEnable": "false"}) as rig:
        off = rig.send("T", properties=properties(TIMER_DELAY_SEC="60"))
        assert code_and_remark(off) == (1, "accurate timer message is not enabled, timerWheelEnable is false")


async def test_messages_for_the_timer_topic_itself(autojump_clock: MockClock) -> None:
    world = simulated()
    async with open_rig("/store", KEYS, world=world) as rig:
        rig.send("T")
        second = str(world.clock.wall_ms() // 1000 * 1000 + 2_000)

        def put(**pairs: str) -> int:
            return rig.send(TIMER_TOPIC, b"kept", properties(UNIQ_KEY="k", **pairs)).code

        # What says for when and for where is kept, as other brokers hand such messages on
        assert put(REAL_TOPIC="T", REAL_QID="7", TIMER_OUT_MS=second) == 0
        # and whatever does not is refused, as nobody could ever deliver it
        for pairs in (
            {},
            {"REAL_TOPIC": "T", "REAL_QID": "0"},
            {"REAL_TOPIC": "T", "REAL_QID": "-1", "TIMER_OUT_MS": second},
            {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": "soon"},
        ):
            assert put(**pairs) == 13
        for topic in ("../../T", TIMER_TOPIC, "T+"):
            assert put(REAL_TOPIC=topic, REAL_QID="0", TIMER_OUT_MS=second) == 17
        # A log may hold them all the same: they are passed over
        for pairs in (
            {"TIMER_OUT_MS": "soon"},
            {"TIMER_OUT_MS": second},
            {"TIMER_OUT_MS": second, "REAL_TOPIC": "../x", "REAL_QID": "0"},
        ):
            rig.broker.store.append(TIMER_TOPIC, 0, b"x", properties(**pairs).encode(), 1, b"\0" * 8)
        await trio.sleep(5)
        assert bodies(rig, "T", 7 % rig.broker.topics.rows["T"].write_queue_nums) == [b"kept"]
        assert (rig.broker.timer.behind, behind_ms(rig.broker.timer, world.clock.wall_ms())) == (0, 0)
        assert not any(".." in topic for topic, _ in rig.broker.store.queues())


values = st.one_of(
    st.sampled_from(["0", "-1", "1", "2", "259200", "9" * 30, "1e3", " 5", "\u0663", "T", "U", "../T", TIMER_TOPIC]),
    st.integers(1_700_000_000_000 - 5_000, 1_700_000_000_000 + 9_000).map(str),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8),
)
hostile = st.dictionaries(
    st.sampled_from(
        (
            *("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY"),
            *("TIMER_ROLL_TIMES", "TIMER_ENQUEUE_MS", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "DELAY", "TRAN_MSG"),
        )
    ),
    values,
    max_size=6,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(["T", TIMER_TOPIC]), hostile), max_size=12),
    st.lists(st.tuples(st.sampled_from(["T", TIMER_TOPIC, "NoT"]), st.text(max_size=40)), max_size=4),
)
def test_whatever_is_asked_of_the_timer_it_goes_on(
    sends: list[tuple[str, dict[str, str]]], recalls: list[tuple[str, str]]
) -> None:
    async def scenario(source: random.Random) -> None:
        world = simulated()
        async with open_rig("/store", KEYS, world=world) as rig:
            for topic, pairs in sends:
                answer = rig.send(topic, b"hostile", properties(**pairs))
                assert answer.code in (0, 1, 13, 16, 17, 29), (answer.code, answer.remark)
                assert answer.code == 0 or answer.remark
                # and into the log of a slave they come without a question
                text = properties(**pairs).encode("utf-8", "replace")
                rig.broker.store.append(TIMER_TOPIC, 0, b"hostile", text, 1, b"\0" * 8)
            for topic, text in recalls:
                handle = base64.urlsafe_b64encode(f"v1 {topic} broker-a {text}".encode()).decode()
                for each in (text, handle):
                    assert rig.ask(370, {"topic": topic, "recallHandle": each}).code in (17, 604, 0)
            keep(rig, b"good", "Good", TIMER_DELAY_SEC="2")
            await trio.sleep(15)
            assert bodies(rig, "Good") == [b"good"]
            assert rig.broker.timer.behind == 0

    run_seed(scenario, 1)


async def test_figures_are_shown_under_the_references_names(autojump_clock: MockClock) -> None:
    world = simulated()
    async with open_rig("/store", KEYS, world=world) as rig:
        for seconds in (2, 3, 30, 200, 4_000, 80_000):
            keep(rig, b"%d" % seconds, TIMER_DELAY_SEC=str(seconds))

        def shown() -> dict[str, float]:
            return {
                family.name.removeprefix("rocketmq_")
                + "".join(sample.labels.get(name, "") for name in LABELS): sample.value
                for family in families(rig.broker.timer, world.clock.wall_ms(), {"storage_type": "local"})
                for sample in family.samples
            }

        assert shown()["timer_enqueue_lag"] == 6
        await trio.sleep(1)
        figures = shown()
        assert (figures["timer_enqueue_lag"], figures["timer_dequeue_lag"], figures["timing_messagesT"]) == (0, 6, 6)
        assert [figures[f"timer_message_snapshot{bound}"] for bound in BOUNDS_SECONDS] == [
            2, 1, 1, 0, 0, 1, 0, 1,
        ]  # fmt: skip
        await trio.sleep(4)
        figures = shown()
        assert (figures["timer_enqueue_totalT"], figures["timer_dequeue_totalT"], figures["timing_messagesT"]) == (
            6,
            2,
            4,
        )
        assert [figures[f"timer_{each}_latency_milliseconds"] for each in ("enqueue", "dequeue")] == [0, 0]
        # the same after a flush, which moves slots into the file, and in what replicas and mqadmin are told
        await trio.sleep(3)
        assert shown()["timer_message_snapshot60"] == 1
        table = json_dialect.loads(rig.ask(28).body)["table"]
        assert [table[name] for name in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")] == ["0", "0", "4"]
        counts = json_dialect.loads(rig.ask(61).body)["timingCount"]
        assert {topic: row["count"] for topic, row in counts.items()} == {"T": 4}


async def test_an_idle_timer_makes_no_files_and_no_writes(autojump_clock: MockClock) -> None:
    world = simulated()
    disk = cast(SimDisk, world.disk)
    async with open_rig("/store", KEYS, world=world) as rig:
        rig.send("T")
        await trio.sleep(30)
        assert not {"timerwheel", "timerlog"} & set(disk.listdir("/store"))
        assert "timercheck" not in disk.listdir("/store/config")
        # and none after the last message is delivered
        keep(rig, b"k", TIMER_DELAY_SEC="2")
        await trio.sleep(30)
        before = disk.modified_ms("/store/config/timercheck")
        await trio.sleep(300)
        assert disk.modified_ms("/store/config/timercheck") == before
        # while others are told that nothing is behind
        assert rig.broker.timer.check().read_ms == world.clock.wall_ms() // 1000 * 1000


async def test_a_second_with_many_messages_is_delivered_in_short_steps(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more messages for one second than one step takes
    count = 10 * BATCH + 5
    async with open_rig("/store", {"mappedFileSizeTimerLog": str(1 << 20)}, world=simulated()) as rig:
        read: list[int] = []
        of = Timer.record

        def counted(timer: Timer, unit: Any) -> Any:
            read[-1] += 1
            return of(timer, unit)

        def step(timer: Timer) -> bool:
            read.append(0)
            return enqueue(timer)

        enqueue = Timer.enqueue
        monkeypatch.setattr(Timer, "record", counted)
        monkeypatch.setattr(Timer, "enqueue", step)
        for number in range(count):
            keep(rig, b"%d" % number, TIMER_DELAY_SEC="3")
        await trio.sleep(5)
        # Then no step read more than a batch, and all are there in order
        assert max(read) == BATCH
        assert bodies(rig) == [b"%d" % number for number in range(count)]


async def test_far_messages_rest_on_the_way(autojump_clock: MockClock) -> None:
    # Given a window of a minute, and messages further away; one is taken back in time
    keys = {**KEYS, "timerRollWindowSlot": "60"}
    async with open_rig("/store", keys, world=simulated()) as rig:
        keep(rig, b"far", TIMER_DELAY_SEC="200")
        handle = keep(rig, b"gone", TIMER_DELAY_SEC="190")["recallHandle"]
        await trio.sleep(65)
        assert rig.ask(370, {"topic": "T", "recallHandle": handle}).code == 0
        await trio.sleep(130)
        assert bodies(rig) == []
        await trio.sleep(10)
        (record,) = rig.stored("T")
        assert (record.body, int(record.properties["TIMER_ROLL_TIMES"]) >= 2) == (b"far", True)
        kept = [each.properties.get("TIMER_ROLL_TIMES") for each in rig.stored(TIMER_TOPIC)]
        assert kept.count(None) == 3
        assert rig.broker.timer.waiting == 0


async def test_a_clock_that_is_set_back_loses_nothing_and_delivers_nothing_early(autojump_clock: MockClock) -> None:
    world = simulated()
    clock = cast(VirtualClock, world.clock)
    async with open_rig("/store", KEYS, world=world) as rig:
        keep(rig, b"early", TIMER_DELAY_SEC="2")
        await trio.sleep(4)
        assert bodies(rig) == [b"early"]
        clock.jump(-20_000)
        keep(rig, b"later", TIMER_DELAY_SEC="2")
        await trio.sleep(30)
        found = rig.stored("T")
        assert [record.body for record in found] == [b"early", b"later"]
        assert found[1].store_ms >= int(found[1].properties["TIMER_OUT_MS"]) + 1000


@pytest.mark.parametrize("lost", ["nothing", "wheel", "log", "all"])
async def test_a_start_goes_on_where_the_timer_was(lost: str, autojump_clock: MockClock) -> None:
    # Given delivered messages, waiting ones, one that is taken back, and one that rests
    world, keys = simulated(), {**KEYS, "timerRollWindowSlot": "60"}
    disk = cast(SimDisk, world.disk)
    async with open_rig("/store", keys, world=world) as rig:
        for number in range(40):
            keep(rig, b"%d" % number, TIMER_DELAY_SEC=str(2 + number % 8))
        keep(rig, b"far", TIMER_DELAY_SEC="100")
        handle = keep(rig, b"gone", TIMER_DELAY_SEC="9")["recallHandle"]
        assert rig.ask(370, {"topic": "T", "recallHandle": handle}).code == 0
        await trio.sleep(5)
        before = len(bodies(rig))
        assert 10 < before < 30
    # When files are lost while the broker is down
    if lost in ("wheel", "all"):
        disk.remove("/store/timerwheel")
    if lost in ("log", "all"):
        disk.remove_tree("/store/timerlog")
    # Then the next life delivers the rest, and nothing again
    async with open_rig("/store", keys, world=world) as rig:
        await trio.sleep(20)
        assert sorted(bodies(rig), key=int) == [b"%d" % number for number in range(40)]
        await trio.sleep(90)
        assert bodies(rig)[40:] == [b"far"]


async def test_messages_that_fell_due_while_the_broker_was_down_come_at_once(autojump_clock: MockClock) -> None:
    world = simulated()
    async with open_rig("/store", KEYS, world=world) as rig:
        for number in range(20):
            keep(rig, b"%d" % number, TIMER_DELAY_SEC=str(10 + number))
        await trio.sleep(2)
    cast(VirtualClock, world.clock).jump(3 * 86_400_000)
    async with open_rig("/store", KEYS, world=world) as rig:
        await trio.sleep(0.1)
        assert bodies(rig) == [b"%d" % number for number in range(20)]
