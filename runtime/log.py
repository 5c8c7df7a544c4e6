"""Structured log lines: an event, then key=value pairs, on the standard library's logging.

A library must not decide where lines go, so nothing is configured on import; :func:`configure` is for programs.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

_VALUE_LIMIT_CHARACTERS = 2000  # values may come from the network; a line must stay a line


class Logger:
    """A thin front of one ``logging.Logger`` under the name ``understudy.<name>``."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"understudy.{name}")

    def debug(self, event: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug("%s", _line(event, fields))

    def info(self, event: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info("%s", _line(event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning("%s", _line(event, fields))

    def error(self, event: str, exc: BaseException | None = None, **fields: object) -> None:
        """Log an error; with *exc* its traceback follows at debug level only, so that a user sees one line."""
        self._logger.error("%s", _line(event, fields))
        if exc is not None:
            self._logger.debug("traceback of the error above", exc_info=exc)


def get_logger(name: str) -> Logger:
    """Return the logger of a room, for example ``get_logger("store.commitlog")``."""
    return Logger(name)


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send log lines of this package to *stream* (default: standard error), one line each, UTC times."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(line_formatter())
    root = logging.getLogger("understudy")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def line_formatter() -> logging.Formatter:
    """Return what makes a line of a record: UTC time, level, logger, event."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    return formatter


def _line(event: str, fields: dict[str, object]) -> str:
    if not fields:
        return event
    return event + " " + " ".join(f"{key}={_value(value)}" for key, value in fields.items())


def _value(value: object) -> str:
    text = str(value)
    if len(text) > _VALUE_LIMIT_CHARACTERS:
        text = f"{text[:_VALUE_LIMIT_CHARACTERS]}... ({len(text)} characters)"
    if not text.isprintable():
        text = "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)
    if text and not any(c in ' "\n=' for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
