"""Accounts of a plain_acl.yml become users and rules: a dry run first, nothing that is there is changed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")

from understudy.format.json_dialect import loads
from understudy.mqadmin.command import CommandFailedError, Output
from understudy.mqadmin.main import load_commands, run_command
from understudy.mqadmin.options import parse
from understudy.mqadmin.plain_acl import PlainAclError, accounts_of
from understudy.mqclient.api import Message, ProducerOptions, SessionOptions, open_producer
from understudy.mqclient.errors import ClientError
from understudy.mqclient.session import open_session
from understudy.remoting.codes import RequestCode
from understudy.runtime.world import real_world
from understudy.security.signature import Credentials
from understudy.testkit.local_cluster import LocalCluster

ROOT = Credentials("root", "the root's secret")
KEYS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"the root\'s secret"}',
}
# As the reference's own example is written (distribution/conf/plain_acl.yml of 5.2.0).
FILE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 012345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=SOMETHING

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def rule(resource: str, decision: str, *actions: str) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision}


class Operator:
    """Runs the command as the super user of a broker."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.servers = cluster.namesrv_address
        ((_, broker),) = cluster.brokers.items()
        self.broker = broker.identity.address

    async def run(self, line: str) -> str:
        words, stream = line.split(), io.StringIO()
        chosen = load_commands()[words[0]]
        options = SessionOptions(credentials=ROOT)
        values = parse(chosen.all_options, words[1:])
        await run_command(chosen, values, self.servers, Output(False, stream), real_world(), options)
        return stream.getvalue()

    async def rows(self, code: RequestCode, key: str) -> dict[str, Any]:
        async with open_session(real_world(), self.servers, SessionOptions(credentials=ROOT)) as session:
            answer = await session.call(self.broker, code, {})
        return {row[key]: row for row in (loads(answer.body) if answer.body else None) or []}

    async def sends(self, who: Credentials, topic: str) -> bool:
        options = ProducerOptions(attempts=1, session=SessionOptions(credentials=who))
        async with open_producer(real_world(), self.servers, "senders", options) as producer:
            try:
                await producer.send(Message(topic, b"x"))
            except ClientError as error:
                assert "has no permission" in str(error.__cause__ or error), error
                return False
        return True


async def test_a_file_becomes_users_and_rules_after_a_dry_run(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(FILE)
    async with LocalCluster(broker_config=KEYS) as cluster:
        operator = Operator(cluster)
        line = f"importPlainAcl -f {tmp_path / 'plain_acl.yml'} -b {operator.broker}"
        # when it is not told to, then it only says what it would do, without a password
        said = await operator.run(line)
        assert "user RocketMQ, Normal" in said
        assert "Custom  Allow  Pub, Sub  Topic:topicB" in said
        assert "nothing was changed; --yes does it" in said
        assert "12345678" not in said
        assert ["root"] == list(await operator.rows(RequestCode.AUTH_LIST_USER, "username"))
        # when it is told to
        said = await operator.run(f"{line} --yes")
        assert "left out, as an address alone lets nobody in any more: globalWhiteRemoteAddresses: 10.10.103.*" in said
        assert "rocketmq2, whiteRemoteAddress: 192.168.1.*" in said
        users = await operator.rows(RequestCode.AUTH_LIST_USER, "username")
        assert [("RocketMQ", "Normal"), ("rocketmq2", "Super")] == sorted(
            (name, row["userType"]) for name, row in users.items() if name != "root"
        )
        # then keys of clients mean what they meant, with their zero in front
        client = Credentials("RocketMQ", "012345678")
        assert [True, False, False] == [await operator.sends(client, topic) for topic in ("topicB", "topicA", "other")]
        assert await operator.sends(Credentials("rocketmq2", "12345678"), "other")
        # when it is done again, then what is there stays, also what was changed meanwhile
        await operator.run(f"updateUser -b {operator.broker} -u rocketmq2 -t Normal")
        assert "has a user rocketmq2, which stays as it is" in await operator.run(f"{line} --yes")
        assert "Normal" == (await operator.rows(RequestCode.AUTH_LIST_USER, "username"))["rocketmq2"]["userType"]


def test_what_a_broker_refused_is_refused_and_traces_go_on() -> None:
    row = {
        "accessKey": "a", "secretKey": "b", "defaultTopicPerm": "PUB", "defaultGroupPerm": "ANY",
        "topicPerms": ["t= SUB|PUB ", "u=pub"], "groupPerms": ["g=SUB"],
    }  # fmt: skip
    ((account,), left_out) = accounts_of({"accounts": [row]})
    custom, default = account.policies
    assert custom["entries"] == [
        rule("Topic:t", "Allow", "Pub", "Sub"),
        rule("Topic:u", "Deny", "All"),
        rule("Group:g", "Allow", "Sub"),
        rule("Topic:RMQ_SYS_TRACE_TOPIC", "Allow", "Pub"),
    ]
    assert ("Default", [rule("Topic:*", "Allow", "Pub"), rule("Group:*", "Deny", "All")]) == (
        default["policyType"],
        default["entries"],
    )
    assert [] == left_out
    assert "'b'" not in repr(account)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "it is no mapping"),
        ("text", "it is no mapping"),
        ({"accounts": "x"}, "'accounts' is no list"),
        ({"accounts": ["x"]}, "account 1 is no mapping"),
        ({"accounts": [{"accessKey": "a"}]}, "account 1: secretKey is missing"),
        ({"accounts": [{"accessKey": [], "secretKey": "b"}]}, "account 1: accessKey is missing"),
        ({"accounts": [{"accessKey": "a", "secretKey": "b"}] * 2}, "account 2: the access key a is there twice"),
        ({"accounts": [{"accessKey": "a", "secretKey": "b", "topicPerms": ["t"]}]}, "topicPerms has 't'"),
        ({"accounts": [{"accessKey": "a", "secretKey": "b", "topicPerms": ["t*=PUB"]}]}, "topicPerms has 't*=PUB'"),
        ({"accounts": [{"accessKey": "a", "secretKey": "b", "groupPerms": [{}]}]}, "groupPerms has what is no text"),
        ({"accounts": [{"accessKey": "a", "secretKey": "b", "groupPerms": "g"}]}, "groupPerms is no list"),
    ],
)
def test_what_is_no_such_file_is_refused_with_its_place(content: Any, why: str) -> None:
    with pytest.raises(PlainAclError) as refused:
        accounts_of(content)
    assert why in str(refused.value)


@pytest.mark.parametrize("text", [b"a: [", b"\xff\xfe\xff", b"a: b: c", b"- !!python/object/apply:os.system [x]\n- ]"])
async def test_a_file_that_is_no_yaml_is_one_line(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_bytes(text)
    command = load_commands()["importPlainAcl"]
    values = parse(command.all_options, ["-f", str(tmp_path / "plain_acl.yml"), "-b", "127.0.0.1:1"])
    with pytest.raises(CommandFailedError) as refused:
        await run_command(command, values, "127.0.0.1:1", Output(False, io.StringIO()), real_world())
    assert "is no YAML" in str(refused.value)
    assert "\n" not in str(refused.value)
