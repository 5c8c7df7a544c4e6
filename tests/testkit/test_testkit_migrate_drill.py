"""A running group comes to be led by controllers and goes back, and loses nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import pytest
from trio.testing import MockClock

from understudy.format.record import BLANK, BLANK_MAGIC, encode_host, encode_record
from understudy.ha.switch.epoch_file import to_text
from understudy.ha.switch.epochs import Epochs
from understudy.remoting.client import RemotingClient
from understudy.runtime.world import real_world
from understudy.testkit.drills.controller_processes import Processes
from understudy.testkit.drills.led_judge import Reign
from understudy.testkit.drills.led_replicas import KINDS, PORTS
from understudy.testkit.drills.led_runs import tell_repeats
from understudy.testkit.drills.migrate import migrate
from understudy.testkit.drills.migrate_processes import PlainMigration, ProcessMigration
from understudy.testkit.drills.process_traffic import OurTraffic
from understudy.testkit.drills.repeat_windows import (
    PUT_BY,
    PUT_BY_OURS,
    PUT_BY_REAL,
    READ_AGAIN,
    UNKNOWN,
    Window,
    repeats,
    told,
)
from understudy.testkit.drills.second_copies import Life, Writers, second_copies
from understudy.testkit.history import Delivered
from understudy.testkit.sim.determinism import run_seed


@pytest.mark.covers("R153", "R155", "R156")
@pytest.mark.parametrize("acting", [False, True], ids=["plain", "acting"])
def test_a_group_becomes_led_and_goes_back_under_traffic(acting: bool) -> None:
    told: list[str] = []
    verdict = run_seed(partial(migrate, acting=acting, say=told.append), 1)
    assert verdict.ok, verdict.violations
    assert verdict.sent > 100
    assert [line for line in told if "was killed: master" in line]
    assert told[-2:] == ["the logs of all replicas are equal", "offsets of all replicas: equal"]


def _stored(body: bytes, at: int, ms: int, topic: str = "orders", queue_offset: int = 0) -> bytes:
    return encode_record(topic, 0, queue_offset, at, body, b"", store_ms=ms, store_host=encode_host("127.0.0.1", 1))


def test_the_log_tells_who_stored_a_message_a_second_time() -> None:
    # given a log by the replica at port 1, by that at port 2, and by the first again, which is ours by then
    lives = [Life(1, 0, "java"), Life(2, 0, "java"), Life(1, 100, "ours")]
    size = len(_stored(b"a", 0, 0))
    epochs = Epochs.of([(1, 0), (2, 2 * size), (3, 4 * size)])
    log = b"".join(
        _stored(body, number * size, ms)
        for number, (body, ms) in enumerate([(b"a", 50), (b"b", 60), (b"a", 70), (b"c", 80), (b"b", 120), (b"c", 130)])
    )
    end = len(log)
    log += BLANK.pack(64, BLANK_MAGIC) + bytes(56)
    log += _stored(b"a", end + 64, 140, "SCHEDULE_TOPIC_XXXX") + _stored(b"a", end + 64 + size, 150) + b"\1\2\3"
    found = second_copies(log, "orders")
    assert [record.body for record in found] == [b"a", b"b", b"c", b"a"]
    # then what stands in the part of a master is its doing, whoever had stored it first
    assert [Writers(epochs, {1: 1, 2: 2, 3: 1}, lives).kind_of(record) for record in found] == [
        "java",
        "ours",
        "ours",
        "ours",
    ]
    assert Writers(epochs, {1: 1, 3: 1}, lives).kind_of(found[0]) == "nobody known"
    assert Writers(Epochs.of([(2, 4 * size)]), {2: 2}, lives).kind_of(found[0]) == "nobody known"


QUEUE = ("orders", "g", 0)
QUIET, ELECTED, AFTER = (
    Window(0.0, "before anything is replaced", quiet=True),
    Window(10.0, "replica 2 (java) is elected after 1 (ours)"),
    Window(20.0, "replica 2 is java and in sync", quiet=True),
)


def test_what_came_again_is_told_by_window_and_cause() -> None:
    deliveries = [
        *(Delivered(f"m{number}", "a", QUEUE, number) for number in range(3)),
        Delivered("m0", "b", QUEUE, 0),  # to another group: not again
        Delivered("m1", "a", QUEUE, 1),  # one place
        Delivered("m2", "a", QUEUE, 7),  # a copy of a real master
        Delivered("m2", "a", QUEUE, 7),  # which is read again
        Delivered("m1", "a", QUEUE, 8),  # a copy of ours
        Delivered("m0", "a", QUEUE, 9),  # a copy that the log does not have
    ]
    came = [1.0, 2.0, 3.0, 4.0, 10.0, 12.0, 21.0, 22.0, 23.0]
    windows = [QUIET, ELECTED, AFTER]
    found = list(repeats(deliveries, came, windows, {(0, 7): PUT_BY_REAL, (0, 8): PUT_BY_OURS}))
    assert [(each.window, each.why, each.may_be) for each in found] == [
        (ELECTED, READ_AGAIN, True),
        (ELECTED, PUT_BY_REAL, True),
        (AFTER, READ_AGAIN, False),
        (AFTER, PUT_BY_OURS, False),
        (AFTER, UNKNOWN, False),
    ]
    assert told(found[:2], windows) == [
        "(quiet) before anything is replaced: nothing came again",
        f"replica 2 (java) is elected after 1 (ours): a: 1 {READ_AGAIN}, a: 1 {PUT_BY_REAL}",
        f"    m1, offset 1 of queue 0, to a: -8.000 and 0.000 s after that began: {READ_AGAIN}",
        "(quiet) replica 2 is java and in sync: nothing came again",
    ]


def test_nothing_is_read_again_while_a_slave_is_replaced() -> None:
    def again(window: Window) -> list[bool]:
        place = Delivered("m1", "a", QUEUE, 1)
        found = repeats([place, place], [window.begin + 1, window.begin + 2], [QUIET, window], {})
        return [each.may_be for each in found]

    # who finds another master, or its own again, begins again at what it had committed
    assert [True] == again(Window(10.0, "the master (java) gives way to ours"))
    assert [True] == again(ELECTED)
    # but not who goes on at the master that it has
    assert [False] == again(Window(10.0, "slave 1 (java) gives way to ours", master_stays=True))
    assert [False] == again(AFTER)


class MadeUp(ProcessMigration):
    """A migration without processes, whose replicas are always in sync."""

    elected = 0

    def start_replica(self, number: int) -> None: ...

    async def master(self) -> int:
        return self.elected

    async def hand_over(self, number: int) -> None:
        self.begin(f"replica {number} is elected")
        self.elected = number

    async def _clients_send(self) -> None: ...

    async def in_sync(self, count: int, seconds: float = 0) -> None: ...


class MadeUpPlain(MadeUp, PlainMigration):
    """The same whose slaves act."""

    async def shown(self, number: int) -> bool:
        return True


class Unheard(Processes):
    async def stop(self, name: str) -> None: ...


@pytest.mark.parametrize("made", [MadeUp, MadeUpPlain])
async def test_clients_may_begin_again_only_where_the_master_changes(
    made: type[MadeUp], tmp_path: Path, autojump_clock: MockClock
) -> None:
    drill = made(tmp_path, range(1, PORTS + 1), cast(RemotingClient, None), None, real_world(), KINDS["java"])
    drill.processes = Unheard(tmp_path)
    for number in (1, 0):
        await drill.replace(number, "ours")
    stays = {window.what: window.master_stays for window in drill.windows}
    changing = "the master (java) gives way to ours" if made is MadeUpPlain else "replica 1 is elected"
    assert not stays.pop(changing)
    assert {"slave 1 (java) gives way to ours"} <= set(stays)
    assert {True} == set(stays.values())


@pytest.mark.parametrize("kind", ["java", "ours"])
@pytest.mark.parametrize("made", [ProcessMigration, PlainMigration])
async def test_a_copy_of_a_real_master_is_no_fault_and_one_of_ours_is(
    made: type[ProcessMigration], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drill = made(tmp_path, range(1, PORTS + 1), cast(RemotingClient, None), None, real_world(), KINDS["java"])
    drill.traffic = traffic = OurTraffic()
    drill.lives.append(Life(drill.broker_ports[0], 0, kind))
    drill.reigns.append(Reign(drill.broker_ports[0], 7, 0.0))
    (drill.store(0) / "commitlog").mkdir(parents=True)
    size = len(_stored(b"m1", 0, 0))
    log = _stored(b"m1", 0, 10) + _stored(b"m1", size, 20, queue_offset=1) + b"end"
    (drill.store(0) / "commitlog" / f"{0:020d}").write_bytes(log)
    (drill.store(0) / "epochFileCheckpoint").write_bytes(to_text(Epochs.of([(7, 0)])))
    # given a group that got both copies, the second after a fault
    drill.begin("before anything is done", quiet=True)
    traffic.delivered("m1", "readers", QUEUE, 0)
    drill.fault("T0 SIGKILL of the master")
    traffic.delivered("m1", "readers", QUEUE, 1)
    assert tell_repeats(drill) is (kind == "java")
    out = capsys.readouterr().out
    assert "(quiet) before anything is done: nothing came again\n" in out
    assert f"T0 SIGKILL of the master: readers: 1 {PUT_BY[kind]}\n" in out
    assert f" 1 {PUT_BY[kind]}" in out.splitlines()[-1]
