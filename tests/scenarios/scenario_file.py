"""Reads a scenario file, plays it with the pure decisions, and returns it with what really comes out.

A file begins with a comment: what is shown, and a picture. Then come blocks: commands, a line ``----``, and the output
that is expected, up to an empty line. The commands:

=================================  ======================================================================
``group 3 servers 2``              a master 0 and slaves 1 and 2, name servers n1 and n2; nothing runs yet
``group 2 servers 1 without 0``    the same, with ``enableSlaveActingMaster=false`` at member 0
``start 0 1``                      start these members, one after the other
``kill 0``                         end the process of a member; its connections end
``freeze 0``, ``continue 0``       stop it without ending anything, and let it go on
``stuck 1``, ``unstuck 1``         its heartbeats go on, its port does not answer
``cut 0 n1``, ``mend 0 n1``        the link between two of them
``down n1``, ``boot n1``           end a name server, start it with empty tables
``drop n1 0``                      a name server loses a member that lives
``pass 5``                         let five seconds pass
``store 0 300``                    a producer stores: the log of member 0 ends at 300
``lose 0 100``                     the machine of a dead member had written its log up to 100 only
``commit 1 17``                    a client of member 1 commits offset 17
``lock client-a 3 at 0``           a client wants to hold queue 3, asking member 0
``finish 0``                       an operator ends the pre-online of member 0
``know``                           print what everyone knows
=================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenario_group import Group
from scenario_members import Broker, NameServer


class ScenarioError(Exception):
    """A file that cannot be read; the message says which line, and why."""


class Player:
    """Plays the commands of one file."""

    def __init__(self) -> None:
        self._group = Group(0, 0)
        self._commands: dict[str, Callable[[Sequence[str]], None]] = {
            "start": self._start,
            "kill": lambda words: self._group.kill(self._broker(words[0])),
            "freeze": self._freeze,
            "continue": self._continue,
            "stuck": self._stuck,
            "unstuck": self._unstuck,
            "cut": lambda words: self._group.cuts.add(frozenset(words)),
            "mend": lambda words: self._group.cuts.discard(frozenset(words)),
            "down": self._down,
            "boot": lambda words: self._group.boot(self._server(words[0])),
            "drop": lambda words: self._group.drop(self._server(words[0]), int(words[1])),
            "pass": self._pass,
            "store": self._store,
            "lose": self._lose,
            "commit": self._commit,
            "lock": lambda words: self._group.lock(words[0], words[1], self._broker(words[3])),
            "finish": lambda words: self._group.finish(self._broker(words[0])),
        }

    def play(self, command: str) -> list[str]:
        """Do *command*; return what there is to see, a line each."""
        word, *rest = command.split()
        if word == "group":
            without = frozenset(map(int, rest[4:])) if rest[3:4] == ["without"] else frozenset[int]()
            self._group = Group(int(rest[0]), int(rest[2]), without_acting=without)
        elif word == "know":
            return self._group.know()
        elif word in self._commands:
            self._commands[word](rest)
        else:
            raise ScenarioError(f"no such command: {command}")
        lines, self._group.lines = self._group.lines, []
        return lines

    def _broker(self, name: str) -> Broker:
        return self._group.brokers[int(name)]

    def _server(self, name: str) -> NameServer:
        return self._group.servers[int(name.removeprefix("n")) - 1]

    def _start(self, words: Sequence[str]) -> None:
        for name in words:
            self._group.start(self._broker(name))

    def _freeze(self, words: Sequence[str]) -> None:
        self._broker(words[0]).frozen = True

    def _continue(self, words: Sequence[str]) -> None:
        self._broker(words[0]).frozen = False

    def _stuck(self, words: Sequence[str]) -> None:
        self._broker(words[0]).stuck = True

    def _unstuck(self, words: Sequence[str]) -> None:
        self._broker(words[0]).stuck = False

    def _down(self, words: Sequence[str]) -> None:
        self._server(words[0]).up = False

    def _pass(self, words: Sequence[str]) -> None:
        for _ in range(int(words[0])):
            self._group.second()

    def _store(self, words: Sequence[str]) -> None:
        self._broker(words[0]).log_end = int(words[1])

    def _lose(self, words: Sequence[str]) -> None:
        broker = self._broker(words[0])
        broker.log_end, broker.log_open = int(words[1]), True

    def _commit(self, words: Sequence[str]) -> None:
        self._broker(words[0]).commit_offset = int(words[1])


def played(text: str) -> str:
    """Return the scenario *text* with the output that its commands really have.

    Errors:
        ScenarioError: a block without ``----``, or a command that cannot be done.
    """
    player, result = Player(), list[str]()
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
            except (ValueError, IndexError):
                raise ScenarioError(f"line {number}: cannot do: {command}") from None
        result += [*commands.values(), "----", *(output or ["ok"]), ""]
    while result and not result[-1]:
        result.pop()
    return "\n".join([*result, ""])
