"""The pure rules of half messages: op messages, the ledger of a queue, checks, and what a decision needs."""

from __future__ import annotations

import random
from random import Random

import attrs
import pytest
import trio
from broker_rig import UNEXPECTED
from hypothesis import given
from hypothesis import strategies as st
from transaction_rig import COMMIT, GROUP, HALF, OPS, ROLLBACK, TOPIC, decision, killed, open_producer
from trio.testing import MockClock

from understudy.broker.transactions.checking import CheckRules, Verdict, verdict
from understudy.broker.transactions.counts import TransactionCounts
from understudy.broker.transactions.half import Half, immunity_ms, is_half
from understudy.broker.transactions.ledger import HalfLedger
from understudy.broker.transactions.ops import OpBatch, decided_of
from understudy.format.properties import format_properties
from understudy.format.record import Record
from understudy.testkit.sim.clock import VirtualClock
from understudy.testkit.sim.disk import SimDisk

RULES = CheckRules(timeout_ms=6_000, most_checks=15, kept_ms=3_600_000)
NOW_MS = 1_000_000
PAIRS = {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "PGROUP": GROUP, "UNIQ_KEY": "u"}


def half_of(offset: int = 0, born_ms: int = NOW_MS, store_ms: int = NOW_MS, **pairs: str) -> Half:
    text = format_properties({**PAIRS, **pairs})
    half = Half.of(Record(HALF, 0, offset, offset * 100, b"x", text, born_ms=born_ms, store_ms=store_ms))
    assert half is not None
    return half


@pytest.mark.covers("TX-08")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1", 6), ("5", 6), ("7", 7), (None, 6), ("-1", 6), ("60", 60), ("100", 100), ("100.5", 6)],
)
def test_immunity(text: str | None, seconds: int) -> None:
    assert immunity_ms(text, 6_000) == seconds * 1_000


@pytest.mark.parametrize(
    ("pairs", "reconsume_times", "level", "expected"),
    [
        ({"TRAN_MSG": "true"}, 0, 0, True),
        ({"TRAN_MSG": "TRUE"}, 1, 0, True),
        ({"TRAN_MSG": "true"}, 0, 3, True),
        ({"TRAN_MSG": "true"}, 1, 3, False),
        ({"TRAN_MSG": "yes"}, 0, 0, False),
        ({}, 0, 0, False),
    ],
)
def test_what_a_half_message_is(pairs: dict[str, str], reconsume_times: int, level: int, expected: bool) -> None:
    assert is_half(pairs, reconsume_times, level) is expected


@pytest.mark.parametrize(
    "change",
    [
        {"REAL_TOPIC": ""},
        {"REAL_TOPIC": "a/b"},
        {"REAL_TOPIC": HALF},
        {"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX"},
        {"REAL_QID": ""},
        {"REAL_QID": "-1"},
        {"REAL_QID": "1" * 30},
        {"REAL_QID": "\u0663"},
    ],
)
def test_what_has_no_real_place_is_none(change: dict[str, str]) -> None:
    assert Half.of(Record(HALF, 0, 0, 0, b"", format_properties({**PAIRS, **change}))) is None


