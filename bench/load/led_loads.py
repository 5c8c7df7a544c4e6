"""What peers do to a broker that a controller leads: each load ends by itself within some seconds."""

from __future__ import annotations

import contextlib
import json
import time

from bench.load.broker_loads import Load, asked
from bench.load.servers import Server, make_topic
from bench.load.wire import Peer
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request

SECONDS = 2.0
WAIT_SECONDS = 30.0


def keys(controller_port: int) -> dict[str, object]:
    """Return the settings of a broker that the controller on that port leads."""
    return {"enableControllerMode": "true", "controllerAddr": f"127.0.0.1:{controller_port}", "brokerId": -1}


def await_master(server: Server, topic: str) -> None:
    """Wait until the broker is master, and make a topic. Raises ``RuntimeError``: it is none in time."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        with Peer(server.port) as peer:
            answer = peer.ask(RequestCode.GET_BROKER_HA_STATUS)
        if not answer.code and json.loads(answer.body).get("master"):
            make_topic(server.port, topic)
            return
        if time.monotonic() > until:
            raise RuntimeError(f"no master within {WAIT_SECONDS:g} s: {answer.code} {answer.remark}")
        time.sleep(0.1)


def push(epoch: int, members: int = 3) -> Command:
    """Return a push that says who is master, as anybody can send it."""
    fields = {"masterBrokerId": "1", "masterAddress": "127.0.0.1:9", "masterEpoch": str(epoch)}
    body = json.dumps({"syncStateSet": list(range(1, members + 1)), "syncStateSetEpoch": epoch}).encode()
    return request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields, body, oneway=True)


def pushes(server: Server) -> None:
    """Pushes of ever newer roles."""
    with Peer(server.port) as peer:
        until, epoch = time.monotonic() + SECONDS, 100
        while time.monotonic() < until:
            peer.send(*(push(epoch + each) for each in range(1_000)))
            epoch += 1_000
            time.sleep(0.02)


def large_pushes(server: Server) -> None:
    """Pushes with sets of a million members."""
    data = push(100, 1_000_000)
    with Peer(server.port) as peer:
        for _ in range(3):
            peer.send(data)
            peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Beside", "queueId": "0"})


def every_code(server: Server) -> None:
    """Codes of controllers, which a broker does not answer, and those about its role, with bodies that fit nowhere."""
    fields = {"masterAddress": "127.0.0.1:9", "masterHaAddress": "127.0.0.1:9", "masterFlushOffset": "1" * 30}
    fields |= {"brokerName": "scale", "clusterName": "DefaultCluster", "brokerId": "1"}
    for code in (code for code in RequestCode if 900 <= code < 1_100 and code not in _CHANGES):
        for body in (b"", b"[" * 10_000, b'{"a":' * 10_000, b"null", b"\xff" * 100_000, b'"' * 1_000_000):
            with contextlib.suppress(OSError), Peer(server.port) as peer:
                peer.socket.settimeout(2)
                peer.ask(code, fields, body)


_CHANGES = frozenset({902, 903, 953, 957, 958})
"""Codes that would change what the broker is, or whom it serves."""


def _nothing(server: Server) -> None:
    return None


LOADS: list[tuple[str, Load, Load]] = [
    ("pushes of a role (1008)", pushes, _nothing),
    ("pushes with a million members (1008)", large_pushes, _nothing),
    ("epochs of a led broker (1007)", asked(RequestCode.GET_BROKER_EPOCH_CACHE), _nothing),
    ("every code of a led broker", every_code, _nothing),
]
