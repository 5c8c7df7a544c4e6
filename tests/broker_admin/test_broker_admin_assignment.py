"""Queues that the broker deals out to the members of a group."""

from __future__ import annotations

import pytest
from admin_rig import Peer, Rig, same
from hypothesis import given
from hypothesis import strategies as st

from understudy.broker.admin.assignment import STRATEGIES, shared_for_pops
from understudy.broker.request_modes import read_modes
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
    mode = b'{"topic":"PopRaw","consumerGroup":"gpop","mode":"POP","popShareQueueNum":0}'
    assert (await rig.ask(401, body=mode)).code == 0
    captured, answer = await rig.replay("pop_raw:12")
    assert same(captured, answer)


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


@pytest.mark.covers("PP-18")
async def test_a_mode_that_was_set_decides_how_queues_are_shared() -> None:
    rig = Rig()
    rig.topic("T")
    rig.consumer("g", "c1", Peer("c:1"))
    setting = b'{"topic":"%s","consumerGroup":"g","mode":"%s","popShareQueueNum":0}'
    question = b'{"topic":"T","consumerGroup":"g","clientId":"c1","messageModel":"CLUSTERING","strategyName":"AVG"}'

    assert (await rig.ask(401, body=setting % (b"T", b"POP"))).code == 0
    (row,) = json_dialect.loads((await rig.ask(400, body=question)).body)["messageQueueAssignments"]
    assert (row["mode"], row["messageQueue"]["queueId"]) == ("POP", -1)
    table = json_dialect.loads((await rig.ask(402)).body)
    kept = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, "topic": "T"}
    assert table == {"messageRequestModeMap": {"T": {"g": kept}}}
    assert read_modes(table) == rig.broker.request_modes.rows
    assert (await rig.ask(401, body=setting % (b"T", b"PULL"))).code == 0
    rows = json_dialect.loads((await rig.ask(400, body=question)).body)["messageQueueAssignments"]
    assert {row["mode"] for row in rows} == {"PULL"}


@pytest.mark.parametrize(
    ("topic", "mode", "code"), [(b"%RETRY%g", b"POP", 16), (b"Missing", b"POP", 17), (b"T", b"PUSH", 29)]
)
async def test_modes_that_cannot_be_set(topic: bytes, mode: bytes, code: int) -> None:
    rig = Rig()
    rig.topic("T")
    body = b'{"topic":"%s","consumerGroup":"g","mode":"%s","popShareQueueNum":0}' % (topic, mode)
    assert (await rig.ask(401, body=body)).code == code
    assert rig.broker.request_modes.rows == {}


@pytest.mark.parametrize("value", [[], {"T": 1}, {"T": {"g": 1}}, {"T": {"g": {"mode": "x"}}}])
def test_a_damaged_table_of_modes_is_named(value: list[int] | dict[str, object]) -> None:
    with pytest.raises(ValueError, match="messageRequestModeMap"):
        read_modes({"messageRequestModeMap": value or [1]})


@given(st.integers(1, 9), st.integers(1, 9), st.integers(-1, 9), st.sampled_from(sorted(STRATEGIES)))
@pytest.mark.covers("PP-18")
def test_shares_of_popping_clients(clients: int, queues: int, share: int, strategy: str) -> None:
    """Every queue belongs to somebody, no client is left out, and each has its own and those of the next ones."""
    client_ids = [f"c{each}" for each in range(clients)]
    all_queues = [("T", "b", each) for each in range(queues)]
    shares = [shared_for_pops(each, all_queues, client_ids, STRATEGIES[strategy], share) for each in client_ids]
    assert all(shares)
    if share <= 0 or share >= clients - 1:
        assert {queue for each in shares for queue in each} == {("T", "b", -1)}
    else:
        assert {queue for each in shares for queue in each} == set(all_queues)
        if clients <= queues:
            own = STRATEGIES[strategy](client_ids[0], all_queues, client_ids)
            assert shares[0][: len(own)] == own
            assert len(set(shares[0])) == len(shares[0])
    assert shared_for_pops("stranger", all_queues, client_ids, STRATEGIES[strategy], 1) in (
        [],
        [("T", "b", -1)] * queues,
    )
