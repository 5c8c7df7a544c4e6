"""A plan for a live broker: proven to be the right cluster, guarded, resumable, undone; on Java brokers and ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from spark_broker import SmallBroker
from spark_golden import manifest, unpack
from spark_plans import Run, write_stores, write_test_plan

from understudy.spark_tools import exits
from understudy.spark_tools.admin import AdminClient
from understudy.spark_tools.kernels import tables
from understudy.spark_tools.live import WINDOW
from understudy.spark_tools.plan import Change
from understudy.testkit.port_blocks import PortBlocks

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))

KEY = ("T1", "g1", 0)
OTHER = ("T1", "g2", 0)
LIVE = {KEY: 5, OTHER: 1, ("T1", "g1", 1): 20}


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    return write_stores(tmp_path)


@pytest.fixture
def plan(tmp_path: Path, stores: dict[str, Path]) -> Path:
    return write_test_plan(stores, tmp_path / "plan.json")


def test_apply_sets_what_is_pending_and_undo_takes_it_back(plan: Path, stores: dict[str, Path], run: Run) -> None:
    with SmallBroker(stores["a"], LIVE) as broker:
        assert run("plan", "verify", plan, "--broker", broker.address) == exits.AGREE
        assert run("plan", "apply", "--dry-run", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets == LIVE
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets == LIVE | {KEY: 15}
        assert broker.updates == 1
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.AGREE
        assert broker.updates == 1
        assert run("plan", "undo", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets == LIVE
        assert run("plan", "undo", plan, "--broker", broker.address) == exits.AGREE
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.REFUSED


def test_a_broker_with_another_log_is_refused(tmp_path: Path, plan: Path, run: Run) -> None:
    other = write_stores(tmp_path / "other", seed=7)
    with SmallBroker(other["a"], LIVE) as broker:
        for step in ("verify", "apply"):
            assert run("plan", step, plan, "--broker", broker.address) == exits.REFUSED
            assert "another cluster" in run.said[0]
        assert broker.updates == 0


def test_a_broker_without_any_of_the_messages_is_refused(tmp_path: Path, plan: Path, run: Run) -> None:
    (tmp_path / "empty").mkdir()
    with SmallBroker(tmp_path / "empty", LIVE) as broker:
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.REFUSED


def test_a_group_that_moved_on_is_left_where_it_is(plan: Path, stores: dict[str, Path], run: Run) -> None:
    with SmallBroker(stores["a"], LIVE | {KEY: 21}) as broker:
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets[KEY] == 21


def test_a_value_nobody_planned_for_is_named_and_left(plan: Path, stores: dict[str, Path], run: Run) -> None:
    with SmallBroker(stores["a"], LIVE | {KEY: 2}) as broker:
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.DIFFER
        assert broker.offsets[KEY] == 2
    assert "lower than planned" in run.said[0]


def test_an_offset_the_live_queue_cannot_serve_is_not_set(plan: Path, stores: dict[str, Path], run: Run) -> None:
    with SmallBroker(stores["a"], LIVE, queue_end=10) as broker:
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.DIFFER
        assert broker.offsets[KEY] == 5
    assert "outside of the log" in run.said[0]


@pytest.mark.parametrize(("active", "offset", "resets"), [("refuse", 5, 0), ("commit", 15, 0), ("reset", 15, 1)])
def test_groups_with_connected_consumers(
    plan: Path, stores: dict[str, Path], run: Run, active: str, offset: int, resets: int
) -> None:
    with SmallBroker(stores["a"], LIVE) as broker:
        broker.members["g1"] = ["10.0.0.1@7"]
        code = run("plan", "apply", plan, "--broker", broker.address, "--active", active)

        assert code == (exits.DIFFER if active == "refuse" else exits.AGREE)
        assert (broker.offsets[KEY], len(broker.resets)) == (offset, resets)


def many(count: int) -> list[Change]:
    return [Change(n + 1, "T1", f"g{n}", 0, "behind", 15, {"a": 5, "b": 15}, "why", 0, 0, 10) for n in range(count)]


@pytest.mark.parametrize("fail_after", [0, 1, 7, 19, 20, 21, 299])
def test_a_run_that_broke_off_goes_on_and_its_undo_knows_every_former_value(
    tmp_path: Path, stores: dict[str, Path], run: Run, fail_after: int
) -> None:
    plan = write_test_plan(stores, tmp_path / "many.json", many(300))
    before = {("T1", f"g{n}", 0): 5 for n in range(300)}
    with SmallBroker(stores["a"], before) as broker:
        broker.fail_after = fail_after
        assert run("plan", "apply", plan, "--broker", broker.address) != exits.AGREE
        assert sum(offset == 15 for offset in broker.offsets.values()) == fail_after
        broker.fail_after = None
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.AGREE
        assert set(broker.offsets.values()) == {15}
        assert run("plan", "undo", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets == before


@pytest.mark.parametrize(
    ("committed", "code", "said"), [(22, exits.AGREE, "1 moved on"), (2, exits.DIFFER, "lower than planned: 2 is none")]
)
def test_a_commit_after_the_plan_was_judged_is_not_overwritten(
    plan: Path, stores: dict[str, Path], run: Run, committed: int, code: int, said: str
) -> None:
    """The consumer commits when the whole table was read already; undo leaves its value, too."""
    with SmallBroker(stores["a"], LIVE) as broker:
        broker.before_read = lambda key: broker.offsets.update({KEY: committed})

        assert run("plan", "apply", plan, "--broker", broker.address, "--active", "commit") == code

        assert (broker.offsets[KEY], broker.updates) == (committed, 0)
        assert any(said in line for line in run.said)
        assert run("plan", "undo", plan, "--broker", broker.address) == exits.REFUSED
        assert "nothing to undo" in run.said[0]


def test_another_value_of_the_plan_seen_late_is_made_by_the_next_apply(
    plan: Path, stores: dict[str, Path], run: Run
) -> None:
    """Given a commit of 7, which a replica holds, between judging and writing; then undo restores 7, not 5."""
    made = [Change(1, *KEY, "behind", 15, {"a": 5, "b": 7}, "why", 0, 0, 10)]
    plan = write_test_plan(stores, plan.with_name("late.json"), made)
    with SmallBroker(stores["a"], LIVE) as broker:
        broker.before_read = lambda key: broker.offsets.update({KEY: 7})
        assert run("plan", "apply", plan, "--broker", broker.address) == exits.DIFFER
        assert "committed meanwhile: went from 5 to 7" in run.said[0]
        broker.before_read = lambda key: None

        assert run("plan", "apply", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets[KEY] == 15
        assert run.said[-1].startswith("each offset was read again right before it was written")
        assert run("plan", "undo", plan, "--broker", broker.address) == exits.AGREE
        assert broker.offsets[KEY] == 7


def test_consumers_that_connect_during_an_apply_stop_it_for_their_group(
    tmp_path: Path, stores: dict[str, Path], run: Run
) -> None:
    plan = write_test_plan(stores, tmp_path / "many.json", many(2 * WINDOW))
    late = ("T1", f"g{2 * WINDOW - 1}", 0)
    with SmallBroker(stores["a"], {("T1", f"g{n}", 0): 5 for n in range(2 * WINDOW)}) as broker:
        broker.before_read = lambda key: broker.members.update({late[1]: ["10.0.0.1@7"]})

        assert run("plan", "apply", plan, "--broker", broker.address) == exits.DIFFER

        assert (broker.offsets[late], broker.updates) == (5, 2 * WINDOW - 1)


def test_undo_reads_again_before_each_value_it_puts_back(plan: Path, stores: dict[str, Path], run: Run) -> None:
    with SmallBroker(stores["a"], LIVE) as broker:
        run("plan", "apply", plan, "--broker", broker.address)
        broker.before_read = lambda key: broker.offsets.update({KEY: 19})

        run("plan", "undo", plan, "--broker", broker.address)

        assert broker.offsets[KEY] == 19


def test_an_unreachable_broker_is_one_line(plan: Path, run: Run) -> None:
    assert run("plan", "apply", plan, "--broker", "127.0.0.1:1") == exits.REFUSED
    assert len(run.said) == 1
    assert "cannot connect" in run.said[0]


CONFIGURATION = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
listenPort={port}
haListenPort={ha_port}
namesrvAddr={namesrv}
brokerIP1=127.0.0.1
storePathRootDir={root}
storePathCommitLog={root}/commitlog
mappedFileSizeCommitLog=262144
mappedFileSizeConsumeQueue=2000
mapperFileSizeBatchConsumeQueue=4600
mappedFileSizeTimerLog=1024
maxHashSlotNum=100
maxIndexNum=400
timerWheelEnable=false
reviveQueueNum=2
diskMaxUsedSpaceRatio=95
"""


