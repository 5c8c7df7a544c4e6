"""The codec against everything a peer may send."""

from __future__ import annotations

import struct

import pytest
from binary_frames import encode_binary
from hypothesis import given
from hypothesis import strategies as st

from understudy.remoting.command import CURRENT_VERSION, Command, request, response
from understudy.remoting.fields import CommandError, optional_bool, required, required_int
from understudy.remoting.frame import (
    FrameError,
    FrameReader,
    encode,
    framed,
    reply,
    success_format,
    with_code,
)
from understudy.runtime import proxy_protocol

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
commands = st.builds(
    Command,
    code=st.integers(-1000, 32767),
    language=st.sampled_from(["JAVA", "GO", "CPP", "NODE_JS"]),
    version=st.integers(0, 32767),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    flag=st.integers(0, 3),
    remark=st.none() | text.filter(bool),
    ext=st.none() | st.dictionaries(text.filter(bool), text.filter(bool), min_size=1, max_size=5),
    body=st.binary(max_size=100),
)


@given(commands)
def test_json_frames_survive_a_round_trip(command: Command) -> None:
    (again,) = FrameReader().feed(encode(command))
    assert command == again


@given(commands)
def test_binary_frames_survive_a_round_trip(command: Command) -> None:
    command.serialize = 1
    (again,) = FrameReader().feed(encode_binary(command))
    assert command == again


@given(st.binary(max_size=200))
def test_any_bytes_give_frames_or_one_clear_error(data: bytes) -> None:
    reader = FrameReader(frame_limit_bytes=1024)
    try:
        found = reader.feed(data)
    except FrameError as error:
        assert str(error)
    else:
        assert all(isinstance(command, Command) for command in found)
        assert reader.pending_bytes <= len(data)


