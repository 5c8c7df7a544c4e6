"""No handler of any program reads a large body of JSON on the event loop."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from understudy.format.json_dialect import dumps
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.proxy.config import config_of
from understudy.proxy.server import Proxy
from understudy.remoting import bodies
from understudy.remoting.bodies import JSON_BODIES, LARGE_BODY_BYTES, JsonError, json_of
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import Command, request
from understudy.remoting.connection import Connection
from understudy.remoting.dispatch import Dispatcher
from understudy.testkit.led.group import TOPIC, led_group
from understudy.testkit.sim.determinism import run_seed

ROOT = Path(__file__).parents[2]
SERVERS = "broker container controller ha namesrv proxy remoting security mqclient"

LEFT_ALONE = frozenset(
    {RequestCode.REMOVE_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.RESET_MASTER_FLUSH_OFFSET}
)
"""Their bodies are empty, and they end what is asked."""

EXT = {
    "topic": "T", "group": "g", "consumerGroup": "g", "queueId": "0", "key": "k", "clientId": "c", "offset": "0",
    "brokerName": "g", "brokerAddr": "10.9.9.9:1", "brokerAddress": "10.9.9.9:1", "clusterName": "C", "brokerId": "7",
    "haServerAddr": "", "masterBrokerId": "1", "masterEpoch": "1", "maxNum": "1", "beginTimestamp": "0",
    "endTimestamp": "1", "index": "0", "count": "1", "timestamp": "0", "isForce": "true", "namespace": "n",
    "value": "v", "username": "u", "subject": "User:u", "cluster": "C", "queueOffset": "0", "maxMsgNums": "1",
}  # fmt: skip
BODY = dumps(
    {
        "clientID": "c", "clientId": "c", "consumerGroup": "g", "topic": "T", "mqSet": [], "reads": [],
        "junk": ["x" * 100] * (LARGE_BODY_BYTES // 100),
    }
)  # fmt: skip


READS_JSON = {
    "broker/pop/revive_log.py": "messages of the revive topic, which brokers write",
    "broker/admin/paging.py": "a version in a header",
    "broker/admin/relays.py": "keys of an answer",
    "broker/replicated/rules.py": "tables of a master, in steps beside the loop where they are large",
    "mqclient/offsets.py": "single queues, and a client's own file",
    "namesrv/registration_body.py": "the parts of a registration, by its own reading",
    "proxy/config.py": "a file",
    "remoting/bodies.py": "the one place for bodies",
    "security/settings.py": "a file",
}
"""Modules that may read JSON by themselves, and what."""


class Desk:
    """A connection whose peer wants no answers."""

    address, source, peer, local = "10.0.0.1:4000", "10.0.0.1", ("10.0.0.1", 4000), ("10.0.0.2", 1)
    alive, choked = True, False

    def __init__(self, nursery: trio.Nursery) -> None:
        self.state: dict[str, object] = {}
        self._nursery = nursery

    def write(self, frame: object) -> None: ...
    def notify(self, command: Command) -> None: ...
    def respond(self, to: Command, answer: Command) -> None: ...
    def close(self, reason: str) -> None: ...
    def when_drained(self, callback: object) -> None: ...

    def start_soon(self, run: Any, *args: object) -> bool:
        self._nursery.start_soon(run, *args)
        return True


async def listen(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None: ...


def test_every_handler_of_every_program_reads_large_json_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Dispatcher] = []
    made = Dispatcher.__init__
    read: dict[str, set[int]] = defaultdict(set)
    in_place: set[tuple[str, int]] = set()
    here = ""

    def noted(self: Dispatcher, *args: Any) -> None:
        made(self, *args)
        met.append(self)

    def is_large(command: Command) -> bool:  # asked once by each reading of JSON
        if len(command.body) < LARGE_BODY_BYTES:
            return False
        read[here].add(command.code)
        if command.read_ahead is None:
            in_place.add((here, command.code))
        return True

    async def scenario(source: random.Random) -> None:
        nonlocal here
        async with led_group(source, {}) as group:
            cluster = group.cluster
            await group.create_topic(await group.ready(3))
            await cluster.start_container("c1", [{"brokerName": "alone"}])
            values = {"namesrvAddr": cluster.name_servers, "localServeAddr": "p1", "tlsServerMode": "disabled"}
            proxy = Proxy(cluster.client_world("p1"), config_of(values, "test")[0])
            servers, options = cluster.name_servers, PushConsumerOptions()
            async with (
                trio.open_nursery() as nursery,
                open_push_consumer(cluster.client_world("r"), servers, "g", {TOPIC: "*"}, listen, options),
            ):
                await nursery.start(proxy.run)
                monkeypatch.setattr(bodies, "is_large", is_large)
                for number, each in enumerate(met):
                    here = f"{number} {type(each).__name__}"
                    async with trio.open_nursery() as asking:
                        desk = cast(Connection, Desk(asking))
                        for code in sorted(each.codes - LEFT_ALONE):
                            each.dispatch(desk, request(code, dict(EXT), BODY))
                        await trio.sleep(0.05)
                        asking.cancel_scope.cancel()
                nursery.cancel_scope.cancel()

    monkeypatch.setattr(Dispatcher, "__init__", noted)
    run_seed(scenario, 1)
    codes = frozenset[int]().union(*(each.codes for each in met))
    assert JSON_BODIES <= codes  # every program is there
    for number, each in enumerate(met):  # and was looked into
        name = f"{number} {type(each).__name__}"
        assert JSON_BODIES & each.codes <= read[name], name
    assert in_place == set()


def test_a_large_body_whose_code_has_no_reading_is_refused() -> None:
    with pytest.raises(JsonError, match=f"has {len(BODY)} bytes, such a body may have {LARGE_BODY_BYTES - 1}"):
        json_of(Command(1, body=BODY))
    assert json_of(Command(1, body=b'{"a":1}')) == {"a": 1}


def test_json_of_peers_is_read_in_one_place() -> None:
    found = set()
    for room in SERVERS.split():
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
                if name in ("loads", "loads_in_steps", "loads_at_once"):
                    found.add(str(path.relative_to(ROOT)))
    assert found == set(READS_JSON)
