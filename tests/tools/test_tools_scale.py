"""``./understudy bench scale``: what holds the loop is judged on any machine, the p99 only on a quiet one."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def project_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize(
    ("held_ms", "p99_s", "quiet", "failures", "faults"),
    [
        (19.0, 0.02, True, [], 0),
        (21.0, 0.02, True, [], 1),
        (21.0, 0.02, False, [], 1),
        (19.0, 0.03, True, [], 1),
        (19.0, 0.03, False, [], 0),
        (1.0, 0.001, False, ["refused"], 1),
        (21.0, 0.03, True, ["refused"], 3),
    ],
)
def test_holds_are_judged_always_and_a_p99_on_a_quiet_machine(
    held_ms: float, p99_s: float, quiet: bool, failures: list[str], faults: int
) -> None:
    from bench.load.beside import Measured
    from bench.load.turns import Turn
    from bench.scale import Figures, line

    turns = [Turn(1.0, held_ms, 2 * held_ms, "here"), Turn(2.0, 1.0, 500.0, "")]
    figures = Figures("a load", Measured([p99_s] * 10, [1], failures), turns, 0.3, quiet)
    found = figures.faults()
    assert (faults, held_ms) == (len(found), figures.longest.processor_ms)
    assert ("P99 NOT JUDGED: others took 30%" in line(figures, found)) is (not quiet and not found)


@pytest.mark.parametrize(
    ("quiet_ms", "p99_ms", "faults"),
    [
        (1.0, 4.9, []),  # so little may be noise
        (1.0, 5.1, ["P99 ABOVE 5 ms"]),
        (3.0, 5.9, []),
        (3.0, 6.1, ["P99 ABOVE 6 ms"]),
        (5.1, 24.0, []),  # a machine that is not quiet
    ],
)
def test_a_row_may_cost_no_more_than_so_many_times_what_nothing_costs(
    quiet_ms: float, p99_ms: float, faults: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench import scale
    from bench.load.beside import Measured, send_small

    costs = {"nothing": quiet_ms, "timers": p99_ms, "others": 24.0}
    measure = lambda server, row, exchange: (Measured([costs[row.name] / 1000] * 10, [1], []), [], 0.0)  # noqa: E731
    monkeypatch.setattr(scale, "measure", measure)
    monkeypatch.setattr(scale, "TIMES_QUIET", {"timers": 2.0})
    rows = [scale.Row(name, scale.nothing) for name in costs]
    server = None
    empty, timers, others = scale.measured(server, rows[1:], rows[0], send_small("T"))  # type: ignore[arg-type]
    assert ([], faults, []) == (empty.faults(), timers.faults(), others.faults())


def test_the_members_of_very_many_clients_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.load import member_loads
    from bench.load.servers import broker
    from bench.load.wire import Peer

    counts = list[tuple[int, int]]()

    def noted(peer: Peer, code: int, group: str) -> int:
        counts.append((code, count := members_of(peer, code, group)))
        return count

    members_of = member_loads._members_of
    monkeypatch.setattr(member_loads, "_members_of", noted)
    monkeypatch.setattr(member_loads, "CLIENTS", 20)
    monkeypatch.setattr(member_loads, "SECONDS", 0.1)
    with broker(tmp_path) as server:
        member_loads.members_asked(server)
    assert {(203, 20), (38, 20)} == set(counts)


def test_what_others_take_of_the_machine_is_a_share_of_all_of_it() -> None:
    from bench.load.machine import Ticks, others_share, ticks_now

    assert 0.25 == others_share(Ticks(10.0, 20.0, 3.0), Ticks(12.0, 24.0, 4.0))
    assert 0.0 == others_share(Ticks(10.0, 20.0, 3.0), Ticks(10.9, 24.0, 4.0))
    now = ticks_now([])
    assert 0 < now.ours <= now.busy < now.total


def test_a_long_turn_is_written_down_in_processor_time(tmp_path: Path) -> None:
    from bench.load.turns import Turns, read_turns

    async def work() -> None:
        await trio.sleep(0.01)
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            sum(range(100))
        await trio.sleep(0.01)
        time.sleep(0.05)  # noqa: ASYNC251  # it holds the loop, too, but uses no processor
        await trio.lowlevel.checkpoint()

    file = io.StringIO()
    trio.run(work, instruments=[Turns(file)])
    path = tmp_path / "turns"
    path.write_text(file.getvalue())
    longest, *rest = sorted(read_turns(path), key=lambda turn: -turn.processor_ms)
    assert 50 <= longest.processor_ms < 80 and longest.where
    assert all(turn.processor_ms < 20 for turn in rest)
    assert read_turns(path, longest.ended) == [turn for turn in read_turns(path) if turn.ended > longest.ended]


def test_a_row_is_measured_on_a_server_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import scale
    from bench.load import name_server_loads
    from bench.load.servers import name_server, topic_name

    monkeypatch.setattr(name_server_loads, "BROKERS", 2)
    monkeypatch.setattr(name_server_loads, "TOPICS", 4_000)
    monkeypatch.setattr(name_server_loads, "SECONDS", 0.2)
    with name_server(tmp_path) as server:
        name_server_loads.fill(server.port)
        row = scale.Row("large", name_server_loads.large_registrations)
        ask = name_server_loads.ask_route(topic_name(7))
        seen, turns, others = scale.measure(server, row, ask)
        name_server_loads.brokers_leave()
    assert len(seen.seconds) > 20 and not seen.failures and others >= 0
    assert turns and max(turn.processor_ms for turn in turns) < 100


def test_every_bound_is_held_by_a_row_or_a_test_that_is_there() -> None:
    from bench import chaos, scale
    from bench.load.bounds import BOUNDS, CHAOS, SCALE, markdown

    measured = [row.name for row in scale.every_row()]
    measured += [scale.OLD, "a slave copies all tables"]
    attacks = [kind.name for kind in chaos.KINDS]
    held = [name for bound in BOUNDS for name in bound.held_by]
    for name in held:
        kind, _, part = name.partition(": ")
        if kind == SCALE:
            assert any(part in row for row in measured), name
        elif kind == CHAOS:
            assert part in attacks, name
        else:
            file, _, test = name.partition("::")
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), name
    parts = [part for kind, _, part in (name.partition(": ") for name in held) if kind == SCALE]
    assert [] == [row for row in measured if not any(part in row for part in parts)], "rows that no bound names"
    assert scale.TIMES_QUIET.keys() <= set(measured)
    assert {kind.name for kind in chaos.KINDS} <= {name.partition(": ")[2] for name in held if name.startswith(CHAOS)}
    assert markdown() in (ROOT / "docs" / "performance.md").read_text()


def test_a_client_whose_server_leaves_or_talks_nonsense_says_so_and_does_not_die() -> None:
    from bench.load.beside import Beside, Exchange

    class Server:
        """Answers twice, then with nonsense, then is gone, and comes back."""

        calls = 0

        def close(self) -> None:
            return None

        def once(self, number: int) -> bool:
            Server.calls += 1
            if Server.calls == 3:
                raise ValueError("no frame")
            if Server.calls == 4:
                raise ConnectionResetError("closed by the server")
            return True

    def connect(port: int) -> Server:
        if Server.calls == 4:
            Server.calls += 1
            raise ConnectionRefusedError("nobody listens")
        return Server()

    with Beside(1, Exchange(connect, Server.once)) as beside:
        time.sleep(0.5)
    told = beside.measured.failures
    assert ["ConnectionRefusedError: nobody listens", "ConnectionResetError: closed by the server"] == told[:2]
    assert ["ValueError: no frame"] == told[2:]
    assert len(beside.measured.acknowledged) > 4


def test_a_client_that_dies_is_a_failure_of_its_row() -> None:
    from bench.load.beside import Beside, Exchange

    class Server:
        def close(self) -> None:
            return None

    def once(server: Server, number: int) -> bool:
        if number > 2:
            os._exit(1)
        return True

    with Beside(1, Exchange(lambda port: Server(), once)) as beside:
        time.sleep(0.2)
    assert ["the client has died"] == beside.measured.failures


def test_every_row_has_a_verdict_when_a_load_fails_or_a_server_does_not_start() -> None:
    from bench.load.beside import Measured
    from bench.load.servers import Scale
    from bench.scale import Figures, every_verdict

    def run(folder: Path, scale: Scale) -> Iterator[Figures]:
        yield Figures("first", Measured([0.001], [1], []), [], 0.0, True)
        raise RuntimeError("the server does not start again")

    found = list(every_verdict(["first", "second", "third"], run, Scale()))
    assert ["first", "second", "third"] == [each.name for each in found]
    assert [0, 1, 1] == [len(each.faults()) for each in found]


@pytest.mark.parametrize(("quiet", "options", "status"), [(True, [], 0), (False, [], 0), (False, ["--judge-all"], 1)])
def test_a_run_says_in_how_many_rows_the_p99_was_judged(
    quiet: bool, options: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench import scale
    from bench.load.beside import Measured

    rows = [
        scale.Figures(name, Measured([0.001], [1], []), [], 0.3, judged) for name, judged in (("a", True), ("b", quiet))
    ]
    monkeypatch.setattr(scale, "runs", lambda wanted, tables: iter(rows))
    assert status == scale.main(options)
    assert f"p99 judged in {1 + quiet} of 2 rows" in capsys.readouterr().out
