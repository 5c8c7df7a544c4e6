"""The real Java broker finishes pops of ours: what was not acknowledged comes back there, once, and nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
import trio
from peer_connection import Connection
from peer_processes import JAVA, running, server
from test_peers_java_opens_store import bring_back_files, configuration, keep_files, pull_all, split

from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.format.json_dialect import loads
from understudy.format.names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX
from understudy.format.receipts import Receipt
from understudy.format.record import decode_record, decode_records
from understudy.remoting.client import open_client
from understudy.remoting.command import Command, request
from understudy.runtime.world import real_world
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.waiting import until

TOPIC, GROUP, RETRY = "Popped", "g_pop", "%RETRY%g_pop_Popped"
MESSAGES, REVIVE_QUEUES = 24, 2
LAST_MS = 35_000
"""When the last ones come back, one in each queue of the revive topic: what has not come before does not come."""
LONGEST_WAIT_S = 120


async def write(folder: Path, port: int, killed: bool) -> set[str]:
    """Have a broker of ours hand out messages for different times and take some acknowledgements; return the others."""
    keys = dict(line.split("=", 1) for line in configuration(folder, port).split() if not line.startswith("namesrv"))
    keys |= {"timerWheelEnable": "true", "reviveQueueNum": str(REVIVE_QUEUES)}
    options, _ = BrokerOptions.from_properties(keys, machine=Machine("vm", "127.0.0.1", str(folder)))
    left: set[str] = set()
    async with trio.open_nursery() as nursery, open_client(real_world()) as client:
        broker = await nursery.start(host_broker, real_world(), options)

        async def ask(code: int, header: dict[str, str], body: bytes = b"") -> Command:
            answer = await client.invoke(broker.identity.address, request(code, header, body), 5_000)
            assert answer.code == 0, answer.remark
            return answer

        for number in range(MESSAGES + REVIVE_QUEUES):
            text = f"UNIQ_KEY\x01u{number}\x02TAGS\x01TagA\x02"
            header = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0", "i": text}
            await ask(310, header, f"popped {number}".encode())
        pops = [(2_000, MESSAGES // 3), (15_000, MESSAGES // 3), (25_000, MESSAGES // 3)]
        pops += [(LAST_MS, 1)] * REVIVE_QUEUES
        for invisible_ms, count in pops:  # in the retry topic, in the revive log, in the timer, and a good while after
            header = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": str(count)}
            times = {"invisibleTime": str(invisible_ms), "pollTime": "0", "bornTime": "0", "initMode": "0"}
            answer = await ask(200050, header | times)
            ext = answer.ext or {}
            start = int(ext["startOffsetInfo"].split(" ")[2])
            for record in decode_records(answer.body):
                if record.queue_offset % 2 or invisible_ms == LAST_MS:
                    left.add(record.body.decode())
                    continue
                place = int(ext["popTime"]), invisible_ms, int(ext["reviveQid"]), "0", "broker-a", 0
                receipt = Receipt(start, *place, record.queue_offset)
                fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": str(record.queue_offset)}
                await ask(200051, {**fields, "extraInfo": receipt.text})
        # the first third, less what was acknowledged, is in the retry topic
        await until(lambda: broker.store.max_queue_offset(RETRY, 0) >= MESSAGES // 6, 60)
        # and the files say so, as they would after a kill
        topics, offsets = (folder / "config" / name for name in ("topics.json", "consumerOffset.json"))
        revived = f"{REVIVE_TOPIC_PREFIX}{broker.identity.cluster}@{REVIVE_GROUP}"

        def done() -> bool:
            places = loads(offsets.read_bytes())["offsetTable"].get(revived, {}) if offsets.exists() else {}
            return topics.exists() and RETRY in topics.read_text() and any(place > 0 for place in places.values())

        await until(done)
        if killed:
            keep_files(folder)
        nursery.cancel_scope.cancel()
    if killed:
        bring_back_files(folder)
    return left


@attrs.frozen
class Outcome:
    """What nobody acknowledged, how often each message came back at the real broker, and which try each was."""

    left: set[str]
    found: Counter[str]
    tries: set[int]


def play(folder: Path, port: int, killed: bool) -> Outcome:
    # Given a store in which ours has handed out messages, and holds check points and acknowledgements of them
    left = trio.run(write, folder / "store", port, killed)
    began_s = time.time()
    text = configuration(folder / "store", port).replace("timerWheelEnable=false", "timerWheelEnable=true")

    # When the real broker starts on it, and their times are over
    text += f"reviveQueueNum={REVIVE_QUEUES}\n"
    with running(server(JAVA, "broker", "broker", folder / "java", text)):
        connection = Connection(port)
        found: Counter[str] = Counter()
        try:
            while time.time() < began_s + LONGEST_WAIT_S and len(found) < len(left):
                time.sleep(0.5)
                records = [decode_record(each) for each in split(pull_all(connection, RETRY, 0))]
                found = Counter(record.body.decode() for record in records)
        finally:
            connection.close()
    return Outcome(left, found, {record.reconsume_times for record in records})


@pytest.fixture(scope="module")
def outcomes(
    java_home: Path, port_blocks: PortBlocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, Future[Outcome]]]:
    """Of a store that was closed, and of one that is as a kill left it: played at once, for both mostly wait."""
    with ThreadPoolExecutor() as threads:
        yield {
            killed: threads.submit(play, tmp_path_factory.mktemp("pops"), port_blocks.take(), killed)
            for killed in (False, True)
        }


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_a_java_broker_finishes_our_pops(killed: bool, outcomes: dict[bool, Future[Outcome]]) -> None:
    outcome = outcomes[killed].result()
    # Then everything that was not acknowledged came back once, and nothing else
    assert outcome.found == Counter(outcome.left)
    assert outcome.tries == {1}
