"""The captured exchanges of pop with the real broker, played again: our answers say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from broker_rig import Peer, Rig, send_header
from pop_rig import open_virtual, receipts, records
from trio.testing import MockClock

from understudy.broker.groups import GroupConfig
from understudy.broker.topics import TopicConfig
from understudy.remoting.command import Command

DATA = Path(__file__).parent.parent / "data" / "broker_pop"
UNSET = "not set any response code"
OURS = {
    "the receipt handle has 3 parts": "getBrokerName fail",
    "parse the consumer's subscription failed: ": "parse the consumer's subscription failed",
    "the batch holds no acknowledgement": "",
    "queue 0 of PopRaw holds no message at 99": UNSET,
}
"""Remarks of ours, and what stands in those of the real system."""


class Replay:
    """One captured exchange.

    Args:
        rig: the broker.
        name: of the file.
    """

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig = rig
        self.rows = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
        self.times: dict[str, str] = {}
        self.queues: dict[str, str] = {}
        self.peers: dict[int, Peer] = {}
        self.asked: dict[tuple[int, int], Command] = {}

    def ours(self, text: str) -> str:
        """Return *text* with the pop times and revive queues of this run in the place of the captured ones."""
        for captured, now in self.times.items():
            queue, our_queue = self.queues[captured].split()
            text = re.sub(rf" {captured} (\d+) {queue} ", rf" {now} \g<1> {our_queue} ", text)
            text = text.replace(captured, now)
        return text

    async def play(self) -> None:
        clock = self.rig.broker.world.clock
        begin, first = clock.monotonic(), None
        for row in self.rows:
            first = row["t"] if first is None else first
            await clock.sleep(max(begin + row["t"] - first - clock.monotonic(), 0))
            if row["kind"] == "request" and self.answer_of(row).get("code") != 2:
                self.ask(row)
            elif row["kind"] == "response" and (row["conn"], row["opaque"]) in self.asked:
                await self.compare(row)

    def ask(self, row: dict[str, Any]) -> None:
        header = dict(row.get("header") or {})
        if "bornTime" in header:
            captured = int(header["bornTime"])
            now_ms = self.rig.broker.world.clock.wall_ms()
            late = captured and row["code"] == 200050 and "timeout too much" in self.answer_of(row).get("remark", "")
            header["bornTime"] = str(now_ms - 9_000 if late else captured and now_ms)
        for name in ("extraInfo",):
            if name in header:
                header[name] = self.ours(header[name])
        body = self.batch(row["body"]) if row["code"] == 200151 and "body" in row else row.get("body", "").encode()
        peer = self.peers.setdefault(row["conn"], Peer(self.rig.nursery, 50_000 + row["conn"]))
        self.asked[row["conn"], row["opaque"]] = self.rig.tell(row["code"], header or None, body, peer=peer)

    def batch(self, text: str) -> bytes:
        value = json.loads(text)
        for each in value["acks"]:
            queue = self.queues[str(each["pt"])]
            each |= {"pt": int(self.times[str(each["pt"])]), "rq": int(queue.split()[1])}
        return json.dumps(value).encode()

    def answer_of(self, asked: dict[str, Any]) -> dict[str, Any]:
        place = asked["conn"], asked["opaque"], "response"
        found = (row for row in self.rows if (row["conn"], row["opaque"], row["kind"]) == place)
        return next(found, {})

    async def compare(self, row: dict[str, Any]) -> Command:
        """Compare a captured answer with that of our broker, which is returned."""
        command = self.asked.pop((row["conn"], row["opaque"]))
        answer = await self.rig.wait(command, self.peers[row["conn"]])
        what = f"{command.code} {command.ext}: {answer.remark}"
        assert answer.code == row["code"], what
        remark, captured = answer.remark or "", row.get("remark") or ""
        ours = next((known for known in OURS if remark.startswith(known)), None)
        if ours is not None:
            assert OURS[ours] in captured, what
        elif captured != UNSET and "consumer:[" not in captured and "127.0.0.1:46322" not in captured:
            assert remark == captured, what
        if command.code == 400:
            assert json.loads(answer.body) == json.loads(row["body"]), what
        if command.code in (310, 400, 34):
            return answer
        header, expected = dict(answer.ext or {}), dict(row.get("header") or {})
        if expected.get("popTime", "0") != "0" and command.code == 200050:
            self.times[expected["popTime"]] = header["popTime"]
            self.queues[expected["popTime"]] = f"{expected['reviveQid']} {header['reviveQid']}"
        for fields in (header, expected):
            for name in ("startOffsetInfo", "msgOffsetInfo"):
                if name in fields:
                    fields[name] = ";".join(sorted(fields[name].split(";")))
        popped = expected.get("popTime", "0") != "0"
        for name in ("popTime", "reviveQid"):
            if popped and expected[name] != "999":
                assert header.pop(name).isdecimal(), what
                del expected[name]
        if command.code == 200053 and answer.code == 0:
            near, exact = int(header.pop("invisibleTime")), int(expected.pop("invisibleTime"))
            assert abs(near - exact) < 100, what
        if "restNum" in expected and expected.get("reviveQid") == "999":
            del header["restNum"], expected["restNum"]  # the captured one counts twice what another attempt had locked
        assert header == expected, what
        if "records" in row:
            self.compare_records(row["records"], answer)
        return answer

    def compare_records(self, expected: list[dict[str, Any]], answer: Command) -> None:
        found = sorted(
            (each.queue_id, each.queue_offset, each.topic, each.reconsume_times, each.body.decode())
            for each in records(answer)
        )
        assert found == sorted(
            (each["queueId"], each["queueOffset"], each["topic"], each["reconsumeTimes"], each["body"])
            for each in expected
        )


@pytest.mark.covers("PP-07", "PP-08")
async def test_raw_requests(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        replay = Replay(rig, "pop_raw")
        await replay.play()
        assert not replay.asked


@pytest.mark.parametrize("name", ["pop_order_raw", "pop_order_stale_receipt"])
@pytest.mark.covers("PP-15")
async def test_in_order(name: str, autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        replay = Replay(rig, name)
        await replay.play()
        assert not replay.asked


@pytest.mark.covers("PP-03")
async def test_what_came_back_looks_like_the_captured_one(autojump_clock: MockClock) -> None:
    rows = [json.loads(line) for line in (DATA / "pop_revive_raw.jsonl").read_text().splitlines()]
    captured = rows[1]["records"][0]
    async with open_virtual() as rig:
        rig.broker.topics.update([TopicConfig("PopRaw", 2, 2)])
        rig.broker.groups.update([GroupConfig("gpop")])
        rig.send("PopRaw", captured["body"].encode(), "UNIQ_KEY\x01AA02\x02TAGS\x01T\x02")
        header = dict(rows[0]["header"]) | {"bornTime": "0"}
        assert rig.ask(200050, header).code == 0
        await rig.broker.world.clock.sleep(60)
        answer = rig.ask(200050, header)
        assert (answer.ext or {})["startOffsetInfo"] == "1 0 0"
        ((record, receipt),) = receipts(answer)
        assert set(record.properties) == {
            pair.partition("\x01")[0] for pair in captured["properties"].split("\x02") if pair
        }
        assert record.properties["POP_CK"] == receipt.text
        assert (record.topic, record.reconsume_times, record.queue_id) == ("PopRaw", 1, 0)


class Session(Replay):
    """The captured session of a Java push consumer that pops, of which some rows were left out by who captured it."""

    def __init__(self, rig: Rig, name: str) -> None:
        super().__init__(rig, name)
        self._sent: list[dict[str, Any]] = []
        self._stored: list[dict[str, Any]] = []
        sends = [row for row in self.rows if row["kind"] == "request" and row["code"] == 310]
        self._bodies = {row["body"] for row in sends}
        self._sends = {(row["conn"], row["opaque"]) for row in sends}
        self._acked = {
            (row["header"]["queueId"], row["header"]["offset"])
            for row in self.rows
            if row["kind"] == "request" and row["code"] in (200051, 200053)
        }

    async def play(self) -> None:
        clock = self.rig.broker.world.clock
        begin = clock.monotonic()
        for row in self.rows:
            await clock.sleep(max(begin + row["t"] - clock.monotonic(), 0))
            if row["kind"] == "response":
                await self.answered(row)
            elif row.get("from") != "broker-a":
                if row["opaque"] == 1232:
                    self.beat_with_the_version_of_the_pull()
                elif row["opaque"] == 1267:
                    self.pop_what_is_changed_later()
                self.ask(row)

    def ask(self, row: dict[str, Any]) -> None:
        if row["code"] == 310:
            self._sent.append(row)
            return
        self.send()
        super().ask(row)
        if row["kind"] == "oneway":
            del self.asked[row["conn"], row["opaque"]]

    def send(self, *more: dict[str, Any]) -> None:
        """Send what came meanwhile and *more* at once: the real broker took its time, and had it all in one answer."""
        for row in self._sent:
            peer = self.peers.setdefault(row["conn"], Peer(self.rig.nursery, 50_000 + row["conn"]))
            asked = self.rig.tell(310, row["header"], row["body"].encode(), peer=peer, more_follow=True)
            self.asked[row["conn"], row["opaque"]] = asked
        self._sent.clear()
        for record in more:
            header = send_header("PopTopic", queue_id=record["queueId"])
            self.rig.tell(310, header, record["body"].encode(), more_follow=True)
        self.rig.end_receive()

    async def answered(self, row: dict[str, Any]) -> None:
        """Compare what our broker answers; what was stored is, when it is handed out."""
        if (row["conn"], row["opaque"]) in self._sends:
            self._stored.append(row)
            return
        self.send(*(each for each in row.get("records", ()) if each["body"] not in self._bodies))
        command = self.asked[row["conn"], row["opaque"]]
        for stored in self._stored:
            ours = await self.rig.wait(self.asked.pop((stored["conn"], stored["opaque"])), self.peers[stored["conn"]])
            for name in ("queueId", "queueOffset", "transactionId", "MSG_REGION", "TRACE_ON"):
                assert (ours.ext or {})[name] == stored["header"][name]
        self._stored.clear()
        answer = await self.compare(row)
        assert command.code != 34 or answer.ext == row["header"]
        for record in row.get("records", ()):
            if (str(record["queueId"]), str(record["queueOffset"])) not in self._acked:
                self.acknowledge(row["header"]["popTime"], record["queueId"], record["queueOffset"])

    def acknowledge(self, captured: str, queue_id: int, offset: int) -> None:
        _, revive_queue = self.queues[captured].split()
        handle = f"{offset} {self.times[captured]} 10000 {revive_queue} 0 broker-a {queue_id} {offset}"
        header = {"consumerGroup": "cgpop", "topic": "PopTopic", "queueId": str(queue_id), "offset": str(offset)}
        assert self.rig.ask(200051, {**header, "extraInfo": handle}).code == 0

    def beat_with_the_version_of_the_pull(self) -> None:
        beat = next(row for row in self.rows if row["opaque"] == 1211)
        body = beat["body"].replace("1795244889035", "1795244890761").encode()
        assert self.rig.ask(34, {}, body, peer=self.peers[beat["conn"]]).code == 0

    def pop_what_is_changed_later(self) -> None:
        self.rig.send("PopTopic", b"pop-more", "", 3)
        header = next(row["header"] for row in self.rows if row["opaque"] == 1267)
        answer = self.rig.ask(200050, {**header, "pollTime": "0", "bornTime": "0"})
        found = answer.ext or {}
        assert found["msgOffsetInfo"] == "0 3 1"
        self.times["1795244896954"], self.queues["1795244896954"] = found["popTime"], f"7 {found['reviveQid']}"


@pytest.mark.covers("PP-07")
async def test_the_session_of_a_java_push_consumer(autojump_clock: MockClock) -> None:
    async with open_virtual() as rig:
        session = Session(rig, "pop_push_consumer")
        await session.play()
        assert [session.answer_of({"conn": conn, "opaque": opaque}) for conn, opaque in session.asked] == [{}, {}]
        told = [row["code"] for row in session.rows if row.get("from") == "broker-a"]
        assert [each.code for each in session.peers[78].received] == told == [40]
