"""What brokers ask a push consumer on behalf of operators: reports, resets, a single message to consume."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import trio

from understudy.format.json_dialect import dumps
from understudy.mqclient.listener import ConsumeContext, ConsumeResult
from understudy.mqclient.offsets import parse_queue, queue_key
from understudy.mqclient.queue import MessageQueue
from understudy.mqclient.records import decode_records
from understudy.remoting.bodies import JSON, json_of
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, response
from understudy.remoting.connection import Connection
from understudy.remoting.fields import CommandError, optional, required

if TYPE_CHECKING:
    from understudy.mqclient.push_consumer import PushConsumer


def serve_requests(consumer: PushConsumer) -> None:
    """Answer what brokers ask *consumer*."""
    client = consumer.session.remoting

    async def running_info(connection: Connection, command: Command) -> Command:
        _check_group(consumer, required(command, "consumerGroup"))
        report = running_report(consumer)
        if optional(command, "jstackEnable") == "true":
            report["jstack"] = _task_stacks()
        return response(command, body=dumps(report, bare_keys=True))

    async def status(connection: Connection, command: Command) -> Command:
        _check_group(consumer, required(command, "group"))
        topic = required(command, "topic")
        table = {
            queue_key(queue): offset
            for queue in consumer.queues
            if queue.topic == topic and (offset := consumer.offsets.known(queue)) is not None
        }
        return response(command, body=dumps({"consumerTable": {}, "messageQueueTable": table}, bare_keys=True))

    async def reset(connection: Connection, command: Command) -> Command:
        _check_group(consumer, required(command, "group"))
        await consumer.reset(parse_reset(json_of(command), required(command, "topic")))
        return response(command)

    async def consume_directly(connection: Connection, command: Command) -> Command:
        _check_group(consumer, required(command, "consumerGroup"))
        messages = decode_records(command.body, optional(command, "brokerName") or "")
        if not messages:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "the request has no message")
        clock = consumer.session.world.clock
        began = clock.monotonic()
        result = await consumer.consumption.ask(messages, ConsumeContext(messages[0].queue))
        report = {
            "autoCommit": True,
            "consumeResult": "CR_SUCCESS" if result is ConsumeResult.SUCCESS else "CR_LATER",
            "order": consumer.options.ordered,
            "spentTimeMills": round((clock.monotonic() - began) * 1000),
        }
        return response(command, body=dumps(report))

    client.register_async(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
    client.register_async(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status)
    client.register_async(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset, reading=JSON)
    client.register_async(RequestCode.CONSUME_MESSAGE_DIRECTLY, consume_directly)


def running_report(consumer: PushConsumer) -> dict[str, Any]:
    """Return the state of *consumer* as ConsumerRunningInfo.java has it."""
    queues = {queue_key(queue): _queue_report(consumer, queue) for queue in consumer.queues}
    statuses = {}
    for topic in consumer.membership.subscriptions:
        figures = consumer.consumption.statistics.figures(topic)
        statuses[topic] = {
            "consumeFailedMsgs": figures.failed_total,
            "consumeFailedTPS": figures.failed_per_second,
            "consumeOKTPS": figures.succeeded_per_second,
            "consumeRT": figures.mean_ms,
            "pullRT": 0.0,
            "pullTPS": 0.0,
        }
    return {
        "mqPopTable": {},
        "mqTable": queues,
        "properties": {
            "PROP_CLIENT_VERSION": "V5_4_0",
            "PROP_CONSUMEORDERLY": "true" if consumer.options.ordered else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
            "PROP_CONSUME_TYPE": consumer.membership.consume_type.value,
            "PROP_NAMESERVER_ADDR": ";".join(consumer.session.remoting.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.options.consume_tasks),
            "maxReconsumeTimes": str(consumer.options.max_reconsume_times),
            "messageModel": consumer.options.model.value,
        },
        "statusTable": statuses,
        "subscriptionSet": [subscription.body() for subscription in consumer.membership.subscriptions.values()],
        "userConsumerInfo": {},
    }


def _queue_report(consumer: PushConsumer, queue: MessageQueue) -> dict[str, Any]:
    held = consumer.held[queue]
    locked = held.locked_at is not None
    age_ms = (consumer.session.world.clock.monotonic() - (held.locked_at or 0.0)) * 1000
    offset = consumer.offsets.known(queue)
    return {
        "cachedMsgCount": len(held.window),
        "cachedMsgMaxOffset": held.window.highest,
        "cachedMsgMinOffset": held.window.lowest,
        "cachedMsgSizeInMiB": held.window.size_bytes // (1024 * 1024),
        "commitOffset": -1 if offset is None else offset,
        "droped": held.dropped,
        "lastConsumeTimestamp": held.last_consume_ms,
        "lastLockTimestamp": consumer.session.world.clock.wall_ms() - round(age_ms) if locked else 0,
        "lastPullTimestamp": held.last_pull_ms,
        "locked": locked,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def parse_reset(body: Any, topic: str) -> dict[MessageQueue, int]:
    """Return the offsets in a reset's body: a map with queues as keys, or the list that C++ clients get."""
    table = body.get("offsetTable") or {}
    if isinstance(table, list):
        return {parse_queue({"topic": topic, **entry}): int(entry["offset"]) for entry in table}
    return {parse_queue(key): int(offset) for key, offset in table.items()}


def _check_group(consumer: PushConsumer, group: str) -> None:
    if group != consumer.group:
        raise CommandError(ResponseCode.SYSTEM_ERROR, f"the consumer group {group} does not exist in this client")


def _task_stacks() -> str:
    """Return where each task of this process waits, as Java clients report their threads."""
    lines: list[str] = []
    waiting = [trio.lowlevel.current_root_task()]
    while waiting:
        task = waiting.pop()
        if task is None:
            continue
        lines.append(f"task {task.name}")
        for frame, line in task.iter_await_frames():
            summary = traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name)
            lines.extend(traceback.format_list([summary]))
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)
    return "\n".join(line.rstrip() for line in lines)
