"""Pull after pull of one queue without a task's turn between: what ends them, and that nothing is lost by it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from mqclient_fake import FakeBroker, open_fake

from understudy.format.record import encode_record
from understudy.mqclient.errors import BrokerError, NotConnectedError, RecordDamagedError
from understudy.mqclient.pull import PullRequest, PullResult, PullStatus
from understudy.mqclient.pulls import Pulls
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.session import Session, open_session
from understudy.mqclient.subscription import subscription
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.server import RemotingServer
from understudy.runtime.world import real_world
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import until

QUEUE = MessageQueue("T", "b", 1)
BATCH = 4


def wanted(offset: int, hold_ms: int = 1_000) -> PullRequest:
    return PullRequest("g", QUEUE, offset, subscription("T", "*", 1), BATCH, commit_offset=offset, hold_ms=hold_ms)


def found(command: Command) -> Command:
    """What a broker answers that has messages without end."""
    first = int((command.ext or {})["queueOffset"])
    records = [encode_record("T", 1, first + number, 0, b"x", b"") for number in range(BATCH)]
    return response(command, 0, None, {"nextBeginOffset": str(first + BATCH)}, b"".join(records))


def nothing_new(command: Command) -> Command:
    return response(command, ResponseCode.PULL_NOT_FOUND, None, {"nextBeginOffset": "12"})


@asynccontextmanager
async def broker_and_session(answer: Callable[[Command], Command | None]) -> AsyncIterator[tuple[FakeBroker, Session]]:
    broker = FakeBroker("b", answers={RequestCode.PULL_MESSAGE: answer})
    async with open_fake(broker) as cluster, open_session(real_world(), cluster.name_server) as session:
        yield broker, session


class Taker:
    """Takes what is found, and wants more until an offset."""

    def __init__(self, until_offset: int) -> None:
        self.offsets: list[int] = []
        self._until = until_offset

    def __call__(self, result: PullResult) -> PullRequest | None:
        self.offsets += [message.queue_offset for message in result.messages]
        return wanted(result.next_offset) if result.next_offset < self._until else None


async def test_answers_are_taken_in_order_until_no_more_is_wanted() -> None:
    async with broker_and_session(found) as (broker, session):
        taker = Taker(12)
        assert await Pulls(session, broker.address, taker).run(wanted(0)) is None
        assert list(range(12)) == taker.offsets
        asked = [(each.ext or {}) for each in broker.requests]
        assert ["0", "4", "8"] == [each["queueOffset"] for each in asked]
        assert ["0", "4", "8"] == [each["commitOffset"] for each in asked]
        assert {"3"} == {each["sysFlag"] for each in asked}  # commits, and may be held


async def test_an_answer_without_messages_is_for_the_task() -> None:
    async with broker_and_session(
        lambda command: found(command) if len(broker.requests) < 3 else nothing_new(command)
    ) as (broker, session):
        taker = Taker(100)
        result = await Pulls(session, broker.address, taker).run(wanted(0))
        assert result is not None
        assert (PullStatus.NOTHING_NEW, 12) == (result.status, result.next_offset)
        assert list(range(8)) == taker.offsets


def refused(command: Command) -> Command:
    return response(command, ResponseCode.SYSTEM_BUSY, "busy")


def cut(command: Command) -> Command:
    answer = found(command)
    answer.body = answer.body[:-1]
    return answer


@pytest.mark.parametrize(("last", "error"), [(refused, BrokerError), (cut, RecordDamagedError)])
async def test_an_error_after_some_answers_is_raised_and_they_are_taken(
    last: Callable[[Command], Command], error: type[Exception]
) -> None:
    async with broker_and_session(lambda command: found(command) if len(broker.requests) < 3 else last(command)) as (
        broker,
        session,
    ):
        taker = Taker(100)
        with pytest.raises(error):
            await Pulls(session, broker.address, taker).run(wanted(0))
        assert list(range(8)) == taker.offsets
        assert len(broker.requests) == 3


async def test_what_fails_while_an_answer_is_taken_is_the_tasks_and_the_connection_lives() -> None:
    def fail(result: PullResult) -> PullRequest | None:
        raise ValueError("no")

    async with broker_and_session(found) as (broker, session):
        with pytest.raises(ValueError, match="no"):
            await Pulls(session, broker.address, fail).run(wanted(0))
        connection = session.remoting.open_connection(broker.address)
        taker = Taker(4)
        await Pulls(session, broker.address, taker).run(wanted(0))
        assert [0, 1, 2, 3] == taker.offsets
        assert connection is not None
        assert session.remoting.open_connection(broker.address) is connection


async def test_a_connection_that_ends_is_an_error() -> None:
    async with broker_and_session(lambda command: found(command) if len(broker.requests) < 3 else None) as (
        broker,
        session,
    ):
        taker = Taker(100)
        async with trio.open_nursery() as nursery:

            async def pulls() -> None:
                with pytest.raises(NotConnectedError, match="ended before the answer: it was cut"):
                    await Pulls(session, broker.address, taker).run(wanted(0))

            nursery.start_soon(pulls)
            await until(lambda: len(broker.requests) == 3)
            connection = session.remoting.open_connection(broker.address)
            assert connection is not None
            connection.close("it was cut")
        assert list(range(8)) == taker.offsets


async def test_nobody_there_is_an_error() -> None:
    async with broker_and_session(found) as (_, session):
        with pytest.raises(NotConnectedError, match="no connection to"):
            await Pulls(session, "127.0.0.1:1", Taker(4)).run(wanted(0))


def test_the_limit_is_that_of_the_pull_under_way() -> None:
    async def scenario(source: random.Random) -> list[float]:
        async with SimCluster(source) as cluster, trio.open_nursery() as nursery:
            server = RemotingServer(cluster.client_world("broker"), cluster.address("broker"), 10911)
            world, answered, taken_at = cluster.client_world("client"), 0, list[float]()

            async def answer(connection: Connection, command: Command) -> Command | None:
                nonlocal answered
                answered += 1
                await world.clock.sleep(10)
                return found(command) if answered <= 5 else None

            def take(result: PullResult) -> PullRequest:
                taken_at.append(world.clock.monotonic())
                return wanted(result.next_offset)

            server.register_async(RequestCode.PULL_MESSAGE, answer)
            await server.bind()
            nursery.start_soon(server.run)
            async with open_session(world, "n1:9876") as session:
                began = world.clock.monotonic()
                with pytest.raises(NotConnectedError, match=r"no answer from .* within 16 s"):
                    await Pulls(session, f"{cluster.address('broker')}:10911", take).run(wanted(0))
                ended = world.clock.monotonic()
            nursery.cancel_scope.cancel()
        return [round(at - began) for at in (*taken_at, ended)]

    # answered for far longer than one pull may take, a second and the headroom, and given up that long after the last
    assert run_seed(scenario, 1) == [10, 20, 30, 40, 50, 66]


async def test_who_is_cancelled_asks_and_takes_nothing_more() -> None:
    held: list[Command] = []

    def hold_third(command: Command) -> Command | None:
        if len(broker.requests) < 3:
            return found(command)
        held.append(command)
        return None

    async with broker_and_session(hold_third) as (broker, session):
        taker = Taker(100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Pulls(session, broker.address, taker).run, wanted(0))
            await until(lambda: len(held) == 1)
            nursery.cancel_scope.cancel()
        connection = session.remoting.open_connection(broker.address)
        assert connection is not None
        late = found(held[0])
        connection._on_response(late)  # as when it arrives now
        assert list(range(8)) == taker.offsets
        assert len(broker.requests) == 3
