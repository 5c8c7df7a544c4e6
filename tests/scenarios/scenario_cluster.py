"""Whole brokers on hosts of their own, in virtual time; for scenario files about handlers, sockets and disks.

Nothing is decided here: the commands start, break and ask, and what is shown is what the brokers answer and have.

=====================================  ======================================================================
``cluster KEY=VALUE``                  a name server, n1; keys of every broker beside the usual ones
``container c1 g:0 h:1 KEY=VALUE``     a container on host c1 with the master of g and slave 1 of h
``send g 0 a b``                       messages a and b into queue 0 of ``orders`` at the master of g
``send g 0 big a``                     the same, each a quarter of a file of the log
``pass 3``                             seconds
``kill c1``, ``power c1``              SIGKILL, or a loss of power
``lose c1 g:0 b``                      a loss of power that took bytes out of message b in the log there
``lose c1 g:0 last``                   a loss of power that took the last file of the log there
``start c1``                           the container again
``commit g:1 readers 0 5``             what a client says that it has consumed of queue 0, at slave 1 of g
``give-back g:1 a``                    a consumer of readers wants message a again (36)
``create g:1 other``, ``delete ...``   an operator makes, or deletes, a topic
``pull g:1 0 5``                       a client that can wait for 10 s asks from offset 5 of queue 0 on
``pull g:1 0 5 commits 5``             the same, and has consumed those before 5
``torn g:1 43``, ``whole g:1 43``      what slave 1 of g answers to 43 cannot be read; it can be again
``address 10.9.9.9 c2``               another address of host c2
``know``                               what every broker has, and what it does
``warnings g:0``                       what the roster of a broker warns of
``logs``                               where the log of every broker ends
``topics``                             which topics every broker knows, ``orders`` and ``other``
=====================================  ======================================================================
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

import trio

from understudy.broker.broker import Broker
from understudy.format.json_dialect import loads
from understudy.format.names import is_system_group
from understudy.format.record import Record, decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request, response
from understudy.remoting.errors import ConnectionLostError
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.topic_fields import topic_fields

TOPIC = "orders"
COMMIT, SUSPEND_AND_SUBSCRIPTION = 1, 6
FILE_BYTES = 64 * 1024
TORN = b'{"offsetTable":{"orders@readers":{0:'
USUAL = {"totalReplicas": "2", "enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
SMALL_FILES = {"mappedFileSizeCommitLog": str(FILE_BYTES)}

Job = Callable[[], Awaitable[None]]


class ClusterRoom:
    """The cluster of one file; it lives in a thread with a loop and a clock of its own until it is closed.

    While no command is played its loop stands still, and so does its clock.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._keys = USUAL | SMALL_FILES | dict(word.split("=") for word in words)
        self._torn: dict[tuple[str, str], Any] = {}
        self._where: dict[tuple[str, int], str] = {}
        self._jobs = SimpleQueue[Job | None]()
        self._done = SimpleQueue[BaseException | None]()
        self._cluster: SimCluster
        self._client: RemotingClient
        commands: dict[str, Callable[[Sequence[str]], Awaitable[None]]] = {
            "container": self._container,
            "send": self._send,
            "pass": self._pass,
            "kill": lambda words: self._cluster.kill(words[0]),
            "power": lambda words: self._cluster.kill(words[0], power=True),
            "lose": self._lose,
            "start": lambda words: self._cluster.restart(words[0]),
            "commit": self._commit,
            "give-back": self._give_back,
            "create": lambda words: self._change(RequestCode.UPDATE_AND_CREATE_TOPIC, words[0], topic_fields(words[1])),
            "delete": lambda words: self._change(RequestCode.DELETE_TOPIC_IN_BROKER, words[0], {"topic": words[1]}),
            "pull": self._pull,
            "address": self._address,
            "torn": self._tear,
            "whole": self._mend,
            "know": lambda words: self._know(),
            "warnings": self._warnings,
            "logs": lambda words: self._logs(),
            "topics": lambda words: self._topics(),
        }
        self.commands = {word: self._in_thread(command) for word, command in commands.items()}
        self._thread = Thread(target=self._run, name="scenario", daemon=True)
        self._thread.start()
        self._wait()

    def close(self) -> None:
        """End the cluster."""
        self._jobs.put(None)
        self._thread.join()

    # --- the thread --------------------------------------------------------------------------------------------

    def _in_thread(self, command: Callable[[Sequence[str]], Awaitable[None]]) -> Callable[[Sequence[str]], None]:
        def play(words: Sequence[str]) -> None:
            self._jobs.put(lambda: command(words))
            self._wait()

        return play

    def _wait(self) -> None:
        error = self._done.get()
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            run_seed(self._serve, 1)
        except BaseException as error:
            self._done.put(error)

    async def _serve(self, source: random.Random) -> None:
        async with SimCluster(source) as self._cluster:
            await self._cluster.start_name_server("n1", scan_not_active_broker_interval=1_000)
            async with open_client(self._cluster.client_world()) as self._client:
                self._done.put(None)
                while (job := self._jobs.get()) is not None:
                    try:
                        await job()
                    except Exception as error:
                        self._done.put(error)
                    else:
                        self._done.put(None)

    # --- what there is -----------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self.lines.append(f"{trio.current_time():>3.0f}s  {text}")

    def _brokers(self) -> dict[tuple[str, int], Broker]:
        found = {}
        for host in dict.fromkeys(self._where.values()):
            container = self._cluster.host(host).container
            if self._cluster.host(host).process is not None and container is not None:
                for hosted in container.brokers():
                    if hosted.serves:
                        found[hosted.identity.name, hosted.identity.broker_id] = hosted.broker
        return found

    def _broker(self, word: str) -> Broker:
        group, _, number = word.partition(":")
        return self._brokers()[group, int(number or 0)]

    async def _ask(self, broker: Broker, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        try:
            return await self._client.invoke(broker.identity.address, request(code, ext, body), 20_000)
        except ConnectionLostError:  # it was one to a process whose machine lost its power, and nobody heard of it
            return await self._client.invoke(broker.identity.address, request(code, ext, body), 20_000)

    def _answered(self, who: str, answer: Command, more: str = "") -> None:
        code = ResponseCode(answer.code).name
        why = "" if answer.code == ResponseCode.SUCCESS else (answer.remark or "").split("; ")[0]
        said = more or why
        self._say(f"{who} answers {code}{': ' if said else ''}{said}")

    # --- commands ----------------------------------------------------------------------------------------------

    async def _container(self, words: Sequence[str]) -> None:
        host, *rest = words
        keys = self._keys | dict(word.split("=") for word in rest if "=" in word)
        brokers = []
        for group, _, number in (word.partition(":") for word in rest if "=" not in word):
            self._where[group, int(number)] = host
            role = "ASYNC_MASTER" if number == "0" else "SLAVE"
            brokers.append({**keys, "brokerName": group, "brokerId": number, "brokerRole": role})
        await self._cluster.start_container(host, brokers)
        for broker in self._cluster.host(host).container.brokers():  # type: ignore[union-attr]  # it was just started
            if not broker.broker.role.is_slave:
                await self._ask(broker.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC))

    async def _pass(self, words: Sequence[str]) -> None:
        await trio.sleep(float(words[0]))

    async def _send(self, words: Sequence[str]) -> None:
        group, queue, *bodies = words
        filler = "." * (FILE_BYTES // 4 - 500) if bodies[0] == "big" else ""
        for body in bodies[1:] if filler else bodies:
            values = (
                "writers",
                TOPIC,
                "TBW102",
                "4",
                queue,
                "0",
                "1",
                "0",
                f"KEYS\x01{body}\x02",
                "0",
                "false",
                "false",
            )
            ext = dict(zip("abcdefghijkm", values, strict=True))
            answer = await self._ask(self._broker(group), RequestCode.SEND_MESSAGE_V2, ext, (body + filler).encode())
            if answer.code != ResponseCode.SUCCESS:
                self._answered(group, answer)

    async def _lose(self, words: Sequence[str]) -> None:
        host, who, body = words
        lost = None if body == "last" else found(self._broker(who), body)
        await self._cluster.kill(host, power=True)
        folder, disk = f"/data/{who.replace(':', '-')}", self._cluster.host(host).disk
        if lost is None:
            disk.remove(f"{folder}/commitlog/{max(disk.listdir(f'{folder}/commitlog'))}")
        else:
            start = lost.physical_offset - lost.physical_offset % FILE_BYTES
            at = lost.physical_offset - start + 100
            disk.damage(f"{folder}/commitlog/{start:020d}", lambda data: data[:at] + bytes(300) + data[at + 300 :])
        if disk.exists(f"{folder}/recovery.mark"):
            disk.remove(f"{folder}/recovery.mark")

    async def _commit(self, words: Sequence[str]) -> None:
        broker, (who, group, queue, offset) = self._broker(words[0]), words
        broker.groups.get(group)
        ext = {"consumerGroup": group, "topic": TOPIC, "queueId": queue, "commitOffset": offset}
        self._answered(who, await self._ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, ext))

    async def _give_back(self, words: Sequence[str]) -> None:
        broker = self._broker(words[0])
        offset = str(found(broker, words[1]).physical_offset)
        ext = {"offset": offset, "group": "readers", "delayLevel": "1", "originTopic": TOPIC}
        self._answered(words[0], await self._ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, ext))

    async def _change(self, code: int, who: str, ext: dict[str, str]) -> None:
        self._answered(who, await self._ask(self._broker(who), code, ext))

    async def _pull(self, words: Sequence[str]) -> None:
        who, queue, offset, *commits = words
        ext = {
            "consumerGroup": "readers",
            "topic": TOPIC,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": "32",
            "sysFlag": str(SUSPEND_AND_SUBSCRIPTION | (COMMIT if commits else 0)),
            "commitOffset": commits[1] if commits else "0",
            "suspendTimeoutMillis": "10000",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        began = trio.current_time()
        answer = await self._ask(self._broker(who), RequestCode.PULL_MESSAGE, ext)
        bodies = " ".join(named(each) for each in decode_records(answer.body))
        waited = trio.current_time() - began
        self._answered(f"{who}{f', after {waited:.0f} s,' if waited > 1 else ''}", answer, bodies)

    async def _address(self, words: Sequence[str]) -> None:
        self._cluster.network.alias(words[0], self._cluster.address(words[1]))

    async def _tear(self, words: Sequence[str]) -> None:
        broker, code = self._broker(words[0]), int(words[1])
        self._torn[words[0], words[1]] = broker.server.handler(code)
        broker.server.register(code, lambda connection, command: response(command, body=TORN))

    async def _mend(self, words: Sequence[str]) -> None:
        self._broker(words[0]).server.register(int(words[1]), self._torn.pop((words[0], words[1])))

    async def _warnings(self, words: Sequence[str]) -> None:
        answer = await self._ask(self._broker(words[0]), RequestCode.GET_BROKER_ROSTER, {})
        self.lines += [f"{words[0]} warns: {each}" for each in loads(answer.body)["warnings"]] or [f"{words[0]}: none"]

    async def _logs(self) -> None:
        for (group, number), broker in sorted(self._brokers().items()):
            end = broker.store.max_physical_offset
            inside = f"at byte {end % FILE_BYTES} of file {end // FILE_BYTES + 1}"
            border = f"where file {end // FILE_BYTES} does"
            self.lines.append(f"{group}:{number}'s log ends {inside if end % FILE_BYTES else border}")

    async def _topics(self) -> None:
        for (group, number), broker in sorted(self._brokers().items()):
            own = (topic for topic in (TOPIC, "other") if topic in broker.topics.rows)
            self.lines.append(f"{group}:{number} knows {' and '.join(own) or 'none'}")

    async def _know(self) -> None:
        for (group, number), broker in sorted(self._brokers().items()):
            self.lines.append(f"{group}:{number} {_does(broker)}, {_has(broker)}")


def _does(broker: Broker) -> str:
    if broker.registration.isolated:
        return "isolated"
    if "schedule" not in broker.services.running():
        return "stands by"
    return "acts" if broker.role.is_slave else "master"


def _has(broker: Broker) -> str:
    parts = []
    for topic, queue_id in sorted(broker.store.queues()):
        if found := [named(each) for each in records(broker, topic, queue_id)]:
            first = broker.store.min_queue_offset(topic, queue_id)
            parts.append(f"{topic} {queue_id}: {' '.join(found)}{f' from {first} on' if first else ''}")
    for key, queues in sorted(broker.offsets.committed.items()):
        topic, _, group = key.partition("@")
        if is_system_group(group):
            continue
        parts += [f"{group} at {offset} of {topic} {queue_id}" for queue_id, offset in sorted(queues.items())]
    if (hole := broker.store.hole) is not None:
        parts.append(f"a hole at byte {hole}")
    return ", ".join(parts) or "has nothing"


def records(broker: Broker, topic: str, queue_id: int) -> list[Record]:
    """Return what *broker* has in a queue and can read."""
    found, offset = [], broker.store.min_queue_offset(topic, queue_id)
    while offset < broker.store.max_queue_offset(topic, queue_id):
        read = broker.store.get(topic, queue_id, offset, 32, 1 << 20)
        found += [record for part in read.parts for record in decode_records(part)]
        offset = max(read.next_begin_offset, offset + 1)
    return found


def found(broker: Broker, body: str) -> Record:
    """Return the message *body* of the topic."""
    for queue_id in range(4):
        for each in records(broker, TOPIC, queue_id):
            if named(each) == body:
                return each
    raise ValueError(f"there is no message {body}")


def named(record: Record) -> str:
    """Return the letter that stands for a message."""
    return record.body.decode().rstrip(".")
