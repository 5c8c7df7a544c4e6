"""The commands against a cluster in this process."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from understudy.mqadmin.command import CommandFailedError, Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.mqclient.errors import BrokerError, ClientError, RouteNotFoundError
from understudy.mqclient.heartbeat import ConsumeFrom
from understudy.mqclient.listener import ConsumeContext, PushConsumerOptions
from understudy.mqclient.message import ReceivedMessage
from understudy.mqclient.push_consumer import open_push_consumer
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster
from understudy.testkit.waiting import eventually


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.broker = ""

    async def text(self, line: str) -> str:
        return await self._run(line.split(), as_json=False)

    async def data(self, line: str) -> Any:
        return json.loads(await self._run(line.split(), as_json=True))

    async def _run(self, words: list[str], as_json: bool) -> str:
        stream = io.StringIO()
        command = load_commands()[words[0]]
        values = parse(command.all_options, words[1:])
        with trio.fail_after(30):
            await run_command(command, values, self.servers, Output(as_json, stream), real_world())
        return stream.getvalue()

    async def until_routed(self, topic: str) -> None:
        with trio.fail_after(30):
            while topic not in await self.data("topicList"):
                await trio.lowlevel.checkpoint()


@pytest.fixture
async def shell() -> AsyncIterator[Shell]:
    async with LocalCluster() as cluster:
        opened = Shell(cluster.namesrv_address)
        (row,) = await opened.data("clusterList")
        opened.broker = row["brokerAddr"]
        yield opened


async def test_topics_live_from_creation_to_deletion(shell: Shell) -> None:
    # Created
    printed = await shell.text("updateTopic -c DefaultCluster -t Orders -r 4 -w 4 -a +message.type=NORMAL")
    assert f"create topic to {shell.broker} success." in printed
    await shell.until_routed("Orders")
    # Seen
    route = await shell.data("topicRoute -t Orders")
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (4, 4, 6)
    assert await shell.data("topicClusterList -t Orders") == ["DefaultCluster"]
    assert "Total:" in await shell.text("topicRoute -t Orders -l")
    # Changed
    changed = await shell.data(f"updateTopicPerm -b {shell.broker} -t Orders -p 4")
    assert changed == {shell.broker: {"from": 6, "to": 4}}
    assert "equals to the old one" in await shell.text(f"updateTopicPerm -b {shell.broker} -t Orders -p 4")
    # Gone
    await shell.text("deleteTopic -c DefaultCluster -t Orders")
    assert "Orders" not in await shell.data("topicList")
    with pytest.raises(RouteNotFoundError, match="Orders"):
        await shell.text("topicRoute -t Orders")


async def test_messages_are_sent_and_found(shell: Shell) -> None:
    await shell.text(f"updateTopic -b {shell.broker} -t Found -r 2 -w 2")
    await shell.until_routed("Found")
    sent = await shell.data("sendMessage -t Found -p hello -k key1 -c TagA -b broker-a -i 1")
    assert (sent["sendStatus"], sent["brokerName"], sent["queueId"], sent["queueOffset"]) == (
        "SEND_OK",
        "broker-a",
        1,
        0,
    )
    await shell.text("sendMessage -t Found -p other -k key2 -c TagB -b broker-a -i 1")

    by_id = await shell.data(f"queryMsgById -t Found -i {sent['msgId']}")
    by_offset_id = await shell.data(f"queryMsgById -t Found -i {sent['offsetMsgId']}")
    by_key = await shell.data("queryMsgByKey -t Found -k key1")
    by_unique_key = await shell.data(f"queryMsgByUniqueKey -t Found -i {sent['msgId']}")
    by_offset = await shell.data("queryMsgByOffset -t Found -b broker-a -i 1 -o 0")
    found = [by_id[0], by_offset_id[0], by_key[0], by_unique_key[0], by_offset]
    assert {(entry["msgId"], entry["body"], entry["queueOffset"]) for entry in found} == {(sent["msgId"], "hello", 0)}

    assert [entry["body"] for entry in await shell.data("printMsg -t Found")] == ["hello", "other"]
    counted = await shell.data("printMsgByQueue -t Found -a broker-a -i 1 -f true")
    assert counted["tags"] == {"TagA": 1, "TagB": 1}
    tagged = await shell.data("printMsg -t Found -s TagB")
    assert [entry["body"] for entry in tagged] == ["other"]
    assert [entry["body"] for entry in await shell.data("consumeMessage -t Found -b broker-a -i 1 -o 1")] == ["other"]
    nothing = (
        "MessageQueue [topic=Found, brokerName=broker-a, queueId=1] print msg finished. status=NO_NEW_MSG, offset=9"
    )
    assert await shell.text("consumeMessage -t Found -b broker-a -i 1 -o 9") == f"{nothing}\n"
    held = {row["queueId"]: row for row in (await shell.data("topicStatus -t Found"))["queues"]}
    assert (held[1]["min_offset"], held[1]["max_offset"], held[0]["max_offset"]) == (0, 2, 0)
    entries = await shell.data(f"queryCq -t Found -q 1 -i 0 -b {shell.broker}")
    assert len(entries["queueData"]) == 2


async def test_what_is_not_there_says_so(shell: Shell) -> None:
    await shell.text(f"updateTopic -b {shell.broker} -t Empty -r 1 -w 1")
    await shell.until_routed("Empty")
    for line, why in [
        ("queryMsgByKey -t Empty -k none", "has no message with key none"),
        ("queryMsgById -t Empty -i " + "AB" * 16, "has no message"),
        ("queryMsgByOffset -t Empty -b broker-a -i 0 -o 5", "has no message at offset 5"),
        ("queryMsgByOffset -t Empty -b nobody -i 0 -o 5", "has no broker nobody"),
        ("getConsumerConfig -g nobody", "no broker has a consumer group nobody"),
        ("consumerConnection -g nobody", "nobody"),
        ("producerConnection -g nobody -t Empty", "nobody"),
        ("topicStatus -t Missing", "Missing"),
        ("updateTopic -c NoCluster -t T", "no cluster is called NoCluster; there are: DefaultCluster"),
        ("updateOrderConf -m get -t Empty", "no order configuration"),
        ("sendMessage -t Empty -p x -b nobody", "no such writable queue"),
        ("queryMsgByOffset -t Empty -b broker-a -i 0 -o 0", "has no message at offset 0; it is empty"),
        (
            f"updateBrokerConfig -b {shell.broker} -k traceOnn -v true",
            "nothing was changed: .* has no key traceOnn, the nearest one is traceOn",
        ),
        (
            "updateNamesrvConfig -k enableTopicLst -v true",
            "nothing was changed: .* has no key enableTopicLst",
        ),
    ]:
        with pytest.raises((CommandFailedError, ClientError), match=why):
            await shell.text(line)


async def test_a_broker_file_that_the_container_cannot_read_is_named() -> None:
    async with LocalCluster() as cluster:
        shell, container = Shell(cluster.namesrv_address), f"127.0.0.1:{cluster.container.server.address[1]}"
        with pytest.raises(CommandFailedError, match=r"/nowhere on the machine of .* cannot be read"):
            await shell.text(f"addBroker -c {container} -b /nowhere")
        with pytest.raises(BrokerError, match="already been added"):
            await shell.text(f"addBroker -c {container} -b {_broker_file(cluster)}")


def _broker_file(cluster: LocalCluster) -> str:
    """Write the identity of the cluster's broker into a file."""
    (broker,) = cluster.brokers.values()
    path = Path(broker.options.store.store_path_root_dir).parent / "again.conf"
    path.write_text(f"brokerName={broker.identity.name}\nbrokerClusterName={broker.identity.cluster}\nlistenPort=0\n")
    return str(path)


