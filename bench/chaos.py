"""Attacks on servers beside a normal client, whose p99 and acknowledged messages are judged, as is the memory.

The event loop of what is attacked is judged always: no turn of it may take longer than 20 ms of its thread's processor
time. The client's p99 is judged only while nobody else needs the machine, and the row says so when it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from bench.load import arenas, attacks, leading_arenas, port_attacks
from bench.load.arenas import TOPIC, Arena, Place, Setting
from bench.load.attacks import Attack, Strength
from bench.load.beside import Beside, Measured, send_small
from bench.load.effects import Effect, missing
from bench.load.machine import QUIET_SHARE, others_share, proven, ticks_now
from bench.load.servers import Scale, Server, broker, make_topic
from bench.load.turns import OUTSIDE, Turn
from bench.load.wire import Peer
from understudy.format.pull_flags import SUBSCRIPTION
from understudy.format.record import RecordError, decode_records
from understudy.remoting.codes import RequestCode

BOUND_MS = 100.0
"""Of the normal client's p99; an attack may be felt, not more. Judged while nobody else needs the machine."""

HOLD_MS = 20.0
"""Of a turn of the event loop, in processor time of its thread; judged always."""

TOTALS: dict[str, object] = {
    "waitingOutgoingBytes": 64 << 20,
    "waitingIncomingBytes": 64 << 20,
    "waitingParkedBytes": 16 << 20,
}
"""What may wait in an attacked server: what it has by itself on a large machine would hide what is not bounded."""

MEMORY_MB = 200
"""Most that a server with :data:`TOTALS` may grow by, at any time."""

STORED_MB = 600
"""The same where very many messages are stored: the pages of the log that the process has written are among it."""

LITTLE_MB = 40
"""The same where 4 MB of answers may wait."""

ELSEWHERE_MB = 1_500
"""Most that a proxy may grow by, which has the totals of the machine."""

DESCRIPTORS = 512
DISK_BYTES = 64 << 20


@attrs.frozen
class Verdict:
    """What came of one attack.

    Attributes:
        name: of the attack.
        measured: what the normal client saw.
        grown_mb: the most memory that the server used at a time, during the attack and after it, less that before.
        lost: acknowledged messages that cannot be read.
        faults: what else is wrong.
        longest: the turn that held the event loop longest.
        others: the share of the machine that others took meanwhile, from 0 to 1.
        effects: what shows that the attack was made.
    """

    name: str
    measured: Measured
    grown_mb: float
    lost: int
    faults: list[str]
    longest: Turn = Turn(0.0, 0.0, 0.0, "")  # noqa: RUF009  # frozen
    others: float = 0.0
    effects: list[Effect] = attrs.field(factory=list)

    def line(self) -> str:
        """Return the row of the report."""
        noisy = "" if self.judged else f", P99 NOT JUDGED: others took {self.others:.0%}"
        good = f"ok{noisy}" if not self.faults else "; ".join(self.faults)
        return (
            f"{self.name:25} holds {self.longest.processor_ms:6.2f} ms  p99 {self.measured.p99_ms:8.2f}  "
            f"most {self.measured.most_ms:8.2f} ms  acknowledged {len(self.measured.acknowledged):5}  "
            f"lost {self.lost:3}  memory {self.grown_mb:+7.0f} MB  {good}"
        )

    @property
    def judged(self) -> bool:
        """Whether the machine was quiet enough to judge the client's p99."""
        return self.others <= QUIET_SHARE

    def made(self) -> str:
        """Return what the attack did."""
        return "    " + ", ".join(map(str, self.effects))


@attrs.frozen
class Kind:
    """One kind of attack.

    Args:
        name: as it is asked for.
        work: the attack.
        setting: what it is made on.
        place: makes that.
        refusals: whether the normal client may be refused meanwhile.
        memory_mb: most that the server may grow by.
    """

    name: str
    work: Attack
    setting: Setting = attrs.field(factory=lambda: Setting(keys=TOTALS))
    place: Place = arenas.broker_arena
    refusals: bool = False
    memory_mb: int = MEMORY_MB


