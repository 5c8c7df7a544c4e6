"""A listener that keeps what it gets, and the topic that consumers read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from understudy.mqclient.admin.cluster import cluster_info
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, ConsumeResult
from understudy.mqclient.message import ReceivedMessage, message
from understudy.mqclient.producer import Producer
from understudy.mqclient.push_consumer import PushConsumer
from understudy.mqclient.queue import MessageQueue
from understudy.remoting.codes import RequestCode
from understudy.runtime.signal import Signal
from understudy.testkit.waiting import until

FIRST = ConsumeFrom.FIRST_OFFSET
TOPIC = "Orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


class Basket:
    """A listener that keeps what it gets, after asking *verdict*; wakes those who wait for a number of messages."""

    def __init__(
        self, verdict: Callable[[ReceivedMessage, ConsumeContext], ConsumeResult | None] | None = None
    ) -> None:
        self.got: list[ReceivedMessage] = []
        self._verdict = verdict
        self._changed = Signal()

    async def __call__(self, batch: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult | None:
        result = self._verdict(batch[0], context) if self._verdict else None
        if result is not ConsumeResult.LATER:
            self.got += batch
            self._changed.set()
        return result

    @property
    def bodies(self) -> list[str]:
        return [got.body.decode() for got in self.got]

    async def wait(self, count: int, seconds: float = 20) -> None:
        with trio.fail_after(seconds):
            while len(self.got) < count:
                await self._changed.wait()


async def master(producer: Producer) -> str:
    info = await cluster_info(producer.session)
    return info.masters_of("DefaultCluster")[0]


async def settle(consumer: PushConsumer, topic: str = TOPIC) -> None:
    """Wait until the consumer holds a queue of *topic*."""
    await until(lambda: any(queue.topic == topic for queue in consumer.queues))


async def send_numbered(producer: Producer, count: int, *, queue_id: int | None = None) -> list[str]:
    bodies = [f"m{number}" for number in range(count)]
    for body in bodies:
        queue = MessageQueue(TOPIC, "broker-a", queue_id) if queue_id is not None else None
        await producer.send(message(TOPIC, body.encode(), tag="TagA" if int(body[1:]) % 2 else "TagB"), queue=queue)
    return bodies


async def send_undecodable(producer: Producer, body: bytes = b"no zlib at all") -> None:
    """Send a message that says its body is compressed, which it is not."""
    ext, _ = producer.outgoing.prepare(message(TOPIC, body), 0)
    ext["f"] = "1"
    await producer.delivery.send(message(TOPIC, body), RequestCode.SEND_MESSAGE_V2, (ext, body), queue=QUEUE)