@pytest.mark.parametrize(
    ("half", "expected"),
    [
        (half_of(born_ms=NOW_MS - 6_000), Verdict.WAIT),
        (half_of(born_ms=NOW_MS - 6_001), Verdict.CHECK),
        (half_of(9, born_ms=NOW_MS - 6_001), Verdict.WAIT),  # stored since the look began
        (half_of(born_ms=NOW_MS - 6_001, CHECK_IMMUNITY_TIME_IN_SECONDS="7"), Verdict.POSTPONE),
        (half_of(born_ms=NOW_MS - 7_001, CHECK_IMMUNITY_TIME_IN_SECONDS="7"), Verdict.CHECK),
        (half_of(born_ms=NOW_MS - 1, TRANSACTION_CHECK_TIMES="14"), Verdict.WAIT),
        (half_of(born_ms=NOW_MS - 1, TRANSACTION_CHECK_TIMES="15"), Verdict.GIVE_UP_CHECKS),
        (half_of(9, born_ms=NOW_MS - 1, TRANSACTION_CHECK_TIMES="15"), Verdict.WAIT),  # its last check was just now
        (half_of(born_ms=NOW_MS - 6_001, TRANSACTION_CHECK_TIMES="x"), Verdict.CHECK),
        (half_of(born_ms=NOW_MS - 3_600_001), Verdict.GIVE_UP_AGE),
        (half_of(born_ms=NOW_MS + 5, store_ms=NOW_MS - 6_000), Verdict.WAIT),  # the producer's clock is ahead
        (half_of(born_ms=NOW_MS + 5, store_ms=NOW_MS - 6_001), Verdict.CHECK),
        (half_of(born_ms=NOW_MS + 5, store_ms=NOW_MS + 5), Verdict.CHECK),  # our clock was set back
    ],
)
def test_what_becomes_of_an_undecided_one(half: Half, expected: Verdict) -> None:
    assert verdict(half, RULES, 9, NOW_MS) is expected


@given(st.lists(st.integers(0, 1 << 40)), st.integers(1, 200))
def test_op_messages_name_what_was_decided(offsets: list[int], most: int) -> None:
    batch, found = OpBatch(), []
    bodies = []
    for offset in offsets:
        if batch.add(offset, 5, most):
            bodies.append(batch.message(0, 5, b"\0" * 8))
            batch.clear()
    if batch.offsets:
        bodies.append(batch.message(0, 5, b"\0" * 8))
    for message in bodies:
        assert len(message.body) < most + 15
        found += decided_of(Record(OPS, 0, 0, 0, message.body, message.properties.decode()))
    assert found == offsets


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"7", [7]), (b"1,2", [1, 2]), (b"1,x,-3,,4,", [1, 4]), (b"", []), (b"\xff,5", [5]), (b"9" * 40, [])],
)
def test_what_is_no_offset_is_left_out(body: bytes, expected: list[int]) -> None:
    assert decided_of(Record(OPS, 0, 0, 0, body, "TAGS\x01d\x02")) == expected
    assert decided_of(Record(OPS, 0, 0, 0, body, "TAGS\x01x\x02")) == []


@given(st.randoms(use_true_random=False))
def test_a_ledger_that_is_read_again_knows_the_same(source: random.Random) -> None:
    """Whatever order decisions, op messages and progress come in, the log and the progress tell all that is decided."""
    ledger, end, op_log, pending = HalfLedger(0, 0), 0, list[list[int]](), list[int]()
    decided: set[int] = set()
    for _ in range(60):
        action = source.choice(("send", "send", "decide", "decide", "write", "advance"))
        if action == "send":
            end += 1
        elif action == "decide" and end:
            offset = source.randrange(end)
            if not ledger.is_decided(offset):
                ledger.decide(offset)
                pending.append(offset)
                decided.add(offset)
        elif action == "write" and pending:
            ledger.op_message(len(op_log), pending)
            op_log.append(pending)
            pending = []
        elif action == "advance":
            at = ledger.done
            while at in decided and at not in pending:
                at += 1
            ledger.advance(at)
    again = HalfLedger(ledger.done, ledger.op_done)
    for op_offset in range(ledger.op_done, len(op_log)):
        again.claim(op_offset, 0, op_log[op_offset])
    again.believe(end)
    assert {each for each in range(end) if ledger.is_decided(each)} == decided
    assert {each for each in range(end) if again.is_decided(each)} == decided - set(pending)
    assert again.op_done == ledger.op_done
    assert all(each < ledger.done for op in op_log[: ledger.op_done] for each in op)


