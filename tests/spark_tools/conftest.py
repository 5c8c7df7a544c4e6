"""Spark's own JVM starts and plans faster for small inputs when it compiles less."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

OPTIONS = "JDK_JAVA_OPTIONS"


@pytest.fixture(scope="module", autouse=True)
def quick_jvm() -> Iterator[None]:
    """For each module of its own: the options of other tests' JVMs are their own."""
    before = os.environ.get(OPTIONS)
    if before is None:
        os.environ[OPTIONS] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    yield
    if before is None:
        del os.environ[OPTIONS]