@given(st.binary(max_size=120), st.sampled_from([0, 1]))
def test_any_header_gives_a_command_or_one_clear_error(header: bytes, kind: int) -> None:
    frame = struct.pack(">iI", 4 + len(header), kind << 24 | len(header)) + header
    try:
        (command,) = FrameReader().feed(frame)
    except FrameError as error:
        assert str(error)
    else:
        assert isinstance(command.code, int)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    ),
    st.sampled_from(["code", "language", "version", "opaque", "flag", "remark", "extFields"]),
)
def test_any_json_value_in_a_header_field_is_read_or_refused(value: object, name: str) -> None:
    import msgspec

    header = msgspec.json.encode({name: value})
    frame = struct.pack(">iI", 4 + len(header), len(header)) + header
    try:
        (command,) = FrameReader().feed(frame)
    except FrameError as error:
        assert str(error)
    else:
        assert all(isinstance(v, str) for v in (command.ext or {}).values())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack(">iI", 0, 0), "too small"),
        (struct.pack(">iI", -5, 0), "too small"),
        (struct.pack(">iI", 17 << 20, 10), "above the limit"),
        (struct.pack(">iI", 10, 7), "does not fit"),
        (struct.pack(">iI", 10, 9 << 24 | 4) + b"1234567890", "unknown header type 9"),
        (struct.pack(">iI", 6, 2) + b"[]", "Expected `object`"),
        (struct.pack(">iI", 4, 0), "cannot be read"),
        (struct.pack(">iI", 100_009, 100_005) + b'{"y":' + b"[" * 100_000, "cannot be read"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "TLS"),
    ],
)
def test_a_bad_frame_is_refused_with_its_reason(frame: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        FrameReader().feed(frame)


def test_a_header_above_its_limit_is_refused() -> None:
    with pytest.raises(FrameError, match="header of 2000 bytes is above the limit of 1000"):
        FrameReader(header_limit_bytes=1000).feed(struct.pack(">iI", 2004, 2000))


def test_other_clients_headers_are_read_tolerantly() -> None:
    header = (
        b'{"code":"10","language":9,"version":317,"opaque":5,"flag":0,"remark":"",'
        b'"extFields":{"a":1,"b":true,"c":null}}'
    )
    (command,) = FrameReader().feed(struct.pack(">iI", 4 + len(header), len(header)) + header)

    assert (10, "GO", 317, 5, "") == (command.code, command.language, command.version, command.opaque, command.remark)
    assert {"a": "1", "b": "true"} == command.ext


def test_the_fast_reply_is_the_same_frame_as_the_slow_one() -> None:
    to = request(11)
    slow = encode(response(to, 19, "PULL_NOT_FOUND", {"minOffset": "0"}, b"body"))
    assert slow == b"".join(reply(to.opaque or 0, 19, b'"minOffset":"0"', [b"bo", b"dy"], b"PULL_NOT_FOUND"))


def test_an_answer_filled_into_a_format_is_the_same_frame_too() -> None:
    framed_answer = framed(success_format(b'"queueId":"%d","msgId":"%b"') % (3, b"7F00", 17))
    expected = Command(ext={"queueId": "3", "msgId": "7F00"}, opaque=17, flag=1, version=CURRENT_VERSION)
    assert framed_answer == encode(expected)
    expected.code = 12
    assert with_code(framed_answer, 12) == encode(expected)


def test_missing_and_malformed_fields_name_themselves() -> None:
    command = request(11, {"queueId": "x", "big": str(1 << 64), "flag": "TRUE"})

    for name, expected in (("topic", "no field topic"), ("queueId", "not a number"), ("big", "64-bit")):
        with pytest.raises(CommandError, match=expected):
            required_int(command, name)
    with pytest.raises(CommandError, match="no field topic"):
        required(command, "topic")
    assert optional_bool(command, "flag") is True
    assert optional_bool(command, "queueId") is False
    assert optional_bool(command, "none") is None


def test_proxy_preambles_are_recognised() -> None:
    assert proxy_protocol.Preamble(0, None) == proxy_protocol.parse(b"\x00\x00\x00\x10" + b"x" * 12)
    line = b"PROXY TCP4 10.1.2.3 10.0.0.1 5555 9876\r\n"
    assert proxy_protocol.Preamble(len(line), ("10.1.2.3", 5555)) == proxy_protocol.parse(line + b"rest")
    assert proxy_protocol.parse(line[:20]) is None
    v2 = b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack(">BBH4s4sHH", 0x21, 0x11, 12, b"\x0a\1\2\3", b"\x0a\0\0\1", 5555, 9876)
    assert proxy_protocol.Preamble(28, ("10.1.2.3", 5555)) == proxy_protocol.parse(v2)
    with pytest.raises(proxy_protocol.PreambleError):
        proxy_protocol.parse(b"PROXY TCP4 nonsense\r\n")


@given(st.binary(min_size=12, max_size=130))
def test_any_first_bytes_are_a_preamble_or_not(data: bytes) -> None:
    for prefix in (b"", b"PROXY ", b"\r\n\r\n\x00\r\nQUIT\n"):
        try:
            found = proxy_protocol.parse(prefix + data)
        except proxy_protocol.PreambleError as error:
            assert str(error)
        else:
            assert found is None or found.length <= len(prefix + data)


@given(st.lists(commands, max_size=12), st.binary(max_size=30), st.integers(1, 5), st.integers(0, 400))
def test_commands_taken_a_few_at_a_time_are_the_same(some: list[Command], end: bytes, most: int, cut: int) -> None:
    data = b"".join(map(encode, some)) + end

    def read(most: int | None) -> tuple[list[Command], str, int]:
        reader, found = FrameReader(), list[Command]()
        try:
            for part in (data[:cut], data[cut:]):
                found += reader.feed(part) if most is None else reader.feed(part, most)
                while reader.left:
                    more = reader.more(most or 1)
                    assert len(more) <= (most or 1)
                    found += more
                if reader.error is not None:
                    raise reader.error
        except FrameError as error:
            return found, str(error), 0
        return found, "", reader.pending_bytes

    together, apart = read(None), read(most)
    for command in (*together[0], *apart[0]):
        command.opaque = command.opaque if (command.opaque or 0) < 1 << 30 else None  # stand-ins are counted up
    assert together == apart


@pytest.mark.parametrize("name", [":read", ":body", ":serialize"])
@pytest.mark.parametrize("code", ["10", '"10"'])
def test_no_header_sets_what_a_command_keeps_for_itself(name: str, code: str) -> None:
    header = f'{{"code":{code},"opaque":1,"flag":0,"{name}":"eA=="}}'.encode()
    (command,) = FrameReader().feed(framed(header))
    assert (10, b"", 0, None) == (command.code, command.body, command.serialize, command.read_ahead)
    (command,) = FrameReader().feed(framed(header, 1) + b"b")
    assert (10, b"b", 0, None) == (command.code, command.body, command.serialize, command.read_ahead)
