"""How long changes of topics and groups took, as a scrape shows it under the reference's names, labels and bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from test_broker_metrics import METERED, scrape

from understudy.broker.creation_times import BOUNDS_MS, CreationTimes
from understudy.mqclient.api import real_world
from understudy.remoting.client import RemotingClient, open_client
from understudy.remoting.codes import RequestCode, ResponseCode
from understudy.remoting.command import Command, request
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.sim.clock import VirtualClock

TOPICS = "rocketmq_topic_create_execution_time_milliseconds"
GROUPS = "rocketmq_consumer_group_create_execution_time_milliseconds"


def topic(name: str, perm: int = 6) -> Command:
    fields = {"topic": name, "readQueueNums": "1", "writeQueueNums": "1", "perm": str(perm), "order": "false"}
    fields |= {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def listed(code: RequestCode, key: str, *rows: dict[str, Any]) -> Command:
    return request(code, {}, json.dumps({key: rows}).encode())


def row(name: str, perm: int = 6) -> dict[str, Any]:
    return {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": perm, "topicFilterType": "SINGLE_TAG"}


async def ask(client: RemotingClient, address: str, command: Command) -> int:
    return (await client.invoke(address, command, 5_000)).code


def of_topics(status: str, system: str = "false") -> str:
    return f'{TOPICS}_count{{invocation_status="{status}",is_system="{system}"}}'


def of_groups(status: str) -> str:
    return f'{GROUPS}_count{{invocation_status="{status}"}}'


async def test_each_request_is_counted_by_what_became_of_it() -> None:
    async with LocalCluster(broker_config=METERED) as cluster, open_client(real_world()) as client:
        broker = cluster.brokers["broker-a"]
        address = broker.identity.address
        assert not [name for name in await scrape(broker) if name.startswith((TOPICS, GROUPS))]

        assert ResponseCode.SUCCESS == await ask(client, address, topic("Orders"))
        assert ResponseCode.SUCCESS == await ask(client, address, topic("Orders", perm=4))
        assert ResponseCode.INVALID_PARAMETER == await ask(client, address, topic("Orders", perm=9))
        assert ResponseCode.INVALID_PARAMETER == await ask(client, address, topic("no such name"))
        assert ResponseCode.INVALID_PARAMETER == await ask(client, address, topic("rmq_sys_ours"))
        together = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        rows = row("Bills"), row("Prices")
        assert ResponseCode.SUCCESS == await ask(client, address, listed(together, "topicConfigList", *rows))
        assert ResponseCode.SUCCESS == await ask(client, address, listed(together, "topicConfigList"))
        rows = row("Bills"), row("Prices", perm=9)
        assert ResponseCode.INVALID_PARAMETER == await ask(client, address, listed(together, "topicConfigList", *rows))

        group = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        good, bad = {"groupName": "readers"}, {"groupName": "bad group"}
        assert ResponseCode.SUCCESS == await ask(client, address, request(group, {}, json.dumps(good).encode()))
        assert ResponseCode.SUCCESS == await ask(client, address, request(group, {}))
        assert ResponseCode.INVALID_PARAMETER == await ask(
            client, address, request(group, {}, json.dumps(bad).encode())
        )
        together = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        assert ResponseCode.SUCCESS == await ask(client, address, listed(together, "groupConfigList", good))

        shown = await scrape(broker)
        counts = {name: value for name, value in shown.items() if name.startswith((f"{TOPICS}_c", f"{GROUPS}_c"))}
        assert counts == {
            of_topics("success"): 4,
            of_topics("failure"): 3,
            of_topics("failure", "true"): 1,
            of_groups("success"): 3,
            of_groups("failure"): 1,
        }
        slowest = shown[f'{TOPICS}_bucket{{invocation_status="success",is_system="false",le="+Inf"}}']
        assert slowest == 4
        broker.options.broker.enable_request_metrics = False
        assert not [name for name in await scrape(broker) if name.startswith((TOPICS, GROUPS))]


def test_times_are_told_in_milliseconds_and_buckets_of_the_reference() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        times = CreationTimes(clock)
        for seconds in (0.005, 0.05, 4, 10):
            with times.of_groups():
                await clock.sleep(seconds)
        with trio.move_on_after(1), times.of_groups():
            await trio.sleep_forever()
        with pytest.raises(OSError, match="full"), times.of_groups():
            raise OSError("full")
        [family] = [family for family in times.families() if family.samples]
        assert family.name_and_unit == ("rocketmq_consumer_group_create_execution_time", "milliseconds")
        assert BOUNDS_MS == (10, 100, 1000, 3000, 5000)
        found = {
            (sample.labels["invocation_status"], sample.labels.get("le", sample.suffix)): round(sample.value)
            for sample in family.samples
        }
        assert {key[1]: value for key, value in found.items() if key[0] == "success"} == {
            "10.0": 1,
            "100.0": 2,
            "1000.0": 2,
            "3000.0": 2,
            "5000.0": 3,
            "+Inf": 4,
            "_count": 4,
            "_sum": 14_055,
        }
        assert found["failure", "_count"] == 1

    trio.run(scenario, clock=trio.testing.MockClock(autojump_threshold=0))
