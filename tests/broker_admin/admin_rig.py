"""Administrative handlers over real tables, a store of numbers, and connections that only note what is sent."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from understudy.broker import admin
from understudy.broker.catalog import Catalog
from understudy.broker.clients import ClientChannel, ConsumerTable, ProducerTable
from understudy.broker.config import BrokerOptions, Machine
from understudy.broker.delay_progress import ScheduleProgress
from understudy.broker.filters import Subscription
from understudy.broker.groups import GroupConfig, GroupTable
from understudy.broker.hold import PullHold
from understudy.broker.identity import Identity
from understudy.broker.log_history import LogHistory
from understudy.broker.node import Node
from understudy.broker.offsets import OffsetTable
from understudy.broker.pop.acting import ActingPops
from understudy.broker.pop.order import OrderTable
from understudy.broker.pop.stepped_clock import ClockSteps
from understudy.broker.queue_mappings import QueueMappings
from understudy.broker.request_modes import RequestModeTable
from understudy.broker.role import Role
from understudy.broker.saved_tables import tables_of
from understudy.broker.schedule import DelayLevels
from understudy.broker.statistics import BrokerStatistics
from understudy.broker.timer.timer import Timer
from understudy.broker.topics import SystemTopicPlan, TopicConfig, TopicTable
from understudy.broker.transactions.half import Half
from understudy.format import json_dialect
from understudy.remoting.command import Command
from understudy.remoting.dispatch import failure
from understudy.remoting.errors import RemotingError
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import RealDisk
from understudy.runtime.load import Load
from understudy.runtime.pace import run_steps
from understudy.runtime.threads import InPlace
from understudy.runtime.world import World
from understudy.store.deletions import Deletion
from understudy.store.status import GetResult, GetStatus, QueryResult

DATA = Path(__file__).parent.parent / "data" / "broker_admin"
EXCHANGES: dict[str, dict[str, Any]] = {
    each["name"]: each for each in json.loads((DATA / "exchanges.json").read_text())
}
MACHINE = Machine("vm", "127.0.0.1", "/unused", None)


class NumberStore:
    """A store that knows only the store times of each queue's messages, their places and tags codes."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        self.deleted: list[str] = []

    def put(self, topic: str, queue_id: int, *times_ms: int, physical: int = 0, size: int = 0, code: int = 0) -> None:
        self.messages.setdefault((topic, queue_id), []).extend((time_ms, physical, size, code) for time_ms in times_ms)

    def queues(self) -> Iterable[tuple[str, int]]:
        return list(self.messages)

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.messages.get((topic, queue_id), ()))

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        messages = self.messages.get((topic, queue_id), [])
        return messages[offset][0] if 0 <= offset < len(messages) else -1

    def earliest_store_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        return self.store_time_of(topic or "", queue_id, 0)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        return sum(each[0] < timestamp_ms for each in self.messages.get((topic, queue_id), ()))

    def get(self, topic: str, queue_id: int, offset: int, count: int, max_bytes: int, accept: Any) -> GetResult:
        messages = self.messages[(topic, queue_id)]
        found = messages[offset : offset + min(count, 2)]  # shorter than asked for, as a store may
        if not found:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, 0, len(messages), [])
        records = []
        for _, physical, size, code in found:
            accept(code)
            records.append(size.to_bytes(4, "big") + bytes(24) + physical.to_bytes(8, "big") + bytes(size - 36))
        body = b"".join(records)
        return GetResult(
            GetStatus.FOUND, offset + len(found), 0, len(messages), [memoryview(body)], len(body), len(found)
        )

    def read(self, physical_offset: int) -> memoryview | None:
        return memoryview(b"record") if physical_offset == 17_063 else None

    def has_queue(self, topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in self.messages

    def query_in_steps(self, *arguments: Any) -> Generator[None, None, QueryResult]:
        yield
        return QueryResult([], 0, 0)

    def slice(self, offset: int, max_bytes: int) -> memoryview:
        return memoryview(b"log")[offset : offset + max_bytes]

    hole = None
    min_physical_offset, max_physical_offset = 0, 3
    scrub_report = None
    deletions: Mapping[str, Deletion] = {}

    def delete_topic(self, topic: str) -> None:
        self.deleted.append(topic)

    async def save_deletions(self) -> None:
        """Nothing is on a disk."""


class NotedSaves:
    """Notes which tables were saved."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.unsaved: dict[str, str] = {}

    async def save(self, name: str) -> None:
        self.saved.append(name)


class Registered:
    """Name servers that know everything at once; none by default."""

    isolated = False

    def __init__(self) -> None:
        self.name_servers: list[str] = []

    async def settled(self) -> bool:
        return True


class Peer:
    """A connected client: notes what it is told and answers what it is asked."""

    def __init__(self, address: str, answer: Command | RemotingError | None = None) -> None:
        self.address = address
        self.told: list[Command] = []
        self.asked: list[Command] = []
        self._answer = answer

    def notify(self, command: Command) -> None:
        self.told.append(command)

    async def invoke(self, command: Command, timeout_ms: float) -> Command:
        self.asked.append(command)
        if isinstance(self._answer, RemotingError):
            raise self._answer
        assert self._answer is not None
        return self._answer


class Handlers:
    """Takes registrations instead of a server."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.lanes: dict[str, Any] = {}

    def register(self, code: int, handler: Any) -> None:
        assert int(code) not in self.handlers
        self.handlers[int(code)] = handler

    def register_async(self, code: int, handler: Any, kind: str = "admin") -> None:
        self.register(code, handler)


ROLE = Role("ASYNC_MASTER", 0)


async def no_halves(most: int, group: str | None) -> list[Half]:
    return []


async def no_report() -> None:
    return None


class Rig:
    """One broker without network and disk."""

    def __init__(self, keys: dict[str, str] | None = None, client: Any = None) -> None:
        clock = SystemClock()
        options, _ = BrokerOptions.from_properties({"brokerName": "broker-a", **(keys or {})}, machine=MACHINE)
        self.store = NumberStore()
        self.saves = NotedSaves()
        self.topics = TopicTable(clock.wall_ms)
        self.topics.install(SystemTopicPlan("DefaultCluster", "broker-a"))
        self.groups = GroupTable(clock.wall_ms)
        self.offsets = OffsetTable(clock.wall_ms)
        self.consumers: ConsumerTable[Any] = ConsumerTable()
        self.producers: ProducerTable[Any] = ProducerTable()
        self.options = options
        acting_pops = ActingPops("broker-a", lambda: 0, clock.wall_ms, ClockSteps())
        self.broker = SimpleNamespace(
            world=SimpleNamespace(clock=clock, disk=RealDisk(), threads=InPlace(), load=Load()),
            options=options,
            request_modes=RequestModeTable(),
            gate=None,
            orders=OrderTable(clock.wall_ms),
            acting_pops=acting_pops,
            wake_topics=lambda topics: None,
            pops=SimpleNamespace(
                forget_topics=lambda topics: None, log=SimpleNamespace(end=0, queues=0), acting=acting_pops
            ),
            transactions=SimpleNamespace(undecided=no_halves),
            delay_levels_ms=[1_000, 5_000],
            identity=Identity("DefaultCluster", "broker-a", ROLE, "127.0.0.1", 20100, "127.0.0.1:20101"),
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            producers=self.producers,
            stats=BrokerStatistics(clock, "DefaultCluster"),
            hold=PullHold(SystemClock()),
            store=self.store,
            persistence=self.saves,
            registration=Registered(),
            schedule_progress=ScheduleProgress(clock.wall_ms),
            queue_mappings=QueueMappings(clock.wall_ms),
            client=client,
            replication=SimpleNamespace(master=None, slave=None),
            started_ms=clock.wall_ms(),
            role=ROLE,
            session=SimpleNamespace(
                rules=SimpleNamespace(
                    active=True,
                    reason="master",
                    summary="",
                    warnings=(),
                    give_back=no_report,
                    finish_pre_online=lambda: False,
                )
            ),
            services=SimpleNamespace(roster=list),
            member_group=SimpleNamespace(members=None),
            presence=SimpleNamespace(state=SimpleNamespace(contact_lost=False)),
            settings_changed=lambda: None,
        )
        self.broker.timer = Timer(
            World(clock, cast(Any, None), RealDisk(), Random(1)), cast(Any, self.store), options.store
        )
        self.broker.timing = SimpleNamespace(timer=self.broker.timer)
        self.broker.delay_levels = DelayLevels(
            clock, cast(Any, self.store), self.broker.schedule_progress, self.broker.delay_levels_ms
        )
        self.broker.history = SimpleNamespace(value=LogHistory())
        self.broker.sync_flush = False
        self.broker.node = Node(self.broker.identity, options, self.broker.world)
        self.broker.catalog = Catalog(self.topics, self.groups, self.broker.queue_mappings)
        self.broker.tables = tables_of(self.broker)  # type: ignore[arg-type]  # the parts it uses
        self.server = Handlers()
        admin.register_all(self.broker, self.server)  # type: ignore[arg-type]  # the parts handlers use

    def topic(self, name: str, queues: int = 4) -> None:
        self.topics.update([TopicConfig(name, queues, queues)])

    def group(self, name: str) -> None:
        self.groups.update([GroupConfig(name)])

    def consumer(
        self, group: str, client_id: str, peer: Peer, *subscriptions: Subscription, version: int = 493
    ) -> None:
        channel = ClientChannel(peer, client_id, "JAVA", version, 0)
        model = "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"
        run_steps(self.consumers.registering(group, channel, *model, subscriptions, 0))

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", language: str = "JAVA"
    ) -> Command:
        command = Command(code, language, 493, 1, 0, None, ext, body)
        peer: Any = Peer("127.0.0.1:1")
        try:
            answer = self.server.handlers[code](peer, command)
            return answer if isinstance(answer, Command) else await answer
        except Exception as error:
            return failure(peer, command, error)

    async def replay(self, name: str) -> tuple[dict[str, Any], Command]:
        """Ask what was captured under *name*; return the captured answer and ours."""
        exchange = EXCHANGES[name]
        answer = await self.ask(exchange["code"], exchange["ext"], exchange["body"].encode(), exchange["language"])
        return exchange["answer"], answer


