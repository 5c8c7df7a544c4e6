"""Every code that a broker answers, asked with what no client would send."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
import trio
from broker_rig import SMALL, UNEXPECTED, NoNetwork, Rig, open_rig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_broker_fuzz import NAMES, bodies, json_values, texts
from test_broker_fuzz import OWN_CODES as FUZZED_ELSEWHERE

from understudy.broker.broker import Broker
from understudy.broker.config import BrokerOptions, Machine
from understudy.container.hosted import host_broker
from understudy.runtime.clock import SystemClock
from understudy.runtime.disk import RealDisk
from understudy.runtime.world import World

ADMIN_NAMES = """topic group groupName consumerGroup queueId offset timestamp perm readQueueNums writeQueueNums
topicFilterType order attributes statsName statsKey clientId clientAddr msgId brokerName index count isOrder isForce
srcGroup destGroup minBrokerId minBrokerAddr offlineBrokerAddr haBrokerAddr masterHaAddress masterAddress
masterFlushOffset brokerId epoch READ_AHEAD_MODE E_T key maxNum beginTimestamp endTimestamp jstackEnable invisibleTime
pollTime bornTime initMode exp expType extraInfo commitOrRollback tranStateTableOffset commitLogOffset recallHandle
username subject policyType topicSeq maxTopicNum dataVersion knownOffsets configType cleanOffset readable"""
numbers = st.integers(0, 2**20)
requests = st.tuples(
    numbers,
    st.none() | st.dictionaries(st.sampled_from(sorted({*ADMIN_NAMES.split(), *NAMES})), texts, max_size=10),
    bodies | json_values.map(lambda value: json.dumps(value).encode()),
)


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.lists(requests, min_size=20, max_size=80))
async def test_no_registered_code_fails_in_a_way_it_did_not_mean(
    given_requests: list[tuple[int, dict[str, str] | None, bytes]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_rig(folder) as rig:
            codes = sorted(rig.broker.server.codes)
            assert set(FUZZED_ELSEWHERE) < set(codes)
            rig.send("T")
            await rig.ask_all([(codes[number % len(codes)], ext, body) for number, ext, body in given_requests])
            rig.broker.options.broker.broker_permission = 6  # the requests may have changed it
            rig.serves_another()


async def test_every_code_without_anything_is_answered_at_once_in_one_line(tmp_path: object) -> None:
    async with open_rig(str(tmp_path)) as rig:
        for code in sorted(rig.broker.server.codes):
            with trio.fail_after(30):
                answer = await rig.wait(rig.tell(code))
            assert not UNEXPECTED.match(answer.remark or ""), (code, answer.remark)
            assert answer.code == 0 or answer.remark, code


async def test_a_broker_may_be_published_under_a_host_name(tmp_path: Path) -> None:
    machine = Machine("vm", "127.0.0.1", str(tmp_path), resolve={"broker.example": "10.1.2.3"}.__getitem__)
    keys = {"brokerIP1": "broker.example", "brokerName": "broker-a", "listenPort": "0", **SMALL}
    found, _ = BrokerOptions.from_properties(keys, machine=machine)
    world = World(SystemClock(), cast(Any, NoNetwork()), RealDisk(), Random(7))
    async with trio.open_nursery() as nursery:
        broker: Broker = await nursery.start(host_broker, world, found)
        rig = Rig(broker, nursery)
        # name servers and clients get the name, records and message ids the address
        assert broker.identity.address == f"broker.example:{broker.identity.port}"
        answer = rig.send("T")
        host = bytes([10, 1, 2, 3]) + broker.identity.port.to_bytes(4, "big")
        assert (answer.ext or {})["msgId"].startswith(host.hex().upper())
        assert rig.stored("T")[0].message_id == (answer.ext or {})["msgId"]
        nursery.cancel_scope.cancel()