async def test_groups_live_from_creation_to_deletion(shell: Shell) -> None:
    await shell.text(f"updateSubGroup -b {shell.broker} -g people -r 3 -o true")
    (found,) = await shell.data("getConsumerConfig -g people")
    assert (found["config"]["retryMaxTimes"], found["config"]["consumeMessageOrderly"]) == (3, True)
    await shell.text(f"deleteSubGroup -b {shell.broker} -g people")
    with pytest.raises(CommandFailedError):
        await shell.text("getConsumerConfig -g people")


async def test_progress_is_shown_and_moved(shell: Shell) -> None:
    got: list[ReceivedMessage] = []
    arrived = trio.Event()

    async def listener(batch: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        got.extend(batch)
        if len(got) == 3:
            arrived.set()

    await shell.text(f"updateTopic -b {shell.broker} -t Moved -r 1 -w 1")
    await shell.until_routed("Moved")
    for number in range(3):
        await shell.text(f"sendMessage -t Moved -p m{number}")
    options = PushConsumerOptions(consume_from=ConsumeFrom.FIRST_OFFSET, persist_ms=20)
    async with open_push_consumer(real_world(), shell.servers, "movers", {"Moved": "*"}, listener, options) as consumer:
        with trio.fail_after(20):
            await arrived.wait()
        connection = await shell.data("consumerConnection -g movers")
        assert [member["clientId"] for member in connection["connectionSet"]] == [consumer.session.client_id]
        assert "MessageModel: CLUSTERING" in await shell.text("consumerConnection -g movers")
        status = await shell.data("consumerStatus -g movers")
        assert list(status) == [consumer.session.client_id]
        report = await shell.text(f"consumerStatus -g movers -i {consumer.session.client_id}")
        assert "#Consumer MQ Detail#" in report and "Moved" in report

        async def owners() -> set[str]:  # of queues whose progress the broker was told of
            rows = (await shell.data("consumerProgress -g movers -s true"))["queues"]
            return {row["client"] for row in rows if row["topic"] == "Moved"}

        await eventually(owners)
        assert await owners() == {"understudy"}
    progress = await shell.data("consumerProgress -g movers -t Moved")
    assert (progress["diffTotal"], progress["queues"][0]["consumerOffset"]) == (0, 3)
    groups = {row["group"]: row for row in await shell.data("consumerProgress")}
    assert groups["movers"]["version"] == "OFFLINE"

    moved = await shell.data("resetOffsetByTime -g movers -t Moved -s 0")
    assert [row["offset"] for row in moved] == [0]
    assert (await shell.data("consumerProgress -g movers -t Moved"))["diffTotal"] == 3
    await shell.text("skipAccumulatedMessage -g movers -t Moved")
    assert (await shell.data("consumerProgress -g movers -t Moved"))["diffTotal"] == 0
    exact = await shell.data(f"resetOffsetByTime -g movers -t Moved -s now -b {shell.broker} -q 0 -o 1")
    assert exact["offset"] == 1
    await shell.text(f"updateSubGroup -b {shell.broker} -g copies")
    await shell.text("cloneGroupOffset -s movers -d copies -t Moved")
    assert (await shell.data("consumerProgress -g copies -t Moved"))["queues"][0]["consumerOffset"] == 1
    assert "copies" in await shell.text(f"brokerConsumeStats -b {shell.broker}")


async def test_configuration_is_shown_and_changed(shell: Shell) -> None:
    await shell.text(f"updateBrokerConfig -b {shell.broker} -k traceOn -v false")
    config = await shell.data(f"getBrokerConfig -b {shell.broker}")
    assert config[shell.broker]["traceOn"] == "false"
    assert "Master: " in await shell.text("getBrokerConfig -c DefaultCluster")
    await shell.text(f"updateBrokerConfig -b {shell.broker} -k maxMessageSize -v 10")
    with pytest.raises(ClientError, match="the message is illegal"):
        await shell.text("sendMessage -t Limited -p 12345678901")
    await shell.text("updateNamesrvConfig -k enableTopicList -v true")
    assert (await shell.data("getNamesrvConfig"))[shell.servers]["enableTopicList"] == "true"
    await shell.text("updateKvConfig -s space -k name -v text")
    await shell.text("deleteKvConfig -s space -k name")
    await shell.text("updateOrderConf -m put -t Ordered -v broker-a:4")
    assert (await shell.data("updateOrderConf -m get -t Ordered"))["orderConf"] == "broker-a:4"
    await shell.text("updateOrderConf -m delete -t Ordered")


async def test_permissions_of_a_broker_are_wiped_and_given_back(shell: Shell) -> None:
    wiped = (await shell.data("wipeWritePerm -b broker-a"))[shell.servers]
    given = (await shell.data("addWritePerm -b broker-a"))[shell.servers]
    assert wiped == given > 0


async def test_files_make_several_topics_and_groups(shell: Shell, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text('[{"topicName":"L1","readQueueNums":2,"writeQueueNums":2,"perm":6}]')
    await shell.text(f"updateTopicList -b {shell.broker} -f {topics}")
    await shell.until_routed("L1")
    groups = tmp_path / "groups.json"
    groups.write_text('[{"groupName":"G1","retryMaxTimes":5}]')
    await shell.text(f"updateSubGroupList -b {shell.broker} -f {groups}")
    (found,) = await shell.data("getConsumerConfig -g G1")
    assert found["config"]["retryMaxTimes"] == 5
    topics.write_text("{}")
    with pytest.raises(CommandFailedError, match="JSON list"):
        await shell.text(f"updateTopicList -b {shell.broker} -f {topics}")


async def test_figures_are_shown(shell: Shell) -> None:
    await shell.text("sendMsgStatus -b broker-a -c 2 -s 10")
    assert "brokerVersionDesc" in await shell.text(f"brokerStatus -b {shell.broker}")
    assert "#InTotalYest" in await shell.text("clusterList -m")
    rows = await shell.data("statsAll -t broker-a")
    assert rows[0]["topic"] == "broker-a"
    rates = await shell.data("checkMsgSendRT -t broker-a -a 3")
    assert all(row["sent"] for row in rates["sends"])
    for line in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in await shell.text(f"{line} -b {shell.broker}")
    with pytest.raises(BrokerError):
        await shell.text(f"consumerStatus -g nobody -i nobody -b {shell.broker}")


async def test_exports_hold_what_the_cluster_has(shell: Shell, tmp_path: Path) -> None:
    await shell.text(f"updateTopic -b {shell.broker} -t Exported -r 3 -w 3")
    await shell.text(f"updateSubGroup -b {shell.broker} -g exported -r 3")
    await shell.text(f"exportMetadata -c DefaultCluster -f {tmp_path}")
    written = json.loads((tmp_path / "metadata.json").read_text())
    assert written["topicConfigTable"]["Exported"]["writeQueueNums"] == 3
    assert written["subscriptionGroupTable"]["exported"]["retryMaxTimes"] == 3
    await shell.text(f"exportMetadata -b {shell.broker} -f {tmp_path} -t")
    assert "subscriptionGroupTable" not in json.loads((tmp_path / "topic.json").read_text())
    configs = await shell.data(f"exportConfigs -c DefaultCluster -f {tmp_path}")
    assert configs["brokerConfigs"]["broker-a"]["brokerName"] == "broker-a"
    assert json.loads((tmp_path / "configs.json").read_text())["clusterScale"]["masterBrokerSize"] == 1


async def test_response_times_of_a_cluster(shell: Shell) -> None:
    (row,) = await shell.data("clusterRT -a 3 -s 10")
    assert (row["brokerName"], row["successCount"], row["failCount"]) == ("broker-a", 3, 0)
    assert "|noname|DefaultCluster|broker-a|" in await shell.text("clusterRT -a 2 -p true")
