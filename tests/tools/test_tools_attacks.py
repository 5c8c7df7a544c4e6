"""The attacks of ``./understudy bench chaos``, in short: a normal client is served beside them and loses nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

if TYPE_CHECKING:
    from bench.load.servers import Server

ROOT = Path(__file__).resolve().parent.parent.parent
LENIENT_MS = 2_000.0
LENIENT_HOLD_MS = 100.0
"""The suite shares its machine; the bench holds the real bounds."""


@pytest.fixture(autouse=True)
def project_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import chaos

    monkeypatch.setattr(chaos, "HOLD_MS", LENIENT_HOLD_MS)


@pytest.mark.parametrize(
    "name",
    [
        "frames",
        "bodies",
        "floods",
        "packets",
        "slow readers",
        "half frames",
        "parked requests",
        "descriptors",
        "replication port",
        "led replication",
        "metrics port",
        "console port",
        "name server",
        "name server's readers",
        "name server's descriptors",
        "controller",
        "controller's readers",
        "controller's descriptors",
        "quorum port",
        "gRPC port",
        "proxy's remoting",
    ],
)
def test_a_normal_client_is_served_beside_an_attack(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import chaos
    from bench.load import proxy_loads
    from bench.load.attacks import Strength

    monkeypatch.setattr(proxy_loads, "SECONDS", 0.5)

    (kind,) = [kind for kind in chaos.KINDS if kind.name == name]
    verdict = chaos.attack_once(kind, Strength(0.5, 100, 1), LENIENT_MS)
    assert [] == verdict.faults, verdict.line() + verdict.made()
    assert len(verdict.measured.acknowledged) > 10
    assert verdict.longest.processor_ms > 0


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("packets", ("totals", "pauses")),
        ("slow readers", ("totals", "pauses")),
        ("half frames", ("totals",)),
        ("parked requests", ("totals", "small_headers")),
        ("name server's readers", ("totals", "pauses")),
        ("controller's readers", ("totals", "pauses")),
    ],
)
def test_a_server_without_a_bound_breaks_the_row_that_holds_it(name: str, without: tuple[str, ...]) -> None:
    from bench import chaos
    from bench.load.attacks import Strength

    (kind,) = [kind for kind in chaos.KINDS if kind.name == name]
    planted = attrs.evolve(kind, setting=attrs.evolve(kind.setting, without=without))
    verdict = chaos.attack_once(planted, Strength(0.5, 100, 1), LENIENT_MS)
    assert f"memory grew by more than {kind.memory_mb} MB" in verdict.faults, verdict.line() + verdict.made()


def test_a_full_disk_loses_nothing_that_was_acknowledged() -> None:
    from bench import chaos
    from bench.load.attacks import Strength

    verdict = chaos.full_disk(Strength(0.5, 100, 1), LENIENT_MS)
    if verdict is None:
        pytest.skip("may not mount a small file system here")
    assert [] == verdict.faults, verdict.line()


def test_a_message_that_rots_on_the_disk_costs_itself_alone_and_slowness_beside_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bench import chaos
    from bench.load.attacks import Strength

    monkeypatch.setattr(chaos, "QUIET_SHARE", 1.0)  # and no client is as quick as this
    verdict = chaos.rotten_disk(Strength(0.5, 100, 1), 0.001)
    assert (["p99 above 0.001 ms"], 1) == (verdict.faults, verdict.lost), verdict.line()


def test_the_judge_sees_lost_messages_and_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import chaos
    from bench.load.attacks import Strength
    from bench.load.effects import Effect
    from bench.load.wire import Peer

    def forget(server: Server, strength: Strength) -> list[Effect]:
        with Peer(server.port) as peer:
            return [Effect("topics were deleted", peer.ask(215, {"topic": chaos.TOPIC}).code == 0)]

    monkeypatch.setattr(chaos, "QUIET_SHARE", 1.0)
    verdict = chaos.attack_once(chaos.Kind("forget", forget), Strength(0.5, 100, 1), 0.001)
    text = verdict.line()
    assert verdict.lost > 0 and "acknowledged messages are lost" in text
    assert "p99 above 0.001 ms" in text


def test_the_judge_sees_what_holds_the_loop_and_leaves_a_p99_to_quiet_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import chaos
    from bench.load.attacks import Strength

    monkeypatch.setattr(chaos, "QUIET_SHARE", -1.0)
    monkeypatch.setattr(chaos, "HOLD_MS", 0.0)
    (kind,) = [kind for kind in chaos.KINDS if kind.name == "frames"]
    (fault,) = chaos.attack_once(kind, Strength(0.1, 10, 1), 0.001).faults
    assert fault.startswith("HELD THE LOOP above 0 ms")


def test_an_attack_that_is_refused_at_the_door_fails_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import chaos
    from bench.load import attacks
    from bench.load.attacks import Strength
    from bench.load.effects import Effect, missing

    assert ["NO ATTACK: nothing shows that it was made"] == missing([])
    assert ["NO ATTACK: 4 pulls, of at least 5"] == missing([Effect("pulls", 4, 5), Effect("peers", 1)])
    (kind,) = [kind for kind in chaos.KINDS if kind.name == "parked requests"]
    monkeypatch.setattr(attacks, "HEADER_LIMIT_BYTES", 900_000)
    fault = chaos.attack_once(kind, Strength(0.1, 10, 1), LENIENT_MS).faults[0]
    assert fault.startswith(("the attack failed: ", "NO ATTACK: "))


def settled_bytes(server: Server) -> int:
    """Return the memory of *server* when its start, which goes on behind its first answer, takes no more of it."""
    before, until = -1, time.monotonic() + 60
    while (now := server.resident_bytes) != before and time.monotonic() < until:
        before = now
        time.sleep(0.3)
    return now


def test_what_waits_in_a_server_and_its_most_memory_are_seen(tmp_path: Path) -> None:
    from bench.load.servers import broker
    from bench.load.waits import NOTED_BYTES
    from bench.load.wire import Peer

    size = 14 << 20
    seen = size - NOTED_BYTES  # the last of it may come behind the last look that was written down
    with broker(tmp_path) as server:
        before = settled_bytes(server)
        began = time.monotonic()
        server.forget_peak()
        assert server.peak_bytes < before + size / 2
        with Peer(server.port) as peer:
            peer.socket.sendall((15 << 20).to_bytes(4, "big") + (20).to_bytes(4, "big") + bytes(size))
            until = began + 60
            while server.waited(began).incoming < seen and time.monotonic() < until:
                time.sleep(0.01)
        assert seen <= server.waited(began).incoming < 15 << 20
        assert 0 == server.waited(time.monotonic() + 60).incoming
        opened, limit = server.descriptors
        assert 10 < opened < limit
        # What is free the allocator keeps, or gives back to the system, as it likes.
        assert before + size * 0.9 < server.peak_bytes >= server.resident_bytes
