"""Pops through kills and power losses: nothing is lost, and what was acknowledged does not come again."""

from __future__ import annotations

import random
from collections.abc import Mapping

import attrs
import pytest
import trio

from understudy.format.receipts import Receipt
from understudy.format.record import decode_records
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.command import Command, request
from understudy.remoting.errors import ConnectFailedError, RemotingError
from understudy.testkit.sim.cluster import FIRST_BROKER_PORT, SimCluster
from understudy.testkit.sim.determinism import run_seed

BROKER = {"brokerName": "broker-a", "autoCreateSubscriptionGroup": "true", "reviveQueueNum": "2"}
MESSAGES = 30
INVISIBLE_MS = 3_000


@attrs.define
class Story:
    """What the clients of one run were told.

    Attributes:
        sent: messages whose send was acknowledged.
        delivered: how often each message was handed out.
        acknowledged: messages whose acknowledgement the broker has answered.
        unanswered: messages whose acknowledgement went out and may have been taken, as no answer came.
        again: messages that were handed out after that.
    """

    sent: set[int] = attrs.Factory(set)
    delivered: dict[int, int] = attrs.Factory(dict)
    acknowledged: set[int] = attrs.Factory(set)
    unanswered: set[int] = attrs.Factory(set)
    again: set[int] = attrs.Factory(set)


async def ask(
    client: RemotingClient, address: str, code: int, header: Mapping[str, str], body: bytes = b""
) -> Command | None:
    try:
        return await client.invoke(address, request(code, dict(header), body), 3_000)
    except RemotingError:
        return None


async def send(client: RemotingClient, address: str, story: Story, number: int) -> None:
    properties = f"UNIQ_KEY\x01u{number}\x02"
    header = {"a": "pg", "b": "T", "c": "TBW102", "d": "2", "e": str(number % 2), "f": "0", "g": "1", "h": "0"}
    answer = await ask(
        client, address, 310, {**header, "i": properties, "j": "0", "k": "false", "m": "false"}, b"%d" % number
    )
    if answer is not None and answer.code == 0:
        story.sent.add(number)


async def pop(client: RemotingClient, address: str, story: Story, source: random.Random, ack_chance: float) -> bool:
    """Pop once and acknowledge some of it; return whether there was something."""
    header = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "8", "pollTime": "0", "initMode": "0"}
    answer = await ask(client, address, 200050, {**header, "invisibleTime": str(INVISIBLE_MS), "bornTime": "0"})
    if answer is None or answer.code != 0 or answer.ext is None:
        return False
    starts = {tuple(each.split()[:2]): each.split()[2] for each in answer.ext["startOffsetInfo"].split(";")}
    places = [
        (mark, queue, offset)
        for mark, queue, offsets in (each.split() for each in answer.ext["msgOffsetInfo"].split(";"))
        for offset in offsets.split(",")
    ]
    for record, (mark, queue, offset) in zip(decode_records(answer.body), places, strict=True):
        number = int(record.body)
        story.delivered[number] = story.delivered.get(number, 0) + 1
        if number in story.acknowledged:
            story.again.add(number)
        times = int(answer.ext["popTime"]), INVISIBLE_MS, int(answer.ext["reviveQid"])
        receipt = Receipt(int(starts[mark, queue]), *times, mark, "broker-a", int(queue), int(offset))
        if source.random() < ack_chance:
            real = "T" if mark == "0" else "%RETRY%g_T"
            fields = {
                "consumerGroup": "g",
                "topic": real,
                "queueId": queue,
                "offset": offset,
                "extraInfo": receipt.text,
            }
            try:
                acked = await client.invoke(address, request(200051, fields), 3_000)
            except ConnectFailedError:
                continue
            except RemotingError:
                story.unanswered.add(number)
                continue
            if acked.code == 0:
                story.acknowledged.add(number)
    return True


async def crashes(source: random.Random, keys: Mapping[str, str], power: bool) -> Story:
    """Send, pop and acknowledge while the broker dies twice; then pop until nothing comes any more."""
    story = Story()
    async with SimCluster(source) as cluster:
        await cluster.start_container("c1", [{**BROKER, **keys}])
        address = f"{cluster.address('c1')}:{FIRST_BROKER_PORT}"
        async with open_client(cluster.client_world()) as client, trio.open_nursery() as nursery:

            async def produce() -> None:
                for number in range(MESSAGES):
                    await send(client, address, story, number)
                    await trio.sleep(source.uniform(0, 0.3))

            async def consume() -> None:
                while True:
                    await pop(client, address, story, source, 0.6)
                    await trio.sleep(source.uniform(0, 0.3))

            nursery.start_soon(produce)
            nursery.start_soon(consume)
            for _ in range(2):
                await trio.sleep(source.uniform(1, 6))
                await cluster.kill("c1", power=power)
                await trio.sleep(source.uniform(0, 4))
                await cluster.restart("c1")
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        async with open_client(cluster.client_world()) as client:
            quiet = 0
            while quiet < 40:
                quiet = 0 if await pop(client, address, story, source, 1.0) else quiet + 1
                await trio.sleep(0.5)
    return story


def check(story: Story) -> None:
    assert len(story.sent) >= MESSAGES // 3
    assert story.sent <= story.delivered.keys()
    assert story.sent <= story.acknowledged | story.unanswered
    assert story.again == set()


@pytest.mark.parametrize("seed", [*range(4), 216])  # 216: an acknowledgement is taken, and its answer lost
@pytest.mark.covers("PP-03")
def test_power_losses_with_synchronous_flush(seed: int) -> None:
    check(run_seed(lambda source: crashes(source, {"flushDiskType": "SYNC_FLUSH"}, True), seed))


@pytest.mark.parametrize("seed", range(4))
def test_kills(seed: int) -> None:
    check(run_seed(lambda source: crashes(source, {}, False), seed))


@pytest.mark.parametrize("seed", range(3))
def test_power_losses_lose_no_message_that_survived(seed: int) -> None:
    """With asynchronous flush the end of the log is lost; what is left of it is delivered."""

    async def run(source: random.Random) -> Story:
        return await crashes(source, {}, True)

    story = run_seed(run, seed)
    assert len(story.delivered) >= len(story.sent) - 12
