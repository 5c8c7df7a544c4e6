"""The commands of a group of brokers and its name servers, in scenario files.

=================================  ======================================================================
``group 3 servers 2``              a master 0, slaves 1 and 2 (totalReplicas=3), name servers n1 and n2; nothing runs
``group 2 servers 1 without 0``    the same, with ``enableSlaveActingMaster=false`` at member 0
``group 2 servers 1 replicas 1``   a master and a slave that say totalReplicas=1, the default
``acting true 0 1``                change ``enableSlaveActingMaster`` of members that run
``start 0 1``                      start these members, one after the other
``kill 0``                         end the process of a member; its connections end
``power 0``                        its machine loses its power: no connection ends
``freeze 0``, ``continue 0``       stop it without ending anything, and let it go on
``stuck 1``, ``unstuck 1``         its heartbeats go on, its port does not answer
``cut 0 n1``, ``mend 0 n1``        the link between two of them
``cut 0 1 copies``                 nothing but the port where member 0 gives its log away
``down n1``, ``boot n1``           end a name server, start it with empty tables
``drop n1 0``                      a name server loses a member that lives
``pass 5``                         let five seconds pass
``store 0 300``                    a producer stores: the log of member 0 ends at 300
``lose 0 100``                     the machine of a dead member had written its log up to 100 only
``forget 0``                       a dead member has lost the file of those whom it remembers
``commit 1 17``                    a client of member 1 commits offset 17
``lock client-a 3 at 0``           a client wants to hold queue 3, asking member 0
``finish 0``                       an operator ends the pre-online of member 0
``claim 1 master b9``              somebody tells member 1 that its master comes back at b9
``claim 2 slave 1 for 130``        somebody tells member 2 that slave 1 comes, every second for 130 s
``know``                           print what everyone knows
=================================  ======================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenario_group import Group
from scenario_members import Broker, NameServer

from understudy.broker.group_memory import GroupMemory


class GroupRoom:
    """A group and its name servers."""

    def close(self) -> None:
        """There is nothing to end: it is all values."""

    def __init__(self, words: Sequence[str]) -> None:
        members, servers, more = int(words[0]), int(words[2]), words[3:]
        replicas = int(more[1]) if more[:1] == ["replicas"] else members
        without = frozenset(map(int, more[1:])) if more[:1] == ["without"] else frozenset[int]()
        self._group = Group(members, servers, replicas, without_acting=without)
        self.lines = self._group.lines
        self.commands: dict[str, Callable[[Sequence[str]], None]] = {
            "acting": self._acting,
            "start": self._start,
            "kill": lambda words: self._group.kill(self._broker(words[0])),
            "power": lambda words: self._group.power_off(self._broker(words[0])),
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
            "forget": self._forget,
            "commit": self._commit,
            "lock": lambda words: self._group.lock(words[0], words[1], self._broker(words[3])),
            "finish": lambda words: self._group.finish(self._broker(words[0])),
            "claim": self._claim,
            "know": lambda words: self._group.lines.extend(self._group.know()),
        }

    def _broker(self, name: str) -> Broker:
        return self._group.brokers[int(name)]

    def _server(self, name: str) -> NameServer:
        return self._group.servers[int(name.removeprefix("n")) - 1]

    def _acting(self, words: Sequence[str]) -> None:
        for name in words[1:]:
            self._group.watch(self._broker(name), {"true": True, "false": False}[words[0]])

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

    def _forget(self, words: Sequence[str]) -> None:
        self._broker(words[0]).memory = GroupMemory()

    def _commit(self, words: Sequence[str]) -> None:
        self._broker(words[0]).commit_offset = int(words[1])

    def _claim(self, words: Sequence[str]) -> None:
        broker = self._broker(words[0])
        if words[1] == "master":
            self._group.claim_master(broker, words[2])
            return
        for _ in range(int(words[4])):
            self._group.claim_successor(broker, f"b{words[2]}", int(words[2]))
            self._group.second()
