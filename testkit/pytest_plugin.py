"""Fixtures for tests of code that talks to RocketMQ, loaded by pytest wherever this package is installed.

``rocketmq`` is a running cluster of one broker, for plain, asyncio and trio tests alike; ``rocketmq_pair`` two groups
in processes of their own that stand in for each other, with accidents. The ini setting ``understudy_scope`` says how
long one lives: ``function`` (the default), ``class``, ``module``, ``package`` or ``session``. Warnings of the cluster
stand in the report of a test that failed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from understudy.testkit.acting_pair import ActingPair, acting_pair
from understudy.testkit.blocking import BlockingCluster, local_cluster

SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini setting."""
    parser.addini(
        "understudy_scope", "how long the clusters of the fixtures rocketmq and rocketmq_pair live", default="function"
    )


def _scope(fixture_name: str, config: pytest.Config) -> str:
    scope = str(config.getini("understudy_scope"))
    if scope not in SCOPES:
        raise pytest.UsageError(f"understudy_scope={scope}: expected one of {', '.join(SCOPES)}")
    return scope


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]  # pytest takes a function that returns one of its names
def rocketmq() -> Iterator[BlockingCluster]:
    """A cluster of one broker; ``rocketmq.namesrv_address`` is all that a client needs."""
    with local_cluster() as cluster:
        yield cluster


@pytest.fixture(scope=_scope)  # type: ignore[arg-type]
def rocketmq_pair() -> Iterator[ActingPair]:
    """Two groups that stand in for each other; see :mod:`understudy.testkit.acting_pair`."""
    with acting_pair() as pair:
        yield pair
        print("\n".join(pair.warnings()))  # pytest shows it for a test that failed
