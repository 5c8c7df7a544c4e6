"""Queues that the broker deals out to the members of a group."""

from __future__ import annotations

from admin_rig import Peer, Rig, same

from understudy.format import json_dialect
from understudy.remoting.command import Command
from understudy.remoting.errors import ConnectFailedError


async def test_assignment_by_the_broker() -> None:
    rig = Rig()
    rig.topic("%RETRY%gpop", 1)
    rig.topic("PopRaw", 2)
    rig.consumer("gpop", "raw@1", Peer("c:1"))

    for name in ("pop_raw:16", "pop_raw:22", "pop_raw:26", "pop_push_consumer:19", "pop_push_consumer:23"):
        captured, answer = await rig.replay(name)
        assert same(captured, answer), name
    shared = json_dialect.loads((await rig.replay("pop_raw:12"))[1].body)["messageQueueAssignments"]
    assert [(each["messageQueue"]["queueId"], each["mode"]) for each in shared] == [(0, "PULL"), (1, "PULL")]


class Router:
    """Answers route questions: the first name server is down, the second one knows the topic."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def invoke(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked.append(address)
        if address == "down:1":
            raise ConnectFailedError(address, "refused")
        queues = [{"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1} for name in ("b", "a")]
        body = json_dialect.dumps({"brokerDatas": [], "queueDatas": queues})
        return Command(0, "JAVA", 493, command.opaque, 1, None, None, body)


async def test_assignment_spans_the_cluster_and_remembers_routes() -> None:
    router = Router()
    rig = Rig(client=router)
    rig.broker.registration.name_servers = ["down:1", "up:1"]
    rig.consumer("g", "c2", Peer("c:2"))
    rig.consumer("g", "c1", Peer("c:1"))
    body = b'{"topic":"T","consumerGroup":"g","clientId":"c2","messageModel":"CLUSTERING","strategyName":"AVG"}'

    first = await rig.ask(400, body=body)
    second = await rig.ask(400, body=body)

    (shared,) = json_dialect.loads(first.body)["messageQueueAssignments"]
    assert shared["messageQueue"] == {"brokerName": "b", "queueId": 0, "topic": "T"}
    assert second.body == first.body
    assert router.asked == ["down:1", "up:1"]


async def test_pop_mode_is_refused_and_pull_mode_accepted() -> None:
    rig = Rig()
    rig.topic("T")
    body = b'{"topic":"T","consumerGroup":"g","mode":"%s","popShareQueueNum":0}'

    assert (await rig.ask(401, body=body % b"PULL")).code == 0
    refused = await rig.ask(401, body=body % b"POP")
    assert (refused.code, refused.remark) == (3, "group g cannot consume T by POP on this broker, use mode PULL")
    assert (await rig.ask(402)).body == b'{"messageRequestModeMap":{}}'
