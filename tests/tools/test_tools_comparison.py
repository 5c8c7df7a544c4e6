"""The comparison with the real broker: how figures of several pairs become ratios and verdicts."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import main as bench_main
from bench.comparison import led, rounds, targets
from bench.comparison import main as comparison
from bench.comparison.load import Step
from bench.comparison.targets import Verdict

SEND_64 = next(target for target in targets.TARGETS if target.label == "send, 64 threads")
START = next(target for target in targets.TARGETS if target.label == "start to first ack")


def test_medians_are_taken_place_by_place_and_leave_out_failed_steps() -> None:
    # given three pairs, one with a failed step
    rounds: list[dict[str, Any]] = [
        {"start": 7, "send": {"msgs_s": 10, "mode": "sync", "errors": {}}},
        {"start": 5, "send": {"failed": "no result"}},
        {"start": 6, "send": {"msgs_s": 30}},
    ]
    # when they are joined; then the failed one does not count as a number
    assert {"start": 6, "send": {"msgs_s": 20, "errors": {}}} == targets.medians(rounds)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (3.0, Verdict.GOAL),
        (2.99, Verdict.PASS),
        (2.0, Verdict.PASS),
        (1.99, Verdict.MISS),
        (None, Verdict.NOT_MEASURED),
    ],
)
def test_more_messages_are_better(ratio: float | None, verdict: Verdict) -> None:
    assert verdict == SEND_64.verdict(ratio)


@pytest.mark.parametrize(("ratio", "verdict"), [(0.05, Verdict.GOAL), (0.125, Verdict.PASS), (0.126, Verdict.MISS)])
def test_less_time_is_better(ratio: float, verdict: Verdict) -> None:
    assert verdict == START.verdict(ratio)


def test_the_table_shows_both_sides_their_ratio_and_the_verdict() -> None:
    # given figures of two steps; when the sides are compared
    java = {"send_sync_64": {"msgs_s": 10_000, "p99_ms": 20.0}, "start_to_first_ack_ms": 7000}
    ours = {"send_sync_64": {"msgs_s": 25_000, "p99_ms": 14.0}}
    rows = {row.target.label: row for row in targets.compared(java, ours)}
    # then a measured figure has a ratio, another has none
    assert (2.5, Verdict.PASS) == (rows["send, 64 threads"].ratio, rows["send, 64 threads"].verdict)
    assert (0.7, Verdict.MISS) == (rows["send p99, 64 threads"].ratio, rows["send p99, 64 threads"].verdict)
    assert (None, Verdict.NOT_MEASURED) == (rows["start to first ack"].ratio, rows["start to first ack"].verdict)
    lines = targets.table(rows.values()).splitlines()
    assert len(targets.TARGETS) + 1 == len(lines)
    assert "10,000.00" in lines[2] and "25,000.00" in lines[2] and "2.500" in lines[2]


def test_an_unknown_benchmark_is_one_line_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == bench_main.main(["jawa"])
    assert "understudy bench: unknown benchmark 'jawa'; did you mean 'java'?\n" == capsys.readouterr().err


def test_an_unknown_step_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        comparison.arguments(["--steps", "send_async,latencies"])
    assert refusal.value.code == 2
    assert "no such step: latencies; there are send_sync_1, " in capsys.readouterr().err


def test_the_options_of_every_benchmark_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name in bench_main.benchmarks():
        with pytest.raises(SystemExit) as end:
            bench_main.run(name, ["--help"])
        assert end.value.code == 0, name
        assert f"understudy bench {name}" in capsys.readouterr().out, name


def test_every_benchmark_says_what_it_is() -> None:
    assert all(bench_main.description(module) for module in bench_main.benchmarks().values())


class Machine:
    """A load client and a machine whose host takes a share of it at every measurement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stolen_percents: list[int]) -> None:
        self.left = list(stolen_percents)
        self.stolen = self.ticks = 0
        monkeypatch.setattr(rounds, "load", self.load)
        monkeypatch.setattr(rounds, "processor_ticks", lambda: (self.stolen, self.ticks))

    def load(self, *arguments: object) -> dict[str, Any]:
        self.stolen += self.left[0]
        self.ticks += 100
        return {"msgs_s": 1000 - self.left.pop(0)}


def settings_of(steps: frozenset[str] | None, *, features: bool = False) -> rounds.Settings:
    return rounds.Settings(steps, (1,), 1, 1, 1, 100, False, None, features, 7, False, False, 0)


def test_steps_of_features_are_played_when_they_are_asked_for() -> None:
    features = ["send_transaction", "timer_minute", "pop_backlog"]
    assert not set(features) & {step.key for step in settings_of(None).load_steps()}
    assert features == [step.key for step in settings_of(None, features=True).load_steps()][-3:]
    assert ["pop_backlog"] == [step.key for step in settings_of(frozenset({"pop_backlog"})).load_steps()]
    assert "7" in settings_of(frozenset({"timer_minute"})).load_steps()[0].arguments