def same(captured: dict[str, Any], answer: Command) -> bool:
    """Compare code, remark, header and body; maps and sets without their order."""
    ours = json_dialect.loads(answer.body) if answer.body else None
    theirs = json_dialect.loads(captured["body"]) if captured["body"] else None
    assert (answer.code, answer.remark, answer.ext) == (captured["code"], captured["remark"], captured["ext"])
    assert unordered(ours) == unordered(theirs)
    return True


def unordered(value: Any) -> Any:
    """Return JSON with lists as sorted lists, and keys that are queues with sorted fields."""
    if isinstance(value, dict):
        return {_key(key): unordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    return value


def _key(key: str) -> str:
    if not key.startswith("{"):
        return key
    return json.dumps(json_dialect.loads(key), sort_keys=True)


def live_group(rig: Rig, peer: Any) -> None:
    """Give the broker a group with a member, as one was captured."""
    rig.topic("LiveTopic")
    rig.topic("%RETRY%cglive", 1)
    rig.group("cglive")
    for queue_id, (count, last_ms) in enumerate(
        ((4, 1795246283420), (5, 1795246283423), (5, 1795246283427), (6, 1795246283430))
    ):
        rig.store.put("LiveTopic", queue_id, *([last_ms - 1] * (count - 1)), last_ms)
        rig.offsets.commit("cglive", "LiveTopic", queue_id, count)
        rig.offsets.record_pull("cglive", "LiveTopic", queue_id, count)
    rig.offsets.commit("cglive", "%RETRY%cglive", 0, 0)
    rig.consumer("cglive", "127.0.0.1@live", peer, *subscriptions("cglive", "LiveTopic", "mqadmin:212"))


def subscriptions(group: str, topic: str, captured: str) -> list[Subscription]:
    table = json_dialect.loads(EXCHANGES[captured]["answer"]["body"])["subscriptionTable"]
    return [Subscription.from_json(table[name]) for name in (topic, f"%RETRY%{group}")]
