"""Sends without a task: the outcome is the producer's own, whatever brokers do; what comes together leaves together."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from mqclient_fake import FakeBroker, open_fake, stored

from understudy.mqclient.message import Message, message
from understudy.mqclient.producer import Producer, ProducerOptions, SendResult, open_producer
from understudy.mqclient.sends import Sends
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.runtime.outbox import Outbox
from understudy.runtime.world import real_world
from understudy.testkit.waiting import until

Outcome = SendResult | BaseException


@attrs.define(eq=False)
class Scripted(FakeBroker):
    """A broker that does what a script says, which it shares with others; it keeps in *asked* who was sent to."""

    script: list[str] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)

    def __call__(self, connection: Connection, command: Command) -> Command | None:
        self.answer = lambda command: self.play(connection, command)
        return super().__call__(connection, command)

    def play(self, connection: Connection, command: Command) -> Command | None:
        self.asked.append(self.name)
        step = self.script.pop(0)
        if step == "gone":
            connection.close("as the script says")
        if step in ("gone", "silent"):
            return None
        answer = stored(command)
        answer.code = {"stored": 0, "weak": 10, "refused": 2, "illegal": 13}[step]
        return answer if answer.code in (0, 10) else response(command, answer.code, step)


class Asker:
    """Stands for the portal: has sends begun together, and does what is left of each as a task."""

    def __init__(self, producer: Producer) -> None:
        self._afterwards: list[Callable[[], None]] = []
        self.sends = Sends(producer, self._afterwards.append)
        self.outcomes: dict[bytes, Outcome] = {}

    def begin(self, nursery: trio.Nursery, *messages: Message) -> list[Callable[[], None] | None]:
        given_up = [self.sends.begin(each, self._told(nursery, each.body)) for each in messages]
        while self._afterwards:
            self._afterwards.pop()()
        return given_up

    def _told(self, nursery: trio.Nursery, body: bytes) -> Any:
        async def finish(rest: Callable[[], Awaitable[Any]]) -> None:
            try:
                self.outcomes[body] = await rest()
            except Exception as error:
                self.outcomes[body] = error

        def told(result: Any = None, *, error: BaseException | None = None, rest: Any = None) -> None:
            assert body not in self.outcomes, "told twice"
            if rest is not None:
                nursery.start_soon(finish, rest)
            else:
                self.outcomes[body] = error if error is not None else result

        return told

    async def outcome(self, wanted: Message) -> Outcome:
        async with trio.open_nursery() as nursery:
            assert self.begin(nursery, wanted) != [None], "it was to be sent without a task"
            await until(lambda: wanted.body in self.outcomes)
        return self.outcomes[wanted.body]


def as_text(outcome: Outcome) -> str:
    """Return *outcome* without what differs from run to run."""
    if isinstance(outcome, SendResult):
        return f"{outcome.status} at {outcome.queue.broker_name} {outcome.queue.queue_id}, {outcome.queue_offset}"
    text = f"{type(outcome).__name__}: {outcome}, by {type(outcome.__cause__).__name__}"
    return re.sub(r"within [\d.]+ ms", "in time", re.sub(r"127\.0\.0\.1:\d+", "a broker", text))


async def played(script: tuple[str, ...], brokers: int, *, without_task: bool) -> tuple[str, list[str]]:
    """Send once where brokers do what *script* says; return what came of it and who was asked."""
    steps, asked = ["stored", *script], list[str]()
    options = ProducerOptions(retry_when_not_ok=True, send_timeout_ms=900)
    world = attrs.evolve(real_world(), random=random.Random(7))
    fakes = [Scripted(name, script=steps, asked=asked) for name in ["a", "b"][:brokers]]
    async with (
        open_fake(*fakes) as cluster,
        open_producer(world, cluster.name_server, "pg", options) as producer,
    ):
        await producer.send(message("T", b"first"))  # from now on the route is known, and a connection is open
        for fake in fakes:
            await producer.session.remoting.connection(fake.address, 3_000)
        if without_task:
            outcome = await Asker(producer).outcome(message("T", b"x"))
        else:
            try:
                outcome = await producer.send(message("T", b"x"))
            except Exception as error:
                outcome = error
    return as_text(outcome), asked[1:]


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize(
    "script",
    [
        ("stored",),
        ("illegal",),
        ("weak", "stored"),
        ("weak", "weak", "weak"),
        ("weak", "refused", "refused"),
        ("refused", "stored"),
        ("refused", "refused", "illegal"),
        ("refused", "refused", "refused"),
        ("gone", "stored"),
        ("gone", "refused", "weak"),
        ("gone", "gone", "gone"),
        ("silent", "stored"),
        ("silent", "silent", "silent"),
    ],
    ids="-".join,
)
async def test_whatever_brokers_do_the_outcome_is_that_of_the_producer(script: tuple[str, ...], brokers: int) -> None:
    by_a_task = await played(script, brokers, without_task=False)
    assert by_a_task == await played(script, brokers, without_task=True)


async def test_what_comes_together_leaves_together(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        await producer.send(message("T", b"first"))
        written: list[int] = []
        send = Outbox.send

        def noted(outbox: Outbox, parts: Any, size_bytes: int) -> None:
            written.append(len(parts))
            send(outbox, parts, size_bytes)

        asker = Asker(producer)
        async with trio.open_nursery() as nursery:
            monkeypatch.setattr(Outbox, "send", noted)
            asker.begin(nursery, *(message("T", b"%d" % number) for number in range(40)))
            assert written == [40]
            await until(lambda: len(asker.outcomes) == 40)
        results = list(asker.outcomes.values())
        assert all(isinstance(each, SendResult) for each in results)
        assert {each.queue.queue_id for each in results if isinstance(each, SendResult)} == set(range(8))


async def test_nobody_is_told_of_what_was_given_up_and_nothing_of_it_stays() -> None:
    held: list[Command] = []
    broker = FakeBroker("a", lambda command: held.append(command))
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        await producer.session.route("T")
        connection = await producer.session.remoting.connection(broker.address, 3_000)
        asker = Asker(producer)
        async with trio.open_nursery() as nursery:
            (give_up,) = asker.begin(nursery, message("T", b"x"))
            assert give_up is not None
            await until(lambda: len(held) == 1)
            give_up()
            assert not connection._asked
            broker.answer = stored
            asker.begin(nursery, message("T", b"y"))
            await until(lambda: b"y" in asker.outcomes)
        assert set(asker.outcomes) == {b"y"}


async def test_what_is_not_usual_is_left_to_the_producer() -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        asker = Asker(producer)
        async with trio.open_nursery() as nursery:
            assert asker.begin(nursery, message("T", b"no route yet")) == [None]
            await producer.session.route("T")
            assert asker.begin(nursery, message("T", b"no connection yet")) == [None]
            await producer.send(message("T", b"first"))
            assert asker.begin(nursery, message("T", b"")) == [None]
            assert asker.begin(nursery, message("T", b"usual")) != [None]
        assert [each.body for each in broker.sends if each.body not in (b"first", b"usual")] == []


async def test_nothing_is_sent_where_nobody_would_look_whether_the_answer_is_late() -> None:
    broker = FakeBroker("a")
    async with open_fake(broker) as cluster, open_producer(real_world(), cluster.name_server, "pg") as producer:
        await producer.send(message("T", b"first"))
        connection = producer.session.remoting.current(broker.address)
        assert connection is not None
        asker = Asker(producer)
        async with trio.open_nursery() as nursery:
            served, connection._nursery = connection._nursery, None  # as before it is served
            assert asker.begin(nursery, message("T", b"too early")) == [None]
            connection._nursery = served
            assert not connection._asked
            assert asker.begin(nursery, message("T", b"in time")) != [None]
            await until(lambda: b"in time" in asker.outcomes)
        assert [each.body for each in broker.sends] == [b"first", b"in time"]


async def test_each_send_has_its_own_time_also_one_that_begins_later_and_ends_sooner() -> None:
    silent = FakeBroker("a", lambda command: None)
    options = ProducerOptions(send_timeout_ms=20_000, attempts=1)
    async with (
        open_fake(silent) as cluster,
        open_producer(real_world(), cluster.name_server, "pg", options) as producer,
    ):
        await producer.session.route("T")
        await producer.session.remoting.connection(silent.address, 3_000)
        asker = Asker(producer)
        async with trio.open_nursery() as nursery:
            (give_up,) = asker.begin(nursery, message("T", b"patient"))
            await until(lambda: len(silent.sends) == 1)
            producer.delivery._options = attrs.evolve(options, send_timeout_ms=100)
            asker.begin(nursery, message("T", b"hasty"))
            await until(lambda: b"hasty" in asker.outcomes, seconds=10)
            assert give_up is not None
            give_up()
        assert "no answer" in str(asker.outcomes[b"hasty"])
        assert set(asker.outcomes) == {b"hasty"}
