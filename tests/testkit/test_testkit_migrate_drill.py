"""A running group comes to be led by controllers and goes back, and loses nothing."""

from __future__ import annotations

from functools import partial

import pytest

from understudy.format.record import BLANK, BLANK_MAGIC, encode_host, encode_record
from understudy.testkit.drills.migrate import migrate
from understudy.testkit.drills.second_copies import Life, kind_of, second_copies
from understudy.testkit.sim.determinism import run_seed


@pytest.mark.covers("R153", "R155", "R156")
@pytest.mark.parametrize("acting", [False, True], ids=["plain", "acting"])
def test_a_group_becomes_led_and_goes_back_under_traffic(acting: bool) -> None:
    told: list[str] = []
    verdict = run_seed(partial(migrate, acting=acting, say=told.append), 1)
    assert verdict.ok, verdict.violations
    assert verdict.sent > 100
    assert [line for line in told if "was killed: master" in line]
    assert told[-1] == "the logs of all replicas are equal"


def _stored(body: bytes, at: int, port: int, ms: int, topic: str = "orders") -> bytes:
    host = encode_host("127.0.0.1", port)
    return encode_record(topic, 0, 0, at, body, b"", store_ms=ms, store_host=host)


def test_the_log_tells_who_stored_a_message_a_second_time() -> None:
    # given a group whose replica at port 1 was a real one until 100 and is ours since then
    lives = [Life(1, 0, "java"), Life(2, 0, "java"), Life(1, 100, "ours")]
    log = _stored(b"a", 0, 1, 50) + _stored(b"a", 0, 1, 51, "SCHEDULE_TOPIC_XXXX") + _stored(b"b", 0, 1, 60)
    blank = BLANK.pack(64, BLANK_MAGIC) + bytes(56)
    log += blank + _stored(b"a", 0, 1, 120) + _stored(b"b", 0, 2, 130) + _stored(b"b", 0, 1, 90) + b"\1\2\3"
    found = second_copies(log, "orders")
    assert [(record.body, kind_of(record, lives)) for record in found] == [
        (b"a", "ours"),
        (b"b", "java"),
        (b"b", "java"),
    ]
    assert kind_of(found[0], lives[1:2]) == "nobody known"
