"""The drill with real processes: its traffic, its verdict, and what it says when something is missing."""

from __future__ import annotations

import json
import random
import re
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from understudy.mqclient.message import Message
from understudy.mqclient.producer import Producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.sending import SendResult, SendStatus
from understudy.testkit import java_tools
from understudy.testkit.drills.acting_allowances import judge
from understudy.testkit.drills.acting_kinds import DELAYED, HALVES, ORDERED, POPPED, POPPED_IN_ORDER, TIMED, Kind
from understudy.testkit.drills.acting_master import main
from understudy.testkit.drills.acting_processes import RealRun
from understudy.testkit.drills.grpc_traffic import HOLDING, GrpcTraffic
from understudy.testkit.drills.met_faults import SYNC_SECONDS, Home, Met
from understudy.testkit.drills.process_traffic import CONCURRENT, ORDERLY, TOPIC, JavaTraffic, OurTraffic
from understudy.testkit.drills.timer_traffic import TimerTraffic
from understudy.testkit.drills.traffic_clients import CLIENTS
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import until


@pytest.mark.slow
@pytest.mark.covers("R1", "R40", "R46", "R53", "R54", "R63", "R69")
async def test_a_killed_container_is_stood_in_for_and_gets_everything_back() -> None:
    # when the container of a master is killed under traffic and comes back
    outcome = await RealRun(random.Random(7), quiet_seconds=2.0).play()
    # then every subscribed group got every message, in order, and none twice
    assert outcome.verdict.ok, outcome.verdict.violations
    assert outcome.verdict.sent > 100
    assert outcome.verdict.delivered >= 2 * outcome.verdict.sent  # what was stored without an answer arrives, too
    assert outcome.verdict.repeated == 0
    # so did they of every other kind; what came twice has a reason in the table of allowed repeats
    assert [each.name for each in outcome.kinds] == [ORDERED, DELAYED, TIMED, HALVES, POPPED, POPPED_IN_ORDER]
    for kind in outcome.kinds:
        assert (kind.delivered, kind.lost, kind.wrong) == (kind.sent, 0, 0), kind.name
        assert kind.sent > 20, kind.name
    # and well before a broker that nobody told would have noticed (every step is bounded in virtual time, too)
    after = {name[:2]: seconds for name, seconds in outcome.steps}
    assert after["T5"] < 20.0
    assert after["R0"] < after["R1"] <= after["R2"] < 60.0
    # and the report tells what was taken over
    assert outcome.report is not None
    assert outcome.report["changed"] > 0


def traffic_that_read(*lines: dict[str, object]) -> JavaTraffic:
    traffic = JavaTraffic(cast(trio.Process, None))

    async def read() -> None:
        for line in lines:
            traffic.take(json.dumps(line).encode())
            await trio.sleep(1)

    trio.run(read, clock=MockClock(autojump_threshold=0))
    return traffic


def test_the_lines_of_the_java_clients_become_a_history() -> None:
    # given a message that everybody got and one that only the concurrent group got, twice and out of order
    def sent(key: str) -> dict[str, object]:
        return {"event": "sent", "key": key, "sender": "s", "ok": True, "broker": "a", "queue": 0}

    def delivered(key: str, group: str, offset: int) -> dict[str, object]:
        return {"event": "delivered", "group": group, "key": key, "broker": "a", "queue": 0, "offset": offset}

    traffic = traffic_that_read(
        sent("s-0"),
        sent("s-1"),
        {"event": "sent", "key": "s-2", "sender": "s", "ok": False, "why": "no route"},
        delivered("s-1", CONCURRENT, 1),
        delivered("s-1", CONCURRENT, 1),
        delivered("s-0", CONCURRENT, 0),
        delivered("s-0", ORDERLY, 0),
    )
    # when
    verdict = traffic.verdict()
    # then only the orderly group misses one, the repeat is counted, and no order is asked of the concurrent group
    assert (2, 3, 1) == (verdict.sent, verdict.delivered, verdict.repeated)
    assert ["s-1 was acknowledged and never delivered to orderly-readers"] == [
        each.detail for each in verdict.violations
    ]


def test_of_transactions_only_what_is_committed_is_sent() -> None:
    # given one that is committed, one that is rolled back, and groups that got both
    def delivered(key: str, group: str, offset: int) -> dict[str, object]:
        return {"event": "delivered", "group": group, "key": key, "broker": "a", "queue": 0, "offset": offset}

    traffic = traffic_that_read(
        {"event": "sent", "key": "half-0", "sender": "half-0", "ok": True},
        {"event": "rolled back", "key": "half-1"},
        *(delivered("half-0", group, 0) for group in (CONCURRENT, ORDERLY)),
        delivered("half-1", ORDERLY, 1),
    )
    # then the other one is a violation
    verdict = traffic.verdict()
    assert (1, [("invented", "half-1")]) == (
        verdict.sent,
        [(each.rule, each.detail.partition(" ")[0]) for each in verdict.violations],
    )
    assert traffic.told() == ["transactions: 1 committed, 1 rolled back"]