SOME_TOPICS = Setting(Scale(topics=4_000, groups=100), keys=TOTALS)
FEW_DESCRIPTORS = Setting(descriptors=DESCRIPTORS, keys={"flushDiskType": "SYNC_FLUSH", **TOTALS})
FEW_LEADING = Setting(descriptors=2 * DESCRIPTORS, keys=TOTALS)
LITTLE_WAITS = Setting(keys={"waitingOutgoingBytes": 4 << 20})

KINDS = [
    Kind("frames", attacks.hostile_frames),
    Kind("bodies", attacks.hostile_bodies),
    Kind("floods", attacks.floods, memory_mb=STORED_MB),
    Kind("packets", attacks.packets(attacks.large_answer, 200)),
    Kind("slow readers", attacks.readers(attacks.large_answer, 10)),
    Kind("half frames", attacks.half_frames),
    Kind("parked requests", attacks.parked_requests),
    Kind("descriptors", attacks.idle_peers, FEW_DESCRIPTORS),
    Kind("replication port", port_attacks.replication, place=arenas.replication_arena),
    Kind("led replication", port_attacks.replication, place=arenas.led_arena),
    Kind("metrics port", port_attacks.http, SOME_TOPICS, arenas.metrics_arena),
    Kind("console port", port_attacks.http, place=arenas.console_arena),
    Kind("name server", leading_arenas.names, place=leading_arenas.names_arena, memory_mb=2 * MEMORY_MB),
    Kind("name server's readers", attacks.readers(leading_arenas.all_topics, 30), place=leading_arenas.names_arena),
    Kind("name server's descriptors", attacks.idle_peers, FEW_LEADING, leading_arenas.names_arena),
    Kind("controller", leading_arenas.decisions, place=leading_arenas.controller_arena, memory_mb=2 * MEMORY_MB),
    Kind(
        "controller's readers",
        attacks.readers(leading_arenas.all_sets, 100, 1 << 20),
        LITTLE_WAITS,
        leading_arenas.controller_arena,
        memory_mb=LITTLE_MB,
    ),
    Kind("controller's descriptors", attacks.idle_peers, FEW_LEADING, leading_arenas.controller_arena),
    Kind("quorum port", leading_arenas.quorum, place=leading_arenas.quorum_arena),
    Kind("gRPC port", port_attacks.grpc, place=arenas.proxy_arena, memory_mb=ELSEWHERE_MB),
    Kind("proxy's remoting", port_attacks.forwarded, place=arenas.forward_arena, memory_mb=ELSEWHERE_MB),
]


def stored(port: int) -> tuple[set[int], int]:
    """Return the numbers of all messages that can be read, and in how many answers one of them was damaged."""
    found: set[int] = set()
    damaged = 0
    with Peer(port) as peer:
        offset = 0
        while True:
            ext = {"consumerGroup": "judge", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset)}
            ext |= {"maxMsgNums": "32", "sysFlag": str(SUBSCRIPTION), "commitOffset": "0", "suspendTimeoutMillis": "0"}
            ext |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
            answer = peer.ask(RequestCode.PULL_MESSAGE, ext)
            if answer.code:
                return found, damaged
            try:
                records = list(decode_records(memoryview(answer.body)))
            except RecordError:
                damaged += 1
                records = list(decode_records(memoryview(answer.body), check_crc=False))
            found.update(int(record.body) for record in records)
            offset = int((answer.ext or {})["nextBeginOffset"])