@pytest.mark.parametrize(("sent", "taken"), [(60, 60), (300, 100)])
def test_a_backlog_is_popped_that_another_step_has_sent(monkeypatch: pytest.MonkeyPatch, sent: int, taken: int) -> None:
    # given a side that spends 3 s of processor time, and a step that has sent something
    asked: list[tuple[object, ...]] = []
    spent = iter([1.0, 4.0])

    def client(*arguments: object) -> dict[str, Any]:
        asked.append(arguments)
        return {"msgs_s": 5, "count": taken}

    monkeypatch.setattr(rounds, "load", client)
    side: Any = SimpleNamespace(name="ours", namesrv="", cpu_s=lambda: next(spent))
    figures: dict[str, Any] = {"send_async": {"acked_with_warmup": sent}}
    settings = settings_of(frozenset({"pop_backlog"}))
    # when it is popped
    rounds.play(side, settings.load_steps()[0], figures, settings)
    # then all of it is asked for, up to the limit, and the time is told for what was acknowledged
    assert ("--count", taken) == asked[0][-2:]
    assert figures["pop_backlog"]["server_cpu_s_per_100k"] == round(3 / taken * 1e5, 3)


def played(machine: Machine, key: str, limit_percent: float | None) -> Any:
    """Play one step against a machine; return the messages per second that are kept."""
    settings = rounds.Settings(frozenset({key}), (1,), 1, 1, 1, 1, False, limit_percent, False, 1, False, False, 0)
    figures: dict[str, Any] = {}
    side: Any = SimpleNamespace(name="ours", namesrv="", cpu_s=lambda: 0.0)
    rounds.play(side, Step(key, ()), figures, settings)
    return figures[key]["msgs_s"]


@pytest.mark.parametrize(
    ("key", "limit_percent", "stolen", "kept", "tries"),
    [
        ("send_sync_1", 5.0, [30, 4, 0], 996, 2),  # the first that is quiet enough
        ("send_sync_1", 5.0, [30, 20, 8, 9, 0], 992, 4),  # none is: the quietest
        ("send_sync_1", None, [30, 0], 970, 1),  # once, whatever happens
        ("consume_backlog", 5.0, [30, 0], 970, 1),  # cannot be done again
    ],
)
def test_a_step_from_which_the_host_took_the_processors_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, key: str, limit_percent: float | None, stolen: list[int], kept: int, tries: int
) -> None:
    machine = Machine(monkeypatch, stolen)
    assert (kept, tries) == (played(machine, key, limit_percent), len(stolen) - len(machine.left))


def test_a_led_group_is_measured_with_its_slaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # given a side whose master spends 0.2 s of processor time in a second of steady sends, 0.32 with slaves
    begun: list[int] = []
    asked: list[int] = []
    spent = [0.2, 0.32]

    class Side:
        name, namesrv, folder = "ours", "", tmp_path / "side"
        broker_address = slave_address = controller_address = ""

        def __init__(self) -> None:
            self.children: list[Any] = []

        def start(self) -> None:
            self.start_led()
            begun.append(-1)

        def start_led(self) -> None:
            self.children = [SimpleNamespace(pid=0), SimpleNamespace(pid=1)]
            begun.append(0)

        def start_led_replica(self, number: int) -> None:
            self.children.append(SimpleNamespace(pid=1 + number))
            begun.append(number)

        def end(self) -> None:
            self.children = []

    class Sending:
        def result(self) -> dict[str, Any]:
            return {"msgs_s": led.STEADY_RATE}

    class Watching:
        def __init__(self, *arguments: object) -> None:
            pass

        def result(self) -> dict[str, Any]:
            return {"done_epoch_ms": time.time() * 1000 + 2_000, "bytes": 100_000_000, "mb_s": 70.0}

    monkeypatch.setattr(led, "SETTLE_S", 0)
    monkeypatch.setattr(led, "_cpu_per_second", lambda pid, seconds: pid * spent.pop(0))
    monkeypatch.setattr(led, "steady_load", lambda *arguments: contextlib.nullcontext(Sending()))
    monkeypatch.setattr(led, "Watch", Watching)
    monkeypatch.setattr(led, "load", lambda *arguments: {"msgs_s": 1000})
    monkeypatch.setattr(led, "fill", lambda side, megabytes: None)
    monkeypatch.setattr(led, "await_in_sync", lambda side, count: asked.append(count))
    settings = rounds.Settings(None, (1,), 1, 1, 1, 1, False, None, False, 1, False, False, 100)
    # when it is measured
    side: Any = Side()
    figures = led.measure_led(side, settings)
    # then all three take sends, a plain master is measured and a led one with two slaves, and a backlog goes to another
    assert [0, 1, 2, 0, -1, 0, 1, 2, 0, 1] == begun
    assert [1, 3, 1, 3, 1] == asked
    assert {"msgs_s": 1000} == figures["led_all_ack"]
    assert figures["led_steady"] == {"plain_cpu_s_per_100k": 10.0, "slave_cpu_s_per_100k": 6.0}
    assert 45 < figures["led_replicate"]["attach_mb_s"] <= 50
    rows = {row.target.label: row for row in targets.compared(figures, figures)}
    assert 4 == sum(row.ratio == 1 and "led" in label for label, row in rows.items())