@pytest.mark.slow
async def test_clients_of_ours_commit_roll_back_and_are_asked() -> None:
    keys = {"transactionCheckInterval": "300", "transactionTimeOut": "300"}
    async with LocalCluster(broker_config=keys) as cluster:
        await cluster.make_topic(TOPIC, 2)
        async with OurTraffic.open(cluster.namesrv_address, transactions=True) as traffic:
            await until(lambda: len(traffic.rolled_back) >= 10)
            await traffic.stop_sending()
            await traffic.drain()
    assert traffic.verdict().ok, traffic.verdict().violations
    committed = [sent.key for sent in traffic.history.sends if sent.key.startswith("half-")]
    assert {int(key.partition("-")[2]) % 4 for key in committed} == {0, 3}  # told at once, and when asked


def test_the_figures_of_ordered_and_delayed_messages_count_each_group_on_its_own() -> None:
    # given a plain message that one group got twice, and a delayed one that came five seconds after it was sent
    lines: list[dict[str, object]] = [
        {"event": "sent", "key": key, "sender": key, "ok": True, "broker": "a", "queue": 0}
        for key in ("sender-0-0", "delayed-0", "sender-0-1")
    ]
    lines += [
        {"event": "delivered", "group": group, "key": key, "broker": "a", "queue": 0, "offset": 0}
        for group, key in ((CONCURRENT, "sender-0-0"), (CONCURRENT, "sender-0-0"), (ORDERLY, "sender-0-0"))
    ]
    lines += [{"event": "delivered", "group": ORDERLY, "key": "delayed-0", "broker": "a", "queue": 0, "offset": 1}]
    history = traffic_that_read(*lines).history  # a second for each
    # when, then
    ordered, delayed = history.kinds([CONCURRENT, ORDERLY])
    assert ordered == Kind(ORDERED, 4, 2, 1, 2, 0, ordered.late)
    assert sorted(ordered.late) == [3.0, 5.0]
    assert delayed == Kind(DELAYED, 2, 1, 0, 1, 0, (0.0,))
    # and the repeat needs a fault that explains it
    kill = Met("kill", Home.MASTER, 100.0, 110.0)
    (repeat,) = history.repeats(lambda group: (kill,), lambda group: frozenset())
    assert (repeat.key, repeat.delayed) == (f"sender-0-0 to {CONCURRENT}", False)
    assert judge([repeat])[1]


def test_the_figures_of_timer_messages_name_what_is_lost_early_or_repeated() -> None:
    timers = TimerTraffic(1, 0.4)
    timers.due = {"a": 90.0, "b": 91.0, "c": 92.0, "unanswered": 93.0}
    timers.stored = dict.fromkeys("abc", "g0")
    timers.came = {"a": [91.0, 120.0], "b": [90.5], "unanswered": [93.5], "ghost": [94.0]}
    kill = Met("kill", Home.MASTER, 90.5, 110.0)
    kind = timers.kind(lambda group: (kill,))
    assert (kind, sorted(kind.late)) == (Kind(TIMED, 3, 2, 1, 1, 1, kind.late), [-0.5, 1.0])
    assert [each.split()[0] for each in timers.problems(lambda group: (kill,))] == ["c", "b", "ghost"]
    (repeat,) = timers.repeats(lambda group: (kill,), lambda group: frozenset())
    assert (repeat.key, judge([repeat])[1]) == ("a", [])
    assert judge(timers.repeats(lambda group: (), lambda group: frozenset()))[1]


def test_disorder_of_the_orderly_group_is_a_violation() -> None:
    lines: list[dict[str, object]] = [
        {"event": "sent", "key": key, "sender": "s", "ok": True, "broker": "a", "queue": 0} for key in ("s-0", "s-1")
    ]
    lines += [
        {"event": "delivered", "group": group, "key": key, "broker": "a", "queue": 0, "offset": offset}
        for group in (CONCURRENT, ORDERLY)
        for offset, key in enumerate(("s-1", "s-0"))
    ]
    assert ["order"] == [each.rule for each in traffic_that_read(*lines).verdict().violations]


