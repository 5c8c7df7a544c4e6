"""Starts or finds the Spark session the jobs run in."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import understudy
from understudy.spark_tools import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "0",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
# all of Spark is one process then: nobody else has to reach it
LOCAL_DEFAULTS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit: where the JVM listens that it started for this program."""


class MissingRequirement(RuntimeError):
    """Spark cannot start on this machine; the text says what to install."""


def check_environment() -> None:
    """Fails with one clear line when the [spark] extra or Java is missing.

    Raises :class:`MissingRequirement`.
    """
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingRequirement(
            f"{', '.join(missing)} missing: install the extra with: pip install 'understudy[spark]'"
        )
    home = os.environ.get("JAVA_HOME")
    if home and os.path.exists(os.path.join(home, "bin", "java")):
        return
    if home:
        raise MissingRequirement(f"JAVA_HOME is {home}, which has no bin/java: point it to a Java 17 or 21 runtime")
    if shutil.which("java") is None:
        raise MissingRequirement(
            "Spark needs Java 17 or 21: install it (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
        )


def start(
    master: str | None = None, name: str = "understudy-spark", *, with_sources: bool = True, brief: bool = False
) -> SparkSession:
    """A session with the data sources registered; inside spark-submit it is the one that was submitted.

    Args:
        master: where to run; None keeps what spark-submit or the environment says, `local[*]` otherwise.
        with_sources: register the data sources, which takes Spark seconds.
        brief: no work is done in the JVM itself, so that it need not compile its code well.

    Raises:
        MissingRequirement: when Java or a package is missing.
    """
    check_environment()
    # workers must run the interpreter that has our packages; spark-submit --py-files sets its own
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        if SUBMITTED in os.environ:
            # until then the settings of what was submitted, its master first of all, are not known here
            SparkContext._ensure_initialized()
        settings = SparkConf()
        # local is the default of a laptop, never an override of what was submitted
        if master or not settings.contains("spark.master"):
            settings.setMaster(master or "local[*]")
        settings.setAppName(name)
        is_local = settings.get("spark.master", "").startswith("local")
        for key, value in (DEFAULTS | LOCAL_DEFAULTS if is_local else DEFAULTS).items():
            settings.setIfMissing(key, value)
        if is_local and SparkContext._gateway is None and SUBMITTED not in os.environ:
            SparkContext(conf=settings, gateway=jvm.launch(settings, brief=brief))
        running = SparkSession.builder.config(conf=settings).getOrCreate()
        share_wheel(running, understudy.__path__[0])
    if with_sources:
        from understudy.spark_tools import sources

        sources.register(running)
    return running


def share_wheel(spark: SparkSession, package: str) -> None:
    """Lets workers import this package when it was submitted as a wheel.

    Spark hands a wheel of `--py-files` to every machine, but workers look for packages only in archives whose names end
    in zip, egg or jar; a wheel is such an archive under another name.

    Args:
        package: where this process found the package.
    """
    wheel = next((place for place in Path(package).parents if place.suffix == ".whl" and place.is_file()), None)
    if wheel is None:
        return
    # executors fetch it from the driver for as long as that lives
    folder = tempfile.mkdtemp(prefix="understudy-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    spark.sparkContext.addPyFile(shutil.copyfile(wheel, os.path.join(folder, f"{wheel.stem}.zip")))


@contextmanager
def progress(spark: SparkSession, title: str, *, shown: bool) -> Iterator[None]:
    """Shows tasks done and to do on the terminal while the block runs; nothing without a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    ended = threading.Event()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        shown_task = bar.add_task(title, total=None)
        tracker = spark.sparkContext.statusTracker()

        done: dict[int, tuple[int, int]] = {}

        def poll() -> None:
            while not ended.wait(0.2):
                # a stage that ended between two looks is no longer active, but still known
                unfinished = {stage for stage, (count, tasks) in done.items() if count < tasks}
                for stage in unfinished.union(tracker.getActiveStageIds()):
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        done[stage] = (info.numCompletedTasks, info.numTasks)
                total = sum(tasks for _, tasks in done.values())
                bar.update(shown_task, completed=sum(count for count, _ in done.values()), total=total or None)

        thread = threading.Thread(target=poll, name="spark-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        total = sum(tasks for _, tasks in done.values()) or 1
        bar.update(shown_task, completed=total, total=total)
