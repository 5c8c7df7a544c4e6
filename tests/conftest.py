"""What all tests share: bounded property tests whose failures can be replayed, and their order among workers."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from understudy.testkit.port_blocks import PortBlocks

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

HERE = Path(__file__).parent
#: Files that one worker takes together, because it starts what they share only once: a name server with a broker and
#: one run of all real clients, and Spark's JVM.
FAMILIES = (
    tuple(f"peers/test_peers_{name}.py" for name in ("cpp", "go", "interop", "mqadmin", "node")),
    tuple(
        f"spark_tools/test_spark_{name}.py"
        for name in ("jobs", "kept_offsets", "light_queues", "notebook", "own_store", "torn_tables", "translate")
    ),
)
#: What takes longest comes first; what waits for other processes takes turns with what keeps a processor busy.
LONG_FILES = (
    "controller/test_controller_java_beside.py",
    "tools/test_tools_attacks.py",
    "controller/test_controller_java.py",
    "spark_tools/test_spark_jobs.py",
    "peers/test_peers_grpc_failover.py",
    "testkit/test_testkit_mutations.py",
    "peers/test_peers_failover.py",
    "peers/test_peers_led_mixed.py",
    "peers/test_peers_mixed_clusters.py",
    "tools/test_tools_other_pythons.py",
    "peers/test_peers_cpp.py",
    "spark_tools/test_spark_submit.py",
    "peers/test_peers_java_opens_pop.py",
    "container/test_container_acting_pop.py",
    "peers/test_peers_replication.py",
    "spark_tools/test_spark_cluster.py",
    "peers/test_peers_java_opens_timer.py",
    "container/test_container_partitions.py",
    "peers/test_peers_proxy.py",
    "tools/test_tools_wheel.py",
    "testkit/test_testkit_pytest_plugin.py",
    "peers/test_peers_lifecycle.py",
    "container/test_container_acting_notices.py",
    "peers/test_peers_transactions.py",
    "testkit/test_testkit_acting_drill.py",
    "controller/test_controller_majority.py",
    "container/test_container_failover.py",
    "peers/test_peers_grpc.py",
    "container/test_container_acting_timer.py",
    "testkit/test_testkit_real_drill.py",
    "proxy/test_proxy_failover.py",
    "controller/test_controller_java_tools.py",
    "container/test_container_absence.py",
    "peers/test_peers_container.py",
    "broker_slave/test_broker_slave_holes.py",
    "container/test_container_programs.py",
    "container/test_container_escape_halves.py",
    "testkit/test_testkit_led_drill.py",
    "container/test_container_escape_durable.py",
    "testkit/test_testkit_acting_windows.py",
    "testkit/test_testkit_ready_sets.py",
    "tools/test_tools_ghosts.py",
)
GARBAGE_THRESHOLD = 50_000

# Servers of the real system are started by the dozen and are not measured here.
os.environ.setdefault("ROCKETMQ_JAVA_QUICK", "1")

# Machines that run tests are shared and slow at times: a deadline per example would fail tests for being unlucky.
# The gate draws the same examples every time, so that it judges the change; everybody else's runs go on exploring.
settings.register_profile(
    "understudy",
    derandomize="CI" in os.environ,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100,
)
settings.load_profile("understudy")


@pytest.fixture(autouse=True)
def log_lines_stay_where_they_belong() -> Iterator[None]:
    """Undo what a program that ran inside a test configured: its stream is gone with the test."""
    logger = logging.getLogger("understudy")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session")
def port_blocks() -> Iterator[PortBlocks]:
    """Ports for servers that must be told theirs: `port_blocks.middles(2)` are two that nobody else will get."""
    with PortBlocks(10) as blocks:
        yield blocks


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scenarios", action="store_true", help="write what tests/scenarios/*.txt really show into the files"
    )


def file_of(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that no processor is left alone with one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("peers")}
    places = {file: place for place, file in enumerate(LONG_FILES)}
    items.sort(key=lambda item: (places.get(file_of(item), len(places)), item.path not in slow))


def pytest_collection_finish() -> None:
    """Look for garbage less often: what is imported and collected stays, and looking through it again costs much."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back() -> Iterator[None]:
    """Few objects make no look for garbage, but a simulated cluster's keep the memory of all its disks."""
    yield
    gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Hand out whole files, and those of a family together."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    firsts = {file: family[0] for family in FAMILIES for file in family}

    class Families(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid).removeprefix("tests/")
            return firsts.get(file, file)

    return Families(config, log)
