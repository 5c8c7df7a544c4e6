"""Settings files: the reference's keys and defaults, and one sentence about each mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from namesrv_wire import captured

from understudy.namesrv.config import FIELDS, NO_EFFECT, NamesrvConfig, read_config, show
from understudy.runtime.properties import ConfigError, format_properties, parse_properties


def read(text: str) -> tuple[NamesrvConfig, list[str]]:
    return read_config(parse_properties(text, "n.conf"))


@pytest.mark.covers("R81")
def test_keys_and_defaults_are_the_references() -> None:
    # given what 5.4.0 shows of its own settings
    rows = captured("namesrv_requests")
    shown = parse_properties(next(row["body"] for row in rows if row["kind"] == "response" and row["of"] == 319))
    # then ours are the same but for where things are
    places = {"configStorePath", "kvConfigPath", "rocketmqHome", "listenPort"}
    ours = parse_properties(show(NamesrvConfig()))
    assert ours.keys() == shown.keys()
    assert {key: value for key, value in ours.items() if key not in places} == {
        key: value for key, value in shown.items() if key not in places
    }
    assert ours["listenPort"] == "9876"
    assert ours["supportActingMaster"] == "false"
    assert ours["scanNotActiveBrokerInterval"] == "5000"


def test_a_file_is_read_and_mistakes_are_told_with_the_nearest_key() -> None:
    config, warnings = read(
        "# comment\nlistenPort = 9999\nsupportActingMaster=TRUE\nsuportActingMaster=true\n"
        "zzz=1\nserverWorkerThreads=4\n"
    )
    assert (config.listen_port, config.support_acting_master, config.server_worker_threads) == (9999, True, 4)
    assert warnings == [
        "n.conf:4: unknown key suportActingMaster is ignored, the nearest known key is supportActingMaster",
        "n.conf:5: unknown key zzz is ignored",
        f"n.conf:6: serverWorkerThreads has no effect here: {NO_EFFECT['serverWorkerThreads']}",
    ]


def test_a_stored_file_is_no_mistake() -> None:
    config, warnings = read("listenPort=9999\nsupportActingMaster=true\n")
    assert warnings == []
    assert read(show(config)) == (config, [])


def test_keys_of_an_embedded_controller_are_not_mistakes() -> None:
    config, warnings = read("enableControllerInNamesrv=true\ncontrollerDLegerPeers=n0-127.0.0.1:9878\n")
    assert config.enable_controller_in_namesrv
    assert warnings == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listenPort=many", "n.conf:2: listenPort=many: expected a port from 0 to 65535"),
        ("listenPort=65536", "n.conf:2: listenPort=65536: expected a port from 0 to 65535"),
        ("listenPort=", "n.conf:2: listenPort=: expected a port from 0 to 65535"),
        (
            "waitSecondsForService=-1",
            "n.conf:2: waitSecondsForService=-1: expected a whole number from 0 to 2147483647",
        ),
        ("supportActingMaster=yes", "n.conf:2: supportActingMaster=yes: expected true or false"),
        ("listenPort=\\u12", "n.conf:2: \\u12: expected four hexadecimal digits"),
    ],
)
def test_a_bad_value_is_one_sentence(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("# first\n" + line)
    assert str(caught.value) == message


def test_every_key_without_effect_is_a_key() -> None:
    assert set(NO_EFFECT) <= set(FIELDS)
    assert FIELDS["kvConfigPath"].name == "kv_config_path"


def test_property_lines_are_read_as_java_reads_them() -> None:
    text = (
        "a=1\n b : 2\r\nc 3\n! comment\n#x\n\nd\ne\\=f=g\\tz\\u0041\nlong=one,\\\n    two,\\\n    three\nempty=\n"
        "slash=end\\\\\nlast=\\"
    )
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "",
        "e=f": "g\tzA",
        "long": "one,two,three",
        "empty": "",
        "slash": "end\\",
        "last": "",
    }


@given(some.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = parse_properties(text)
    except ConfigError as error:
        assert str(error).startswith("configuration:")
    else:
        assert all(isinstance(key, str) and isinstance(value, str) for key, value in values.items())


@given(
    some.dictionaries(
        some.from_regex(r"[a-zA-Z.]{1,10}", fullmatch=True), some.from_regex(r"[a-z0-9;/.]{0,20}", fullmatch=True)
    )
)
def test_what_is_written_is_read_again(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values
