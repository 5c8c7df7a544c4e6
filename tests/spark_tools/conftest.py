"""A Spark session for tests. Its JVM starts and plans faster for small inputs when it compiles and verifies less."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from understudy.spark_tools import session

OPTIONS = "JDK_JAVA_OPTIONS"
QUICK = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)


@pytest.fixture(scope="module", autouse=True)
def quick_jvm() -> Iterator[None]:
    """For each module of its own: the options of other tests' JVMs are their own."""
    before = os.environ.get(OPTIONS)
    if before is None:
        os.environ[OPTIONS] = " ".join(QUICK)
    yield
    if before is None:
        del os.environ[OPTIONS]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session on this machine, one for each module; its tests are skipped where Spark or Java is missing."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java")
    found = session.start("local[2]")
    # small inputs: what a plan costs to make outweighs what it saves
    for key, value in (
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ):
        found.conf.set(key, value)
    yield found
    found.stop()