def held(*codes: str, keys: str = "abc", troubled: bool = False) -> GrpcTraffic:
    """Return what a simple consumer has told of the messages *keys*, one for each answer.

    All groups got them; each but the first is held while something is wrong, when *troubled*.
    """
    traffic = GrpcTraffic(cast(trio.Process, None))

    def take(**line: object) -> None:
        traffic.take(json.dumps(line).encode())

    def delivered(group: str, key: str) -> None:
        take(event="delivered", group=group, key=key, broker="a", queue=0, offset=ord(key), retry=group == HOLDING)

    async def tell() -> None:
        for key in dict.fromkeys(keys[: len(codes)] or keys[:1]):
            take(event="sent", key=key, sender=key, ok=True)
            delivered(CONCURRENT, key)
            delivered(ORDERLY, key)
        for key, code in zip(keys, codes, strict=False):
            delivered(HOLDING, key)
            with traffic.troubled() if troubled and "none" not in traffic.told()[0] else nullcontext():
                take(event="acked", key=key, code=code, why=f"why {ord(key)}")
            await trio.sleep(2 * SYNC_SECONDS)

    trio.run(tell, clock=MockClock(autojump_threshold=0))
    return traffic


@pytest.mark.parametrize(
    ("codes", "troubled", "rules"),
    [
        (("20000",), False, []),
        (("20000", "40013"), True, []),
        (("20000", "42900"), True, []),
        (("20000", "42900"), False, ["answer"]),
        (("20000", "no answer: gone"), True, ["answer"]),
        (("40013",), False, ["answer", "answer"]),
        ((), True, ["lost", "answer"]),
    ],
)
def test_what_a_held_handle_is_answered_is_judged_by_the_time_of_faults(
    codes: tuple[str, ...], troubled: bool, rules: list[str]
) -> None:
    assert rules == [each.rule for each in held(*codes, troubled=troubled).verdict().violations]


@pytest.mark.parametrize(("keys", "rules"), [("aaa", ["repeated"]), ("abb", [])])
def test_what_comes_again_although_it_was_acknowledged_is_told_and_needs_a_fault(keys: str, rules: list[str]) -> None:
    traffic = held("20000", "20000", "20000", keys=keys, troubled=keys == "abb")
    assert traffic.told()[0].endswith("OK 3; delivered again although acknowledged: 1")
    assert 1 == len(traffic.told()[1:])
    assert re.fullmatch(r"  again: [ab]: .* s OK, [\d.]+ s %RETRY%holding-readers-0 at \d+, .*", traffic.told()[1])
    assert rules == [each.rule for each in traffic.verdict().violations]


def test_what_held_handles_were_answered_is_counted_by_reason() -> None:
    late = ("no answer: 4.99 s", "no answer: 5.01 s")
    first, *refusals = held("20000", "42900", "50001", "42900", *late, keys="abcdef").told()
    assert "TOO_MANY_REQUESTS 2, no answer: #.# s 2, OK 1, INTERNAL_SERVER_ERROR 1" in first
    assert [
        "  2 x TOO_MANY_REQUESTS: why #",
        "  2 x no answer: why #",
        "  1 x INTERNAL_SERVER_ERROR: why #",
    ] == refusals


@pytest.mark.parametrize(("clients", "program"), [("java", "LAUNCHER"), ("grpc", "PROXY_TRAFFIC")])
def test_missing_java_clients_are_one_clear_line(
    clients: str, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given an installation without the sources
    monkeypatch.setattr(java_tools, program, tmp_path / "nothing")
    # when, then
    assert main(["--clients", clients]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"drill: not {CLIENTS[clients].title}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--quiet", "3"], "needs --real"),
        (["--clients", "ours", "--pop"], "are for virtual time"),
        (["--real", "--quiet", "0"], "--quiet must be above 0 seconds"),
        (["--real", "--seeds", "2"], "--real plays one run"),
        (["--real", "--fault", "slow"], "--real plays one run"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    assert said in capsys.readouterr().err


async def test_only_a_send_that_is_said_to_be_ok_counts_as_acknowledged(autojump_clock: trio.testing.MockClock) -> None:
    traffic, statuses = OurTraffic(), list(SendStatus)

    class Sending:
        async def send(self, message: Message) -> SendResult:
            status = statuses.pop()
            traffic._sending = bool(statuses)
            return SendResult(
                status, "id", f"7F00000100002A9F{100:016X}", MessageQueue("orders", "a", 0), 3, None, None, None
            )

    with trio.fail_after(5):
        await traffic._send(cast(Producer, Sending()), "s", 0)
    # a message that waited in vain for the disk or for its copies may go with the master that has it
    assert [each.acknowledged for each in traffic.history.sends] == [False, False, False, True]
    # and where that one was stored, and by whom, is known
    (noted,) = traffic.acknowledgements.values()
    assert (noted.port, noted.queue_offset) == (10911, 3)
