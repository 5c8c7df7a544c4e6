"""Clients of a broker by the thousand: they join, leave at once, and others ask who they are."""

from __future__ import annotations

import contextlib
import json
import time

from bench.load.servers import Server, group_name, topic_name
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request

SECONDS = 2.0
CLIENTS = 2_000


def heartbeat(client: str, producers: list[str], consumers: list[str], topic: str = "") -> Command:
    """Return a heartbeat; each consumer group subscribes to *topic*."""
    subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*"}
    subscription |= {"subVersion": 1, "tagsSet": [], "topic": topic}
    data = {
        "clientID": client,
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [subscription] if topic else [],
                "unitMode": False,
            }
            for group in consumers
        ],
        "producerDataSet": [{"groupName": group} for group in producers],
    }
    return request(RequestCode.HEART_BEAT, body=json.dumps(data).encode())


def many_clients(server: Server) -> None:
    """Members of one group come and close all at once."""
    with contextlib.ExitStack() as stack:
        for number in range(CLIENTS):
            peer = stack.enter_context(Peer(server.port))
            peer.send(heartbeat(f"client-{number}", ["senders"], [group_name(1)], topic_name(1)))
        time.sleep(0.5)
    time.sleep(SECONDS)


def _members_of(peer: Peer, code: RequestCode, group: str) -> int:
    """Return how many clients a broker names as members of *group*."""
    answer = peer.ask(code, {"consumerGroup": group})
    if answer.code:
        raise RuntimeError(f"{code.name}: {answer.code} {answer.remark}")
    told = json.loads(answer.body)
    return len(told["consumerIdList" if code == RequestCode.GET_CONSUMER_LIST_BY_GROUP else "connectionSet"])


def members_asked(server: Server) -> None:
    """Some peers ask again and again for the members of a group, while very many are connected."""
    group, codes = group_name(10), (RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    with contextlib.ExitStack() as stack:
        for number in range(CLIENTS):
            peer, command = stack.enter_context(Peer(server.port)), heartbeat(f"m-{number}", [], [group], topic_name(1))
            peer.send(command)
            peer.wait(command)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for code in codes:
                if (count := _members_of(peer, code, group)) != CLIENTS:
                    raise RuntimeError(f"{code.name} names {count} members")
