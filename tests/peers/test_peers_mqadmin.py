"""The real mqadmin takes our answers: every command ends, and prints the layout that it prints for the real system."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from peer_installation import peer_environment
from peer_processes import AdminConsole, PeerCluster

NAMES = Path(__file__).resolve().parents[1] / "data" / "mqadmin" / "commands_5.4.0.json"
TOPIC, GROUP = "AdminTopic", "AdminGroup"
BLANK = r"[ \t]+"


@dataclass(frozen=True)
class Command:
    """One command line, and the patterns of lines its output must have; `{broker}` and `{namesrv}` are addresses."""

    words: str
    lines: tuple[str, ...]
    rows: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return re.sub(r"[^A-Za-z]+", "-", self.words.replace("{broker}", "").replace("{namesrv}", "")).strip("-")


def table(*columns: str) -> str:
    """The pattern of a table's head: its columns in this order."""
    return BLANK.join(re.escape(column) for column in columns)


COMMANDS = (
    Command(
        "clusterList",
        (
            table("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version"),
            rf"DefaultCluster{BLANK}broker-a{BLANK}0{BLANK}{{broker}}{BLANK}V5_4_0{BLANK}.*true",
        ),
        ("NS-01",),
    ),
    Command(
        "clusterList -m", (table("#Cluster Name", "#Broker Name", "#InTotalYest"), rf"DefaultCluster{BLANK}broker-a.*")
    ),
    Command(
        "brokerStatus -b {broker}",
        (
            r"bootTimestamp +: \d{13}",
            r"brokerVersionDesc +: V5_4_0",
            r"commitLogMaxOffset +: \d+",
            r"putTps +:.*",
            r"sendThreadPoolQueueSize +: \d+",
            r"msgPutTotalTodayNow +: \d+",
            r"commitLogDirCapacity +: Total : .*, Free : .*",
        ),
    ),
    Command(
        f"updateTopic -b {{broker}} -t {TOPIC} -r 4 -w 4",
        (
            r"create topic to {broker} success\.",
            rf"TopicConfig \[topicName={TOPIC}, readQueueNums=4, writeQueueNums=4, perm=RW-, .*order=false.*\]",
        ),
    ),
    Command(
        f"updateTopic -c DefaultCluster -t {TOPIC}Two -r 2 -w 2",
        (r"create topic to {broker} success\.", rf"TopicConfig \[topicName={TOPIC}Two, readQueueNums=2, .*\]"),
    ),
    Command(
        f"updateTopicPerm -b {{broker}} -t {TOPIC}Two -p 4",
        (r"update topic perm from 6 to 4 in {broker} success\.",),
    ),
    Command(
        "topicList",
        (TOPIC, "TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"),
        ("NS-01",),
    ),
    Command(
        "topicList -c", (table("#Cluster Name", "#Topic", "#Consumer Group"), rf"DefaultCluster{BLANK}{TOPIC}\b.*")
    ),
    Command(
        f"topicRoute -t {TOPIC}",
        (
            r'\s*"brokerDatas":\[',
            r'\s*0:"{broker}"',
            r'\s*"brokerName":"broker-a",',
            r'\s*"cluster":"DefaultCluster",',
            r'\s*"readQueueNums":4,',
            r'\s*"writeQueueNums":4',
        ),
        ("NS-10",),
    ),
    Command(f"topicClusterList -t {TOPIC}", ("DefaultCluster",)),
    Command(
        f"sendMessage -t {TOPIC} -p hello -k adminkey -c TagAdmin",
        (
            table("#Broker Name", "#QID", "#Send Result", "#MsgId"),
            rf"broker-a{BLANK}\d{BLANK}SEND_OK{BLANK}[0-9A-F]{{32,56}}",
        ),
    ),
    Command(
        f"topicStatus -t {TOPIC}",
        (
            table("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"),
            rf"broker-a{BLANK}0{BLANK}0{BLANK}\d+.*",
            rf"broker-a{BLANK}3{BLANK}0{BLANK}\d+.*",
            r"Topic Put TPS: [\d.]+",
        ),
    ),
    Command(
        f"queryMsgByKey -t {TOPIC} -k adminkey",
        (table("#Message ID", "#QID", "#Offset"), rf"[0-9A-F]{{32,56}}{BLANK}\d{BLANK}0.*"),
    ),
    Command(f"printMsg -t {TOPIC} -d true", (r"MSGID: [0-9A-F]{32,56} .*", r".*BODY: hello")),
    Command(f"consumeMessage -t {TOPIC}", (r".*MSGID: [0-9A-F]{32,56} .*",)),
    Command(
        f"updateSubGroup -b {{broker}} -g {GROUP} -r 3 -o true",
        (
            r"create subscription group to {broker} success\.",
            rf"SubscriptionGroupConfig\{{groupName={GROUP}, consumeEnable=true, .*retryMaxTimes=3, .*",
        ),
    ),
    Command(f"updateTopic -b {{broker}} -t %RETRY%{GROUP} -r 1 -w 1", (r"create topic to {broker} success\.",)),
    Command(
        f"getConsumerConfig -g {GROUP}",
        (rf"={{20,}}\S*:?{GROUP}.*|.*{GROUP}.*", r".*retryMaxTimes +=  3.*"),
    ),
    Command(
        f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0",
        (
            r"start reset consumer offset by specified, group\[AdminGroup\].*",
            table("#brokerName", "#queueId", "#offset"),
        ),
        ("SL-10",),
    ),
    Command(
        f"consumerProgress -g {GROUP}",
        (
            table(
                "#Topic",
                "#Broker Name",
                "#QID",
                "#Broker Offset",
                "#Consumer Offset",
                "#Diff",
                "#Inflight",
                "#LastTime",
            ),
            rf"{TOPIC}{BLANK}broker-a{BLANK}0{BLANK}\d+{BLANK}0.*",
            r"Consume TPS: [\d.]+",
            r"Consume Diff Total: 1",
        ),
    ),
    Command(
        "consumerProgress",
        (table("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"), rf"{GROUP}.*"),
    ),
    Command(
        f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}",
        (table("#brokerName", "#queueId", "#offset"), rf"broker-a{BLANK}0{BLANK}\d+.*"),
    ),
    Command(f"consumerConnection -g {GROUP}", (r".*CODE: 206.*the consumer group\[AdminGroup\] not online.*",)),
    Command(
        f"producerConnection -g NoProducers -t {TOPIC}", (r".*CODE: 1.*the producer group\[NoProducers\] not exist.*",)
    ),
    Command(
        f"statsAll -t {TOPIC}",
        (
            table("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour"),
            rf"{TOPIC}{BLANK}.*",
        ),
    ),
    Command("getBrokerConfig -b {broker}", (r".*{broker}.*", r"brokerName +=  broker-a", r"fileReservedTime +=  72")),
    Command(
        "updateBrokerConfig -b {broker} -k fileReservedTime -v 73",
        (r"update broker config success, {broker}",),
    ),
    Command("getBrokerConfig -b {broker}", (r"fileReservedTime +=  73",)),
    Command("getNamesrvConfig", (r"=+{namesrv}=+", r"scanNotActiveBrokerInterval +=  5000", r"clusterTest +=  false")),
    Command(
        "updateNamesrvConfig -k waitSecondsForService -v 46",
        (r"update name server config success!.*", r".*waitSecondsForService : 46.*"),
    ),
    Command(
        "updateKvConfig -s adminspace -k adminkey -v adminvalue",
        (r"create or update kv config to namespace success\.",),
    ),
    Command("deleteKvConfig -s adminspace -k adminkey", (r"delete kv config from namespace success\.",), ("NS-17",)),
    Command(
        "updateOrderConf -t AdminTopic -m put -v broker-a:4", (r"update orderConf success\. topic=\[AdminTopic\].*",)
    ),
    Command(
        "updateOrderConf -t AdminTopic -m get",
        (r"get orderConf success\. topic=\[AdminTopic\], orderConf=\[broker-a:4\]",),
    ),
    Command("updateOrderConf -t AdminTopic -m delete", (r"delete orderConf success\. topic=\[AdminTopic\]",)),
    Command(
        "wipeWritePerm -b broker-a",
        (r"wipe write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, \d+",),
        ("NS-09",),
    ),
    Command(
        "addWritePerm -b broker-a",
        (r"add write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, \d+",),
        ("NS-09",),
    ),
    Command("cleanExpiredCQ -b {broker}", (r"success",)),
    Command("cleanUnusedTopic -b {broker}", (r"success",)),
    Command(
        f"deleteSubGroup -b {{broker}} -g {GROUP} -r true",
        (r"delete subscription group \[AdminGroup\] from broker .* success\.",),
    ),
    Command(
        f"deleteTopic -c DefaultCluster -t {TOPIC}Two",
        (
            rf"delete topic \[{TOPIC}Two\] from cluster \[DefaultCluster\] success\.",
            rf"delete topic \[{TOPIC}Two\] from NameServer success\.",
        ),
        ("NS-02",),
    ),
    Command(
        f"topicRoute -t {TOPIC}Two",
        (rf".*CODE: 17.*No topic route info in name server for the topic: {TOPIC}Two.*",),
        ("NS-21",),
    ),
)


