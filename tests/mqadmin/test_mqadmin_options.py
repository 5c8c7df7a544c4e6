"""How argument lists are read, and what a wrong one says."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.versions import version_text
from understudy.mqadmin.main import load_commands, main
from understudy.mqadmin.options import COMMON, UsageError, flag, needed, parse, value
from understudy.mqadmin.text import parse_time, permission_text
from understudy.testkit.blocking import local_cluster

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = (
    needed("t", "topic", ""),
    value("o", "offset", ""),
    value("bn", "brokerName", ""),
    flag("m", "more", ""),
    *COMMON,
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-t", "Orders"],
        ["-tOrders"],
        ["--topic", "Orders"],
        ["--topic=Orders"],
        ["-topic", "Orders"],
        ["-t", " Orders "],
        ["-m", "-t", "Orders"],
    ],
)
def test_all_forms_of_the_real_tool_are_read(arguments: list[str]) -> None:
    assert parse(OPTIONS, arguments)["t"] == "Orders"


def test_keys_of_two_letters_and_negative_numbers_are_values() -> None:
    values = parse(OPTIONS, ["-t", "T", "-bn", "broker-a", "-o", "-1"])
    assert (values["bn"], values.number("o", 0), "m" in values) == ("broker-a", -1, False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "missing option: -t,--topic"),
        (["-t"], "option -t,--topic needs a value"),
        (["-t", "-o", "3"], "option -t,--topic needs a value"),
        (["-t", "x", "--tpic", "y"], "unknown option --tpic; did you mean --topic"),
        (["-t", "x", "-z"], "unknown option -z"),
        (["-t", "x", "--more=1"], "takes no value"),
        (["x"], "is not an option"),
    ],
)
def test_wrong_lists_say_what_is_wrong(arguments: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(OPTIONS, arguments)


@pytest.mark.parametrize(("text", "why"), [("x1", "needs a number"), ("", "needs a number")])
def test_values_are_checked(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(OPTIONS, ["-t", "x", f"--offset={text}"]).number("o", 0)
    with pytest.raises(UsageError, match="needs true or false"):
        parse(OPTIONS, ["-t", "x", f"--offset={text}"]).truth("o", False)


@given(st.lists(st.text("-tomx=h ", max_size=5), max_size=6))
def test_any_list_is_read_or_refused(arguments: list[str]) -> None:
    try:
        values = parse(OPTIONS, arguments)
    except UsageError as error:
        assert str(error)
    else:
        assert "t" in values or "h" in values


@pytest.mark.parametrize("name", sorted(load_commands()))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = load_commands()[name]
    assert main(["help", name]) == 0
    first = capsys.readouterr().out
    assert main([name, "-h"]) == 0
    assert capsys.readouterr().out == first
    assert all(option.shown in first for option in command.all_options)
    keys = [option.key for option in command.all_options]
    assert len(keys) == len(set(keys))


def test_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"   {name} " in printed for name in load_commands())


def test_every_command_of_the_reference_is_there_or_it_is_said_why_not() -> None:
    theirs = set(json.loads((ROOT / "tests" / "data" / "mqadmin" / "commands_5.4.0.json").read_text()))
    page = (ROOT / "docs" / "differences.md").read_text()
    _, _, rows = page.partition("* Commands of the reference that are not there, and why:\n")
    rows = "\n".join(itertools.takewhile(lambda line: line.startswith("  "), rows.splitlines()))
    explained = {
        name for row in re.findall(r"^  \* (.*?):", rows, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert 90 == len(theirs)
    assert theirs - load_commands().keys() == explained


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["clusterlst"], 2, "The sub command clusterlst not exist; did you mean clusterList?"),
        (["help", "topicrout"], 2, "did you mean topicRoute?"),
        (["topicRoute", "-n", "x:1"], 2, "missing option: -t,--topic (see 'mqadmin help topicRoute')"),
        (["updateTopic", "-n", "x:1", "-t", "T"], 2, "missing option: -b,--brokerAddr or -c,--clusterName"),
        (["topicList"], 2, "no name server: add -n host:port or set NAMESRV_ADDR"),
        (
            ["topicList", "-n", "127.0.0.1:1"],
            1,
            "mqadmin topicList: no name server answers: no connection to 127.0.0.1:1",
        ),
        (["topicList", "-n", "nonsense"], 1, "'nonsense' is not an address of the form host:port"),
        (["brokerStatus", "-b", "127.0.0.1:1"], 1, "no connection to 127.0.0.1:1"),
        (["updateTopic", "-b", "127.0.0.1:1", "-t", "bad topic"], 1, "the topic name 'bad topic' is illegal"),
        (["updateTopic", "-b", "127.0.0.1:1", "-t", "T", "-p", "9"], 2, "option -p is 2, 4 or 6"),
        (["updateTopicList", "-b", "127.0.0.1:1", "-f", "/nowhere"], 1, "/nowhere cannot be read"),
        (["removeBroker", "-c", "127.0.0.1:1", "-b", "x"], 1, "write cluster:name:id"),
        (
            ["brokerConsumeStats", "-b", "127.0.0.1:1", "-t", "-1"],
            2,
            "option -t needs at least one millisecond, not -1",
        ),
        (["queryMsgById", "-n", "x:1", "-t", "t", "-i", " , "], 2, "option -i names no message"),
        (["sendMsgStatus", "-n", "x:1", "-b", "b", "-c", "0"], 2, "option -c needs at least one message, not 0"),
        (["updateOrderConf", "-n", "x:1", "-m", "put", "-t", "t", "-v", "a:4;b"], 2, "not 'a:4;b'"),
        (["resetOffsetByTime", "-n", "x:1", "-g", "g", "-t", "t", "-s", "noon"], 2, "not 'noon'"),
    ],
)
def test_errors_are_one_line_and_a_code(
    arguments: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert why in printed.err
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err


def test_a_request_that_a_server_does_not_know_says_what_it_may_lack(capsys: pytest.CaptureFixture[str]) -> None:
    with local_cluster() as cluster:
        (broker,) = cluster.broker_addresses.values()
        for arguments in (["listUser", "-b", broker], ["brokerStatus", "-b", cluster.namesrv_address]):
            assert main(arguments) == 1
            told = capsys.readouterr().err
            assert "not supported; it is another kind of server, or lacks a setting that this needs" in told
            assert told.count("\n") == 1


def test_times_come_in_three_forms() -> None:
    assert parse_time("now", 5, "s") == 5
    assert parse_time("1700000000000", 5, "s") == 1_700_000_000_000
    assert parse_time("2026-11-21#07:05:31:751", 5, "s") % 1000 == 751


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (493, "V5_4_0"),
        (413, "V5_0_0"),
        (401, "V4_9_4"),
        (317, "V4_5_2"),
        (478, "V5_3_3_SNAPSHOT"),
        (99_999, "HIGHER_VERSION"),
    ],
)
def test_versions_have_names(ordinal: int, name: str) -> None:
    assert version_text(ordinal) == name


def test_permissions_have_letters() -> None:
    assert [permission_text(number) for number in (6, 4, 2, 7)] == ["RW-", "R--", "-W-", "RWX"]