def test_the_newest_copy_is_known_until_it_is_done() -> None:
    ledger, half = HalfLedger(0, 0), half_of(0)
    ledger.renew(half, 3)
    ledger.renew(half_of(3), 5)
    assert ledger.newest(half.identity) == 5
    assert [ledger.is_decided(each) for each in (0, 3, 5)] == [True, True, False]
    ledger.advance(5)
    assert ledger.newest(half.identity) == 5
    ledger.decide(5)
    ledger.advance(6)
    assert ledger.newest(half.identity) is None
    assert ledger.undone == 0


def test_counts_are_saved_and_counted_anew() -> None:
    counts = TransactionCounts(lambda: 7)
    counts.add("A")
    counts.add("B", 3)
    saved = counts.to_json()
    assert saved["transactionCount"] == {"A": {"count": 1, "timeStamp": 7}, "B": {"count": 3, "timeStamp": 7}}
    other = TransactionCounts(lambda: 9)
    other.load(saved)
    assert other.to_json() == saved
    other.recount({"B": 1})
    assert other.to_json()["transactionCount"] == {"B": {"count": 1, "timeStamp": 7}}
    for bad in ({"transactionCount": [1]}, {"transactionCount": {"A": 1}}, {"transactionCount": {"A": {"count": "x"}}}):
        with pytest.raises(ValueError, match="transactionCount"):
            other.load(bad)


@attrs.define
class Transaction:
    choice: str | None = None
    acknowledged: bool = False


@pytest.mark.covers("TX-12", "IT-12")
@pytest.mark.parametrize("seed", range(8))
async def test_exactly_what_was_committed_is_seen_once(seed: int, autojump_clock: MockClock) -> None:
    """Decisions once, twice, late, both ways, about any copy; killed in between, half messages left to the check."""
    draw, disk, clock = Random(seed), SimDisk(Random(seed)), VirtualClock()
    keys = {"transactionCheckInterval": "8000", "transactionCheckMax": "1000"}
    sent: dict[str, Transaction] = {}
    for _life in range(3):
        async with open_producer(disk, keys, clock) as producer:
            for _ in range(25):
                undecided = [key for key, each in sent.items() if each.choice is None]
                copies = producer.rig.stored(HALF)
                match draw.choice(("prepare", "prepare", "decide", "repeat", "sleep", "nonsense")):
                    case "prepare":
                        key = f"K{len(sent)}"
                        sent[key] = Transaction()
                        producer.prepare(key)
                    case "decide" if undecided:
                        key = draw.choice(undecided)
                        copy = draw.choice([each for each in copies if each.properties["UNIQ_KEY"] == key])
                        sent[key].choice = draw.choice((COMMIT, ROLLBACK))
                        assert producer.decide(copy, sent[key].choice).code == 0
                    case "repeat" if copies:
                        copy = draw.choice(copies)
                        known = sent[copy.properties["UNIQ_KEY"]]
                        if known.choice is not None:
                            assert producer.decide(copy, draw.choice((COMMIT, ROLLBACK))).code == 0
                    case "sleep":
                        await trio.sleep(draw.choice((0.5, 4, 20)))
                    case "nonsense":
                        half = copies[0] if copies else producer.prepare("first")
                        sent.setdefault(half.properties["UNIQ_KEY"], Transaction())
                        fields = decision(half, COMMIT)
                        fields[draw.choice(list(fields))] = draw.choice(("", "-1", "x", "1" * 30, "99"))
                        producer.rig.peer.replies.clear()
                        producer.rig.tell(37, fields)
                        for answer in producer.rig.peer.replies.values():
                            assert answer.code in (0, 1, 604) and not UNEXPECTED.match(answer.remark or "")
            left = killed(disk)
        disk = left
    async with open_producer(disk, keys, clock) as producer:
        await trio.sleep(100)
        asked = {(each.ext or {})["msgId"] for each in producer.checks()}
        assert asked == {key for key, each in sent.items() if each.choice is None}
        assert sorted(producer.delivered()) == sorted(key for key, each in sent.items() if each.choice == COMMIT)
        assert producer.rig.broker.transactions.counts.open[TOPIC] == len(asked)
