"""Messages that consumers give back: retries, delays and dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_rig import Rig, code_and_remark, open_rig, properties

from understudy.remoting.command import Command


class TestRetryTopics:
    async def rig_send(self, rig: Rig, reconsumed: str, limit: str | None = None) -> Command:
        header = {"j": reconsumed} | ({"l": limit} if limit is not None else {})
        return rig.send("%RETRY%cg", properties=properties(DELAY="3"), header=header)

    async def test_message_that_came_back_too_often_goes_to_the_dead_letters(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            assert (await self.rig_send(rig, "5", "2")).code == 0
            (record,) = rig.stored("%DLQ%cg")
            assert record.properties["DELAY"] == "-1"
            row = rig.broker.topics.get("%DLQ%cg")
            assert row is not None and (row.write_queue_nums, row.perm) == (1, 6)

    async def test_until_then_it_is_delayed(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            assert (await self.rig_send(rig, "16")).code == 0
            assert len(rig.stored("SCHEDULE_TOPIC_XXXX", 2)) == 1
            assert (await self.rig_send(rig, "17")).code == 0
            assert len(rig.stored("%DLQ%cg")) == 1

    async def test_a_group_that_consumes_in_order_gets_no_retries(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            rig.broker.locks.lock("cg", "c1", [("T", "broker-a", 0)], rig.broker.world.clock.wall_ms())
            assert (await self.rig_send(rig, "0")).code == 0
            assert len(rig.stored("%DLQ%cg")) == 1

    async def test_unknown_group(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"autoCreateSubscriptionGroup": "false"}) as rig:
            assert (await self.rig_send(rig, "0")).code == 26


class TestSendBack:
    async def test_retry_then_dead_letter(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"messageDelayLevel": "1s 1s 1s"}) as rig:
            rig.send("T", b"bad day", properties(KEYS="k", TAGS="t", UNIQ_KEY="u"))
            original = rig.stored("T")[0]
            header = {"offset": str(original.physical_offset), "group": "cg", "delayLevel": "0", "originTopic": "T"}
            answer = rig.ask(36, header)
            assert (answer.code, answer.ext) == (0, None)
            (waiting,) = rig.stored("SCHEDULE_TOPIC_XXXX", 2)
            assert waiting.reconsume_times == 1
            assert waiting.properties["RETRY_TOPIC"] == "T"
            assert waiting.properties["ORIGIN_MESSAGE_ID"] == original.message_id
            assert (waiting.properties["DELAY"], waiting.properties["REAL_TOPIC"]) == ("3", "%RETRY%cg")

            assert rig.ask(36, header | {"delayLevel": "-1"}).code == 0
            (dead,) = rig.stored("%DLQ%cg")
            assert dead.body == b"bad day"
            assert (dead.properties["DELAY"], dead.properties["UNIQ_KEY"]) == ("0", "u")

    async def test_limit_of_the_client_counts(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            rig.send("T", header={"j": "1"})
            header = {"offset": "0", "group": "cg", "delayLevel": "0", "maxReconsumeTimes": "1"}
            assert rig.ask(36, header).code == 0
            assert len(rig.stored("%DLQ%cg")) == 1

    @pytest.mark.parametrize(
        ("header", "code", "remark"),
        [
            ({"offset": "999999"}, 1, "look message by offset failed, 999999"),  # captured from 5.4.0
            ({"offset": "-7"}, 1, "look message by offset failed, -7"),
            ({"offset": "5"}, 1, "look message by offset failed, 5"),
            ({"offset": "x"}, 1, "field offset is 'x', not a number"),
        ],
    )
    async def test_refusals(self, tmp_path: Path, header: dict[str, str], code: int, remark: str) -> None:
        async with open_rig(str(tmp_path)) as rig:
            rig.send("T")
            answer = rig.ask(36, {"group": "cg", "delayLevel": "1", **header})
            assert code_and_remark(answer) == (code, remark)

    async def test_broker_not_writable(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path), {"brokerPermission": "4"}) as rig:
            answer = rig.ask(36, {"offset": "0", "group": "cg", "delayLevel": "1"})
            assert code_and_remark(answer) == (16, "the broker[127.0.0.1] sending message is forbidden")

    async def test_group_without_retry_queues_drops_the_message(self, tmp_path: Path) -> None:
        async with open_rig(str(tmp_path)) as rig:
            row = rig.broker.groups.get("cg")
            assert row is not None
            row.retry_queue_nums = 0
            assert rig.ask(36, {"offset": "0", "group": "cg", "delayLevel": "1"}).code == 0
            assert rig.broker.topics.get("%RETRY%cg") is None
