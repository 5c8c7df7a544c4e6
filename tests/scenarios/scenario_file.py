"""Reads a scenario file, plays it with the pure decisions, and returns it with what really comes out.

A file begins with a comment: what is shown, and a picture. Then come blocks: commands, a line ``----``, and the output
that is expected, up to an empty line. Its first command says what there is, and so which other commands there are:

==============================  =============================================================================
``group 3 servers 2``           a group of brokers and its name servers, in time: :mod:`scenario_group_commands`
``tables 3``                    who knows how far consumers are, look by look: :mod:`scenario_tables`
``delayed 3 SYNC_FLUSH``        what escapes from a slave that acts, answer by answer: :mod:`scenario_delayed`
``cluster``                     whole brokers, where handlers, sockets and disks count: :mod:`scenario_cluster`
==============================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Protocol

from scenario_cluster import ClusterRoom
from scenario_delayed import DelayedRoom
from scenario_group_commands import GroupRoom
from scenario_tables import TableRoom


class ScenarioError(Exception):
    """A file that cannot be read; the message says which line, and why."""


class Room(Protocol):
    """What one kind of files is played in.

    Attributes:
        commands: by their first word, called with the words behind it.
        lines: what there is to see; a command adds to it.
    """

    commands: dict[str, Callable[[Sequence[str]], None]]
    lines: list[str]

    def close(self) -> None: ...


ROOMS: Mapping[str, Callable[[Sequence[str]], Room]] = {
    "group": GroupRoom,
    "tables": TableRoom,
    "delayed": DelayedRoom,
    "cluster": ClusterRoom,
}


class Player:
    """Plays the commands of one file."""

    def __init__(self) -> None:
        self._room: Room | None = None

    def play(self, command: str) -> list[str]:
        """Do *command*; return what there is to see, a line each."""
        word, *rest = command.split()
        if word in ROOMS:
            self.close()
            self._room = ROOMS[word](rest)
        elif self._room is None or word not in self._room.commands:
            raise ScenarioError(f"no such command: {command}")
        else:
            self._room.commands[word](rest)
        lines = self._room.lines[:]
        self._room.lines.clear()
        return lines

    def close(self) -> None:
        """End what the last first command began."""
        if self._room is not None:
            self._room.close()
            self._room = None


def played(text: str) -> str:
    """Return the scenario *text* with the output that its commands really have.

    Errors:
        ScenarioError: a block without ``----``, or a command that cannot be done.
    """
    with closing(Player()) as player:
        return _played(text, player)


def _played(text: str, player: Player) -> str:
    result = list[str]()
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            result.append(line)
            continue
        commands = {number: line}
        for later, following in lines:
            if following == "----":
                break
            commands[later] = following
        else:
            raise ScenarioError(f"line {number}: a block needs a line ---- after its commands")
        for _, expected in lines:
            if not expected.strip():
                break
        output = []
        for number, command in commands.items():
            try:
                output += player.play(command)
            except ScenarioError as error:
                raise ScenarioError(f"line {number}: {error}") from None
            except (ValueError, LookupError):
                raise ScenarioError(f"line {number}: cannot do: {command}") from None
        result += [*commands.values(), "----", *(output or ["ok"]), ""]
    while result and not result[-1]:
        result.pop()
    return "\n".join([*result, ""])