@contextmanager
def real_broker(kind: str, root: Path, folder: Path, more: str = "") -> Iterator[tuple[str, str]]:
    """A broker of either kind on a store directory; yields its address and that of the name server it registered at.

    Args:
        kind: of the broker.
        root: its store.
        folder: for its files.
        more: lines behind its configuration.
    """
    import peer_installation
    import peer_processes

    if kind == peer_processes.JAVA and (peer := peer_installation.find("java")).place is None:
        pytest.skip(f"java: {peer.reason}")
    blocks = PortBlocks()
    try:
        port = blocks.take() + 4
        namesrv = f"127.0.0.1:{port + 9}"
        text = CONFIGURATION.format(port=port, ha_port=port + 1, namesrv=namesrv, root=root) + more
        names = peer_processes.filled_template("namesrv", PORT=port + 9, DIR=folder / "namesrv")
        with (
            peer_processes.running(
                peer_processes.server(peer_processes.OURS, "namesrv", "namesrv", folder / "namesrv", names)
            ),
            peer_processes.running(peer_processes.server(kind, "broker", "broker-a", folder, text)),
        ):
            deadline = time.monotonic() + 30
            while not registered(namesrv):
                assert time.monotonic() < deadline, "the broker did not register"
                time.sleep(0.1)
            yield f"127.0.0.1:{port}", namesrv
    finally:
        blocks.release()


