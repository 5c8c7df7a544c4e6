"""The file that has messages as they were before an operator decided about them, and what became of each decision.

It is one JSON document, a line for each message. The outcome of a message stands first in its line, always as wide, and
is written in its place, so that at no time anything else of the file is at stake.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from understudy.mqadmin.command import CommandFailedError
from understudy.runtime.syncing import SYNCING

INTENDED, DONE, WAITS, REFUSED, UNKNOWN, NOT_DONE = "intended", "done", "waits", "refused", "unknown", "not done"
"""Not tried yet; carried out; taken, but something stands in front; the broker said no; no answer came, so it may be
either; never tried."""
_WIDTH = max(len(json.dumps(each)) for each in (INTENDED, DONE, WAITS, REFUSED, UNKNOWN, NOT_DONE))
_BEGIN = '{"outcome": '


class UndoFile:
    """One file, which must be new. What it keeps may be secret: nobody but its owner reads it.

    All calls block until the disk has what they wrote: nothing else runs in a command.

    Args:
        path: of the file.
        address: of the broker, ``host:port``.
        broker_name: its name.
    """

    def __init__(self, path: Path, address: str, broker_name: str) -> None:
        self.path = path
        self.address = address
        self.broker_name = broker_name
        self._fd = -1
        self._places: list[str] = []
        self._outcomes: list[str] = []
        self._at: list[int] = []

    @contextmanager
    def created(self, entries: Sequence[dict[str, Any]]) -> Iterator[None]:
        """Write all of *entries* as intended; inside the block their outcomes can be noted.

        Raises :class:`CommandFailedError`: it cannot be written, or is there already.
        """
        try:
            self._fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)  # never in an older one's place
        except OSError as error:
            raise self._useless(error) from None
        try:
            try:
                self._write(entries)
            except OSError as error:
                self.path.unlink(missing_ok=True)
                raise self._useless(error) from None
            yield
        finally:
            os.close(self._fd)

    def note(self, number: int, outcome: str) -> None:
        """Note what became of entry *number*. Raises :class:`CommandFailedError` when the disk does not take it."""
        self._outcomes[number] = outcome
        try:
            self._put(number)
        except OSError as error:
            self._outcomes[number + 1 :] = [NOT_DONE] * (len(self._outcomes) - number - 1)
            raise CommandFailedError(
                f"{self.path} is wrong from here on: {error.strerror}; {self._outcome_list()}"
            ) from None

    def failed(self, number: int, outcome: str) -> None:
        """Note that entry *number* came to *outcome* and that those behind it are not tried; raises as :meth:`note`."""
        self._outcomes[number + 1 :] = [NOT_DONE] * (len(self._outcomes) - number - 1)
        for each in range(number + 1, len(self._outcomes)):
            self.note(each, NOT_DONE)
        self.note(number, outcome)

    def summary(self) -> str:
        """Return what became of each, in one line."""
        return f"{self._outcome_list()}; so says {self.path}"

    def _outcome_list(self) -> str:
        found = []
        titles = ((DONE, "done"), (WAITS, "waiting"), (REFUSED, "refused"), (UNKNOWN, "done or not"))
        for outcome, title in (*titles, (NOT_DONE, "not done")):
            places = [place for place, each in zip(self._places, self._outcomes, strict=True) if each == outcome]
            found += [f"{title}: {', '.join(places)}"] if places else []
        return "; ".join(found)

    def _useless(self, error: OSError) -> CommandFailedError:
        return CommandFailedError(f"{self.path}: {error.strerror}; nothing was done, for it could not be undone")

    def _write(self, entries: Sequence[dict[str, Any]]) -> None:
        broker = json.dumps({"brokerAddr": self.address, "brokerName": self.broker_name})
        text = f'{broker[:-1]}, "decisions": [\n'
        for number, entry in enumerate(entries):
            self._at.append(len(text) + len(_BEGIN))  # all of it is ASCII
            outcome = json.dumps(INTENDED).ljust(_WIDTH)
            text += f"{_BEGIN}{outcome}, {json.dumps(entry)[1:]}{',' if number + 1 < len(entries) else ''}\n"
            self._places.append(entry["place"])
            self._outcomes.append(INTENDED)
        data = memoryview(f"{text}]}}\n".encode("ascii"))
        while data:
            data = data[os.write(self._fd, data) :]
        SYNCING.sync_all(self._fd)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            SYNCING.sync_all(folder)
        finally:
            os.close(folder)

    def _put(self, number: int) -> None:
        os.pwrite(self._fd, json.dumps(self._outcomes[number]).ljust(_WIDTH).encode("ascii"), self._at[number])
        SYNCING.sync(self._fd)
