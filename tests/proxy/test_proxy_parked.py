"""Receives that wait and telemetry streams are rows of tables, not tasks, and their number is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from grpc_client import Stream
from proxy_rig import Rig, consumer_settings, message, play, receive_request, received

from understudy.proxy.clients import EXPIRES_SECONDS
from understudy.proxy.grpc.call import Call
from understudy.proxy.grpc.framing import framed
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs import receives
from understudy.proxy.rpcs.parts import SERVICE
from understudy.proxy.rpcs.receives import Receives
from understudy.remoting.codes import RequestCode
from understudy.testkit.waiting import until

GROUP = "readers"


def tasks() -> int:
    """Return how many tasks there are in the whole process."""

    def below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
        yield task
        for nursery in task.child_nurseries:
            for child in nursery.child_tasks:
                yield from below(child)

    root = trio.lowlevel.current_root_task()
    assert root is not None
    return sum(1 for _ in below(root))


async def waiting(rig: Rig, count: int, poll_ms: int = 20_000) -> list[Stream]:
    """Begin *count* receives and wait until they wait at the broker."""
    before = len(rig.receives)
    request = receive_request(GROUP, "Normal", poll_ms=poll_ms)
    begun = [await rig.user.begin("ReceiveMessage", request) for _ in range(count)]
    await until(lambda: len(rig.receives) == before + count)
    return begun


def test_receives_that_wait_and_open_streams_cost_no_task_and_all_are_answered() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        await trio.sleep(1)
        before = tasks()
        streams = await waiting(rig, 300)
        telemetry: list[Stream] = []
        for number in range(100):
            fields = [("x-mq-client-id", f"idle-{number}")]
            telemetry.append(await rig.user.connection.begin(SERVICE + "Telemetry", fields))
            command = v2.TelemetryCommand(settings=consumer_settings(GROUP, "Normal"))
            await rig.user.connection.send(telemetry[-1], command.SerializeToString())
        await rig.user.connection.until(lambda: all(each.messages for each in telemetry))
        await trio.sleep(0.1)
        assert tasks() - before <= 2  # one looks after those that wait, one may send
        assert 101 == len(rig.proxy.clients)
        async with rig.another_user("sender") as sender:
            for number in range(3):
                await sender.send(message("Normal", b"%d" % number, str(number)))
        await rig.user.connection.until(lambda: all(each.ended for each in streams))
        answers = [received(each) for each in streams]
        assert {v2.OK, v2.MESSAGE_NOT_FOUND} == {status.code for status, _ in answers}
        assert [b"0", b"1", b"2"] == sorted(each.body for _, messages in answers for each in messages)
        assert (0, before) == (len(rig.receives), tasks())
        for each in telemetry:  # a stream goes on when it says something again
            await rig.user.connection.send(each, command.SerializeToString(), end=True)
        await rig.user.connection.until(lambda: all(each.ended for each in telemetry))
        assert {(0, 2)} == {(each.status, len(each.messages)) for each in telemetry}

    play(test)


def test_more_receives_than_may_wait_are_told_so_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receives, "MOST_PARKED", 20)

    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        await waiting(rig, 20)
        status, _ = await rig.user.receive(GROUP, "Normal")
        assert v2.TOO_MANY_REQUESTS == status.code
        assert v2.OK == (await rig.user.send(message("Fifo", message_group="g"))).status.code

    play(test)


class Turns(trio.abc.Instrument):
    """How many receives go on in each turn of the event loop."""

    def __init__(self) -> None:
        self.resumed = [0]

    def before_io_wait(self, timeout: float) -> None:
        self.resumed.append(0)


def test_receives_that_are_answered_at_once_go_on_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, resume = Turns(), Call.resume

    def counted(call: Call) -> bool:
        turns.resumed[-1] += 1
        return resume(call)

    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        streams = await waiting(rig, 200)
        monkeypatch.setattr(Call, "resume", counted)
        trio.lowlevel.add_instrument(turns)
        await rig.cluster.kill("c1")
        await rig.user.connection.until(lambda: all(each.ended for each in streams))
        assert {v2.INTERNAL_SERVER_ERROR} == {received(each)[0].code for each in streams}
        assert 0 == len(rig.receives)

    play(test)
    assert (200, True) == (sum(turns.resumed), max(turns.resumed) <= receives.RESUMED_IN_A_TURN)


@pytest.mark.parametrize("answers", ["at its end", "never"])
def test_a_broker_that_does_not_answer_is_not_waited_for_for_ever(answers: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        (broker,) = rig.cluster.brokers("c1").values()
        if answers == "never":
            broker.server.register(RequestCode.POP_MESSAGE, lambda connection, command: None)
        (stream,) = await waiting(rig, 1, poll_ms=5_000)
        if answers == "at its end":
            await rig.cluster.kill("c1")
        with trio.fail_after(20):
            await rig.user.connection.wait(stream)
        code = received(stream)[0].code
        assert code == (v2.PROXY_TIMEOUT if answers == "never" else v2.INTERNAL_SERVER_ERROR)
        assert 0 == len(rig.receives)

    play(test)


def test_a_receive_whose_client_gave_it_a_time_ends_at_that_time() -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume(GROUP, "Normal")
        (broker,) = rig.cluster.brokers("c1").values()
        broker.server.register(RequestCode.POP_MESSAGE, lambda connection, command: None)
        request = receive_request(GROUP, "Normal", poll_ms=5_000)
        stream = await rig.user.begin("ReceiveMessage", request, timeout="6S")
        with trio.fail_after(8):
            await rig.user.connection.wait(stream)
        assert 4 == stream.status

    play(test)


@pytest.mark.parametrize("settled", [True, False])
def test_a_telemetry_stream_that_is_given_up_with_its_last_message_leaves_nothing(settled: bool) -> None:
    async def test(rig: Rig) -> None:
        connection = rig.user.connection
        if settled:
            await rig.user.consume(GROUP, "Normal")
        else:
            fields = [("x-mq-client-id", "ghost")]
            rig.user.telemetry = await connection.begin(SERVICE + "Telemetry", fields)
        assert rig.user.telemetry is not None
        number = rig.user.telemetry.number
        connection.h2.send_data(number, framed(b""))
        connection.h2.reset_stream(number, 8)
        await connection.flush()  # both in one segment
        await trio.sleep(1)
        assert [[]] * settled == [client.streams for client in rig.proxy.clients]
        await trio.sleep(EXPIRES_SECONDS + 10)
        assert 0 == len(rig.proxy.clients)

    play(test)


@pytest.mark.parametrize("ends", ["its client", "its time"])
def test_a_receive_that_ends_in_the_turn_of_its_answer_keeps_nothing_and_gives_its_messages_to_others_once(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume, answered = Call.resume, Receives._answered
    resumed, late = list[Call](), list[tuple[Any, Any]]()
    body = b"x" * 100_000

    def held_up(receives_: Receives, row: Any, answer: Any) -> None:
        late.append((row, answer))

    async def test(rig: Rig) -> None:
        def going_on(call: Call) -> bool:
            goes_on = resume(call)
            if not resumed:
                resumed.append(call)
                if ends == "its client":
                    call.connection._forget(call)
                else:
                    answered(rig.receives, *late[0])
            return goes_on

        await rig.user.consume(GROUP, "Normal")
        await rig.user.receive(GROUP, "Normal")
        if ends == "its time":
            monkeypatch.setattr(Receives, "_answered", held_up)
        request = receive_request(GROUP, "Normal", poll_ms=10_000, invisible_ms=600_000)
        stream = await rig.user.begin("ReceiveMessage", request, timeout="12S")
        await until(lambda: len(rig.receives) == 1)
        monkeypatch.setattr(Call, "resume", going_on)
        async with rig.another_user("sender") as sender:
            await sender.send(message("Normal", body))
        await until(lambda: bool(resumed))
        monkeypatch.undo()
        await trio.sleep(5)
        assert (0, None if ends == "its client" else 4) == (len(stream.messages), stream.status)
        assert resumed[0].connection.held._load.parked.used < len(body)
        got: list[v2.Message] = []
        for _ in range(3):
            got += (await rig.user.receive(GROUP, "Normal", poll_ms=5000, invisible_ms=600_000))[1]
        assert [body] == [each.body for each in got]

    play(test)
