"""Bytes and messages that no client of ours sends: nobody else notices, and every call ends with a status."""

from __future__ import annotations

import random

import pytest
import trio
from grpc_client import GrpcClient, open_client
from proxy_rig import Rig, User, message, play, receive_request

from understudy.proxy.messages import rocketmq_v2 as v2
from understudy.proxy.rpcs.parts import SERVICE

RPCS = (
    "QueryRoute", "QueryAssignment", "SendMessage", "ReceiveMessage", "AckMessage", "ChangeInvisibleDuration",
    "ForwardMessageToDeadLetterQueue", "EndTransaction", "RecallMessage", "Heartbeat", "NotifyClientTermination",
    "Telemetry", "PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription",
)  # fmt: skip
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
ROUNDS = 150


def frame(source: random.Random) -> bytes:
    """Return one frame whose type, flags, stream and content are drawn."""
    content = source.randbytes(source.choice((0, 4, 5, 8, source.randrange(200))))
    stream = source.choice((0, 1, 3, source.getrandbits(31)))
    head = len(content).to_bytes(3, "big") + bytes((source.randrange(12), source.getrandbits(8)))
    return head + stream.to_bytes(4, "big") + content


def test_any_frames_end_their_own_connection_at_most() -> None:
    async def test(rig: Rig) -> None:
        source, world = random.Random(7), rig.cluster.client_world("hostile")
        for _ in range(ROUNDS):
            stream = await world.network.connect(*rig.address, 5)
            await stream.send_all(PREFACE + b"".join(frame(source) for _ in range(source.randrange(1, 8))))
            if source.random() < 0.5:
                await trio.sleep(source.random())
            await stream.aclose()
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code

    play(test)


def damaged(source: random.Random, data: bytes) -> bytes:
    """Return *data* with some bytes changed, cut, or repeated."""
    changed = bytearray(data)
    for _ in range(source.randrange(1, 5)):
        at = source.randrange(len(changed) + 1)
        changed[at : at + source.randrange(3)] = source.randbytes(source.randrange(4))
    return bytes(changed)


async def ends(client: GrpcClient, rpc: str, data: bytes) -> int | None:
    """Play one call with *data* as its request; return its status."""
    metadata = [("x-mq-client-id", "hostile"), ("x-mq-language", "COBOL")]
    stream = await client.begin(SERVICE + rpc, metadata, grpc_timeout="10S")
    await client.send(stream, data, end=True)
    await client.wait(stream)
    return stream.status


def test_any_request_is_answered_with_a_status_and_nothing_of_the_server_is_told() -> None:
    queue = v2.MessageQueue(topic=v2.Resource(name="Normal"), broker=v2.Broker(name="broker-a"))
    entry = v2.AckMessageEntry(message_id="m", receipt_handle="0 1 2 0 0 broker-a 0 0 0")
    good = [
        v2.SendMessageRequest(messages=[message("Normal", tag="t", keys=["k"])]),
        receive_request("readers", "Normal"),
        v2.AckMessageRequest(group=v2.Resource(name="g"), topic=v2.Resource(name="Normal"), entries=[entry]),
        v2.QueryRouteRequest(topic=v2.Resource(name="Normal")),
        v2.HeartbeatRequest(group=v2.Resource(name="g"), client_type=v2.PUSH_CONSUMER),
        v2.ReceiveMessageRequest(group=v2.Resource(name="g"), message_queue=queue, batch_size=-1),
        v2.TelemetryCommand(settings=v2.Settings(client_type=v2.PRODUCER)),
    ]

    async def test(rig: Rig) -> None:
        source = random.Random(11)
        async with open_client(rig.cluster.client_world("hostile"), rig.address) as client:
            for _ in range(ROUNDS):
                data = source.choice(good).SerializeToString()
                status = await ends(client, source.choice(RPCS), damaged(source, data))
                assert status in (0, 3, 4, 12, 13), status
        assert v2.OK == (await rig.user.send(message("Normal"))).status.code

    play(test)


FORGED = [
    (0, "7", (v2.INTERNAL_SERVER_ERROR,)),  # begins behind its message
    (1, "9007199254740992", (v2.INVALID_RECEIPT_HANDLE,)),  # popped at the end of time
    (2, "9007199254740992", (v2.INVALID_RECEIPT_HANDLE,)),
    (3, "1000000", (v2.INTERNAL_SERVER_ERROR,)),  # a queue of the revive topic that is not there
    (4, "1", (v2.TOPIC_NOT_FOUND,)),  # of a retry topic that nobody needed
    (4, "3", (v2.INVALID_RECEIPT_HANDLE,)),
    (5, "nobody", (v2.INVALID_RECEIPT_HANDLE,)),
    (6, "1000000", (v2.INTERNAL_SERVER_ERROR,)),  # a queue, and a place in it, that are not there
    (7, "1000000", (v2.INTERNAL_SERVER_ERROR,)),
    (8, "x", (v2.INVALID_RECEIPT_HANDLE,)),
]


def test_a_handle_whose_parts_are_forged_is_refused_and_its_message_stays_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.user.consume("readers", "Normal")
        await rig.user.receive("readers", "Normal")
        await rig.user.send(message("Normal"))
        _, (got,) = await rig.user.receive("readers", "Normal", invisible_ms=60_000)
        handle = got.system_properties.receipt_handle
        give_up = v2.ForwardMessageToDeadLetterQueueRequest(
            group=v2.Resource(name="readers"), topic=v2.Resource(name="Normal"), message_id="m1"
        )
        for part, text, expected in FORGED:
            parts = handle.split(" ")
            parts[part] = text
            forged = " ".join(parts)
            acked = await rig.user.ack("readers", "Normal", forged)
            changed = await rig.user.change("readers", "Normal", forged, 10_000)
            assert expected * 2 == (acked.status.code, changed.status.code), (part, text)
        give_up.receipt_handle = handle.rpartition(" ")[0] + " 1"  # no message begins there
        rpc = "ForwardMessageToDeadLetterQueue"
        answer = await rig.user.ask(rpc, give_up, v2.ForwardMessageToDeadLetterQueueResponse)
        assert v2.INTERNAL_SERVER_ERROR == answer.status.code
        assert (v2.MESSAGE_NOT_FOUND, []) == await received_code(rig.user)
        assert v2.OK == (await rig.user.ack("readers", "Normal", handle)).status.code

    play(test)
    assert [] == [each.getMessage() for each in caplog.records if "call failed" in each.getMessage()]


async def received_code(user: User) -> tuple[int, list[v2.Message]]:
    status, messages = await user.receive("readers", "Normal")
    return status.code, messages


def test_streams_that_are_opened_and_say_nothing_are_ended() -> None:
    async def test(rig: Rig) -> None:
        async with open_client(rig.cluster.client_world("hostile"), rig.address) as client:
            metadata = [("x-mq-client-id", "hostile")]
            streams = [await client.begin(SERVICE + "Telemetry", metadata) for _ in range(50)]
            streams += [await client.begin(SERVICE + "ReceiveMessage", metadata) for _ in range(50)]
            await trio.sleep(130)
            assert all(stream.ended for stream in streams)
            assert 0 == len(rig.proxy.clients)

    play(test)
