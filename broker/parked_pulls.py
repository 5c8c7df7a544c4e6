"""Who waits at one queue, and for what: parked pulls by what they want.

What a parked pull keeps is bounded: the command without what its answer does not need, and a condition.
"""

from __future__ import annotations

from understudy.broker.property_filter import PropertyFilter
from understudy.remoting.command import Command, held_bytes
from understudy.remoting.connection import Connection
from understudy.store.status import UNKNOWN_TAGS

Wanted = frozenset[int] | PropertyFilter | None
"""Tags codes, a condition, or every message."""

TopicQueue = tuple[str, int]
"""Topic and queue id."""

AT_ONCE = 64
"""Pulls answered before others get their turn; each costs some 20 us."""

CONDITION_CHARACTERS = 8_192
"""Of all conditions that are asked of a message when it arrives; where longer ones wait, who answers asks them."""

ENTRY_BYTES = 1024
"""What a parked pull costs beside its header."""

_SMALL_HEADER_BYTES = 1024
"""A larger header is parked without what is not needed any more."""
_NEEDED_LATER = (
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "subscription",
    "expressionType",
    "subVersion",
    "requestSource",
    "proxyFrowardClientId",
    "lo",
)


def only_needed(command: Command, ext: dict[str, str]) -> tuple[Command, int]:
    """Return *command*, a large one with nothing but what answering it later takes, and the bytes that it keeps."""
    size = held_bytes(command)
    if size <= _SMALL_HEADER_BYTES:
        return command, size
    kept = {name: ext[name] for name in _NEEDED_LATER if name in ext}
    small = Command(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        ext=kept,
        serialize=command.serialize,
    )
    return small, held_bytes(small)


class ParkedPull:
    """One waiting pull.

    Args:
        connection, command: whom and what to answer; the command should carry no more than its answer needs.
        wanted: tags codes of the messages it wants, or a condition on them; ``None`` is every message.
        header_bytes: what the command keeps.

    Attributes:
        queue: where it is parked.
        ready: whether it only waits to be answered.
        stood: of a pull of which nothing was done: what its group had committed when it came, -1 for nothing. When it
            leaves, it is a pull that has just come, but what it commits is of then. ``None``: it was begun.
    """

    __slots__ = ("command", "connection", "number", "queue", "ready", "size_bytes", "stood", "wanted")

    def __init__(self, connection: Connection, command: Command, wanted: Wanted, header_bytes: int = 0) -> None:
        self.connection = connection
        self.command = command
        self.wanted = wanted
        self.size_bytes = ENTRY_BYTES + header_bytes
        if isinstance(wanted, PropertyFilter):
            self.size_bytes += wanted.kept_bytes
        self.number = 0
        self.queue: TopicQueue = ("", 0)
        self.ready = False
        self.stood: int | None = None


class WaitingHere:
    """The pulls parked at one queue: those that want everything, and the others by what they want."""

    __slots__ = ("all", "by_code", "by_condition", "characters")

    def __init__(self) -> None:
        self.characters = 0
        self.all: dict[ParkedPull, None] = {}
        self.by_code: dict[int, dict[ParkedPull, None]] = {}
        self.by_condition: dict[ParkedPull, PropertyFilter] = {}

    def add(self, parked: ParkedPull) -> None:
        wanted = parked.wanted
        if wanted is None:
            self.all[parked] = None
        elif isinstance(wanted, PropertyFilter):
            self.by_condition[parked] = wanted
            self.characters += wanted.characters
        else:
            for code in wanted:
                self.by_code.setdefault(code, {})[parked] = None

    def remove(self, parked: ParkedPull) -> None:
        wanted = parked.wanted
        if wanted is None:
            self.all.pop(parked, None)
            return
        if isinstance(wanted, PropertyFilter):
            if self.by_condition.pop(parked, None) is not None:
                self.characters -= wanted.characters
            return
        for code in wanted:
            pulls = self.by_code.get(code)
            if pulls is not None:
                pulls.pop(parked, None)
                if not pulls:
                    del self.by_code[code]

    def take(self, tags_code: int, properties: bytes | None) -> list[ParkedPull]:
        """Remove and return the pulls that want a message with *tags_code* and *properties*.

        Where the properties are not at hand, or too many or too long conditions wait (:attr:`few`), a condition is
        left to who answers: the pull looks at the message then.
        """
        taken, self.all = list(self.all), {}
        if self.by_code:
            if tags_code == UNKNOWN_TAGS:
                filtered = list(dict.fromkeys(parked for pulls in self.by_code.values() for parked in pulls))
            else:
                filtered = list(self.by_code.get(tags_code, ()))
            for parked in filtered:
                self.remove(parked)
            taken += filtered
        if self.by_condition:
            waiting = self.by_condition
            if properties is None or not self.few:
                passed = list(waiting)
            else:
                passed = [parked for parked, wanted in waiting.items() if wanted.passes(properties)]
            for parked in passed:
                self.characters -= waiting.pop(parked).characters
            taken += passed
        return taken

    def take_one(self, tags_code: int | None, properties: bytes | None) -> ParkedPull | None:
        """Remove and return the pull that waits longest among those that want a message.

        Args:
            tags_code: of the message; ``None``: whatever they want.
            properties: of the message; ``None`` when they are not at hand, conditions are left to who answers then.
        """
        wanted = [next(iter(self.all), None)]
        if tags_code is not None:
            wanted.append(next(iter(self.by_code.get(tags_code, ())), None))
        else:
            wanted += [next(iter(pulls)) for pulls in self.by_code.values()]
        few = properties is not None and self.few
        conditions = self.by_condition.items()
        wanted.append(next((each for each, wants in conditions if not few or wants.passes(properties or b"")), None))
        found = min((each for each in wanted if each is not None), key=lambda each: each.number, default=None)
        if found is not None:
            self.remove(found)
        return found

    @property
    def few(self) -> bool:
        """Whether the conditions that wait here can be asked of each message that arrives."""
        return len(self.by_condition) <= AT_ONCE and self.characters <= CONDITION_CHARACTERS

    @property
    def count(self) -> int:
        """How many pulls wait here."""
        return (
            len(self.all)
            + len(self.by_condition)
            + len(dict.fromkeys(parked for pulls in self.by_code.values() for parked in pulls))
        )

    def take_all(self) -> list[ParkedPull]:
        """Remove and return every pull."""
        taken = [*self.all, *self.by_condition]
        taken += dict.fromkeys(parked for pulls in self.by_code.values() for parked in pulls)
        self.all, self.by_code, self.by_condition, self.characters = {}, {}, {}, 0
        return taken

    def __bool__(self) -> bool:
        return bool(self.all or self.by_code or self.by_condition)
