"""What peers do to a broker with pops, timers, transactions and conditions: each load ends by itself."""

from __future__ import annotations

import json
import time

from bench.load.broker_loads import Load, batch_request, heartbeat, wide_topic
from bench.load.servers import Server, group_name, topic_name
from bench.load.wire import Peer, send_request
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request

SECONDS = 2.0
POPS = 1_000
TIMERS = 100_000
TIMERS_DUE_SECONDS = 15
"""Until then all of them are sent."""
DELAYED = 10_000
HALVES = 5_000
ACKS = 32
FILTERED = 20_000
LONGEST_CONDITION = 8_000

KEYS: dict[str, object] = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
}
"""Settings of a broker that all of this can be done to."""


def pop_header(topic: str, queue_id: int = -1, poll_ms: int = 0) -> dict[str, str]:
    """Return the header of a pop."""
    ext = {"consumerGroup": group_name(3), "topic": topic, "queueId": str(queue_id), "maxMsgNums": "32"}
    ext |= {"invisibleTime": "60000", "pollTime": str(poll_ms), "bornTime": str(int(time.time() * 1000))}
    return ext | {"initMode": "0", "expType": "TAG", "exp": "*", "order": "false"}


def wide_pops(server: Server) -> None:
    """Pops of all queues of a topic that has very many, empty and not."""
    with Peer(server.port) as peer:
        for queue in range(0, 60_000, 6_000):
            peer.ask_all(batch_request("Wide", [(0, b"x", b"")] * 10, queue))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            peer.ask(RequestCode.POP_MESSAGE, pop_header("Wide"))
            peer.ask(RequestCode.NOTIFICATION, pop_header("Wide"))


def woken_pops(server: Server) -> None:
    """Very many pops that wait for one topic, and messages for all of them at once."""
    topic = topic_name(11)
    with Peer(server.port) as peer, Peer(server.port) as sender:
        peer.send(*(request(RequestCode.POP_MESSAGE, pop_header(topic, poll_ms=20_000)) for _ in range(POPS)))
        time.sleep(0.5)
        for queue in range(4):
            sender.ask_all(batch_request(topic, [(0, b"x", b"")] * POPS, queue))
        time.sleep(SECONDS)


def acknowledgements(server: Server) -> None:
    """Batches of acknowledgements, each of them for as many messages as one pop may have."""
    topic = topic_name(11)
    with Peer(server.port) as peer:
        peer.ask_all(batch_request(topic, [(0, b"x", b"")] * 1_000))
        entry = {"c": group_name(3), "t": topic, "r": "0", "so": 0, "q": 0, "pt": 0, "it": 60_000, "rq": 0}
        body = json.dumps({"brokerName": "scale", "acks": [{**entry, "b": "/////w=="}] * ACKS}).encode()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            peer.ask_all(*(request(RequestCode.BATCH_ACK_MESSAGE, None, body) for _ in range(8)))


_due_at: dict[int, int] = {}
"""When what :func:`store_timers` has stored is due (wall seconds), by the server's port."""


def store_timers(server: Server) -> None:
    """Store very many timer messages and delayed ones that are due in the same second; return shortly before it."""
    due = _due_at[server.port] = int(time.time()) + TIMERS_DUE_SECONDS
    kinds = ((TIMERS, f"TIMER_DELIVER_MS\x01{due}000\x02"), (DELAYED, "DELAY\x013\x02"))  # 10 s
    with Peer(server.port) as peer:
        for count, how in kinds:
            for first in range(0, count, 500):
                peer.ask_all(*(send_request(topic_name(12), b"%d" % (first + each), 0, how) for each in range(500)))
    time.sleep(max(due - time.time() - 0.5, 0))


def timers_due(server: Server) -> None:
    """What :func:`store_timers` has stored falls due."""
    time.sleep(max(_due_at[server.port] - time.time(), 0) + SECONDS + 3)


def halves_asked(server: Server) -> None:
    """Very many half messages that nobody decides, so that their producer is asked about each."""
    half = "TRAN_MSG\x01true\x02PGROUP\x01nobody\x02UNIQ_KEY\x01half-%d\x02"
    with Peer(server.port) as peer:
        for first in range(0, HALVES, 500):
            peer.ask_all(*(send_request(topic_name(13), b"x", 0, half % (first + each)) for each in range(500)))
    time.sleep(SECONDS + 3)


def _condition() -> str:
    """Return the longest condition that asks for as much as possible, with no operator deep inside of others."""
    parts = [f"(a={number} OR b={number})" for number in range(LONGEST_CONDITION // 26)]
    while len(parts) > 1:
        parts = [f"({' OR '.join(parts[at : at + 2])})" for at in range(0, len(parts), 2)]
    return parts[0]


def _filtered_pull(condition: str, offset: int, wait_ms: int) -> Command:
    ext = {"consumerGroup": group_name(4), "topic": topic_name(14), "queueId": "0", "queueOffset": str(offset)}
    ext |= {"maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": str(wait_ms)}
    return request(
        RequestCode.PULL_MESSAGE, ext | {"subscription": condition, "subVersion": "0", "expressionType": "SQL92"}
    )


def long_conditions(server: Server) -> None:
    """Pulls that look for messages nobody has, by the longest condition; some of them wait while others send."""
    topic, condition = topic_name(14), _condition()
    with Peer(server.port) as peer, Peer(server.port) as waiting:
        for _ in range(0, FILTERED, 1_000):
            peer.ask_all(batch_request(topic, [(0, b"x", b"a\x01-1\x02b\x01-2\x02")] * 1_000))
        until, offset = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            answer = peer.ask_all(_filtered_pull(condition, offset, 0))[0]
            offset = int((answer.ext or {}).get("nextBeginOffset", "0")) % FILTERED
        end = int((peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}).ext or {})["offset"])
        waiting.send(*(_filtered_pull(condition.replace("a=1 ", f"a={each} "), end, 20_000) for each in range(60)))
        time.sleep(0.5)
        for _ in range(20):
            peer.ask_all(*(send_request(topic, b"x", 0, "a\x01-1\x02b\x01-2\x02") for _ in range(30)))


def assignments(server: Server) -> None:
    """Members of a group ask for their share of the queues of a topic that has very many."""
    question = {"topic": "Wide", "consumerGroup": group_name(5), "clientId": "c", "strategyName": "AVG"}
    with Peer(server.port) as peer:
        peer.ask_all(heartbeat("c", [], [group_name(5)], "Wide"))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            body = json.dumps({**question, "messageModel": "CLUSTERING"}).encode()
            peer.ask(RequestCode.QUERY_ASSIGNMENT, body=body)


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("pops of 60,000 queues (200050)", wide_pops, wide_topic),
    ("1,000 waiting pops woken", woken_pops, _nothing),
    ("acknowledgements in batches (200151)", acknowledgements, _nothing),
    ("100,000 timer messages due at once", timers_due, store_timers),
    ("5,000 half messages asked about", halves_asked, _nothing),
    ("the longest conditions", long_conditions, _nothing),
    ("queues of a large topic dealt out (400)", assignments, wide_topic),
]
