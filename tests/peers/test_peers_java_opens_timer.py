"""The real Java broker goes on with a timer of ours: it delivers what waits, once, and what was taken back never."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
from peer_connection import Connection
from peer_processes import JAVA, running, server
from test_peers_java_opens_store import bring_back_files, configuration, keep_files, pull_all, split

from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.format.names import TIMER_TOPIC
from understudy.format.record import decode_record
from understudy.remoting.client import open_client
from understudy.remoting.command import request
from understudy.runtime.disk import RealDisk
from understudy.runtime.world import real_world
from understudy.store.timer_check import load_check
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

TOPIC = "Later"
SOON, WAITING = 6, 40
LAST = "last"  # due after all others: what has not come before it does not come
LONGEST_WAIT_S = 90


async def write(folder: Path, port: int, killed: bool) -> None:
    """Have a broker of ours deliver some timer messages, and leave others waiting, one of them taken back."""
    keys = dict(line.split("=", 1) for line in configuration(folder, port).split() if not line.startswith("namesrv"))
    keys |= {"timerWheelEnable": "true", "recallMessageEnable": "true"}
    options, _ = BrokerOptions.from_properties(keys, machine=Machine("vm", "127.0.0.1", str(folder)))
    async with trio.open_nursery() as nursery, open_client(real_world()) as client:
        broker = await nursery.start(host_broker, real_world(), options)

        async def send(name: str, seconds: int) -> str:
            text = f"UNIQ_KEY\x01{name}\x02TIMER_DELAY_SEC\x01{seconds}\x02"
            header = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": text}
            answer = await client.invoke(broker.identity.address, request(310, header, name.encode()), 5_000)
            assert answer.code == 0, answer.remark
            return (answer.ext or {})["recallHandle"]

        for number in range(SOON):
            await send(f"soon {number}", 1)
        soon_ms = int(time.time() * 1000) + 1_000
        for number in range(WAITING):
            await send(f"waiting {number}", 20 + number % 5)
        await send(LAST, 28)
        gone = await send("gone", 22)
        answer = await client.invoke(
            broker.identity.address, request(370, {"topic": TOPIC, "recallHandle": gone}), 5_000
        )
        assert answer.code == 0, answer.remark
        await until(lambda: broker.store.max_queue_offset(TOPIC, 0) == SOON and broker.timer.waiting == WAITING + 1)
        # and the files say so, as they would after a kill
        topics, check = (folder / "config" / name for name in ("topics.json", "timercheck"))
        await until(lambda: topics.exists() and TOPIC in topics.read_text())

        def quiet() -> bool:
            kept, _ = load_check(RealDisk(), str(check))
            return kept.read_ms >= soon_ms and kept.queue_offset == broker.store.max_queue_offset(TIMER_TOPIC, 0)

        await until(quiet)
        if killed:
            keep_files(folder)
        nursery.cancel_scope.cancel()
    if killed:
        bring_back_files(folder)


def play(folder: Path, port: int, killed: bool) -> Counter[str]:
    """Return how often the real broker has delivered each message."""
    # Given a store in which our timer has delivered some messages, and holds others
    trio.run(write, folder / "store", port, killed)
    sent_s = time.time()
    text = configuration(folder / "store", port).replace("timerWheelEnable=false", "timerWheelEnable=true")
    assert json.loads((folder / "store" / "config" / "topics.json").read_text())["topicConfigTable"][TOPIC]

    # When the real broker starts on it, and their seconds come
    with running(server(JAVA, "broker", "broker", folder / "java", text)):
        connection = Connection(port)
        try:
            found: Counter[str] = Counter()
            while time.time() < sent_s + LONGEST_WAIT_S and LAST not in found:
                time.sleep(0.5)
                records = [decode_record(each) for each in split(pull_all(connection, TOPIC, 0))]
                found = Counter(record.body.decode() for record in records)
        finally:
            connection.close()
    return found


@pytest.fixture(scope="module")
def outcomes(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, Future[Counter[str]]]]:
    """Of a store that was closed, and of one that is as a kill left it: played at once, for both mostly wait."""
    with ThreadPoolExecutor() as threads:
        yield {
            killed: threads.submit(play, tmp_path_factory.mktemp("timer"), port_blocks.take(), killed)
            for killed in (False, True)
        }


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.covers("SC-05")
def test_a_java_broker_delivers_what_waits_in_our_timer(
    killed: bool, outcomes: dict[bool, Future[Counter[str]]]
) -> None:
    # Then every message came once, and the one that was taken back did not
    expected = Counter(f"soon {number}" for number in range(SOON))
    expected += Counter([*(f"waiting {number}" for number in range(WAITING)), LAST])
    assert outcomes[killed].result() == expected