def judge(kind: Kind, arena: Arena, strength: Strength, bound_ms: float) -> Verdict:
    """Attack a server beside a normal client and judge what came of it."""
    server = arena.server
    before, began = server.resident_bytes, time.monotonic()
    server.forget_peak()
    with Beside(arena.port, arena.exchange) as beside:
        pids = [server.process.pid, beside.pid, *arena.pids]
        ticks = ticks_now(pids)
        effects, wrong = list[Effect](), list[str]()
        try:
            effects = kind.work(server, strength)
        except Exception as error:  # whatever an attacked server does to its attacker: the other kinds are judged, too
            wrong.append(f"the attack failed: {type(error).__name__}: {error}")
        others = others_share(ticks, ticks_now(pids))
        time.sleep(0.3)
    measured, faults = beside.measured, wrong or missing(effects)
    if server.process.poll() is not None:
        return Verdict(kind.name, measured, 0.0, len(measured.acknowledged), ["the server ended"], effects=effects)
    grown = server.peak_bytes - before
    if lost := arena.lost(measured.acknowledged):
        faults.append(f"{lost} acknowledged changes are lost")
    if arena.store_port:
        found, damaged = stored(arena.store_port)
        lost = len(set(measured.acknowledged) - found)
        if damaged:
            faults.append("a damaged message was handed out")
        if lost:
            faults.append(f"{lost} acknowledged messages are lost")
    if measured.failures and not kind.refusals:
        faults.append(f"the client failed: {', '.join(measured.failures)}")
    if not arena.answers():
        faults.append("the port does not answer")
    longest, broken = felt(server, began, measured, others, bound_ms)
    faults += broken
    if grown > kind.memory_mb * 1e6:
        faults.append(f"memory grew by more than {kind.memory_mb} MB")
    return Verdict(kind.name, measured, grown / 1e6, lost, faults, longest, others, effects)


def felt(server: Server, began: float, measured: Measured, others: float, bound_ms: float) -> tuple[Turn, list[str]]:
    """Return what held the loop longest since *began* (monotonic seconds), and which bounds of time were broken."""
    quiet = others <= QUIET_SHARE
    turns = [turn for turn in server.long_turns(began) if quiet or turn.where != OUTSIDE]
    longest, broken = max(turns, key=lambda turn: turn.processor_ms, default=Turn(0.0, 0.0, 0.0, "")), list[str]()
    if longest.processor_ms > HOLD_MS:
        broken.append(f"HELD THE LOOP above {HOLD_MS:g} ms: {longest.where}")
    if quiet and measured.p99_ms > bound_ms:
        broken.append(f"p99 above {bound_ms:g} ms")
    return longest, broken


def attack_once(kind: Kind, strength: Strength, bound_ms: float) -> Verdict:
    """Judge one kind on servers of its own."""
    with tempfile.TemporaryDirectory() as folder, kind.place(Path(folder), kind.setting) as arena:
        return judge(kind, arena, strength, bound_ms)


def attack(kind: Kind, strength: Strength, bound_ms: float) -> Verdict:
    """Judge one kind; one that breaks a bound is played again, and the better of both counts."""
    verdict = attack_once(kind, strength, bound_ms)
    if not verdict.faults or verdict.lost:
        return verdict
    again = attack_once(kind, strength, bound_ms)
    return min(verdict, again, key=lambda each: (each.lost, len(each.faults), each.longest.processor_ms))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a file system of :data:`DISK_BYTES` on *folder*; False when that is not permitted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "understudy-bench", str(folder)]
    with contextlib.suppress(OSError):
        if subprocess.run(command, capture_output=True).returncode == 0:
            try:
                yield True
            finally:
                subprocess.run(["umount", "-l", str(folder)], check=False)
            return
    yield False


def full_disk(strength: Strength, bound_ms: float) -> Verdict | None:
    """Judge a broker whose disk others fill and free again; ``None`` when no disk of its own may be had."""

    def fill(server: Server, strength: Strength) -> list[Effect]:
        other = folder / "disk" / "others"
        with contextlib.suppress(OSError), open(other, "wb", buffering=0) as file:
            while file.write(bytes(1 << 16)) == 1 << 16:
                continue
        time.sleep(strength.seconds)
        free = shutil.disk_usage(folder / "disk").free
        taken = other.stat().st_size
        other.unlink()
        time.sleep(strength.seconds)
        return [Effect("bytes of others", taken), Effect("bytes were not free", DISK_BYTES - free, DISK_BYTES - 8192)]

    keys: dict[str, object] = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
    keys |= {"maxHashSlotNum": 1000, "maxIndexNum": 4000}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with small_disk(folder / "disk") as mounted:
            if not mounted:
                return None
            keys |= {"storePathRootDir": folder / "disk" / "store", "storePathCommitLog": folder / "disk" / "log"}
            with broker(folder, keys=keys) as server:
                make_topic(server.port, TOPIC, 1)
                arena = Arena(server, server.port, send_small(TOPIC), server.port)
                verdict = judge(Kind("full disk", fill, refusals=True), arena, strength, bound_ms)
                with Peer(server.port) as peer:
                    if not send_small(TOPIC).once(peer, 10**6):
                        verdict.faults.append("messages are still refused although the disk has space again")
                return verdict


