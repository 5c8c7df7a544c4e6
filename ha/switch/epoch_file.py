"""The file of a broker's epochs, ``epochFileCheckpoint``: the reference's text, written so that no power loss takes it.

The text: how many entries, a checksum of what follows, then ``epoch-startOffset`` in a line each. The file before it
stays as ``.bak``. When the file is missing, its writing was cut short, and nothing was done under what it would have
said: the one before it holds. When the file is damaged, the one before it is one change behind, so its last epoch is
left out: bytes taken for those of too old an epoch are at worst copied once more; of too new a one, they would be
believed.

Source: EpochFileCache.java, CheckpointFile.java. Differs: written durably (temporary file, sync, rename, sync of the
folder), and an empty history is written as such.
"""

from __future__ import annotations

import zlib
from functools import partial

from understudy.format.record import CRC_MASK
from understudy.ha.switch.epochs import EpochEntry, EpochError, Epochs
from understudy.runtime.disk import Disk
from understudy.runtime.durable import write_durably
from understudy.runtime.log import get_logger

log = get_logger("ha.epochs")

FILE_NAME = "epochFileCheckpoint"
"""Below ``storePathRootDir``, unless ``storePathEpochFile`` says otherwise."""
BACKUP = ".bak"
_NUMBER_MAX = (1 << 63) - 1


class EpochFileError(Exception):
    """Neither the file nor the one before it can be read; the message names both and says what to do."""


def to_text(epochs: Epochs) -> bytes:
    """Return the content of the file."""
    lines = "".join(f"{entry.epoch}-{entry.start}\n" for entry in epochs).encode()
    return b"%d\n%d\n%s" % (len(epochs.entries), zlib.crc32(lines) & CRC_MASK, lines)


def from_text(text: bytes) -> Epochs:
    """Return the history that *text* says.

    Raises:
        EpochError: it is no such file, or damaged; the message says where.
    """
    lines = text.decode("utf-8", "replace").splitlines()
    if len(lines) < 2:
        raise EpochError("it ends before its second line")
    count, checksum = _number(lines[0], "line 1"), _number(lines[1], "line 2")
    rows = lines[2:]
    if len(rows) != count:
        raise EpochError(f"line 1 promises {count} entries, {len(rows)} follow")
    body = "".join(row + "\n" for row in rows).encode()
    if checksum and checksum != zlib.crc32(body) & CRC_MASK:
        raise EpochError("the checksum in line 2 is not that of the entries")
    entries = []
    for number, row in enumerate(rows, 3):
        epoch, dash, start = row.partition("-")
        if not dash:
            raise EpochError(f"line {number} is not EPOCH-OFFSET: {row[:40]!r}")
        entries.append(EpochEntry(_number(epoch, f"line {number}"), _number(start, f"line {number}")))
    return Epochs(tuple(entries))


def _number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _NUMBER_MAX):
        raise EpochError(f"{where} is no number: {text[:40]!r}")
    return int(text)


class EpochFile:
    """The history of one log on its disk.

    Args:
        disk: where it is.
        path: of the file; its folder must exist.

    Attributes:
        epochs: what is in force, and durable; until the next :meth:`save` perhaps what the log bears out of it only.
        lost: some of them may have been lost with a damaged file.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._written: Epochs | None = Epochs()
        self.epochs = Epochs()
        self.lost = False

    def load(self) -> None:
        """Read the file, or the one before it when the file is missing or damaged. Blocking.

        Raises:
            EpochFileError: there is something, and none of it can be read. Without its history nobody can tell which
                bytes of a log were confirmed, so this must not be taken for an empty one.
        """
        problems = []
        for path in (self._path, self._path + BACKUP):
            if not self._disk.exists(path):
                continue
            try:
                epochs = from_text(self._disk.read(path))
            except EpochError as error:
                problems.append(f"{path}: {error}")
                continue
            if problems:
                epochs, self.lost = Epochs(epochs.entries[:-1]), True
                log.error("the file of epochs is damaged, the one before it is used", damaged=problems[0], used=path)
            self.epochs = epochs
            self._written = epochs if path == self._path else None
            return
        if problems:
            raise EpochFileError(
                "; ".join(problems) + ": put a good copy of the file there, or move this store away and let the broker "
                "copy its master's log again"
            )

    async def save(self, epochs: Epochs) -> None:
        """Have *epochs* in force, durably. Raises ``OSError``; the history in force stays then."""
        if epochs != self._written:
            self._written = None
            await self._disk.in_thread(partial(self._write, epochs))
            self._written = epochs
        self.epochs = epochs

    def _write(self, epochs: Epochs) -> None:
        write_durably(self._disk, self._path, to_text(epochs))
        # A reader that finds nothing in the file would take the one before it, whose epochs are gone.
        if not epochs and self._disk.exists(self._path + BACKUP):
            self._disk.remove(self._path + BACKUP)
