"""What brokers and clients do to a name server: each load ends by itself within some seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from bench.load.beside import Exchange
from bench.load.broker_loads import Load, asked
from bench.load.servers import Server, topic_name
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request

BROKERS = 500
TOPICS = 20_000
SECONDS = 2.0

_kept: list[Peer] = []


def registration(name: str, topics: range, port: int = 10911, topic_name: Callable[[int], str] = topic_name) -> Command:
    """Return the registration of a master with topics of those numbers."""
    ext = {"brokerName": name, "brokerAddr": f"127.0.0.1:{port}", "clusterName": "Large", "haServerAddr": "127.0.0.1:1"}
    ext |= {"brokerId": "0", "compressed": "false", "bodyCrc32": "0"}
    version = {"counter": 1, "stateVersion": 0, "timestamp": int(time.time() * 1000)}
    rows = {
        topic_name(number): {
            "order": False,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic_name(number),
            "topicSysFlag": 0,
            "writeQueueNums": 4,
        }
        for number in topics
    }
    table = {"dataVersion": version, "topicConfigTable": rows}
    body = {"filterServerList": [], "topicConfigSerializeWrapper": table}
    return request(RequestCode.REGISTER_BROKER, ext, json.dumps(body).encode())


def fill(port: int) -> None:
    """Register :data:`BROKERS` brokers with some topics each, all topics together :data:`TOPICS`."""
    each = TOPICS // BROKERS
    for number in range(BROKERS):
        peer = Peer(port)
        _kept.append(peer)
        command = registration(f"broker-{number}", range(number * each, (number + 1) * each), 1000 + number)
        peer.send(command)
        peer.wait(command)


def ask_route(topic: str) -> Exchange[Peer]:
    """Return the exchange of a client that asks for a route."""
    return Exchange(Peer, lambda peer, number: peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0)


def large_registrations(server: Server) -> None:
    with Peer(server.port) as peer:
        for _ in range(4):
            command = registration("large", range(TOPICS), 9999)
            peer.send(command)
            peer.wait(command)
    time.sleep(SECONDS / 2)


def brokers_leave() -> None:
    """Close the connections of all brokers that :func:`fill` registered."""
    for peer in _kept:
        peer.close()
    _kept.clear()


def brokers_close(server: Server) -> None:
    brokers_leave()
    time.sleep(SECONDS)
    fill(server.port)


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("all topics (206)", asked(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), _nothing),
    ("the cluster (106)", asked(RequestCode.GET_BROKER_CLUSTER_INFO), _nothing),
    ("topics of the cluster (224)", asked(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "Large"}), _nothing),
    ("registrations with 20,000 topics (103)", large_registrations, _nothing),
    ("500 brokers close at once", brokers_close, _nothing),
]