def _parameters() -> list[Any]:
    return [
        pytest.param(i, id=f"{i:02}-{command.name}", marks=[pytest.mark.covers(*command.rows)] if command.rows else [])
        for i, command in enumerate(COMMANDS)
    ]


@pytest.fixture(scope="module")
def answers(admin: AdminConsole, cluster: PeerCluster) -> list[dict[str, Any]]:
    """What the real mqadmin printed for each of the commands, all played in order."""
    return [admin.run(cluster.namesrv, filled(command.words, cluster)) for command in COMMANDS]


def filled(text: str, cluster: PeerCluster) -> str:
    return text.replace("{broker}", cluster.brokers["broker-a"]).replace("{namesrv}", cluster.namesrv)


@pytest.mark.slow
@pytest.mark.parametrize("number", _parameters())
def test_the_real_mqadmin_gets_the_layout_it_knows(
    number: int, answers: list[dict[str, Any]], cluster: PeerCluster
) -> None:
    # given the commands before this one; when the real tool ran it
    command, answer = COMMANDS[number], answers[number]
    printed = answer["output"] + answer["errors"]
    # then it ended, and printed every line it prints for the real system
    assert not answer["timed_out"], answer["command"]
    lines = [line.rstrip() for line in printed.splitlines()]
    missing = [
        pattern for pattern in command.lines if not any(re.match(filled(pattern, cluster), line) for line in lines)
    ]
    assert [] == missing, f"{answer['command']} printed:\n{printed[:4000]}"


@pytest.mark.slow
def test_the_list_of_commands_of_the_reference_is_that_of_the_real_mqadmin(java_home: Path, tmp_path: Path) -> None:
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Duser.home={tmp_path}", "-cp", f"{java_home}/lib/*"]
    done = subprocess.run(
        [*command, "org.apache.rocketmq.tools.command.MQAdminStartup"],
        capture_output=True,
        text=True,
        timeout=90,
        env=peer_environment(),
    )
    assert json.loads(NAMES.read_text()) == sorted(re.findall(r"^   (\w+) ", done.stdout, re.MULTILINE))
