"""A cluster with a proxy in front of it, on virtual time, and a client that speaks the service's messages."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import trio
from google.protobuf.message import Message
from grpc_client import GrpcClient, Stream, open_client

from understudy.mqclient.admin import topics
from understudy.mqclient.admin.topics import TopicSettings
from understudy.mqclient.session import SessionOptions, open_session
from understudy.proxy.config import config_of
from understudy.proxy.core.durations import set_ms
from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE
from understudy.proxy.rpcs.receives import Receives
from understudy.proxy.server import Proxy
from understudy.security.signature import Credentials
from understudy.testkit.sim.cluster import SimCluster
from understudy.testkit.sim.determinism import run_seed
from understudy.testkit.waiting import eventually

TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Tran": "TRANSACTION"}
QUEUES = 4
GROUP = "readers"
Response = TypeVar("Response", bound=Message)


@attrs.define
class User:
    """One client of the proxy: a connection, and who it says it is."""

    connection: GrpcClient
    client_id: str
    telemetry: Stream | None = None

    async def ask(
        self, rpc: str, request: Message, answer: type[Response], *, timeout: str | None = None, **metadata: str
    ) -> Response:
        """Call *rpc* and return its answer."""
        stream = await self.begin(rpc, request, timeout=timeout, **metadata)
        await self.connection.wait(stream)
        assert stream.status == 0, stream
        return answer.FromString(stream.messages[0])

    async def begin(self, rpc: str, request: Message, *, timeout: str | None = None, **metadata: str) -> Stream:
        """Begin to call *rpc*."""
        fields = {"x-mq-client-id": self.client_id, "x-mq-language": "PYTHON"}
        fields |= {name.replace("_", "-"): text for name, text in metadata.items()}
        more = {} if timeout is None else {"grpc_timeout": timeout}
        stream = await self.connection.begin(
            SERVICE + rpc, [(name, text) for name, text in fields.items() if text], **more
        )
        await self.connection.send(stream, request.SerializeToString(), end=True)
        return stream

    async def settle(self, settings: v2.Settings) -> v2.Settings:
        """Open a telemetry stream, bring *settings*, and return the answer."""
        if self.telemetry is None:
            fields = [("x-mq-client-id", self.client_id), ("x-mq-language", "PYTHON")]
            self.telemetry = await self.connection.begin(SERVICE + "Telemetry", fields)
        stream, before = self.telemetry, len(self.telemetry.messages)
        await self.connection.send(stream, v2.TelemetryCommand(settings=settings).SerializeToString())
        await self.connection.until(lambda: len(stream.messages) > before or stream.ended)
        command = v2.TelemetryCommand.FromString(stream.messages[-1])
        assert command.status.code == v2.OK
        return command.settings

    async def consume(self, group: str, *names: str) -> v2.Settings:
        """Be a consumer."""
        return await self.settle(consumer_settings(group, *names))

    async def send(self, *messages: v2.Message) -> v2.SendMessageResponse:
        return await self.ask("SendMessage", v2.SendMessageRequest(messages=messages), v2.SendMessageResponse)

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        poll_ms: int = 5_000,
        invisible_ms: int = 30_000,
        batch: int = 32,
        **fields: Any,
    ) -> tuple[v2.Status, list[v2.Message]]:
        """Receive messages; keyword arguments are fields of the request."""
        request = receive_request(group, topic, poll_ms, invisible_ms, batch, **fields)
        stream = await self.begin("ReceiveMessage", request, timeout=f"{poll_ms + 3000}m")
        await self.connection.wait(stream)
        return received(stream)

    async def ack(self, group: str, topic: str, *handles: str) -> v2.AckMessageResponse:
        entries = [v2.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
        request = v2.AckMessageRequest(group=v2.Resource(name=group), topic=v2.Resource(name=topic), entries=entries)
        return await self.ask("AckMessage", request, v2.AckMessageResponse)

    async def change(self, group: str, topic: str, handle: str, ms: int) -> v2.ChangeInvisibleDurationResponse:
        request = v2.ChangeInvisibleDurationRequest(
            group=v2.Resource(name=group), topic=v2.Resource(name=topic), receipt_handle=handle
        )
        set_ms(request.invisible_duration, ms)
        return await self.ask("ChangeInvisibleDuration", request, v2.ChangeInvisibleDurationResponse)


def received(stream: Stream) -> tuple[v2.Status, list[v2.Message]]:
    """Return what a receive brought: status first, then messages, and the time of their delivery last."""
    parts = [v2.ReceiveMessageResponse.FromString(message) for message in stream.messages]
    assert ["status", *["message"] * (len(parts) - 2), "delivery_timestamp"] == [
        part.WhichOneof("content") for part in parts
    ]
    return parts[0].status, [part.message for part in parts[1:-1]]


def receive_request(
    group: str, topic: str, poll_ms: int = 5_000, invisible_ms: int = 30_000, batch: int = 32, **fields: Any
) -> v2.ReceiveMessageRequest:
    queue = v2.MessageQueue(topic=v2.Resource(name=topic))
    request = v2.ReceiveMessageRequest(group=v2.Resource(name=group), message_queue=queue, batch_size=batch, **fields)
    set_ms(request.long_polling_timeout, poll_ms)
    set_ms(request.invisible_duration, invisible_ms)
    return request


def consumer_settings(group: str, *names: str) -> v2.Settings:
    settings = v2.Settings(client_type=v2.SIMPLE_CONSUMER)
    settings.subscription.group.name = group
    for name in names:
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = name
        entry.expression.expression = "*"
    return settings


def message(topic: str, body: bytes = b"hello", message_id: str = "m1", **system: Any) -> v2.Message:
    """Return a message; keyword arguments are its system properties."""
    return v2.Message(
        topic=v2.Resource(name=topic),
        body=body,
        system_properties=v2.SystemProperties(message_id=message_id, **system),
    )


@asynccontextmanager
async def _user_of_proxy(
    cluster: SimCluster, host: str, config: Mapping[str, object]
) -> AsyncIterator[tuple[Proxy, User]]:
    values = {"namesrvAddr": cluster.name_servers, "localServeAddr": host, "tlsServerMode": "disabled", **config}
    proxy = Proxy(cluster.client_world(host), config_of(values, "test")[0])
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        async with open_client(cluster.client_world(), (cluster.address(host), proxy.address[1])) as connection:
            yield proxy, User(connection, f"client-of-{host}")
        nursery.cancel_scope.cancel()


@attrs.define
class Rig:
    """The cluster ``n1`` with a master on each of ``c1``, ``c2`` ..., and the proxy on ``p1`` with a user."""

    cluster: SimCluster
    proxy: Proxy
    user: User

    @property
    def receives(self) -> Receives:
        """Those that wait at the proxy."""
        return self.proxy.receives

    @asynccontextmanager
    async def another_user(self, client_id: str) -> AsyncIterator[User]:
        async with open_client(self.cluster.client_world(client_id), self.address) as connection:
            yield User(connection, client_id)

    @asynccontextmanager
    async def another_proxy(self, host: str, **config: object) -> AsyncIterator[User]:
        """Start one more proxy in front of the same cluster; yields a user of it."""
        async with _user_of_proxy(self.cluster, host, config) as (_, user):
            yield user

    @property
    def address(self) -> tuple[str, int]:
        return self.cluster.address("p1"), self.proxy.address[1]


def play(
    test: Callable[[Rig], Awaitable[None]],
    *,
    brokers: int = 1,
    broker_keys: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    seed: int = 1,
    credentials: Credentials | None = None,
) -> None:
    """Run *test* on virtual time, with topics of every kind."""

    async def scenario(source: random.Random) -> None:
        with trio.fail_after(100_000):
            async with SimCluster(source) as cluster:
                await cluster.start_name_server("n1")
                for index in range(brokers):
                    keys = {"brokerName": f"broker-{chr(ord('a') + index)}", **(broker_keys or {})}
                    await cluster.start_container(f"c{index + 1}", [keys])
                await _make_topics(cluster, brokers, credentials)
                async with _user_of_proxy(cluster, "p1", config or {}) as (proxy, user):
                    await test(Rig(cluster, proxy, user))

    run_seed(scenario, seed=seed)


async def _make_topics(cluster: SimCluster, brokers: int, credentials: Credentials | None) -> None:
    options = SessionOptions(credentials=credentials)
    async with open_session(cluster.client_world(), cluster.name_servers, options) as session:
        for name, kind in TOPICS.items():
            settings = TopicSettings(name, QUEUES, QUEUES, attributes={"+message.type": kind})
            for index in range(brokers):
                for broker in cluster.brokers(f"c{index + 1}").values():
                    await topics.save_topic(session, broker.identity.address, settings)
            await eventually(lambda name=name: topics.exists(session, name))


def resource(name: str) -> v2.Resource:
    return v2.Resource(name=name)


def codes(answer: Any) -> tuple[int, list[int]]:
    return answer.status.code, [entry.status.code for entry in answer.entries]
