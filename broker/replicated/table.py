"""What a table must be able to do to be copied by slaves, saved, and given back to a returning master.

The laws of the room:

* Who copies, saves, gives back or reports goes through the list of tables; one is named only for what it alone does.
* A table is asked for by one request code. What to ask and what to make of the answer is the table's affair
  (:class:`Copying`); to move the bytes is the affair of the asker. So everything in here is free of I/O.
* A **source** that leads (a master) is followed, also when it takes something back. One that does not lead (the slave
  that acts) is only believed where it is further.
* Only what a slave may know better than its master is given back: tables of **progress**, and what it handed out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import attrs

from understudy.broker.merge import Limit, Row, StampedOffset, Table
from understudy.format.data_version import DataVersion
from understudy.remoting.codes import RequestCode

KNOWN_OFFSETS = "knownOffsets"
"""Header field of ours: in the question what the asker has, in the answer what the answering broker has."""
PARTLY = "partly"
"""Header field of ours: the answer holds only what changed since what the asker has."""
TABLES = "tables"
"""Header field of ours in the same answer: changes when topics or groups have changed."""
SLAVE_HOST = "haSlaveHost"
"""Header field of a slave's signed question: the address from which it copies the log."""


class Pace(Enum):
    """How often a slave looks at a table."""

    OFTEN = "several times a second"
    SELDOM = "every few seconds, and at once when the master says that something changed"


@attrs.frozen
class FilePlan:
    """How a table is saved.

    Attributes:
        file_name: below the folder ``config`` of the store.
        delay_ms: longest time from a change to its write in milliseconds, asked anew for each change.
        missing: what it means, for people, when there is no such file beside a log with messages; ``""``: nothing.
        required: a broker whose log holds messages does not start without it.
        barrier: waits until what the content speaks of is durable itself; raises ``OSError`` when it is not.
        private: nobody but the broker's user may read it.
        other_name: the name it has under another setting; that file is read when there is none of its own.
    """

    file_name: str
    delay_ms: Callable[[], int] = lambda: 0
    missing: str = ""
    required: bool = False
    barrier: Callable[[], Awaitable[None]] | None = None
    private: bool = False
    other_name: str = ""


@attrs.frozen
class Answer:
    """What another replica answered.

    Attributes:
        ext: header fields.
        body: the body.
        said: what :meth:`Copying.read` made of a large body, in a thread; ``None``: nobody has read it yet.
    """

    ext: Mapping[str, str]
    body: bytes
    said: Any = None


@attrs.frozen
class Source:
    """The replica that a slave copies from.

    Attributes:
        address: ``host:port``, for people.
        leads: it is the master; otherwise it acts for it.
        continues: tells whether its log was seen to continue ours since the first look at it.
    """

    address: str
    leads: bool = True
    continues: Callable[[], bool] = lambda: False


class Taken(Enum):
    """What came of an answer."""

    ALL = "everything was taken"
    MORE = "another question must follow"
    ANEW = "the source has begun another life: what was seen of its other tables counts no more"


@attrs.frozen
class Notice:
    """Something that happened here and the source does not know.

    Attributes:
        code, ext: the request that tells it.
        told: called when the source has taken it.
        refused: called with the reason when it has not.
        body: of the request.
    """

    code: RequestCode
    ext: dict[str, str]
    told: Callable[[], None]
    refused: Callable[[str], None]
    body: bytes = b""


class Copying(ABC):
    """How one table is copied from one source; made at the first look, dropped when the source changes or fails."""

    @abstractmethod
    def question(self) -> dict[str, str]:
        """Return the header fields of the next question."""

    def read(self, answer: Answer) -> Any:
        """Return what the body says, for :attr:`Answer.said`; changes nothing. Raises ``ValueError``."""
        return None

    @abstractmethod
    def take(self, answer: Answer) -> Taken:
        """Make the answer ours. Raises ``ValueError`` when it is no such table; nothing was taken then."""

    def take_in_steps(self, answer: Answer) -> Generator[None, None, Taken]:
        """Do as :meth:`take` does, with turns for others; it must be gone through to its end."""
        yield from ()  # most answers are small
        return self.take(answer)

    def notices(self) -> Sequence[Notice]:
        """Return what the source must be told now that its answer was taken."""
        return ()

    def otherwise(self) -> Sequence[Notice]:
        """Return how a source that knows of no such table is told in another way what the table holds for it."""
        return ()


class ReplicatedTable(ABC):
    """A table that a slave keeps like its master's.

    Attributes:
        name: for logs, and for marking it as changed.
        code: asks for it.
        pace: how often.
        optional: a source that refuses to answer has no such table, and nothing is wrong.
    """

    name: ClassVar[str]
    code: ClassVar[RequestCode]
    pace: ClassVar[Pace] = Pace.SELDOM
    optional: ClassVar[bool] = False

    def copying(self, source: Source) -> Copying | None:
        """Return how it is copied from *source*; ``None`` for a table that travels in the answer of another one."""
        return None

    def follow(self, following: bool) -> None:  # noqa: B027 - most tables need not know
        """Learn whether the table follows another replica's from now on: own changes do not move its version then."""


