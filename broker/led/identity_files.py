"""The two small files that keep a broker's persistent id, in the reference's format.

``brokerIdentity`` holds ``cluster#broker#id``. Until the controller has confirmed the id, ``brokerIdentity-temp`` holds
``cluster#broker#id#code``: the id that is claimed and the code that makes the claim this broker's own, however often it
is repeated. Both are one line without an end.

Source: MetadataFile.java, BrokerMetadata.java, TempBrokerMetadata.java. Differs: what is written replaces the file by a
rename and is durable; names with ``#`` are read back.
"""

from __future__ import annotations

import os.path

import attrs

from understudy.runtime.disk import Disk
from understudy.runtime.durable import make_folder_durably, write_durably

CLAIM_SUFFIX = "-temp"
GREATEST_ID = (1 << 63) - 1


class IdentityError(Exception):
    """A file does not hold an id of this broker; the message says which file, what is wrong and what to do."""


@attrs.frozen
class GroupName:
    """Whose id it is: the names of cluster and broker group."""

    cluster: str
    broker: str

    def __str__(self) -> str:
        return f"{self.cluster}#{self.broker}"


@attrs.frozen
class Claim:
    """An id that this broker asks for.

    Attributes:
        broker_id: as the controller proposed it.
        code: ``address;milliseconds``: the controller gives the same id again to the same code only.
    """

    broker_id: int
    code: str


@attrs.frozen
class Kept:
    """What the two files hold: the confirmed id, and the claim that was not yet settled."""

    broker_id: int | None = None
    claim: Claim | None = None


class IdentityFiles:
    """Reads and writes them. Blocking: call it through ``disk.in_thread``.

    Args:
        disk: where they are.
        path: ``storePathBrokerIdentity``; the claim is beside it.
        name: of this broker's group.
    """

    def __init__(self, disk: Disk, path: str, name: GroupName) -> None:
        self._disk = disk
        self.path = path
        self._claim_path = path + CLAIM_SUFFIX
        self._name = name

    def read(self) -> Kept:
        """Return what is there.

        Raises:
            IdentityError: a file belongs to another broker, or is damaged and no claim makes it good.
        """
        claim_text, text = self._text(self._claim_path), self._text(self.path)
        claim = None if not claim_text else self._claim(claim_text)
        if text is None:
            return Kept(None, claim)
        broker_id = self._id_of(text.rpartition("#"))
        if broker_id is None:
            if claim is not None:
                return Kept(None, claim)  # the process ended while it wrote the file; the claim has the id
            raise IdentityError(
                f"{self.path} is damaged: it holds {text[:100]!r} instead of {self._name}#ID; write that into it with "
                "the id that 'mqadmin getSyncStateSet' shows for this address, or remove it and this broker gets a new "
                "id"
            )
        self._check_name(self.path, text.rpartition("#")[0])
        return Kept(broker_id, claim)

    def _text(self, path: str) -> str | None:
        try:
            return self._disk.read(path).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return None

    def _claim(self, text: str) -> Claim | None:
        rest, _, code = text.rpartition("#")
        broker_id = self._id_of(rest.rpartition("#"))
        if broker_id is None or not code:
            return None  # half written: nothing was asked of the controller with it yet
        self._check_name(self._claim_path, rest.rpartition("#")[0])
        return Claim(broker_id, code)

    @staticmethod
    def _id_of(parts: tuple[str, str, str]) -> int | None:
        name, _, number = parts
        if not name.rpartition("#")[0] or not number.isascii() or not number.isdigit():
            return None
        return int(number) if 0 < int(number) <= GREATEST_ID else None

    def _check_name(self, path: str, name: str) -> None:
        if name != str(self._name):
            raise IdentityError(
                f"{path} belongs to the broker {name}, this one is {self._name}: correct brokerClusterName, brokerName "
                "or storePathRootDir"
            )

    def claim(self, claim: Claim) -> None:
        """Note durably what is asked for."""
        make_folder_durably(self._disk, os.path.dirname(self.path))
        text = f"{self._name}#{claim.broker_id}#{claim.code}"
        write_durably(self._disk, self._claim_path, text.encode(), keep_previous=False)

    def confirm(self, broker_id: int) -> None:
        """Note durably the id that the controller has confirmed; the claim is forgotten afterwards."""
        make_folder_durably(self._disk, os.path.dirname(self.path))
        write_durably(self._disk, self.path, f"{self._name}#{broker_id}".encode(), keep_previous=False)
        self.forget_claim()

    def forget_claim(self) -> None:
        """Remove the claim durably."""
        self._remove(self._claim_path)

    def forget_all(self) -> None:
        """Remove the id, then the claim, durably: a claim alone is asked for again and refused again."""
        self._remove(self.path)
        self._remove(self._claim_path)

    def _remove(self, path: str) -> None:
        if self._disk.exists(path):
            self._disk.remove(path)
            self._disk.sync_folder(os.path.dirname(path))
