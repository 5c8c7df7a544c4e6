"""What peers do to a broker: each load ends by itself within some seconds."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import TypeVar

from bench.load.member_loads import heartbeat, many_clients, members_asked
from bench.load.servers import BROKER_NAME, Server, group_name, make_topic, topic_name
from bench.load.wire import TIMEOUT_S, Peer, send_request
from understudy.broker.topics import QUEUE_LIMIT
from understudy.format.batch import encode_batch
from understudy.format.pull_flags import SUBSCRIPTION
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request

SECONDS = 2.0
PULLS = 20_000
GROUPS = 20_000
LOCKS = 100_000
SUBSCRIPTIONS = 10_000
ONE_KEY = 2_000_000
BATCH = 5_000
OLD_LARGE, OLD_SMALL = 40, 50_000
"""Messages of 4 MB and of 1 KB that were stored by a former process."""
FLOODS = 10
SLOW_READERS = 20

Load = Callable[[Server], None]
T = TypeVar("T")


def asked(code: int, ext: dict[str, str] | None = None, peers: int = 3) -> Load:
    """Return the load of some peers that ask the same again and again."""

    def work(server: Server) -> None:
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(Peer(server.port)) for _ in range(peers)]
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                commands = [request(code, ext) for _ in opened]
                for peer, command in zip(opened, commands, strict=True):
                    peer.send(command)
                for peer, command in zip(opened, commands, strict=True):
                    peer.wait(command)

    return work


def pipelined(code: int, count: int = 100) -> Load:
    """Return the load of a peer that sends many requests in one packet and reads the answers slowly."""

    def work(server: Server) -> None:
        with Peer(server.port) as peer:
            peer.send(*(request(code) for _ in range(count)))
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                peer.socket.recv(64 << 10)
                time.sleep(0.001)

    return work


def slow_readers(server: Server, asked: Command, count: int, wait: Callable[[], T]) -> T:
    """Ask the same *count* times as each of some peers that read nothing while *wait* is called; return its value."""
    data = _frame(asked) * count
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW_READERS):
            peer = stack.enter_context(Peer(server.port, small_buffer=True))
            with contextlib.suppress(ConnectionError):  # it may have asked for too much already
                peer.socket.sendall(data)
        return wait()


def slow_readers_of_topics(server: Server) -> None:
    slow_readers(server, request(RequestCode.GET_ALL_TOPIC_CONFIG), 20, lambda: time.sleep(SECONDS))


def many_producer_groups(server: Server) -> None:
    for round_ in range(2):
        with Peer(server.port) as peer:
            command = heartbeat("many", [f"producer-{round_}-{number}" for number in range(GROUPS)], [])
            peer.send(command)
            peer.wait(command)
        time.sleep(SECONDS / 2)


def many_consumer_groups(server: Server) -> None:
    with Peer(server.port) as peer:
        command = heartbeat("many", [], [f"consumer-{number}" for number in range(GROUPS // 4)], topic_name(1))
        peer.send(command)
        peer.wait(command)
    time.sleep(SECONDS / 2)


def woken_pulls(server: Server) -> None:
    ext = {"consumerGroup": group_name(2), "topic": topic_name(2), "queueId": "0", "queueOffset": "0"}
    ext |= {"maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000"}
    ext |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(20)]
        for peer in peers:
            peer.send(*(request(RequestCode.PULL_MESSAGE, ext) for _ in range(PULLS // 20)))
        time.sleep(0.5)
        with Peer(server.port) as sender:
            command = send_request(topic_name(2), b"wake")
            sender.send(command)
            sender.wait(command)
        time.sleep(SECONDS)


def oneway_flood(server: Server, seconds: float = SECONDS) -> None:
    """Send one-way messages for *seconds*, and wait until what was sent is read."""
    data = b"".join(
        _frame(send_request(topic_name(3), b"x" * 50, oneway=True, broker=BROKER_NAME)) for _ in range(2_000)
    )
    flooded(server, data, seconds)


def flooded(server: Server, data: bytes, seconds: float) -> int:
    """Send *data*, whole requests, again and again from some peers, and wait until a last one of each is answered.

    Returns:
        How many bytes were sent, and read.
    """
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server.port)) for _ in range(FLOODS)]
        for peer in peers:
            peer.socket.setblocking(False)
        until, at, sent = time.monotonic() + seconds, [0] * FLOODS, 0
        while time.monotonic() < until:
            for number, peer in enumerate(peers):
                with contextlib.suppress(BlockingIOError):
                    count = peer.socket.send(data[at[number] :])
                    at[number] = (at[number] + count) % len(data)
                    sent += count
            time.sleep(0.001)
        for begun, peer in zip(at, peers, strict=True):
            peer.socket.settimeout(TIMEOUT_S)
            peer.socket.sendall(data[begun:] if begun else b"")
            peer.ask(NO_CODE)
        return sent


NO_CODE = 29_999
"""No server knows it: it is answered at once, after everything that came before it."""


def _frame(command: Command) -> bytes:
    from understudy.remoting.frame import encode

    return encode(command)


def batch_request(topic: str, messages: list[tuple[int, bytes, bytes]], queue_id: int = 0) -> Command:
    """Return the send of a batch."""
    command = send_request(topic, encode_batch(messages), queue_id)
    command.code = RequestCode.SEND_BATCH_MESSAGE
    assert command.ext is not None
    command.ext["m"] = "true"
    return command


def giant_batches(server: Server) -> None:
    with Peer(server.port) as peer:
        for _ in range(3):
            command = batch_request(topic_name(4), [(0, b"x" * 20, b"")] * 60_000)
            peer.send(command)
            peer.wait(command)


_filled: set[int] = set()


def fill_one_key(server: Server) -> None:
    """Store many messages of one key, once on each server."""
    if server.port in _filled:
        return
    _filled.add(server.port)
    with Peer(server.port) as peer:
        batch = [(0, b"x", b"KEYS\x01one\x02")] * BATCH
        for _ in range(ONE_KEY // BATCH):
            command = batch_request(topic_name(5), batch)
            peer.send(command)
            peer.wait(command)


def one_key_queries(server: Server) -> None:
    ext = {"topic": topic_name(5), "key": "one", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "1"}
    asked(RequestCode.QUERY_MESSAGE, ext, peers=1)(server)
    ext["endTimestamp"] = str(2**62)
    asked(RequestCode.QUERY_MESSAGE, ext, peers=1)(server)


def store_old(server: Server) -> None:
    """Store what :func:`first_reads` reads in a later process."""
    for topic in ("Large", "Small"):
        make_topic(server.port, topic, 1)
    with Peer(server.port) as peer:
        for _ in range(OLD_LARGE):
            command = send_request("Large", b"x" * (4 << 20))
            peer.send(command)
            peer.wait(command)
        for _ in range(OLD_SMALL // 1_000):
            command = batch_request("Small", [(0, b"x" * 1024, b"")] * 1_000)
            peer.send(command)
            peer.wait(command)


def first_reads(server: Server) -> None:
    """Read every message that another process has stored: each is compared with its checksum."""
    with Peer(server.port) as peer:
        for topic, count in (("Large", OLD_LARGE), ("Small", OLD_SMALL)):
            offset = 0
            while offset < count:
                ext = {"consumerGroup": "first", "topic": topic, "queueId": "0", "queueOffset": str(offset)}
                ext |= {
                    "maxMsgNums": "32",
                    "sysFlag": str(SUBSCRIPTION),
                    "commitOffset": "0",
                    "suspendTimeoutMillis": "0",
                }
                ext |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
                answer = peer.ask(RequestCode.PULL_MESSAGE, ext)
                if answer.code:
                    raise RuntimeError(f"pull of {topic} at {offset}: {answer.code} {answer.remark}")
                offset = int((answer.ext or {})["nextBeginOffset"])


def many_retry_queues(server: Server) -> None:
    """A group asks for as many retry queues as there may be, after it was refused more."""
    with Peer(server.port) as peer:
        for queues, accepted in ((300_000, False), (QUEUE_LIMIT, True)):
            row = {"groupName": "wide", "retryQueueNums": queues, "consumeEnable": True}
            answer = peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(row).encode())
            if (answer.code == 0) is not accepted:
                raise RuntimeError(f"{queues} retry queues: {answer.code} {answer.remark}")
        command = heartbeat("wide", [], ["wide"], topic_name(6))
        peer.send(command)
        peer.wait(command)
        peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "%RETRY%wide"})
    time.sleep(SECONDS / 2)


def wide_topic(server: Server) -> None:
    make_topic(server.port, "Wide", 60_000)


_CHANGES = frozenset({17, 18, 25, 200, 207, 215, 225, 902, 953, 957, 958})
"""Codes that would change what the broker is, or whom it serves."""


def every_question(server: Server) -> None:
    """All request codes about a topic of very many queues and a group that has offsets in each of them."""
    ext = {"topic": "Wide", "group": "wide", "consumerGroup": "wide", "timestamp": "0", "queueId": "-1", "key": "one"}
    ext |= {"isForce": "true", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**62), "offline": "true"}
    ext |= {"srcGroup": "wide", "destGroup": group_name(8), "compareGroup": "wide", "index": "0", "count": "10000"}
    ext |= {"clientId": "c", "offset": "0", "queueOffset": "0", "maxMsgNums": "32", "subscription": "*"}
    ext |= {"sysFlag": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "commitOffset": "0"}
    members = {"topic": "Wide", "consumerGroup": "wide", "clientId": "c", "strategyName": "AVG"}
    body = json.dumps({**members, "messageModel": "CLUSTERING"}).encode()
    for code in [RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, *(each for each in RequestCode if each not in _CHANGES)]:
        for data in (b"", body):
            with contextlib.suppress(OSError), Peer(server.port) as peer:
                peer.socket.settimeout(2)
                peer.ask(code, ext, data)


def every_question_prepared(server: Server) -> None:
    """Make the topic and the group of :func:`every_question`."""
    wide_topic(server)
    with Peer(server.port) as peer:
        peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"wide"}')


def topic_changes(server: Server) -> None:
    until, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        make_topic(server.port, "Changing", 4 + number % 4)
        number += 1


def topic_list_changes(server: Server) -> None:
    mark = time.monotonic_ns()  # new ones each time
    rows = [
        {"topicName": f"listed-{mark}-{number}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        for number in range(5_000)
    ]
    with Peer(server.port) as peer:
        peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps({"topicConfigList": rows}).encode())


def group_list_changes(server: Server) -> None:
    rows = [{"groupName": f"listed-{number}"} for number in range(GROUPS)]
    _accepted(server, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": rows})


def many_locks(server: Server) -> None:
    """A client of an ordered group takes very many queues and gives them back; what is left then runs out."""
    queues = [{"topic": topic_name(7), "brokerName": "broker-a", "queueId": number} for number in range(LOCKS)]
    asked: dict[str, object] = {"clientId": "c", "consumerGroup": "ordered", "mqSet": queues}
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.LOCK_BATCH_MQ):
        _accepted(server, code, asked)


def many_subscriptions(server: Server) -> None:
    """A client subscribes to very many topics, and then to others."""
    with Peer(server.port) as peer:
        for first in (0, SUBSCRIPTIONS // 2):
            command = heartbeat("wide", [], ["subscribed"], "%")
            data = json.loads(command.body)
            (group,) = data["consumerDataSet"]
            (one,) = group["subscriptionDataSet"]
            numbers = range(first, first + SUBSCRIPTIONS)
            group["subscriptionDataSet"] = [{**one, "topic": f"topic-{number}"} for number in numbers]
            command.body = json.dumps(data).encode()
            peer.send(command)
            peer.wait(command)
        peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "subscribed"})


def _accepted(server: Server, code: RequestCode, body: dict[str, object]) -> None:
    with Peer(server.port) as peer:
        answer = peer.ask(code, body=json.dumps(body).encode())
        if answer.code:
            raise RuntimeError(f"{code.name}: {answer.code} {answer.remark}")


def _nothing(server: Server) -> None:
    return None


_TOPIC = {"topic": topic_name(9)}
_WIDE = {"topic": "Wide", "group": group_name(9), "consumerGroup": group_name(9)}
_ENTRIES = {"topic": topic_name(5), "queueId": "0", "index": "0", "count": "10000"}

LOADS: list[tuple[str, Load, Load]] = [
    ("all topics (21)", asked(RequestCode.GET_ALL_TOPIC_CONFIG), _nothing),
    ("all groups (201)", asked(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG), _nothing),
    ("all offsets (43)", asked(RequestCode.GET_ALL_CONSUMER_OFFSET), _nothing),
    ("progress of all groups (317)", asked(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}), _nothing),
    ("progress of a group (208)", asked(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group_name(9)}), _nothing),
    ("groups of a topic (300)", asked(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, _TOPIC), _nothing),
    ("runtime information (28)", asked(RequestCode.GET_BROKER_RUNTIME_INFO), _nothing),
    ("configuration (26)", asked(RequestCode.GET_BROKER_CONFIG), _nothing),
    ("a topic of 60,000 queues (202)", asked(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Wide"}, 1), wide_topic),
    ("time span of 60,000 queues (303)", asked(RequestCode.QUERY_CONSUME_TIME_SPAN, _WIDE, 1), wide_topic),
    ("every code about 60,000 queues", every_question, every_question_prepared),
    ("topics made (17)", topic_changes, _nothing),
    ("5,000 topics made at once (18)", topic_list_changes, _nothing),
    ("20,000 groups made at once (225)", group_list_changes, _nothing),
    ("100,000 queues locked and unlocked (41, 42)", many_locks, _nothing),
    ("a group of 10,000 subscriptions (34, 203)", many_subscriptions, _nothing),
    ("requests in one packet", pipelined(RequestCode.GET_ALL_TOPIC_CONFIG), _nothing),
    ("twenty slow readers", slow_readers_of_topics, _nothing),
    ("2,000 clients close at once", many_clients, _nothing),
    ("members of a group of 2,000 clients (203, 38)", members_asked, _nothing),
    ("all producers (328)", asked(RequestCode.GET_ALL_PRODUCER_INFO), _nothing),
    ("20,000 producer groups of a client", many_producer_groups, _nothing),
    ("5,000 consumer groups of a client", many_consumer_groups, _nothing),
    ("20,000 waiting pulls woken", woken_pulls, _nothing),
    ("one-way floods", oneway_flood, _nothing),
    ("batches of 60,000 messages", giant_batches, _nothing),
    ("queries for a key of 2,000,000 messages (12)", one_key_queries, fill_one_key),
    ("10,000 entries of a queue (321)", asked(RequestCode.QUERY_CONSUME_QUEUE, _ENTRIES, 1), fill_one_key),
    ("a group with 65,535 retry queues", many_retry_queues, _nothing),
]
