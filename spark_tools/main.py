"""Command line `understudy-spark`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import understudy
from understudy.spark_tools import exits
from understudy.spark_tools.layout import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def store(text: str) -> Store:
    """A `name=path` option."""
    name, separator, path = text.partition("=")
    if not separator or not name or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=path")
    if ";" in text:
        raise argparse.ArgumentTypeError(f"{text!r}: a name or path cannot contain ';'")
    return Store(name, path)


def key_file(path: str) -> bytes:
    """A secret read from a file, without the newline at its end."""
    try:
        with open(path, "rb") as file:
            return file.read().strip()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from None


def _job(name: str) -> Callable[[SparkSession, argparse.Namespace, Callable[[str], None]], int]:
    def run(spark: SparkSession, options: argparse.Namespace, say: Callable[[str], None]) -> int:
        from understudy.spark_tools import commands, job_commands

        handler = commands.reconcile if name == "reconcile" else getattr(job_commands, name)
        result: int = handler(spark, options, say)
        return result

    return run


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    whole = argparse.ArgumentParser(
        prog="understudy-spark",
        description="Reconcile consumer offsets and verify stores of RocketMQ brokers, offline, with Spark.",
        epilog=exits.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"%(prog)s {understudy.__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def job(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=exits.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument(
            "--store",
            type=store,
            action="append",
            required=True,
            metavar="NAME=PATH",
            help="a store directory (local, file:, hdfs: or s3a:); SET/NAME=PATH for several brokers",
        )
        sub.add_argument("--out", required=True, metavar="DIR", help="where evidence and report are written")
        sub.add_argument(
            "--evidence", metavar="URI", help="where tasks write Parquet on a cluster; default: below --out"
        )
        sub.add_argument("--master", help="Spark master; default: what was submitted, or all cores of this machine")
        sub.add_argument("--quiet", action="store_true", help="no progress bar")
        sub.set_defaults(job=_job(name.replace("-", "_")))
        return sub

    sub = job("reconcile", "compare committed offsets of all replicas and propose a plan")
    sub.add_argument(
        "--resets", metavar="FILE", help="recorded resets: JSON lines with topic, group, queue_id, offset, time_ms"
    )
    sub.add_argument(
        "--log", choices=("all", "tail"), default="all", help="walk the whole log, or only look for its end"
    )
    sub.add_argument("--verify", action="store_true", help="check every body against its CRC")
    sub.add_argument("--key-file", dest="key", type=key_file, help="secret that signs the plan")
    sub = job("verify-replicas", "compare logs byte by byte, and queues and indexes with the log")
    sub.add_argument("--verify", action="store_true", help="check every body against its CRC")
    sub.add_argument(
        "--to", type=int, metavar="OFFSET", help="physical offset to compare up to; default: confirm offset"
    )
    sub = job("lag", "backlog by group, topic and queue, and the age of its oldest message")
    sub.add_argument("--group", action="append", help="only this group")
    sub.add_argument("--now", type=int, metavar="MS", help="time the ages are measured at; default: last store time")
    sub = job("translate", "offsets of the first store's groups in the logs of another cluster")
    sub.add_argument(
        "--target", type=store, action="append", required=True, metavar="NAME=PATH", help="store of the other cluster"
    )
    sub.add_argument("--group", action="append", help="only this group")
    sub = job("duplicates", "messages stored more than once, by UNIQ_KEY, over all stores")
    sub = job("gaps", "acknowledged messages that are missing, and queue offsets without a message")
    sub.add_argument("--acknowledged", metavar="FILE", help="JSON lines with uniq_key and topic of acknowledged sends")

    plan = commands.add_parser("plan", help="show, verify, apply or undo a plan", epilog=exits.DESCRIPTION)
    steps = plan.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, text in (
        ("show", "print what the plan would do"),
        ("verify", "are the inputs unchanged, is it still true for the live broker"),
        ("apply", "carry the plan out on stopped stores, or on a live broker"),
        ("undo", "take an applied plan back"),
    ):
        step = steps.add_parser(
            name,
            help=text,
            description=text,
            epilog=exits.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        step.add_argument("plan", help="the plan file")
        step.add_argument("--key-file", dest="key", type=key_file, help="refuse plans not signed with this secret")
        step.add_argument("--all", action="store_true", help="show every change")
        if name == "show":
            continue
        step.add_argument("--store", type=store, action="append", metavar="NAME=PATH", help="where a store lies now")
        step.add_argument("--broker", metavar="HOST:PORT", help="address of the live master")
        step.add_argument("--namesrv", metavar="HOST:PORT", help="name server to ask for the live master")
        step.add_argument("--broker-name", help="name of the broker; default: the plan's replica set")
        step.add_argument(
            "--active",
            choices=("refuse", "commit", "reset"),
            default="refuse",
            help="groups with connected consumers: leave alone, commit anyway, or have the broker reset them",
        )
        step.add_argument("--journal", metavar="DIR", help="where the record is kept; default: beside the plan")
        if name == "apply":
            step.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return whole


def main(argv: list[str] | None = None, now_ms: int | None = None, say: Callable[[str], None] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
        argv: arguments without the program's name, those of the process by default.
        now_ms: time stamped into plans and journals, the current time by default.
        say: receives each line of output, printed by default.
    """
    speak = say or _print
    try:
        options = parser().parse_args(argv)
    except SystemExit as ended:
        return int(ended.code or 0)
    options.now_ms = now_ms if now_ms is not None else time.time_ns() // 1_000_000
    if options.command == "plan":
        return _run_plan(options, speak)
    names = [item.name for item in options.store]
    if len(set(names)) != len(names):
        speak("every --store needs a name of its own")
        return exits.BAD_USAGE
    return _run_job(options, speak)


def _run_plan(options: Any, say: Callable[[str], None]) -> int:
    try:
        from understudy.spark_tools import plan_commands
    except ModuleNotFoundError as error:
        say(f"{error.name} missing: install the extra with: pip install 'understudy[spark]'")
        return exits.BAD_USAGE
    return plan_commands.run(options, say)


def _run_job(options: Any, say: Callable[[str], None]) -> int:
    from understudy.spark_tools import session

    try:
        # this job works on arrays in Python: it reads no data source, and the JVM has nothing to compile well for
        plain = options.command == "reconcile"
        spark = session.start(options.master, with_sources=not plain, brief=plain)
    except session.MissingRequirement as error:
        say(str(error))
        return exits.BAD_USAGE
    try:
        code: int = options.job(spark, options, say)
        return code
    except (ValueError, OSError) as error:
        say(f"{error}")
        return exits.BAD_USAGE


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
