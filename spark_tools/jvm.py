"""Starts the JVM of a local Spark so that it starts fast and says only what a user can use."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf

# what the JVM itself says about the modules Spark asks for; no setting turns it off
NOISE = (b"WARNING: Using incubator modules:",)
QUICK_LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_START = "-XX:+UseSerialGC -XX:-UsePerfData"
MOVES_BYTES_ONLY = "-XX:TieredStopAtLevel=1"
LOGGING = """status = error
rootLogger.level = error
rootLogger.appenderRef.errors.ref = errors
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
appender.errors.type = Console
appender.errors.name = errors
appender.errors.target = SYSTEM_ERR
appender.errors.layout.type = PatternLayout
appender.errors.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def own_logging() -> bool:
    """Whether the user configured Spark's logging; then it stays as it is."""
    folders = [os.environ.get("SPARK_CONF_DIR"), os.path.join(os.environ.get("SPARK_HOME", ""), "conf")]
    return any(folder and os.path.exists(os.path.join(folder, "log4j2.properties")) for folder in folders)


@contextmanager
def _environment(options: dict[str, str]) -> Iterator[None]:
    """Puts options in front of those the user set, for as long as the block runs; the later ones win."""
    before = {name: os.environ.get(name) for name in options}
    for name, text in options.items():
        os.environ[name] = f"{text} {before[name] or ''}".strip()
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                del os.environ[name]
            else:
                os.environ[name] = old


def launch(settings: SparkConf, *, brief: bool) -> Any:
    """Starts Spark's JVM and returns pyspark's gateway to it; its errors are passed on to standard error line by line.

    Args:
        settings: settings of the Spark context that will be made.
        brief: the JVM will only move bytes between tasks, so that compiling its code well does not pay.
    """
    from pyspark.java_gateway import launch_gateway

    options = QUICK_START + (f" {MOVES_BYTES_ONLY}" if brief else "")
    descriptor, logging = tempfile.mkstemp(suffix=".properties", prefix="understudy-log4j2-")
    with os.fdopen(descriptor, "w") as file:
        file.write(LOGGING)
    if not own_logging():
        options += f" -Dlog4j2.configurationFile={Path(logging).as_uri()}"
    reading, writing = os.pipe()
    printer = threading.Thread(target=_pass_on, args=(reading,), name="spark-errors", daemon=True)
    printer.start()
    try:
        with _environment({"SPARK_LAUNCHER_OPTS": QUICK_LAUNCHER, "SPARK_SUBMIT_OPTS": options}):
            gateway = launch_gateway(settings, {"stderr": writing})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(writing)
        printer.join(5)  # what it said about its end comes before what is said here
        raise
    finally:
        os.unlink(logging)
    os.close(writing)
    return gateway


def _pass_on(descriptor: int) -> None:
    with os.fdopen(descriptor, "rb") as lines:
        for line in lines:
            if not line.startswith(NOISE):
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
