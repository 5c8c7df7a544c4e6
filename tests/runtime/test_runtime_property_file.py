"""Configuration files: where they are looked for, what their bytes are taken for, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from understudy.runtime.disk import RealDisk
from understudy.runtime.properties import (
    LIMIT_CHARACTERS,
    ConfigError,
    Properties,
    parse_properties,
    rewrite_properties,
)
from understudy.runtime.property_file import read_properties_file
from understudy.testkit.sim.disk import SimDisk


def read(path: Path | str, home: str | None = None) -> Properties:
    return read_properties_file(RealDisk(), str(path), home)


def refusal(path: Path | str, home: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path, home)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        "brokerName=bröker\n".encode(),
        b"\xef\xbb\xbf" + "brokerName=bröker\r\n".encode(),
        "brokerName=bröker\r".encode("latin-1"),
        b"brokerName=br\\u00f6ker",
    ],
)
def test_a_name_is_the_same_in_each_encoding(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(data)
    values = read(path)
    assert {"brokerName": "bröker"} == values
    assert (str(path), f"{path}:1") == (values.source, values.where("brokerName"))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"\x7fELF\x02\x01\x01\x00", "broker.conf:1: byte 2 is no part of a text; name a text file of key=value lines"),
        (b"a=1\nb=\x002\n", "broker.conf:2: byte 0 is no part of a text; name a text file of key=value lines"),
        ("a=1\n".encode("utf-16"), "broker.conf:1: byte 0 is no part of a text; save it as UTF-8"),
        (b"a=1\n" * LIMIT_CHARACTERS, "broker.conf: 1048576 characters are above the limit of 262144"),
        (b"a=1\n#\nb=\\u12\n", "broker.conf:3: \\u12: expected four hexadecimal digits"),
    ],
)
def test_what_is_no_configuration_is_one_line(tmp_path: Path, data: bytes, line: str) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(data)
    assert f"{tmp_path}/{line}" == refusal(path)


def test_a_huge_file_is_not_even_read() -> None:
    disk = SimDisk(Random(1))
    disk.make_folder("/conf")
    disk.open("/conf/b.conf").truncate(LIMIT_CHARACTERS * 4 + 1)
    disk.read = lambda path: pytest.fail("read")  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"/conf/b\.conf has 1048577 bytes, more than any can have"):
        read_properties_file(disk, "/conf/b.conf", None)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    name = "name a text file of key=value lines"
    assert f"configuration file {tmp_path} cannot be read: Is a directory; {name}" == refusal(tmp_path)
    absent = tmp_path / "none.conf"
    assert f"configuration file {absent} cannot be read: No such file or directory; {name}" == refusal(absent)
    assert f"the path of the configuration file is empty; {name}" == refusal("")
    assert f"embedded null byte; {name}" in refusal(f"{tmp_path}/a\0b")


@pytest.mark.covers("R114")
def test_a_relative_path_is_looked_for_below_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given an installation with a file, and a current folder without one
    here, home = tmp_path / "here", tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    file = home / "conf" / "broker.conf"
    file.write_text("a=1\n")
    # when its path is relative, then it is found below ROCKETMQ_HOME and named by where it was found
    values = read("conf/broker.conf", str(home))
    assert ({"a": "1"}, f"{file}:1") == (values, values.where("a"))
    # and one of the current folder comes first
    (here / "conf").mkdir()
    (here / "conf" / "broker.conf").write_text("a=2\n")
    assert {"a": "2"} == read("conf/broker.conf", str(home))


@pytest.mark.covers("R114")
def test_a_relative_path_that_is_nowhere_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = f"configuration file b.conf cannot be read: {tmp_path}/b.conf is not there, and "
    way_out = "give another path, or set ROCKETMQ_HOME to the installation"
    assert f"{begin}ROCKETMQ_HOME is not set; {way_out}" == refusal("b.conf")
    assert f"{begin}ROCKETMQ_HOME is not set; {way_out}" == refusal("b.conf", "")
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "none", tmp_path / "file"):
        assert f"{begin}ROCKETMQ_HOME={home} is no folder; {way_out}" == refusal("b.conf", str(home))
    home = tmp_path / "home"
    home.mkdir()
    expected = f"{begin}neither is {home}/b.conf, below ROCKETMQ_HOME; name a text file of key=value lines"
    assert expected == refusal("b.conf", str(home))


@given(st.binary(max_size=60))
@example(b"\xff\xfe")
@example(b"a=\\ud83d\\ude00")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    disk = SimDisk(Random(1))
    disk.make_folder("/c")
    disk.open("/c/f").write_at(0, data)
    try:
        values = read_properties_file(disk, "/c/f", None)
    except ConfigError as error:
        assert str(error).startswith("/c/f:")
    else:
        assert all(values.where(key).startswith("/c/f:") for key in values)


@given(st.text(max_size=20))
def test_a_changed_value_is_read_back_whatever_the_file_was_written_in(value: str) -> None:
    for before in ("brokerName=bröker\n".encode(), "brokerName=bröker\n".encode("latin-1")):
        after = rewrite_properties(before, {"regionId": value})
        disk = SimDisk(Random(1))
        disk.make_folder("/c")
        disk.open("/c/f").write_at(0, after)
        assert {"brokerName": "bröker", "regionId": value.strip()} == read_properties_file(disk, "/c/f", None)


def test_a_value_over_several_lines_is_changed_as_a_whole() -> None:
    before = b"# kept \\\nnamesrvAddr=h:1;\\\n  i:2;\\\n  j:3\nregionId=a\\\nnamesrvAddr=part\nnamesrvAddr=again\\\nx"
    after = rewrite_properties(before, {"namesrvAddr": "k:4"})
    assert b"# kept \\\nnamesrvAddr=k:4\nregionId=a\\\nnamesrvAddr=part\n" == after
    assert {"namesrvAddr": "k:4", "regionId": "anamesrvAddr=part"} == parse_properties(after.decode())


def test_a_key_behind_a_lone_backslash_is_the_same_key() -> None:
    assert {"a": "2"} == parse_properties("a=1\n\\\na=2")
    assert b"a=3\n" == rewrite_properties(b"a=1\n\\\na=2", {"a": "3"})
    assert {"#a": "2", "b": "3"} == parse_properties("\\\n#a=2\n\\\n\nb=3")


def test_characters_beyond_16_bits_are_two_escapes_as_in_java() -> None:
    assert b"a=\\ud83d\\ude00\n" == rewrite_properties(b"", {"a": "😀"})
    assert {"a": "😀"} == parse_properties("a=\\ud83d\\ude00\n")


_WORD = st.text("abcXYZ09", min_size=1, max_size=4)
_FILE_LINES = st.lists(
    st.one_of(
        st.tuples(_WORD, st.text("ab \\=:#é", max_size=6)).map("=".join),
        st.sampled_from(["# kept", "! kept \\", "", "  ", "\\", "a=b\\", " and more"]),
    ),
    max_size=6,
)


@given(_FILE_LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.dictionaries(_WORD, _WORD, max_size=3))
def test_a_change_in_place_reads_back_and_touches_nothing_else(
    lines: list[str], end: str, ended: bool, changes: dict[str, str]
) -> None:
    # given any file, its last line ended or not
    data = (end.join(lines) + (end if ended else "")).encode("latin-1")
    try:
        before = parse_properties(data.decode("latin-1"))
    except ConfigError:
        return
    # when keys are changed; then they and all others read as they should
    after = rewrite_properties(data, changes)
    assert dict(parse_properties(after.decode("latin-1"))) == {**before, **changes}
    # and what was not touched keeps its bytes and ends of lines
    assert rewrite_properties(data, {}) == data
