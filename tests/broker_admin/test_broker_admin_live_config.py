"""Keys read and changed on a running broker (25, 26)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from admin_rig import Rig

from understudy.broker.config import BrokerOptions
from understudy.container.broker_files import check_hosted
from understudy.runtime.properties import ConfigError, parse_properties


def keys_of(body: bytes) -> dict[str, str]:
    return dict(line.split("=", 1) for line in body.decode().splitlines())


async def test_a_change_is_seen_at_once_and_counted() -> None:
    rig = Rig()

    before = await rig.ask(26)
    changed = await rig.ask(25, body=b"traceOn=false\n")
    unknown = await rig.ask(25, body=b"configStorePath=x\n")
    empty = await rig.ask(25)
    after = await rig.ask(26)

    assert [changed.code, unknown.code, empty.code] == [0, 0, 0]
    assert (keys_of(before.body)["traceOn"], keys_of(after.body)["traceOn"]) == ("true", "false")
    assert list(keys_of(after.body)) == sorted(keys_of(after.body))
    versions = [json.loads((answer.ext or {})["version"])["counter"] for answer in (before, after)]
    assert versions == [0, 2]
    assert list(json.loads((after.ext or {})["version"])) == ["counter", "stateVersion", "timestamp"]


@pytest.mark.parametrize("key", ["brokerConfigPath", "configBlackList", "rocketmqHome"])
async def test_black_listed_keys(key: str) -> None:
    rig = Rig()

    answer = await rig.ask(25, body=f"{key}=x\ntraceOn=false\n".encode())

    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
    assert rig.options.broker.trace_on is True


@pytest.mark.parametrize(
    "line",
    [
        b"listenPort=1",
        b"brokerName=other",
        b"storePathRootDir=/elsewhere",
        b"brokerRole=SLAVE",
        b"reviveQueueNum=16",
        b"flushDiskType=SYNC_FLUSH",
    ],
)
async def test_what_a_broker_is_cannot_change_while_it_runs(line: bytes) -> None:
    rig = Rig()
    before = rig.options.properties()

    answer = await rig.ask(25, body=line + b"\ntraceOn=false\n")

    key = line.partition(b"=")[0].decode()
    expected = f"{key} cannot change while the server runs; change the file and start it again"
    assert (29, expected) == (answer.code, answer.remark)
    assert before == rig.options.properties()


async def test_what_a_broker_is_may_be_said_again() -> None:
    rig = Rig()
    name = rig.options.broker.broker_name

    answer = await rig.ask(25, body=f"brokerName={name}\ntraceOn=false\n".encode())

    assert 0 == answer.code
    assert rig.options.broker.trace_on is False


async def test_a_bad_value_changes_nothing() -> None:
    rig = Rig()

    answer = await rig.ask(25, body=b"traceOn=false\nfileReservedTime=soon\n")

    assert answer.code == 29
    assert answer.remark is not None
    assert answer.remark.startswith("request: fileReservedTime=soon: expected a whole number")
    assert rig.options.broker.trace_on is True


async def test_permission_of_the_broker_is_news_for_name_servers() -> None:
    rig = Rig()
    told: list[int] = []
    rig.topics.on_change.append(lambda rows: told.append(len(rows)))

    assert (await rig.ask(25, body=b"brokerPermission=4\n")).code == 0

    assert told == [0]
    assert rig.options.broker.broker_permission == 4


async def test_a_change_stands_in_the_users_file_beside_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nbrokerName=broker-a\ntraceOn = true\n")
    rig = Rig()
    rig.options.path = str(path)

    assert (await rig.ask(25, body=b"traceOn=false\nregionId=here\n")).code == 0

    assert path.read_text() == "# mine\nbrokerName=broker-a\ntraceOn=false\nregionId=here\n"


async def test_a_file_that_cannot_be_written_refuses_the_change(tmp_path: Path) -> None:
    rig = Rig()
    (tmp_path / "gone").write_text("a file where the folder was")
    rig.options.path = str(tmp_path / "gone" / "broker.conf")

    answer = await rig.ask(25, body=b"traceOn=false\n")

    assert answer.code == 1
    assert (answer.remark or "").startswith(f"cannot write {rig.options.path}: ")
    assert rig.options.broker.trace_on is True


async def test_updates_at_the_same_time_are_all_in_the_file(tmp_path: Path) -> None:
    # given a broker with a file
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nbrokerName=broker-a\n")
    rig = Rig()
    rig.options.path = str(path)
    keys = ["traceOn", "warmMapedFileEnable", "longPollingEnable", "slaveReadEnable", "cleanFileForciblyEnable"]
    before = keys_of((await rig.ask(26)).body)
    wanted = {key: "false" if before[key] == "true" else "true" for key in keys}
    answers = []

    async def update(key: str) -> None:
        answers.append(await rig.ask(25, body=f"{key}={wanted[key]}\n".encode()))

    # when several operators change it at the same moment, again and again
    for _ in range(20):
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(update, key)
    # then all were heard, and the file has everything
    assert {answer.code for answer in answers} == {0}
    assert parse_properties(path.read_text()) == {"brokerName": "broker-a", **wanted}


async def test_a_key_that_had_no_value_has_none_after_a_failed_write(tmp_path: Path) -> None:
    rig = Rig()
    rig.options.path = str(tmp_path / "broker.conf" / "below")
    (tmp_path / "broker.conf").write_text("")
    before = rig.options.broker.namesrv_addr

    answer = await rig.ask(25, body=b"namesrvAddr=1.2.3.4:9876\n")

    assert answer.code == 1
    assert (answer.remark or "").endswith("; nothing was changed")
    assert rig.options.broker.namesrv_addr == before


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"enableControllerMode=true", "enableControllerMode cannot change while the server runs"),
        (b"metricsExporterType=NONSENSE", "metricsExporterType"),
        (b"metricsPromExporterPort=99999", "metricsPromExporterPort"),
        (b"brokerIP1=no.such.host.example", "brokerIP1 cannot change while the server runs"),
        (b"messageDelayLevel=1s 2x", "messageDelayLevel"),
    ],
)
async def test_what_the_next_start_would_refuse_is_refused_now(line: bytes, reason: str) -> None:
    rig = Rig()
    before = rig.options.properties()

    answer = await rig.ask(25, body=line + b"\ntraceOn=false\n")

    assert (29, True) == (answer.code, reason in (answer.remark or "")), answer.remark
    assert before == rig.options.properties()


async def test_what_a_container_would_refuse_is_refused_now() -> None:
    rig = Rig()
    rig.options.checks.append(check_hosted)
    for line, reason in (
        (b"inSyncReplicas=5", "invalid replicas number"),
        (b"duplicationEnable=true", "in a container"),
    ):
        answer = await rig.ask(25, body=line)
        assert (29, True) == (answer.code, reason in (answer.remark or ""))
    assert rig.options.store.in_sync_replicas == 1


async def test_who_may_administrate_cannot_be_changed_by_a_request() -> None:
    rig = Rig()
    assert (await rig.ask(25, body=b"adminAddresses=10.0.0.1\n")).code == 16
    assert (await rig.ask(25, body=b"waitingOutgoingBytes=1\n")).code == 16
    with pytest.raises(ConfigError, match=r"adminAddresses=10\.0\.0\.300: expected addresses or networks"):
        BrokerOptions.from_properties({"adminAddresses": "10.0.0.300"})