def calm(server: Server, strength: Strength) -> list[Effect]:
    """The attack that is none."""
    time.sleep(0.5)
    return [Effect("half seconds of calm", 1)]


def rotten_disk(strength: Strength, bound_ms: float) -> Verdict:
    """Judge a broker that finds damaged bytes in its log at a start: one message is gone, nothing is altered."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with broker(folder) as server:
            make_topic(server.port, TOPIC, 1)
            arena = Arena(server, server.port, send_small(TOPIC), server.port)
            first = judge(Kind("before", calm), arena, strength, bound_ms)
        victim = first.measured.acknowledged[len(first.measured.acknowledged) // 2]
        log = next((folder / "store" / "commitlog").iterdir())
        data = bytearray(log.read_bytes())
        at = data.index(b"%d" % victim + len(TOPIC).to_bytes(1, "big") + TOPIC.encode())
        data[at] ^= 1
        with open(log, "r+b") as file:
            file.seek(at)
            file.write(data[at : at + 1])
        with broker(folder) as server:
            highest, began = max(first.measured.acknowledged) + 1000, time.monotonic()
            with Beside(server.port, send_small(TOPIC), highest) as beside:
                pids = [server.process.pid, beside.pid]
                ticks = ticks_now(pids)
                time.sleep(strength.seconds)
                others = others_share(ticks, ticks_now(pids))
            measured = beside.measured
            longest, faults = felt(server, began, measured, others, bound_ms)
            found, damaged = stored(server.port)
        lost = set(first.measured.acknowledged + measured.acknowledged) - found
        if lost - {victim}:
            faults.append(f"{len(lost - {victim})} undamaged messages are lost")
        if measured.failures:
            faults.append(f"the client failed: {', '.join(measured.failures)}")
        if damaged:
            faults.append("a damaged message was handed out")
        effects = [Effect("damaged bytes", 1), Effect("messages are gone for good", len(lost))]
        return Verdict("rotten disk", measured, 0.0, len(lost), faults + missing(effects), longest, others, effects)


def verdicts(wanted: list[str], strength: Strength, bound_ms: float) -> Iterator[Verdict]:
    """Judge the kinds whose names hold one of *wanted*, or all."""

    def asked(name: str) -> bool:
        return not wanted or any(each in name for each in wanted)

    for kind in KINDS:
        if asked(kind.name):
            yield attack(kind, strength, bound_ms)
    disks: list[tuple[str, Callable[[Strength, float], Verdict | None]]] = [
        ("full disk", full_disk),
        ("rotten disk", rotten_disk),
    ]
    for name, disk in disks:
        if asked(name):
            verdict = disk(strength, bound_ms)
            if verdict is None:
                print(f"{name:25} left out: this user may not mount a file system (uid {os.getuid()})", flush=True)
            else:
                yield verdict


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="understudy bench chaos", description=__doc__)
    parser.add_argument("kinds", nargs="*", help="parts of names of attacks; all of them if none is given")
    parser.add_argument("--bound-ms", type=float, default=BOUND_MS, help="bound of the p99 (default %(default)s)")
    parser.add_argument("--short", action="store_true", help="some seconds for everything, as in the test suite")
    parser.add_argument("--judge-all", action="store_true", help="end with 1, too, when the p99 of a row is not judged")
    options = parser.parse_args(arguments)
    strength = Strength(0.5, 100, 1) if options.short else Strength()
    failed = judged = count = 0
    for verdict in verdicts(options.kinds, strength, options.bound_ms):
        print(verdict.line(), flush=True)
        print(verdict.made(), flush=True)
        failed += bool(verdict.faults)
        judged += verdict.judged
        count += 1
    print(proven(judged, count))
    if failed:
        print(f"{failed} attacks did harm", file=sys.stderr)
    return 1 if failed or (options.judge_all and judged < count) else 0