class KeptTable(ReplicatedTable):
    """A table that is saved.

    Attributes:
        file: how.
    """

    file: FilePlan

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the content of the file, to be written once; shares no mutable part with the table."""

    @abstractmethod
    def load(self, content: Mapping[str, Any]) -> None:
        """Put the content of the file over what is there. Raises ``ValueError`` naming an entry that is none."""

    @abstractmethod
    def watch(self, changed: Callable[[], None]) -> None:
        """Have *changed* called after each change of what :meth:`snapshot` returns."""


class JsonTable(Protocol):
    """A table that makes its own content and tells of changes."""

    on_change: list[Callable[[], None]]

    def to_json(self) -> dict[str, Any]:
        """Return the content of its file."""
        ...

    def merge_json(self, content: Mapping[str, Any]) -> None:
        """Put the content of a file over what is there. Raises ``ValueError``."""
        ...


Kept = TypeVar("Kept", bound=JsonTable)


class KeptAsItIs(KeptTable, Generic[Kept]):
    """A :class:`KeptTable` whose file holds what the table makes of itself.

    Args:
        table: that is kept.
        file: how it is saved.
    """

    def __init__(self, table: Kept, file: FilePlan) -> None:
        self.table = table
        self.file = file

    def snapshot(self) -> dict[str, Any]:
        """See :class:`KeptTable`."""
        return self.table.to_json()

    def load(self, content: Mapping[str, Any]) -> None:
        """See :class:`KeptTable`."""
        self.table.merge_json(content)

    def watch(self, changed: Callable[[], None]) -> None:
        """See :class:`KeptTable`."""
        self.table.on_change.append(changed)


@attrs.frozen
class Merged:
    """What comes of comparing our progress with another replica's; nothing has changed yet.

    Attributes:
        rows: one for each queue that either side knows.
        version: of the other table.
        answer: the other table as :meth:`ProgressTable.merge` read it; nobody else's affair.
    """

    rows: Sequence[Row]
    version: DataVersion
    answer: object = None

    @property
    def changed(self) -> bool:
        """Whether any offset of ours would be another one."""
        return any(row.changed for row in self.rows)


class GivenBackTable(KeptTable):
    """A table that goes on at the slave that acts and holds more than offsets: it is given back whole, in any order."""

    pace = Pace.OFTEN
    optional = True

    def asking(self) -> dict[str, str]:
        """Return the header fields that ask a replica for all of it."""
        return {}

    def read(self, answer: Answer) -> Any:
        """Return what the body says, for :attr:`Answer.said`; changes nothing. Raises ``ValueError``."""
        return None

    @abstractmethod
    def holds(self, answer: Answer) -> bool:
        """Return whether another replica has something to give back.

        Args:
            answer: as in :meth:`take_back`.

        Raises:
            ValueError: it is no such table.
        """

    @abstractmethod
    def take_back(self, answer: Answer, limit: Limit, *, late: bool = False) -> bool:
        """Know what another replica knows, too.

        Args:
            answer: to a question of :meth:`asking`.
            limit: ``topic@group`` and queue id to the queue offset up to which the other replica's word counts,
                ``None`` for all of it.
            late: this broker serves already, and has delivered what was due itself.

        Returns:
            Whether anything has changed.

        Raises:
            ValueError: it is no such table; nothing was taken.
        """


class ProgressTable(KeptTable):
    """A table of offsets in queues, which goes on at the slave that acts and is given back afterwards.

    Attributes:
        kind: its name in reports.
        late: it may be given back to a master that serves already, where the master's own offset has not moved.
        in_queues: they are offsets of queues indeed, so that none lies behind the end of its queue.
    """

    kind: ClassVar[str]
    pace = Pace.OFTEN
    late: ClassVar[bool] = False
    in_queues: ClassVar[bool] = True

    def asking(self) -> dict[str, str]:
        """Return the header fields that ask a replica for all of it."""
        return {}

    @abstractmethod
    def stamped_offsets(self) -> Table:
        """Return every offset as it is now, with the stamp of its queue's last reset."""

    @abstractmethod
    def queue_of(self, key: str, queue_id: int) -> tuple[str, int]:
        """Return topic and queue id of the queue that an offset belongs to."""

    @abstractmethod
    def merge(self, answer: Answer, limit: Limit) -> Merged:
        """Compare with another replica's *answer*; change nothing.

        Args:
            answer: to a question of :meth:`asking`.
            limit: the offset up to which the other replica's offsets count in a queue, see
                :func:`~understudy.broker.merge.merge`.

        Raises:
            ValueError: it is no such table.
        """

    @abstractmethod
    def cut(self, offsets: Mapping[tuple[str, int], StampedOffset]) -> None:
        """Set offsets (by key and queue id) back to what this log has."""

    @abstractmethod
    def put(self, merged: Merged) -> None:
        """Make the offsets of *merged* that differ ours."""
