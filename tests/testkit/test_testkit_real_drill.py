"""The drill with real processes: its traffic, its verdict, and what it says when something is missing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import cast

import pytest
import trio

from understudy.mqclient.message import Message
from understudy.mqclient.producer import Producer
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.sending import SendResult, SendStatus
from understudy.testkit import java_tools
from understudy.testkit.drills.acting_master import main
from understudy.testkit.drills.acting_processes import RealRun
from understudy.testkit.drills.process_traffic import CONCURRENT, ORDERLY, JavaTraffic, OurTraffic


@pytest.mark.slow
@pytest.mark.covers("R1", "R40", "R69")
async def test_a_killed_container_is_stood_in_for_and_gets_everything_back() -> None:
    # when the container of a master is killed under traffic and comes back
    outcome = await RealRun(random.Random(7), quiet_seconds=2.0).play()
    # then every subscribed group got every message, in order, and none twice
    assert outcome.verdict.ok, outcome.verdict.violations
    assert outcome.verdict.sent > 100
    assert outcome.verdict.delivered >= 2 * outcome.verdict.sent  # what was stored without an answer arrives, too
    assert outcome.verdict.repeated == 0
    # and well before a broker that nobody told would have noticed (every step is bounded in virtual time, too)
    after = {name[:2]: seconds for name, seconds in outcome.steps}
    assert after["T5"] < 20.0
    # and the report tells what was taken over
    assert outcome.report is not None
    assert outcome.report["changed"] > 0


def traffic_that_read(*lines: dict[str, object]) -> JavaTraffic:
    traffic = JavaTraffic(cast(trio.Process, None))
    for line in lines:
        traffic.take(json.dumps(line).encode())
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


def test_missing_java_clients_are_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given an installation without the sources
    monkeypatch.setattr(java_tools, "LAUNCHER", tmp_path / "rocketmq")
    # when, then
    assert main(["--real", "--clients", "java"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("drill: no Java clients: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--clients", "java"], "need --real"),
        (["--quiet", "3"], "need --real"),
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
            return SendResult(status, "id", "", MessageQueue("orders", "a", 0), 0, None, None, None)

    with trio.fail_after(5):
        await traffic._send(cast(Producer, Sending()), "s", 0)
    # a message that waited in vain for the disk or for its copies may go with the master that has it
    assert [each.acknowledged for each in traffic.history.sends] == [False, False, False, True]