def registered(namesrv: str) -> bool:
    with AdminClient(namesrv) as client:
        return "broker-a" in client.master_addresses()


def progress(namesrv: str) -> list[int]:
    """Committed offsets of both queues as mqadmin shows them."""
    command = [str(Path(sys.executable).parent / "mqadmin"), "consumerProgress", "-n", namesrv, "-g", "g_order"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("OrderTopic")]
    held = {int(words[2]): int(words[4]) for words in lines}
    assert {0, 1} <= held.keys(), done.stdout + done.stderr
    return [held[0], held[1]]


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["java", "understudy"])
def test_a_round_trip_with_a_real_broker_on_a_captured_store(tmp_path: Path, run: Run, kind: str) -> None:
    """Its table went back to 10 and 2; the replica still knows 17 and 5."""
    roots = {"a": unpack("basic", tmp_path), "b": unpack("slave", tmp_path)}
    table = roots["a"] / "config" / "consumerOffset.json"
    content = tables.loads(table.read_bytes())
    assert content == manifest("basic")["configFiles"]["consumerOffset.json"]
    content["offsetTable"]["OrderTopic@g_order"] |= {"0": 10, "1": 2}
    table.write_text(tables.dumps(content))
    made = [
        Change(1, "OrderTopic", "g_order", 0, "lost-by-version-step", 17, {"a": 10, "b": 17}, "why", 0, 0, 7),
        Change(2, "OrderTopic", "g_order", 1, "lost-by-version-step", 5, {"a": 2, "b": 5}, "why", 0, 0, 3),
    ]
    plan = write_test_plan(roots, tmp_path / "plan.json", made)
    os.rename(roots["a"], tmp_path / "live")

    with real_broker(kind, tmp_path / "live", tmp_path / "run") as (address, namesrv):
        found = ("--namesrv", namesrv, "--broker-name", "broker-a")

        assert progress(namesrv) == [10, 2]
        assert run("plan", "verify", plan, "--namesrv", namesrv) == exits.REFUSED  # its set is no broker's name
        assert "has no master of" in run.said[0]
        assert run("plan", "verify", plan, *found) == exits.AGREE
        assert run("plan", "apply", "--dry-run", plan, *found) == exits.AGREE
        assert f"dry run: 2 offsets would be set on {address}" in run.said
        assert progress(namesrv) == [10, 2]
        assert run("plan", "apply", plan, *found) == exits.AGREE, run.said
        assert progress(namesrv) == [17, 5]
        assert run("plan", "verify", plan, *found) == exits.AGREE
        assert run.said[-1] == "2 done", run.said
        assert run("plan", "apply", plan, "--broker", address) == exits.AGREE
        assert run("plan", "undo", plan, *found) == exits.AGREE, run.said
        assert progress(namesrv) == [10, 2]
        assert run("plan", "verify", plan, "--broker", address) == exits.AGREE


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["java", "understudy"])
def test_the_offset_of_a_light_queue_goes_to_a_real_broker_and_back(tmp_path: Path, run: Run, kind: str) -> None:
    """Its group has the name of a light queue, so that the broker keeps its offset in a table of its own."""
    light, group = "%LMQ%dev1", "%LMQ%home"
    roots = {}
    for name, held in (("a", 2), ("b", 6)):
        (tmp_path / name).mkdir()
        roots[name] = unpack("lmq", tmp_path / name)
        table = roots[name] / "config" / "lmqConsumerOffset.json"
        content = tables.loads(table.read_bytes())
        table.write_text(tables.dumps(content | {"lmqOffsetTable": {f"{light}@{group}": held}}))
    made = [Change(1, light, group, 0, "behind", 6, {"a": 2, "b": 6}, "why", 0, 0, 4)]
    plan = write_test_plan(roots, tmp_path / "plan.json", made)
    os.rename(roots["a"], tmp_path / "live")

    on = "enableLmq=true\nenableMultiDispatch=true\n"
    with real_broker(kind, tmp_path / "live", tmp_path / "run", on) as (address, _), AdminClient(address) as client:
        assert client.all_offsets()[light, group, 0] == 2
        assert run("plan", "apply", plan, "--broker", address) == exits.AGREE, run.said
        assert (client.all_offsets()[light, group, 0], client.offset(light, group, 0)) == (6, 6)
        assert run("plan", "verify", plan, "--broker", address) == exits.AGREE, run.said
        assert run("plan", "undo", plan, "--broker", address) == exits.AGREE, run.said
        assert client.offset(light, group, 0) == 2
        assert run("plan", "apply", "--active", "reset", plan, "--broker", address) == exits.REFUSED  # it was undone
