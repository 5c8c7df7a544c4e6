"""The help of a command says where servers do not take it, and what of it has no effect."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import trio

from understudy.broker.admin.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES
from understudy.mqadmin.command import Command, CommandFailedError, Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.mqclient.errors import BrokerError, ClientError
from understudy.remoting.codes import ResponseCode
from understudy.runtime.world import real_world
from understudy.testkit.local_cluster import LocalCluster

MARKS = ("(servers with ", "(Java brokers only")
"""What a summary has of a command that a server with default settings does not take."""
OF_CONTROLLERS = "controllerAddress"
"""The option of commands that controllers answer, and say so by it."""
MORE = {"updateUser": ("--password", "p"), "importPlainAcl": ("--yes",)}
"""What a command needs beside the options that it calls needed."""


def values_of(folder: Path, broker: str, container: str) -> dict[str, str]:
    """Return a value for every option that some command needs."""
    files = {
        "topics.json": '[{"topicName":"U","readQueueNums":1,"writeQueueNums":1,"perm":6}]',
        "updateSubGroupList": '[{"groupName":"H"}]',
        "plain_acl.yml": 'accounts:\n- accessKey: abcdefgh\n  secretKey: "12345678"\n',
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return {
        **dict.fromkeys(("broker", "brokerAddr", "fromBroker", "toBroker"), broker),
        **dict.fromkeys(("group", "groupName", "consumerGroup", "srcGroup", "producerGroup"), "G"),
        **dict.fromkeys(("topic", "topicName"), "T"),
        **dict.fromkeys(("index", "offset", "queue", "queueId", "commitLogReadAheadMode"), "0"),
        **dict.fromkeys(("brokerName", "brokers"), "broker-a"),
        **dict.fromkeys(("body", "key", "msgKey", "namespace", "password", "username", "value"), "x"),
        "actions": "Pub",
        "brokerConfigPath": str(folder / "none.conf"),
        "brokerContainerAddr": container,
        "brokerIdentity": "DefaultCluster:broker-z:3",
        "clusterName": "DefaultCluster",
        "decision": "Allow",
        "destGroup": "H",
        "engineType": "F",
        "file": str(folder / "plain_acl.yml"),
        "filename": str(folder / "topics.json"),
        "ipList": "127.0.0.1",
        "method": "get",
        "mode": "PULL",
        "msgId": "7F0000010007D8CD6F4A1F58C4E40000",
        "perm": "4",
        "resources": "Topic:T",
        "subject": "User:x",
        "threshold": "5",
        "timestamp": "now",
        "totalQueueNum": "1",
    }


def words_of(name: str, command: Command, values: Mapping[str, str]) -> list[str]:
    """Return the options that *command* cannot do without, and no other."""
    keys = {option.key for option in command.options if option.required} | set(command.one_of[:1])
    chosen = [option.long for option in command.options if option.key in keys]
    return [word for long in chosen for word in (f"--{long}", values[long])] + list(MORE.get(name, ()))


def asked_of_servers() -> dict[str, Command]:
    """Return the commands that name servers, brokers and containers answer, those last that take something away."""
    commands = load_commands()
    names = sorted(commands, key=lambda name: name.startswith(("delete", "clean")))
    return {
        name: commands[name]
        for name in names
        if OF_CONTROLLERS not in {option.long for option in commands[name].options}
    }


async def test_every_command_that_servers_refuse_by_default_says_so(tmp_path: Path) -> None:
    refused = dict[str, str]()
    async with LocalCluster() as cluster:
        await cluster.make_topic("T")
        address = cluster.brokers["broker-a"].identity.address
        values = values_of(tmp_path, address, "{}:{}".format(*cluster.container.server.address))
        groups = {**values, "filename": str(tmp_path / "updateSubGroupList")}
        for name, command in asked_of_servers().items():
            words = words_of(name, command, groups if name == "updateSubGroupList" else values)
            output = Output(False, io.StringIO())
            try:
                with trio.fail_after(60):
                    await run_command(
                        command, parse(command.all_options, words), cluster.namesrv_address, output, real_world()
                    )
            except BrokerError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED or "(enable" in error.remark:  # names a key
                    refused[name] = str(error)
            except (ClientError, CommandFailedError):
                pass  # there is nothing to be found or changed; it was asked all the same
    assert "listUser" in refused
    marked = {name for name, command in asked_of_servers().items() if any(mark in command.summary for mark in MARKS)}
    assert marked == refused.keys(), refused


def test_the_help_names_the_attributes_that_brokers_take() -> None:
    for name, key, known in (
        ("updateTopic", "a", TOPIC_ATTRIBUTES),
        ("updateSubGroup", "attributes", GROUP_ATTRIBUTES),
    ):
        (option,) = (each for each in load_commands()[name].options if each.key == key)
        assert all(attribute in option.summary for attribute in known), option


def test_the_help_says_that_a_limit_of_reads_holds_nobody_back() -> None:
    assert "hold nobody back" in load_commands()["updateColdDataFlowCtrGroupConfig"].summary
