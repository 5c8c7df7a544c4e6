"""A real broker is elected before it has copied the table of topics: a topic that it never heard of stays at ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.format.json_dialect import loads
from understudy.remoting.client import open_client
from understudy.remoting.codes import RequestCode
from understudy.remoting.command import request
from understudy.runtime.world import real_world
from understudy.testkit.drills.led_replicas import KINDS, PORTS, LedReplicas, probe
from understudy.testkit.java_tools import LAUNCHER
from understudy.testkit.port_blocks import PortBlocks
from understudy.testkit.topic_fields import topic_fields

pytestmark = pytest.mark.slow
SENT, TRIES = 5, 4
OURS, REAL = (0, 1), 2


class Group(LedReplicas):
    """The drill's group without clients."""

    async def topics(self, number: int) -> set[str]:
        """Return the topics that a replica has."""
        answer = await self.ask_replica(number, request(RequestCode.GET_ALL_TOPIC_CONFIG))
        return set() if answer is None else set(loads(answer.body)["topicConfigTable"])

    async def elect_real_one_that_lacks_a_topic(self) -> str:
        """Send to a new topic, and have the real broker elected before its next look at topics; return which."""
        for number in range(TRIES):
            topic = f"Fresh{number}"
            for _ in range(SENT):
                assert await self.ask_replica(OURS[0], probe(topic=topic)) is not None
            await self.hand_over(REAL)
            if topic not in await self.topics(REAL):
                return topic
            await self.hand_over(OURS[0])  # it had its look just between
        raise AssertionError(f"the real broker knew {TRIES} topics at once")


async def test_a_topic_that_a_real_master_never_heard_of_is_there_when_one_of_ours_leads_again(
    java_home: Path, port_blocks: PortBlocks, tmp_path: Path
) -> None:
    async with open_client(real_world()) as client:
        group = Group(tmp_path, port_blocks.middles(PORTS), client, LAUNCHER, real_world(), KINDS["mixed"])
        try:
            # given a group of which a real broker becomes master that lacks a topic of ours
            await group.start()
            await group.hand_over(OURS[0])
            topic = await group.elect_real_one_that_lacks_a_topic()
            # when ours have taken over its table of topics, as one that it makes shows
            made = request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Later", 1) | {"topicSysFlag": "0"})
            assert await group.ask_replica(REAL, made) is not None

            async def taken() -> bool:
                return all(["Later" in await group.topics(number) for number in OURS])

            await group.until("the real broker's topics at ours", taken, 60)
            # then who had the topic has it still, and its messages are read wherever one of ours leads again, also
            # where they had come without it
            assert topic in await group.topics(OURS[0])
            for number in OURS[::-1]:
                await group.hand_over(number)
                question = request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
                answer = await group.ask_replica(number, question)
                assert answer is not None
                assert (answer.ext or {})["offset"] == str(SENT), number
        finally:
            group.processes.kill_all()
