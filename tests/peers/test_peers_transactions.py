"""Transactions that one broker leaves in the middle and the other finishes: the real one and ours, in both orders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from peer_connection import Connection
from peer_processes import JAVA, OURS, running, server
from test_peers_java_opens_store import configuration, split

from understudy.format.json_dialect import loads
from understudy.format.names import CHECK_TIMES_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from understudy.format.properties import format_properties
from understudy.format.record import decode_record
from understudy.testkit.port_blocks import PortBlocks

TOPIC, GROUP = "T", "pg"
COMMIT, ROLLBACK = 8, 12
SETTINGS = (
    "transactionCheckInterval={interval_ms}\ntransactionTimeOut=1500\ntransactionCheckMax=3\n"
    "transactionOpBatchInterval=300\nflushConsumerOffsetInterval=500\n"
)
#: Milliseconds between two looks at half messages: of the first broker so many that it has saved its progress well
#: before the second look (the real one saves nothing for ten seconds), of the second one few.
FIRST_MS, SECOND_MS = {JAVA: 14_000, OURS: 5_000}, 3_000
HALVES = 5


class Producer(Connection):
    """One connection that sends half messages and is asked about them."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.asked: list[dict[str, str]] = []
        beat = {"clientID": "c", "consumerDataSet": [], "producerDataSet": [{"groupName": GROUP}]}
        assert self.call(34, {}, json.dumps(beat).encode())[0]["code"] == 0

    def prepare(self, key: str) -> dict[str, str]:
        """Send a half message; return what the answer says of its place."""
        pairs = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": key, "KEYS": key}
        ext = {"a": GROUP, "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": 4, "g": int(time.time() * 1000), "h": 0}
        header, _ = self.call(310, {**ext, "i": format_properties(pairs), "j": 0, "k": "false", "m": "false"}, b"x")
        assert header["code"] == 0, header
        answer: dict[str, str] = header["extFields"]
        return {"tranStateTableOffset": answer["queueOffset"], "commitLogOffset": str(int(answer["msgId"][16:], 16))}

    def decide(self, half: dict[str, str], choice: int, *, checked: bool) -> None:
        fields = {"producerGroup": GROUP, "commitOrRollback": choice, "fromTransactionCheck": str(checked).lower()}
        places = {name: half[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        header, _ = self.call(37, {**fields, **places, "msgId": "x"})
        assert header["code"] == 0, header

    def pull(self, topic: str) -> list[str]:
        """Return the unique keys of everything in a topic of one queue."""
        fields = {"consumerGroup": "CID_RMQ_SYS_reader", "topic": topic, "queueId": 0, "queueOffset": 0}
        fields |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*"}
        header, body = self.call(11, {**fields, "subVersion": 0, "expressionType": "TAG"})
        if header["code"] != 0:
            return []
        return [decode_record(part).properties["UNIQ_KEY"] for part in split(body)]

    def await_true(self, condition: Callable[[], bool], what: str, limit_s: float = 30) -> None:
        """Ask until *condition* holds; what the broker asks meanwhile is kept."""
        until = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < until, f"{what}: not within {limit_s} s"
            self.pull(TOPIC)
            time.sleep(0.1)

    def told(self, request: dict[str, Any]) -> None:
        if request["code"] == 39:
            self.asked.append(request["extFields"])


def saved_progress(folder: Path) -> int:
    """Return how many half messages a broker is done with, as its file says."""
    path = folder / "config" / "consumerOffset.json"
    offsets = loads(path.read_bytes())["offsetTable"] if path.exists() else {}
    return int(offsets.get(f"{HALF_TOPIC}@{TRANSACTION_GROUP}", {}).get("0", 0))


def play(first: str, second: str, ports: tuple[int, int], place: Path) -> tuple[set[str], list[str]]:
    """Leave transactions in the middle at the *first* kind of broker; return what the *second* asks, and delivers."""
    folder = place / "store"
    # Given half messages of which one is committed, one rolled back, and the others asked about once
    port = ports[0]
    text = configuration(folder, port) + SETTINGS.format(interval_ms=FIRST_MS[first])
    one = server(first, "broker", "first", place / "first", text)
    try:
        one.start().await_boot()
        producer = Producer(port)
        halves = [producer.prepare(str(number)) for number in range(HALVES)]
        producer.decide(halves[0], COMMIT, checked=False)
        producer.decide(halves[1], ROLLBACK, checked=False)
        producer.await_true(lambda: {"2", "3", "4"} <= {each["msgId"] for each in producer.asked}, "the first checks")
        producer.await_true(lambda: saved_progress(folder) >= HALVES, "the progress is saved")
        producer.close()
    finally:
        # and a broker that is killed then
        one.kill()
    # When the other one opens its store and the producer comes back
    port = ports[1]
    text = configuration(folder, port) + SETTINGS.format(interval_ms=SECOND_MS)
    two = server(second, "broker", "second", place / "second", text)
    with running(two):
        producer = Producer(port)
        try:
            # Then it asks about those that are undecided, and no other
            producer.await_true(lambda: {"2", "3"} <= {each["msgId"] for each in producer.asked}, "its checks")
            for key, choice in (("2", COMMIT), ("3", ROLLBACK)):
                newest = [each for each in producer.asked if each["msgId"] == key][-1]
                producer.decide(newest, choice, checked=True)
            # and gives up what nobody decides
            producer.await_true(lambda: producer.pull(CHECK_TIMES_TOPIC) == ["4"], "the last one is given up")
            return {each["msgId"] for each in producer.asked}, producer.pull(TOPIC)
        finally:
            producer.close()


ORDERS = [(JAVA, OURS), (OURS, JAVA)]


@pytest.fixture(scope="module")
def plays(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[tuple[set[str], list[str]]]]]:
    """Both orders at once, for both mostly wait."""
    with ThreadPoolExecutor() as threads:
        yield {
            order: threads.submit(
                play, *order, (port_blocks.take(), port_blocks.take()), tmp_path_factory.mktemp("transactions")
            )
            for order in ORDERS
        }


@pytest.mark.slow
@pytest.mark.covers("TX-01", "TX-03", "TX-05", "TX-12")
@pytest.mark.parametrize("order", ORDERS, ids=["java-ours", "ours-java"])
def test_what_one_leaves_in_the_middle_the_other_finishes(
    order: tuple[str, str], plays: dict[tuple[str, str], Future[tuple[set[str], list[str]]]]
) -> None:
    asked, delivered = plays[order].result()
    assert asked <= {"2", "3", "4"}
    assert delivered == ["0", "2"]
