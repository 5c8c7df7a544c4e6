"""Fixtures for tests of code that talks to RocketMQ, loaded by pytest wherever this package is installed.

``rocketmq`` is a running cluster of one broker, for plain, asyncio and trio tests alike; ``rocketmq_proxy`` one with a
proxy for clients that speak gRPC; ``rocketmq_pair`` two groups in processes of their own that stand in for each other,
with accidents. The ini setting ``understudy_scope`` says how
long one lives: ``function`` (the default), ``class``, ``module``, ``package`` or ``session``. A pair that several tests
share is whole again before each of them. What a cluster logged at
``understudy_log_level`` (default WARNING) stands in the report of a test that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every run of pytest loads this file, and most need no cluster
    from understudy.testkit.acting_pair import ActingPair
    from understudy.testkit.blocking import BlockingCluster

SCOPES = ("function", "class", "module", "package", "session")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_SHOWN_LINES = 500
_pairs: dict[str, ActingPair] = {}
"""The pair of each fixture, as long as it lives."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini settings."""
    parser.addini(
        "understudy_scope",
        "how long the clusters of the fixtures rocketmq, rocketmq_proxy and rocketmq_pair live",
        default="function",
    )
    parser.addini(
        "understudy_log_level", "least level of cluster log lines in the report of a failed test", default="WARNING"
    )


def _one_of(config: pytest.Config, name: str, allowed: tuple[str, ...]) -> str:
    value = str(config.getini(name))
    if value not in allowed:
        raise pytest.UsageError(f"{name}={value}: expected one of {', '.join(allowed)}")
    return value


def _scope(fixture_name: str, config: pytest.Config) -> str:
    return _one_of(config, "understudy_scope", SCOPES)


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]  # pytest takes a function that returns one of its names
def rocketmq(pytestconfig: pytest.Config) -> Iterator[BlockingCluster]:
    """A cluster of one broker; ``rocketmq.namesrv_address`` is all that a client needs."""
    yield from _cluster(pytestconfig)


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def rocketmq_proxy(pytestconfig: pytest.Config) -> Iterator[BlockingCluster]:
    """The same with a proxy: ``rocketmq_proxy.proxy_address`` is for clients that speak gRPC.

    It needs ``understudy[grpc]``.
    """
    yield from _cluster(pytestconfig, proxy=True)


def _cluster(config: pytest.Config, *, proxy: bool = False) -> Iterator[BlockingCluster]:
    from understudy.runtime.quick_imports import quick_imports

    with quick_imports("testkit"):
        from understudy.testkit.blocking import local_cluster

    # It lives in this process and logs as everything in it does: pytest shows the lines of a test that failed.
    logger = logging.getLogger("understudy")
    before = logger.level
    logger.setLevel(_one_of(config, "understudy_log_level", LEVELS))
    try:
        with local_cluster(proxy=proxy) as cluster:
            yield cluster
    finally:
        logger.setLevel(before)


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def rocketmq_pair(pytestconfig: pytest.Config) -> Iterator[ActingPair]:
    """Two groups that stand in for each other; see :mod:`understudy.testkit.acting_pair`."""
    from understudy.runtime.quick_imports import quick_imports

    with quick_imports("testkit-pair"):
        from understudy.testkit.acting_pair import acting_pair

    _one_of(pytestconfig, "understudy_log_level", LEVELS)  # before it takes a second to come up
    with acting_pair() as pair:
        _pairs["rocketmq_pair"] = pair
        try:
            yield pair
        finally:
            del _pairs["rocketmq_pair"]


def _pairs_of(item: pytest.Item) -> dict[str, ActingPair]:
    return {name: _pairs[name] for name in getattr(item, "fixturenames", ()) if name in _pairs}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Undo what an earlier test has done to a pair that this one shares with it, and did not undo."""
    for pair in _pairs_of(item).values():
        pair.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the log of processes into the report of a test that failed."""
    report = yield
    if report.failed:
        level = _one_of(item.config, "understudy_log_level", LEVELS)
        for name, pair in _pairs_of(item).items():
            lines = pair.log_lines(level)
            if lines:
                report.sections.append((f"Log of {name}", "\n".join(lines[-_SHOWN_LINES:])))
    return report
