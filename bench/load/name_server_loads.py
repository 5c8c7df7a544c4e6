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


def single_topics(server: Server) -> None:
    """Topics that stand at every broker are told one by one."""
    row = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}
    queues = [{"brokerName": f"broker-{number}", **row} for number in range(BROKERS)]
    body = json.dumps({"queueDatas": queues, "brokerDatas": [], "filterServerTable": {}}).encode()
    _repeated(server, lambda number: request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": f"told-{number}"}, body))


def key_values(server: Server) -> None:
    """Values of 4 KB are set and forgotten; each is durable before it is answered."""

    def command(number: int) -> Command:
        fields = {"namespace": "bench", "key": str(number // 2)}
        if number % 2:
            return request(RequestCode.DELETE_KV_CONFIG, fields)
        return request(RequestCode.PUT_KV_CONFIG, {**fields, "value": "v" * 4_096})

    _repeated(server, command)


def settings_changed(server: Server) -> None:
    """A setting is changed again and again."""

    def command(number: int) -> Command:
        return request(
            RequestCode.UPDATE_NAMESRV_CONFIG, None, f"enableTopicList={str(bool(number % 2)).lower()}".encode()
        )

    _repeated(server, command)
    _repeated(server, lambda number: command(1), seconds=0.0)


def _repeated(server: Server, command: Callable[[int], Command], seconds: float = SECONDS) -> None:
    """Ask *command* of a number, and of the next one, for some time. Raises ``RuntimeError``: it is refused."""
    until, number = time.monotonic() + seconds, 0
    with Peer(server.port) as peer:
        while not number or time.monotonic() < until:
            asked = command(number)
            peer.send(asked)
            answer = peer.wait(asked)
            if answer.code:
                raise RuntimeError(f"request {asked.code} is refused: {answer.code} {answer.remark}")
            number += 1


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("all topics (206)", asked(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), _nothing),
    ("the cluster (106)", asked(RequestCode.GET_BROKER_CLUSTER_INFO), _nothing),
    ("topics of the cluster (224)", asked(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "Large"}), _nothing),
    ("registrations with 20,000 topics (103)", large_registrations, _nothing),
    ("topics of 500 brokers told one by one (217)", single_topics, _nothing),
    ("key-values set and forgotten (100, 102)", key_values, _nothing),
    ("settings of a name server changed (318)", settings_changed, _nothing),
    ("500 brokers close at once", brokers_close, _nothing),
]
