"""What clients traced about a message, read from the trace topic of a real cluster."""

from __future__ import annotations

import pytest
from test_mqadmin_cluster import Shell

from understudy.format.message_traces import CONSUMED, DECIDED, PUBLISHED, steps_of
from understudy.format.names import TRACE_TOPIC
from understudy.mqadmin.command import CommandFailedError
from understudy.mqclient.api import Message, open_producer, real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually

MESSAGE = "7F00000100000000000000000001"
# As Java clients of 5.4.0 encode it (TraceDataEncoder.java): fields divided by \x01, each step ended by \x02.
PUB = ["Pub", "1795249700000", "DefaultRegion", "senders", "orders", MESSAGE, "t", "k1", "10.0.0.1:10911", "5", "7"]
PUB += ["0", "0A00000100002A9F0000000000000000", "true", "10.0.0.9"]
BEFORE = ["SubBefore", "1795249701000", "null", "readers", "r1", MESSAGE, "0", "k1"]
AFTER = ["SubAfter", "r1", MESSAGE, "12", "false", "k1", "0", "1795249701012", "readers"]
END = ["EndTransaction", "1795249700500", "DefaultRegion", "senders", "orders", MESSAGE, "t", "k1", "10.0.0.1:10911"]
END += ["1", "x", "COMMIT_MESSAGE", "false"]


def text(*steps: list[str]) -> str:
    return "".join("\x01".join(step) + "\x02" for step in steps)


def test_steps_are_read_and_what_is_none_is_left_out() -> None:
    found = steps_of(text(PUB, BEFORE, AFTER, END))
    assert [PUBLISHED, CONSUMED, DECIDED] == [step.kind for step in found]
    assert ("senders", 7, True, "orders", "k1") == (
        found[0].group, found[0].cost_ms, found[0].success, found[0].topic, found[0].keys,
    )  # fmt: skip
    assert ("readers", 12, False, 1795249701012) == (
        found[1].group, found[1].cost_ms, found[1].success, found[1].time_ms,
    )  # fmt: skip
    # old clients write less, hostile ones anything
    assert steps_of(text([*PUB[:12], "true"]))[0].success
    assert ("", 0) == (steps_of(text(AFTER[:6]))[0].group, steps_of(text(AFTER[:6]))[0].time_ms)
    assert [] == steps_of(text(PUB[:9], ["Pub", "soon", *PUB[2:]], ["SubAfter"], [], ["Other", "x"]) + "\x02\x01")


async def test_a_trace_is_shown_by_the_id_of_its_message() -> None:
    async with LocalCluster(broker_config={"traceTopicEnable": "true"}) as cluster:
        shell = Shell(cluster.namesrv_address)
        async with open_producer(real_world(), cluster.namesrv_address, "tracers") as producer:
            for steps in (text(PUB), text(BEFORE, AFTER)):
                await producer.send(Message(TRACE_TOPIC, steps.encode(), {"KEYS": f"{MESSAGE} k1"}))

        async def both() -> bool:
            try:
                return len(await shell.data(f"queryMsgTraceById -i {MESSAGE}")) == 2
            except CommandFailedError:
                return False

        await eventually(both)
        lines = [line.split() for line in (await shell.text(f"queryMsgTraceById -i {MESSAGE}")).splitlines() if line]
        assert ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"] == lines[0]
        assert ["Pub", "senders", "127.0.0.1", "7ms", "success"] == [*lines[1][:3], *lines[1][-2:]]
        assert "#ConsumerGroup" in lines[2]
        assert ["Sub", "readers", "127.0.0.1", "12ms", "failed"] == [*lines[3][:3], *lines[3][-2:]]
        with pytest.raises(CommandFailedError, match="tells nothing of message 00"):
            await shell.text("queryMsgTraceById -i 00")
