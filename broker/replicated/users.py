"""Users and what they may do as a table that travels (960, ours; the reference copies none)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from understudy.broker.replicated.rules import read_object
from understudy.broker.replicated.table import Answer, Copying, FilePlan, KeptTable, Source, Taken
from understudy.remoting.bodies import LARGE_BODY_BYTES
from understudy.remoting.codes import RequestCode
from understudy.security import authority
from understudy.security.authority import Authority, Content
from understudy.security.settings import SecuritySettings


class ReplicatedUsers(KeptTable):
    """Every user with its rules; there is no such row in brokers that ask for no signatures.

    Args:
        table: the users of this broker.
        settings: name the super users that are there whatever the table says.
    """

    name = "users"
    code = RequestCode.GET_ALL_USERS
    optional = True
    file = FilePlan("users.json", private=True)

    def __init__(self, table: Authority, settings: SecuritySettings) -> None:
        self.table = table
        self._supers = settings.super_users
        table.ensure_supers(self._supers)

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.take(content, self._supers)

    def adopt(self, content: Content) -> None:
        """Have what another replica said in place of this table."""
        self.table.adopt(content, self._supers)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(changed)

    def copying(self, source: Source) -> Copying:
        """See :class:`ReplicatedTable`."""
        return _Users(self, source)


@attrs.frozen
class _Said:
    """What a source says.

    Attributes:
        digest: of its words.
        content: what they mean; ``None``: what is here already.
    """

    digest: bytes
    content: Content | None


class _Users(Copying):
    """A source's table is read whole, and only when it says something else than at the last look."""

    def __init__(self, users: ReplicatedUsers, source: Source) -> None:
        self._users = users
        self._source = source
        self._taken: tuple[bytes, int] | None = None  # the digest of what was taken last, and the revision it made

    def question(self) -> dict[str, str]:
        return {}

    def read(self, answer: Answer) -> _Said:
        """See :class:`Copying`."""
        digest = hashlib.sha256(answer.body).digest()
        if self._is_ours(digest):
            return _Said(digest, None)
        # In steps: this is done in a thread, and one call for a table of megabytes would keep the loop from its turns.
        in_steps = len(answer.body) >= LARGE_BODY_BYTES
        return _Said(digest, authority.read(read_object(answer.body, in_steps=in_steps)))

    def take(self, answer: Answer) -> Taken:
        said = answer.said or self.read(answer)
        if said.content is None and not self._is_ours(said.digest):
            said = self.read(answer)  # changed here since a thread has looked
        if self._source.leads and said.content is not None:
            self._users.adopt(said.content)
            self._taken = said.digest, self._users.table.revision
        return Taken.ALL

    def _is_ours(self, digest: bytes) -> bool:
        return self._taken == (digest, self._users.table.revision)
