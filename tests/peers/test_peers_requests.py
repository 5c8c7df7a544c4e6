"""Requests, replies and traces between our client and the real Java client, at our broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from peer_processes import ROCKETMQ, AdminConsole, peer_environment

from understudy.format.message_traces import CONSUMED, PUBLISHED, TraceStep, steps_of
from understudy.format.names import TRACE_TOPIC
from understudy.mqclient.admin import messages
from understudy.mqclient.api import (
    ConsumeContext,
    ConsumeFrom,
    Producer,
    ProducerOptions,
    PushConsumerOptions,
    ReceivedMessage,
    message,
    open_producer,
    open_push_consumer,
    real_world,
)
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually

pytestmark = pytest.mark.slow
ASKED = 5
LIMIT_S = 120.0


@asynccontextmanager
async def java(*words: str) -> AsyncIterator[trio.Process]:
    """Run the Java client's requests as long as the block lasts; the end of its input ends it."""
    async with trio.open_nursery() as nursery:
        command = [ROCKETMQ, "requests", *words]
        run = partial(trio.run_process, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=peer_environment())
        running: trio.Process = await nursery.start(run, command)
        try:
            yield running
            assert running.stdin is not None
            await running.stdin.aclose()
        except BaseException:
            running.kill()
            raise


async def lines(process: trio.Process, count: int) -> list[dict[str, Any]]:
    """Return so many JSON lines that it prints."""
    assert process.stdout is not None
    text = b""
    with trio.fail_after(LIMIT_S):
        while text.count(b"\n") < count:
            received = await process.stdout.receive_some()
            assert received, text
            text += received
    return [json.loads(line) for line in text.splitlines()[:count]]


async def steps(producer: Producer, message_id: str, enough: Callable[[list[TraceStep]], bool]) -> list[TraceStep]:
    """Return what is traced about a message, once it is enough."""
    found: list[TraceStep] = []

    async def look() -> bool:
        traces = await messages.find(producer.session, TRACE_TOPIC, message_id, kind="K", max_messages=64)
        told = (step for trace in traces for step in steps_of(trace.body.decode()))
        found[:] = [step for step in told if step.message_id == message_id]
        return enough(found)

    await eventually(look, seconds=60)
    return found


async def shown(admin: AdminConsole, names: str, message_id: str, group: str) -> list[list[str]]:
    """Return what the real tool prints, once it names *group*: kind, group and result of each row."""
    command = f"queryMsgTraceById -i {message_id}"
    printed = await trio.to_thread.run_sync(admin.await_printed, names, command, group)
    rows = (line.split() for line in printed.splitlines())
    return [[*row[:2], row[-1]] for row in rows if row]


def kinds(found: list[TraceStep]) -> set[tuple[str, str, bool]]:
    return {(step.kind, step.group, step.success) for step in found}


async def test_the_java_client_replies_to_our_requests_and_each_reads_what_both_traced(
    java_home: Path, admin: AdminConsole
) -> None:
    world = real_world()
    async with LocalCluster(broker_config={"traceTopicEnable": "true"}) as cluster:
        names = cluster.namesrv_address
        options = ProducerOptions(enable_message_trace=True)
        async with open_producer(world, names, "our_asks", options) as producer:
            await producer.send(message("Questions", b"the first makes the topic"))
            async with java("answer", "--namesrv", names, "--topic", "Questions", "--group", "java_readers") as answers:
                await lines(answers, 1)
                asked = [message("Questions", b"question %d" % number, keys=f"k{number}") for number in range(ASKED)]
                replies = [await producer.request(each, timeout_ms=LIMIT_S * 1000) for each in asked]
                assert [reply.body for reply in replies] == [b"re: question %d" % number for number in range(ASKED)]
            unique = asked[0].message_id
            assert unique is not None
            # our client traced the request, the Java client that it consumed it
            wanted = {(PUBLISHED, "our_asks", True), (CONSUMED, "java_readers", True)}
            found = await steps(producer, unique, lambda found: kinds(found) == wanted)
            assert {step.keys for step in found} == {"k0"}
            # and the real tool reads both
            rows = await shown(admin, names, unique, "java_readers")
            assert ["Pub", "our_asks", "success"] in rows and ["Sub", "java_readers", "success"] in rows


async def test_our_client_replies_to_requests_of_the_java_client_and_each_reads_what_both_traced(
    java_home: Path, admin: AdminConsole
) -> None:
    world = real_world()
    async with LocalCluster(broker_config={"traceTopicEnable": "true"}) as cluster:
        names = cluster.namesrv_address
        async with open_producer(world, names, "our_answers") as producer:
            await producer.send(message("Questions", b"the first makes the topic"))

            async def answer(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
                for each in batch:
                    await producer.reply(each, b"re: " + each.body)

            options = PushConsumerOptions(consume_from=ConsumeFrom.LAST_OFFSET, enable_message_trace=True)
            async with open_push_consumer(world, names, "our_readers", {"Questions": "*"}, answer, options):
                async with java("ask", "--namesrv", names, "--topic", "Questions", "--count", str(ASKED)) as asks:
                    asked = await lines(asks, ASKED)
                expected = [f"question {number}" for number in range(ASKED)]
                assert [(line["asked"], line["reply"]) for line in asked] == [
                    (text, f"re: {text}") for text in expected
                ]
            wanted = {(PUBLISHED, "java_asks", True), (CONSUMED, "our_readers", True)}
            found = await steps(producer, asked[0]["id"], lambda found: kinds(found) == wanted)
            assert {step.keys for step in found} == {"key0"}
            rows = await shown(admin, names, asked[0]["id"], "our_readers")
            assert ["Pub", "java_asks", "success"] in rows and ["Sub", "our_readers", "success"] in rows
